"""`privatekube ingest`: bring tables into a stream's private blocks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from privatekube_kfp.cli.errors import needing_pyarrow, reading_the_command_line
from privatekube_kfp.cli.options import json_option, ledger_option, with_options
from privatekube_kfp.cli.output import print_facts, say
from privatekube_kfp.cli.session import Session
from privatekube_kfp.cli.values import DURATION, STREAM_NAME, TIME, WHOLE, WORDS, Value, invalid

if TYPE_CHECKING:
    from privatekube_kfp.data.ingest import Report
    from privatekube_kfp.data.tables import Layout

_LAYOUTS = ("columns", "amazon-json", "amazon-csv-2014", "amazon-csv-2018")
_DOING = {
    "reading": "reading",
    "sorting": "sorting by blocks",
    "writing": "writing blocks",
    "registering": "registering blocks",
}


def _constant(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise invalid(f"{text!r} is not a column and its value; write it like category=books")
    return name, value


def _layout(
    layout: str,
    user: str | None,
    time: str | None,
    time_unit: str | None,
    keep: tuple[str, ...],
    constant: tuple[tuple[str, str], ...],
    format: str | None,
) -> Layout:
    with needing_pyarrow():
        from privatekube_kfp.data.tables import layout_named

    with reading_the_command_line():
        return layout_named(layout).but(
            user=user,
            time=time,
            time_unit=time_unit,
            keep=keep,
            constants=constant,
            format=format,
        )


def _layout_options(command: Callable[..., None]) -> Callable[..., None]:
    """Which columns hold what; the command gets one `layout`."""
    options = {
        "layout": click.option(
            "--layout",
            type=click.Choice(_LAYOUTS),
            default="columns",
            help="What a row looks like.",
        ),
        "user": click.option("--user", metavar="COLUMN", help="The column of users."),
        "time": click.option("--time", metavar="COLUMN", help="The column of times."),
        "time_unit": click.option(
            "--time-unit", type=click.Choice(["s", "ms", "us"]), help="Of times that are numbers."
        ),
        "keep": click.option(
            "--keep", metavar="COLUMN", multiple=True, help="Keep only such columns of the others."
        ),
        "constant": click.option(
            "--constant",
            type=Value("NAME=VALUE", _constant),
            multiple=True,
            help="A column to add, with the same value in every row.",
        ),
        "format": click.option(
            "--format",
            type=click.Choice(["parquet", "csv", "json"]),
            help="If the file's name does not say it.",
        ),
    }
    return with_options(command, options, "layout", _layout)


def _settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """How the stream is divided; for the first time, and the same ever after."""
    options = {
        "start": click.option(
            "--start", type=TIME, help="When the stream begins. Needed the first time."
        ),
        "interval": click.option(
            "--interval", type=DURATION, help="How long a period is.  [default: 1d]"
        ),
        "group_size": click.option(
            "--group-size", type=WHOLE, help="Users that share a block, at least.  [default: 1000]"
        ),
        "per_user_per_day": click.option(
            "--per-user-per-day", type=WHOLE, help="Rows of a user and day.  [default: 20]"
        ),
        "per_user": click.option(
            "--per-user", type=WHOLE, help="Rows of a user in a block.  [default: 100]"
        ),
        "confidence": click.option(
            "--confidence",
            metavar="PROBABILITY",
            help="How sure the count's bounds are.  [default: 0.999]",
        ),
    }
    return with_options(command, options, "settings", lambda **said: said)


@click.command(short_help="Bring tables into a stream's private blocks.")
@click.argument("sources", type=WORDS, metavar="SOURCE...", nargs=-1, required=True)
@click.option("--stream", type=STREAM_NAME, required=True, help="The stream that the data are of.")
@click.option("--to", type=WORDS, metavar="URI", required=True, help="The private place for them.")
@click.option("--until", type=TIME, help="Up to when the data are all there.")
@_settings_options
@_layout_options
@click.option("--max-bad-rows", type=WHOLE, default=1000, help="Stop if more rows are bad.")
@ledger_option
@json_option
@click.pass_obj
def ingest(
    session: Session,
    sources: tuple[str, ...],
    stream: str,
    to: str,
    until: int | None,
    layout: Layout,
    max_bad_rows: int,
    settings: dict[str, Any],
) -> None:
    """Bring the rows of each SOURCE into blocks of a stream, and register these.

    Sources are Parquet, CSV or JSON lines (also .gz), at paths or URIs such as s3://raw/today.json.
    Their data go to Parquet files at the URI given with --to, which is private, as is all else that
    is remembered there. Only what is differentially private or depends on no data is published.

    Blocks of periods before --until (all that are over, if it is left out) can be asked for
    afterwards. What is of later periods waits: give it again then. The same rows twice are added
    once, and an ingest that was interrupted goes on when it is run again.

    \b
    Examples:
      privatekube ingest reviews.parquet --stream reviews --to store \\
          --start 2018-01-01 --until 2018-04-01
      privatekube ingest Books_5.json.gz --stream reviews --to store --layout amazon-json \\
          --constant category=books --start 1996-05-01 --until 2018-10-01 --interval 30d
    """
    with needing_pyarrow():
        from privatekube_kfp.data.ingest import ingest as bring_in
        from privatekube_kfp.data.tables import BadRows, Source

    bad_rows = BadRows(limit=max_bad_rows)
    with session.ledger() as ledger, _shown() as told:
        report = bring_in(
            ledger,
            stream,
            [Source(source, layout) for source in sources],
            to,
            until=until,
            bad_rows=bad_rows,
            told=told,
            **settings,
        )
    session.answer({**report.public(), "rows": dict(report.rows)}, lambda: _print(report, bad_rows))


def _print(report: Report, bad_rows: Any) -> None:
    say(report.in_words())
    say("")
    say("For whoever may see the data:")
    rows = dict(report.rows)
    facts = [("rows read", "read"), ("added", "added"), ("there before", "duplicates")]
    facts += [("beyond a user's bounds", "beyond bounds"), ("for later", "later")]
    facts += [("before the start", "earlier")]
    shown = [(name, str(rows.pop(key, 0))) for name, key in facts]
    print_facts(
        [
            *shown[:2],
            *((name, value) for name, value in shown[2:] if value != "0"),
            ("bad", str(bad_rows)),
        ]
    )


@contextmanager
def _shown() -> Iterator[Callable[[str, int, int], None]]:
    """Shows how it goes on: a bar at a terminal, a line for each thing to do elsewhere."""
    if sys.stderr is None or not sys.stderr.isatty():
        begun: list[str] = []

        def a_line(doing: str, done: int, of: int) -> None:
            if begun[-1:] != [doing]:
                begun.append(doing)
                with suppress(OSError, ValueError, AttributeError):
                    print(f"{_DOING[doing]} ...", file=sys.stderr, flush=True)

        yield a_line
        return
    # Here, since only a terminal needs it.
    from rich.console import Console
    from rich.progress import Progress, TimeRemainingColumn

    bars = Progress(
        *Progress.get_default_columns()[:-1],
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    tasks: dict[str, Any] = {}

    def a_bar(doing: str, done: int, of: int) -> None:
        if doing not in tasks:
            tasks[doing] = bars.add_task(_DOING[doing], total=of)
        with suppress(OSError, ValueError):
            bars.update(tasks[doing], completed=done, total=of)

    with bars:
        yield a_bar
