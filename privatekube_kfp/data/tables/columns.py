"""From a file's columns to those of every table: a user, a time, the payload, constants.

A reader says which columns its file has (`chosen`), and cuts the file into pieces. Here they become
batches of good rows.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from privatekube_kfp.data.tables.arrays import cast_or_fault, mask, plain, plain_type, without_empty
from privatekube_kfp.data.tables.bad_rows import BadRow, Faults, Note, fault
from privatekube_kfp.data.tables.layout import TIME, TYPES, USER, Layout, twice
from privatekube_kfp.data.tables.refusals import wrong_columns
from privatekube_kfp.data.tables.times import MOMENT, times


class Piece(NamedTuple):
    """Rows as a file has them, with the numbers that people count them by."""

    rows: pa.RecordBatch
    numbers: Sequence[int] | npt.NDArray[np.int64]
    bytes_read: int
    rows_read: int
    faults: Faults


class Column(NamedTuple):
    """Of the payload: what the file calls it, and what it becomes."""

    source: str
    name: str
    type: pa.DataType


class Columns:
    """From a file's columns to those of every table: a user, a time, the payload, constants."""

    def __init__(self, layout: Layout, payload: Sequence[Column]) -> None:
        self._layout = layout
        self._payload = payload
        self._constants = [
            (name, pa.scalar(value, pa.string())) for name, value in layout.constants
        ]
        columns = [layout.user, layout.time, *(column.source for column in payload)]
        self.sources = list(dict.fromkeys(columns))
        """What is read of the file."""
        self.schema = pa.schema(
            [(USER, pa.string()), (TIME, MOMENT)]
            + [(column.name, column.type) for column in payload]
            + [(name, pa.string()) for name, _ in layout.constants]
        )

    def normal(self, piece: Piece, note: Note) -> pa.RecordBatch:
        """The good rows of a piece."""
        raw, faults = piece.rows, dict(piece.faults)
        arrays = [
            _users(plain(raw.column(self._layout.user)), faults),
            times(plain(raw.column(self._layout.time)), self._layout.time_unit, faults),
        ]
        arrays += [
            _typed(plain(raw.column(column.source)), column.type, faults)
            for column in self._payload
        ]
        arrays += [pa.repeat(value, raw.num_rows) for _, value in self._constants]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if not faults:
            return rows
        good = np.ones(raw.num_rows, bool)
        for kind in BadRow:
            if kind in faults and (here := good & faults[kind]).any():
                note(kind, int(here.sum()), int(piece.numbers[int(here.argmax())]))
                good &= ~here
        return rows.filter(pa.array(good))


def chosen(
    layout: Layout,
    shown: str,
    fields: Sequence[tuple[str, pa.DataType]],
    *,
    json_text: Container[str] = (),
    optional: bool = False,
) -> Columns:
    """The columns that are read of a file that has these.

    Those of `json_text` are lists and objects, though their type is text. With `optional`, columns
    whose type is declared need not be there.
    """
    present = dict(fields)
    declared = dict(layout.types)
    renamed = dict(layout.rename)
    if layout.keep is not None:
        names = expected = list(layout.keep)
    else:
        expected = list(dict.fromkeys([*renamed.values(), *declared]))
        names = [
            renamed.get(source, source)
            for source, kind in present.items()
            if source not in (layout.user, layout.time)
            and (source in renamed or not (pa.types.is_nested(kind) or source in json_text))
        ]
        names += [name for name in declared if optional and name not in names]
    needed = [layout.user, layout.time] + [
        layout.in_file(name) for name in expected if not (optional and name in declared)
    ]
    if missing := [name for name in needed if name not in present]:
        raise wrong_columns(
            f"{shown} has no column {', '.join(missing)}. Its columns are {_listed(list(present))}"
        )
    if clash := twice([USER, TIME, *names, *(name for name, _ in layout.constants)]):
        raise wrong_columns(
            f"{shown} would have two columns {clash[0]}; rename one of them, or leave it out"
        )
    payload = []
    for name in names:
        source = layout.in_file(name)
        kind = present.get(source, pa.null())
        if name in declared:
            if pa.types.is_nested(kind):
                raise wrong_columns(f"column {source} of {shown} is {kind}, not {declared[name]}")
            kind = TYPES[declared[name]]
        payload.append(Column(source, name, plain_type(kind)))
    columns = Columns(layout, payload)
    for name in twice(name for name, _ in fields):
        if name in columns.sources:
            raise wrong_columns(f"{shown} has several columns {name}")
    return columns


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:50]) + (f" and {len(names) - 50} more" if len(names) > 50 else "")


def _typed(values: pa.Array, kind: pa.DataType, faults: Faults) -> pa.Array:
    if values.type == kind:
        return values
    if pa.types.is_string(values.type):
        # What CSV leaves empty is nothing, where it is not text.
        values = without_empty(values)
    return cast_or_fault(values, kind, BadRow.WRONG_TYPE, faults)


def _users(values: pa.Array, faults: Faults) -> pa.Array:
    if not pa.types.is_string(values.type):
        values = cast_or_fault(values, pa.string(), BadRow.MALFORMED, faults)
    lengths = pc.binary_length(values)
    if values.null_count or pc.min(lengths).as_py() == 0:
        fault(faults, BadRow.NO_USER, ~mask(pc.greater(lengths, 0).fill_null(False)))
    return values
