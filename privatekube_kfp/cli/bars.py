"""Progress bars of commands that work through a known number of things."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """At a terminal, a bar on standard error; nothing that goes wrong with it ends the work.

    What it gives is called with how many more are done.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda more: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    columns = (what, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    shown = Progress(*columns, console=Console(stderr=True), transient=True)
    task = shown.add_task(what, total=total)

    def advance(more: int) -> None:
        with suppress(OSError, ValueError):
            shown.advance(task, more)

    with suppress(OSError, ValueError):
        shown.start()
    try:
        yield advance
    finally:
        with suppress(OSError, ValueError):
            shown.stop()
