"""The logs of tasks: what of them is worth showing to people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_CHATTER = "[KFP Executor "
_INPUTS = "Got executor_input:"
_AT_MOST = 64 * 1024


class OwnLines:
    """Tells the lines that a task itself wrote from kfp's own, which hold all inputs."""

    def __init__(self) -> None:
        self._inside_inputs = False

    def among(self, lines: Iterable[str]) -> list[str]:
        return [line for line in lines if self._is_own(line)]

    def _is_own(self, line: str) -> bool:
        if self._inside_inputs:
            self._inside_inputs = line != "}"
            return False
        if line.startswith(_CHATTER):
            self._inside_inputs = line.endswith(_INPUTS)
            return False
        return True


def last_lines(log: Path, count: int = 20) -> list[str]:
    """The last lines of a task's log that say something; the last of all is its reason to fail."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            start = max(0, file.tell() - _AT_MOST)
            file.seek(start)
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    lines = text.splitlines()
    if start:
        lines = lines[1:]
    return [line.rstrip() for line in OwnLines().among(lines) if line.strip()][-count:]
