"""Tables, facts and JSON on standard output.

A terminal gets colours and a layout that fits its width. Anything else gets plain text in which
every row is one line and nothing is ever cut.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from privatekube_kfp.cli.errors import Failure, ReaderGone
from privatekube_kfp.core.unlocking import MICROSECONDS
from privatekube_kfp.ledger.times import format_time

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_UNBOUNDED = 1_000_000
_NARROWEST_PROSE = 30
_GAP = 2
_LONG_NUMBER = re.compile(r"^(-?\d+\.\d{4})\d{3,}$")
_STYLES = {
    "Active": "green",
    "Exhausted": "yellow",
    "Retired": "dim",
    "Pending": "yellow",
    "Allocated": "green",
    "Consumed": "cyan",
    "Released": "dim",
    "Denied": "red",
    "Done": "green",
    "Waiting": "yellow",
}


def write(text: str) -> None:
    """Write to standard output, now: a reader that is gone or a full disk shows here."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        message = f"cannot write to standard output: {error.strerror}"
        raise Failure("OutputFailed", message, on_output=False) from error


def print_json(document: Mapping[str, object]) -> None:
    write(json.dumps(document, indent=2) + "\n")


def say(sentence: str) -> None:
    write(sentence + "\n")


def short(amount: str) -> str:
    """An exact decimal as people write it: 0.0000001 as 1e-7."""
    value = Decimal(amount)
    if not value.is_finite() or not value or value.adjusted() >= -4:
        return amount
    return f"{value.normalize():e}"


def moment(microseconds: int) -> str:
    """A time as people read it: to the second."""
    return format_time(microseconds - microseconds % MICROSECONDS["s"])


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table with one row a line.

    A title that begins with > is of numbers, one that begins with ~ of sentences, which may wrap.
    On a terminal too narrow for the rest, numbers lose their last digits (and say so); if that is
    not enough, each row becomes a paragraph of facts.
    """
    names = [title.lstrip(">~") for title in titles]
    listed = [list(row) for row in rows]
    console = _console()
    for shown in (listed, [_cut_numbers(titles, row) for row in listed]):
        if _width(titles, [names, *shown]) <= console.width:
            _print(console, _table(titles, names, shown))
            return
    for number, row in enumerate(listed):
        if number:
            say("")
        print_facts([(name.lower(), cell) for name, cell in zip(names, row, strict=True)])


def _table(titles: Sequence[str], names: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = _new_table()
    table.show_header = True
    for title, name in zip(titles, names, strict=True):
        table.add_column(
            name,
            justify="right" if title.startswith(">") else "left",
            no_wrap=not title.startswith("~"),
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def _cut_numbers(titles: Sequence[str], row: Sequence[str]) -> list[str]:
    return [
        _LONG_NUMBER.sub(r"\1..", cell) if title.startswith(">") else cell
        for title, cell in zip(titles, row, strict=True)
    ]


def _width(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """What the table needs at least: sentences wrap, nothing else does."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, cells)) for cells in zip(*rows, strict=True)]
    needed = [
        min(width, _NARROWEST_PROSE) if title.startswith("~") else width
        for title, width in zip(titles, widths, strict=True)
    ]
    return sum(needed) + _GAP * (len(needed) - 1)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Names and values, one a line; a value that is empty is left out."""
    table = _new_table()
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        if value:
            table.add_row(_cell(name), _cell(value))
    _print(_console(), table)


def _console() -> Console:
    """Lays out for standard output; `_print` writes there, and tells when that fails."""
    # Here, since a command that prints JSON needs no rich.
    from rich.console import Console

    output = Console(file=sys.stdout)
    return Console(
        file=io.StringIO(),
        force_terminal=output.is_terminal,
        width=output.width if output.is_terminal else _UNBOUNDED,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _new_table() -> Table:
    from rich.table import Table

    return Table(
        box=None, show_header=False, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0)
    )


def _cell(text: str) -> RenderableType:
    from rich.text import Text

    return Text(text, style=_STYLES.get(text, ""))


def _print(console: Console, table: Table) -> None:
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    write("".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines()))
