"""From a table of reviews to what is trained on: numbers of words, labels, units.

Rows that cannot be learnt from (a category that is not in the list, no rating) are left out, each
by itself, so that one unit's rows change nobody else's. How many that were is known to whoever may
see the data, and is no error, which others could see: the list of categories is public, the data
are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.bounds import Ints, Mask
from privatekube_kfp.data.settings import DEFAULT_PER_USER, DEFAULT_PER_USER_PER_DAY
from privatekube_kfp.dp.architectures import Architecture, Task
from privatekube_kfp.dp.units import Units, numbered, units_of
from privatekube_kfp.ledger.streams import Semantic

GOOD_RATING = 4
_NO_LABEL = -1


class Reader(Protocol):
    """Texts to numbers of words: `Embeddings`, or BERT's tokenizer."""

    def ids(self, texts: Iterable[str | None], length: int) -> Ints: ...


@dataclass(frozen=True)
class Examples:
    """Reviews with a label, as a model reads them, and whose they are."""

    ids: Ints
    labels: Ints
    units: Units
    left_out: int = 0
    """How many rows had no label or were beyond a unit's bounds; for whoever may see the data."""
    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Where in the table they are, if they are from one."""


def examples(
    table: pa.Table,
    row: Architecture,
    reader: Reader,
    semantic: Semantic,
    *,
    categories: Sequence[str] = (),
    periods: Ints | None = None,
    only: Mask | None = None,
    per_day: int = DEFAULT_PER_USER_PER_DAY,
    per_user: int = DEFAULT_PER_USER,
) -> Examples:
    """What this model learns from these rows.

    Args:
        table: With `user`, `time` (or `timestamp`, in seconds), `text`, and `category` or `rating`.
        row: The model.
        reader: What turns texts into numbers.
        semantic: The stream's.
        categories: For the task product: the public list of categories, in the order of labels.
        periods: See `units_of`.
        only: Which rows to take, such as those that are not held out.
        per_day: See `units_of`.
        per_user: See `units_of`.
    """
    labels = labels_of(table, row, categories)
    wanted = labels != _NO_LABEL
    if only is not None:
        wanted &= only
    (kept,) = np.nonzero(wanted)
    users, _ = numbered(_column(table, "user"))
    units = units_of(
        semantic,
        users[kept],
        times_of(table)[kept],
        None if periods is None else periods[kept],
        per_day=per_day,
        per_user=per_user,
    )
    # Rows beyond the bounds are never read, and the others lie in the order of their units.
    kept = kept[units.rows]
    texts = _column(table, "text").take(pa.array(kept)).to_pylist()
    asked = table.num_rows if only is None else int(only.sum())
    return Examples(
        reader.ids(texts, row.length),
        labels[kept],
        Units(np.arange(len(kept)), units.offsets),
        asked - len(kept),
        kept,
    )


def labels_of(table: pa.Table, row: Architecture, categories: Sequence[str]) -> Ints:
    """The category's place in the list, or 1 for a good rating and 0 for another; -1 for none."""
    if row.task is Task.PRODUCT:
        row.check_categories(categories)
        found = pc.index_in(_column(table, "category"), pa.array(categories, pa.string()))
        return _filled(found)
    ratings = _column(table, "rating")
    try:
        ratings = ratings.cast(pa.float64())
    except pa.ArrowInvalid:
        raise Invalid(Reason.WRONG_COLUMNS, "there are ratings that are no numbers") from None
    known = pc.and_(pc.greater_equal(ratings, 1), pc.less_equal(ratings, 5))
    good = pc.greater_equal(ratings, GOOD_RATING).cast(pa.int64())
    return _filled(pc.if_else(known, good, None))


def times_of(table: pa.Table) -> Ints:
    """In microseconds: `time`, as ingest writes it, or `timestamp`, in seconds."""
    if "time" in table.column_names:
        return _array(table["time"].cast(pa.timestamp("us", "UTC")))
    return _array(_column(table, "timestamp")) * 1_000_000


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise Invalid(
            Reason.WRONG_COLUMNS,
            f"the data have no column {name!r}; there are {', '.join(table.column_names)}",
        )
    return table[name]


def _filled(labels: pa.ChunkedArray) -> Ints:
    return _array(pc.fill_null(labels.cast(pa.int64()), _NO_LABEL))


def _array(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column.cast(pa.int64()).to_numpy(), np.int64)
