"""CSV: pyarrow's parser decides what is a row; here every row gets its number, bad ones too."""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from privatekube_kfp.data.tables import sizes
from privatekube_kfp.data.tables.arrays import mask
from privatekube_kfp.data.tables.bad_rows import BadRow, Faults, Note, fault
from privatekube_kfp.data.tables.columns import Piece, chosen
from privatekube_kfp.data.tables.files import NOT_TEXT, File, Text
from privatekube_kfp.data.tables.layout import Layout
from privatekube_kfp.data.tables.refusals import unreadable, wrong_columns


class CsvReader:
    counted_in = "row"

    def __init__(self, file: File, layout: Layout) -> None:
        self._file = file
        self._header = layout.header
        self._names = list(layout.header or self._first_line())
        known = {layout.user, layout.time, *(old for old, _ in layout.rename), *(layout.keep or ())}
        if not known & set(self._names):
            # It may be a row, and then it is nobody's business.
            raise wrong_columns(
                f"the first line of {file.shown} names none of the columns"
                f" {', '.join(sorted(known))}. Say what its columns are called, or their names if"
                " it has no line of them"
            )
        self.columns = chosen(layout, file.shown, [(name, pa.string()) for name in self._names])

    def _first_line(self) -> list[str]:
        with self._file.text() as text:
            lines = io.TextIOWrapper(io.BufferedReader(text), encoding="utf-8", newline="")
            try:
                for names in csv.reader(lines):
                    if names:
                        return names
            except csv.Error:
                raise unreadable(self._file.shown, "its first line is not CSV") from None
            finally:
                lines.detach()
        raise unreadable(self._file.shown, "it is empty")

    def pieces(self, skip: int, note: Note) -> Iterator[Piece]:
        """A row that is longer than a block makes us begin again with longer blocks."""
        block = sizes.BLOCK
        while True:
            reading = _CsvReading(self._file, self._names, self._header is None, block)
            try:
                for piece in reading.pieces(skip, note):
                    yield piece
                    skip = piece.rows_read
                return
            except _RowTooLong:
                if block >= sizes.LONGEST_LINE:
                    raise unreadable(
                        self._file.shown,
                        f"a value after row {skip} does not end: a quote is not closed, or it is"
                        f" longer than {sizes.LONGEST_LINE // 2**20} MB",
                    ) from None
                block = min(8 * block, sizes.LONGEST_LINE)


class _RowTooLong(Exception):
    """A row does not fit in a block."""


class _CsvReading:
    """One pass over a CSV file, in blocks of one size."""

    def __init__(self, file: File, names: list[str], first_line: bool, block: int) -> None:
        self._file = file
        self._names = names
        self._first_line = first_line
        self._block = block
        self._unusable: deque[tuple[int, int]] = deque()
        """Rows with too many or too few columns: their number, and how many lines they have."""

    def _leave_out(self, row: Any) -> str:
        number = row.number - self._first_line
        self._unusable.append((number, len(re.findall(r"\r\n?|\n", row.text)) + 1))
        return "skip"

    def pieces(self, skip: int, note: Note) -> Iterator[Piece]:
        with self._file.text(counts_quotes=True) as text:
            done = 0
            last: pa.RecordBatch | None = None
            for rows in self._parts(text):
                start = done
                numbers, done = self._numbered(rows.num_rows, done, skip, note)
                last = rows.slice(rows.num_rows - 1) if rows.num_rows else last
                if done <= skip or done == start:
                    continue
                if start < skip:
                    first = int(np.searchsorted(numbers, skip + 1))
                    rows, numbers = rows.slice(first), numbers[first:]
                faults = _marked(rows) if text.marked else {}
                yield Piece(rows, numbers, text.bytes_read, done, faults)
            if text.quotes % 2 and last is not None and _has_lines(last):
                raise unreadable(
                    self._file.shown,
                    "a quote is not closed, and the rows after it may have been taken for a part"
                    " of its value",
                )

    def _numbered(
        self, count: int, done: int, skip: int, note: Note
    ) -> tuple[npt.NDArray[np.int64], int]:
        """The numbers of so many rows after `done`, among which there may be unusable ones.

        Where a row is unusable, all its lines are counted: a quote that is not closed must not
        hide how many rows are lost.
        """
        numbers: list[npt.NDArray[np.int64]] = []
        while True:
            until = min(done + count, self._unusable[0][0] - 1) if self._unusable else done + count
            numbers.append(np.arange(done + 1, until + 1))
            count -= until - done
            done = until
            if not self._unusable or self._unusable[0][0] != done + 1:
                return np.concatenate(numbers), done
            number, lines = self._unusable.popleft()
            if number > skip:
                note(BadRow.MALFORMED, lines, number)
            done = number

    def _parts(self, text: Text) -> Iterator[pa.RecordBatch]:
        """The rows, and in the end none: after the last there may be unusable ones."""
        names = None if self._first_line else self._names
        options = {
            "read_options": pyarrow.csv.ReadOptions(
                use_threads=False, block_size=self._block, column_names=names
            ),
            "parse_options": pyarrow.csv.ParseOptions(
                newlines_in_values=True, invalid_row_handler=self._leave_out
            ),
            "convert_options": pyarrow.csv.ConvertOptions(
                check_utf8=False, column_types=dict.fromkeys(self._names, pa.string())
            ),
        }
        try:
            with pyarrow.csv.open_csv(io.BufferedReader(text), **options) as reader:
                if reader.schema.names != self._names:
                    raise unreadable(self._file.shown, "its first line is not CSV")
                for batch in reader:
                    yield from sizes.bounded(batch)
                yield pa.RecordBatch.from_pylist([], reader.schema)
        except pa.ArrowInvalid as error:
            if "straddl" in str(error):
                raise _RowTooLong from None
            if "Empty CSV" not in str(error):
                raise


def _marked(rows: pa.RecordBatch) -> Faults:
    faults: Faults = {}
    for column in rows.columns:
        fault(faults, BadRow.MALFORMED, mask(pc.match_substring(column, NOT_TEXT)))
    return faults


def _has_lines(row: pa.RecordBatch) -> bool:
    return any("\n" in (value or "") for column in row.columns for value in column.to_pylist())
