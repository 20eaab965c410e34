"""Parquet: row groups that are not needed are passed over, the others read a few pages at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import pyarrow as pa
import pyarrow.parquet as parquet

from privatekube_kfp.data.tables import sizes
from privatekube_kfp.data.tables.arrays import cast_or_fault, plain, plain_type
from privatekube_kfp.data.tables.bad_rows import BadRow, Faults, Note
from privatekube_kfp.data.tables.columns import Piece, chosen
from privatekube_kfp.data.tables.files import File
from privatekube_kfp.data.tables.layout import Layout
from privatekube_kfp.data.tables.refusals import unreadable, wrong_columns


class ParquetReader:
    counted_in = "row"

    def __init__(self, file: File, layout: Layout) -> None:
        self._file = file
        if file.size and file.size < 12:
            raise unreadable(file.shown, "it is not Parquet")
        with _opened(file) as table:
            schema = table.schema_arrow
        self.columns = chosen(
            layout, file.shown, list(zip(schema.names, schema.types, strict=True))
        )
        for name, what, can_be in (
            (layout.user, "a user", _can_be_user),
            (layout.time, "a time", _can_be_time),
        ):
            kind = schema.field(name).type
            if not can_be(plain_type(kind)):
                raise wrong_columns(
                    f"column {name} of {file.shown} is {kind}, which is no type of {what}"
                )

    def pieces(self, skip: int, note: Note) -> Iterator[Piece]:
        with _opened(self._file) as table:
            total = table.metadata.num_rows
            counts = [table.metadata.row_group(n).num_rows for n in range(table.num_row_groups)]
            done = group = 0
            while group < len(counts) and done + counts[group] <= skip:
                done += counts[group]
                group += 1
            for batch in self._batches(table, range(group, len(counts))):
                start, done = done, done + batch.num_rows
                if done <= skip:
                    continue
                if start < skip:
                    batch, start = batch.slice(skip - start), skip
                for rows in sizes.bounded(batch):
                    start += rows.num_rows
                    numbers = range(start - rows.num_rows + 1, start + 1)
                    read = self._file.size * start // total
                    yield Piece(rows, numbers, read, start, _not_text(rows))

    def _batches(
        self, table: parquet.ParquetFile, groups: Sequence[int]
    ) -> Iterator[pa.RecordBatch]:
        """As many rows at once as fit, judged by what the file says and by its first rows."""
        if not groups:
            return
        wanted = {"row_groups": list(groups), "columns": self.columns.sources}
        about = [table.metadata.row_group(group) for group in groups]
        at_once = min(_that_fit(group.num_rows, group.total_byte_size) for group in about)
        probe = next(table.iter_batches(min(at_once, 256), **wanted), None)
        if probe is not None:
            at_once = min(at_once, _that_fit(probe.num_rows, probe.nbytes))
        yield from table.iter_batches(at_once, **wanted)


@contextmanager
def _opened(file: File) -> Iterator[parquet.ParquetFile]:
    """Reads pages as they are needed, not whole row groups."""
    with (
        nullcontext(file.path) if file.is_local else file.open() as opened,
        parquet.ParquetFile(opened, pre_buffer=False, buffer_size=sizes.BLOCK) as table,
    ):
        yield table


def _that_fit(rows: int, size: int) -> int:
    """How many rows fit in a batch, where so many have this size."""
    if not rows or not size:
        return sizes.MOST_ROWS
    return max(1, min(sizes.MOST_ROWS, sizes.MOST_BYTES * rows // size))


def _can_be_user(kind: pa.DataType) -> bool:
    of = pa.types
    return any(check(kind) for check in (of.is_string, of.is_binary, of.is_integer))


def _can_be_time(kind: pa.DataType) -> bool:
    of = pa.types
    numbers = (of.is_integer, of.is_floating, of.is_decimal)
    return any(check(kind) for check in (*numbers, of.is_timestamp, of.is_date, of.is_string))


def _not_text(rows: pa.RecordBatch) -> Faults:
    """Parquet does not check that text is UTF-8."""
    try:
        rows.validate(full=True)
        return {}
    except pa.ArrowInvalid:
        faults: Faults = {}
        for column in map(plain, rows.columns):
            if pa.types.is_string(column.type):
                cast_or_fault(column.cast(pa.binary()), pa.string(), BadRow.MALFORMED, faults)
        return faults
