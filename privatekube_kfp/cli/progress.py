"""Progress of a run, on standard error: live at a terminal, a line per event elsewhere.

Nothing that goes wrong in showing progress ends a run: whoever watched may be gone.
"""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privatekube_kfp.local.logs import OwnLines

if TYPE_CHECKING:
    from rich.live import Live

_MARKS = {"completed": ("✓", "green"), "cached": ("✓", "dim"), "failed": ("✗", "red")}


class Progress:
    """Shows tasks as they start and end; with `verbose`, what they print as well."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._running: dict[str, float] = {}
        self._attempt: dict[str, int] = {}
        self._logs: dict[str, _Tail] = {}
        self._spinners: dict[str, Any] = {}
        self._live = _live() if sys.stderr is not None and sys.stderr.isatty() else None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            with suppress(OSError, ValueError):
                self._live.stop()

    def event(self, event: Mapping[str, Any]) -> None:
        task, kind = event["task"], event["event"]
        if kind in ("started", "retried"):
            self._running.setdefault(task, time.monotonic())
            self._attempt[task] = event.get("attempt", 1)
            if self._verbose and task not in self._logs:
                self._logs[task] = _Tail(Path(event["log"]))
            if self._live is None:
                word = "started" if kind == "started" else f"attempt {event['attempt']}"
                self._line(task, word)
        else:
            self._show_logs()
            self._logs.pop(task, None)
            since = self._running.pop(task, None)
            took = "" if since is None else f" in {_duration(time.monotonic() - since)}"
            words = {"completed": f"done{took}", "cached": "done before", "failed": f"failed{took}"}
            self._line(task, words[kind], kind)
        self.tick()

    def tick(self) -> None:
        self._show_logs()
        if self._live is not None:
            with suppress(OSError, ValueError):
                self._live.update(self._table(), refresh=False)

    def _show_logs(self) -> None:
        for task, tail in self._logs.items():
            for line in tail.read():
                self._line(task, line, "said")

    def _line(self, task: str, words: str, kind: str = "") -> None:
        with suppress(OSError, ValueError):
            if self._live is not None:
                from rich.text import Text

                mark, style = _MARKS.get(kind, ("|", "dim"))
                text = Text.assemble((mark, style), f" {task}  ", (words, style))
                self._live.console.print(text, soft_wrap=True)
            else:
                separator = " | " if kind == "said" else ": "
                print(f"{task}{separator}{words}", file=sys.stderr, flush=True)

    def _table(self) -> Any:
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        for task, since in self._running.items():
            words = _duration(time.monotonic() - since)
            if self._attempt.get(task, 1) > 1:
                words += f", attempt {self._attempt[task]}"
            spinner = self._spinners.setdefault(task, Spinner("dots"))
            table.add_row(spinner, Text(task), Text(words, style="dim"))
        return table


class _Tail:
    """What has been added to a log since it was last read, in whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # A task that is tried again in a later process adds to its log.
        self._position = path.stat().st_size if path.exists() else 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._begun = ""
        self._own = OwnLines()

    def read(self) -> list[str]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                more = file.read()
        except OSError:
            return []
        self._position += len(more)
        *lines, self._begun = (self._begun + self._decoder.decode(more)).split("\n")
        return self._own.among(lines)


def _live() -> Live:
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    return Live(console=console, refresh_per_second=8, transient=True)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
