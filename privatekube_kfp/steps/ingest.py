"""Ingest as a step of a pipeline: tables come in, and only what is public comes out.

Logs, parameters and artifacts of Kubeflow are read by people who may not see the data. So nothing
here tells true counts, row numbers, or what a file holds, failures included: `privatekube ingest`
tells those, to whoever runs it where the data are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.core.unlocking import parse_duration
from privatekube_kfp.data.ingest import ingest as bring_in
from privatekube_kfp.data.tables import DEFAULT_LIMIT, BadRows, Layout, Source, layout_named
from privatekube_kfp.ledger.times import parse_time
from privatekube_kfp.steps.report import report_on_ingest
from privatekube_kfp.steps.run import (
    Artifact,
    in_a_sentence,
    ledger_of_run,
    where_it_failed,
    write_page,
)

_SEE = "; run `privatekube ingest` where the data are to see"
_OF_THE_STORE = (FileNotFoundError, PermissionError, ImportError)
"""What a store says before anything is read: that can be told."""


@in_a_sentence
def ingest(
    report: Artifact,
    *,
    stream: str,
    sources: Sequence[str],
    to: str,
    start: str = "",
    until: str = "",
    interval: str = "",
    layout: str = "columns",
    user_column: str = "",
    time_column: str = "",
    time_unit: str = "",
    keep: Sequence[str] = (),
    constants: Mapping[str, str] | None = None,
    format: str = "",
    group_size: int = 0,
    per_user_per_day: int = 0,
    per_user: int = 0,
    confidence: str = "",
    max_bad_rows: int = DEFAULT_LIMIT,
) -> tuple[str, int]:
    """Bring tables into a stream's blocks: up to when they are whole, and how many are new.

    A crash leaves nothing that is seen, or what the next attempt finishes.
    """
    asked = layout_named(layout).but(
        user=user_column,
        time=time_column,
        time_unit=time_unit,
        keep=_texts("keep", keep),
        constants=tuple(zip(constants or {}, _texts("constants", constants or {}), strict=True)),
        format=format,
    )
    settings: dict[str, Any] = {
        "start": parse_time(start, "start") if start else None,
        "interval": parse_duration(interval, "interval") if interval else None,
        "group_size": group_size or None,
        "per_user_per_day": per_user_per_day or None,
        "per_user": per_user or None,
        "confidence": confidence or None,
    }
    reached = parse_time(until, "until") if until else None
    if max_bad_rows < 0:
        raise _invalid(f"max_bad_rows is {max_bad_rows}; it must be 0 or more")
    with ledger_of_run() as ledger:
        tables = _opened(_texts("sources", sources), asked)
        with _untold("one of the sources, or what was brought in before,", max_bad_rows):
            done = bring_in(
                ledger,
                stream,
                tables,
                to,
                until=reached,
                bad_rows=BadRows(limit=max_bad_rows),
                **settings,
            )
    public, blocks = done.public(), list(done.new_blocks)
    print(done.in_words())
    write_page(report, report_on_ingest(public, blocks))
    return public["until"], len(blocks)


def _texts(name: str, given: Sequence[str] | Mapping[str, str]) -> tuple[str, ...]:
    """The texts of a list, or the values of a dictionary; Kubeflow lets them be anything."""
    texts = tuple(given.values() if isinstance(given, Mapping) else given)
    if isinstance(given, str) or not all(isinstance(text, str) and text for text in texts):
        raise _invalid(f"{name} must hold texts, and none that is empty")
    return texts


def _opened(uris: Sequence[str], layout: Layout) -> list[Source]:
    tables = []
    for number, uri in enumerate(uris, start=1):
        # Not by its URI: that may have a password in it.
        with _untold(f"source {number} of {len(uris)}"):
            tables.append(Source(uri, layout))
    return tables


@contextmanager
def _untold(what: str, limit: int = DEFAULT_LIMIT) -> Iterator[None]:
    """Errors that know what is in the data, without it."""
    try:
        yield
    except PrivateKubeError as error:
        match error.reason:
            case Reason.TOO_MANY_BAD_ROWS:
                why = f"more rows are bad than the limit of {limit}{_SEE} which"
            case Reason.WRONG_COLUMNS:
                why = f"{what} has other columns than it must have{_SEE} which"
            case Reason.DATA_UNREADABLE if not isinstance(error.__cause__, _OF_THE_STORE):
                why = f"{what} cannot be read{_SEE} why"
            case _:
                raise
        raise PrivateKubeError(error.reason, why) from None
    except Exception as error:
        where = where_it_failed(error)
        raise PrivateKubeError(
            Reason.DATA_UNREADABLE, f"{what} could not be worked on ({where}){_SEE} why"
        ) from None


def _invalid(message: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, message)
