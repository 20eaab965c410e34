"""The worker's process group, and the signals that end a run early."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

_GRACE = 5.0
_PROC = Path("/proc")


class Signals:
    """Notes the first signal that asks to end, in place of ending; back as it was afterwards.

    A signal that whoever started us has told us to ignore stays ignored.
    """

    _WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        for number in self._WATCHED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.received = self.received or signal.Signals(number)


def end_group(leader: subprocess.Popen[bytes], *, gently: bool) -> None:
    """End a process group, leader and all; returns when none of it runs any more.

    The leader is waited for last: while it is not, no other group can have its number.
    """
    group = leader.pid
    if gently:
        _send(group, signal.SIGTERM)
        _wait_until(lambda: not _runs(group), _GRACE)
    _send(group, signal.SIGKILL)
    _wait_until(lambda: not _runs(group), _GRACE)
    leader.wait()


def _send(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _wait_until(done: Callable[[], bool], seconds: float) -> None:
    give_up = time.monotonic() + seconds
    while not done() and time.monotonic() < give_up:
        time.sleep(0.02)


def _runs(group: int) -> bool:
    """Whether a process of the group runs. One that ended and waits to be reaped does not."""
    if not (_PROC / "self/stat").exists():
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True
    with os.scandir(_PROC) as entries:
        for entry in entries:
            if not entry.name.isdigit():
                continue
            with suppress(OSError):
                said = Path(entry.path, "stat").read_text(errors="replace")
                # After the program's name, which may hold anything: state, parent, group.
                state, _, number = said.rpartition(")")[2].split()[:3]
                if int(number) == group and state not in ("Z", "X"):
                    return True
    return False
