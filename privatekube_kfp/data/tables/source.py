"""A table, as callers see it: its columns, its fingerprint, and its rows in batches."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple, Protocol

import pyarrow as pa

from privatekube_kfp.data.tables.bad_rows import BadRow, BadRows, Note
from privatekube_kfp.data.tables.columns import Columns, Piece
from privatekube_kfp.data.tables.csv_files import CsvReader
from privatekube_kfp.data.tables.files import File
from privatekube_kfp.data.tables.json_lines import JsonReader
from privatekube_kfp.data.tables.layout import COLUMNS, FORMATS, Layout
from privatekube_kfp.data.tables.parquet_files import ParquetReader
from privatekube_kfp.data.tables.refusals import in_a_sentence, invalid


class Read(NamedTuple):
    """A batch, and how far reading has come with it since the file's beginning."""

    batch: pa.RecordBatch
    bytes_read: int
    """Of the file as it is stored: an estimate, for showing progress."""
    rows_read: int
    """Good and bad: where to go on."""


class Source:
    """A table in one file, at a path or fsspec URI.

    Making one reads as little as is needed to know its columns.
    """

    def __init__(self, uri: str | os.PathLike[str], layout: Layout = COLUMNS) -> None:
        self.uri = os.fspath(uri)
        self._file = File(self.uri)
        self.size = self._file.size
        """In bytes, as it is stored; 0 where the store does not tell."""
        self.fingerprint = _fingerprint(self._file, layout)
        """Changes when the file does, or what is read of it. Says nothing of the contents."""
        self.format = layout.format or _format_of(self._file)
        if layout.header is not None and self.format != "csv":
            raise invalid(f"a header is for CSV files, and {self._file.shown} is {self.format}")
        with in_a_sentence(self._file.shown):
            self._reader = _READERS[self.format](self._file, layout)
        self.schema: pa.Schema = self._reader.columns.schema
        """user (text), time (UTC, in microseconds), the payload, the constants."""

    def batches(self, skip: int = 0, bad: BadRows | None = None) -> Iterator[Read]:
        """The rows in the file's order, without the first `skip`, in batches of bounded size.

        A batch can be empty, where all its rows are bad. A file that turns out to be damaged
        raises where the damage is: what came before may be half a table.
        """
        tally = bad if bad is not None else BadRows()
        reader = self._reader

        def note(kind: BadRow, count: int, number: int) -> None:
            tally.add(kind, count, f"{self._file.shown}, {reader.counted_in} {number}")

        with in_a_sentence(self._file.shown):
            for piece in reader.pieces(skip, note):
                rows = reader.columns.normal(piece, note)
                yield Read(rows, piece.bytes_read, piece.rows_read)


def _fingerprint(file: File, layout: Layout) -> str:
    """The same for as long as reading can go on where it stopped."""
    text = json.dumps([*file.known(), repr(layout)])
    return blake2b(text.encode(), digest_size=16).hexdigest()


class Reader(Protocol):
    """Knows one format."""

    columns: Columns
    counted_in: str
    """What people count in such a file."""

    def pieces(self, skip: int, note: Note) -> Iterator[Piece]:
        """The rows after the first `skip`. Those that no piece can hold are noted at once."""


_READERS: Mapping[str, Callable[[File, Layout], Reader]] = {
    "parquet": ParquetReader,
    "csv": CsvReader,
    "json": JsonReader,
}
_ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


def _format_of(file: File) -> str:
    name = file.path.rpartition("/")[2].lower().removesuffix(".gz")
    for ending, kind in _ENDINGS.items():
        if name.endswith(ending):
            return kind
    raise invalid(
        f"the name of {file.shown} does not say what it is: it ends in none of"
        f" {', '.join(_ENDINGS)}. Say its format: {', '.join(FORMATS)}"
    )
