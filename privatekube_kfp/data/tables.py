"""Input tables, as ingest reads them: Parquet, CSV and JSON lines become one stream of rows.

Every row that comes out has a user and a time; rows that cannot be read are counted and left out.
A file is read in pieces, so that its size does not matter. What is in it is personal: errors name
a file and the number of a row, and never what the row holds.

The same file gives the same batches in the same order, so that reading can go on where it stopped.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import math
import os
import re
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from itertools import pairwise
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit, urlunsplit

import fsspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as parquet

from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason

USER, TIME = "user", "time"
FORMATS = ("parquet", "csv", "json")
DEFAULT_LIMIT = 1_000
MOST_ROWS = 64 * 1024
MOST_BYTES = 16 * 1024 * 1024
LONGEST_LINE = 64 * 1024 * 1024
_BLOCK = 2 * 1024 * 1024

_MOMENT = pa.timestamp("us", "UTC")
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, in microseconds."""
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_TYPES = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "json": pa.string(),
}

Mask = npt.NDArray[np.bool_]


# What is where


@dataclass(frozen=True)
class Layout:
    """Which columns hold what, and what is kept.

    `user` and `time` are names in the file. All other columns are payload: `rename` has pairs of
    a name in the file and the name it gets; `keep`, `types` and `constants` speak of the names they
    get. Lists and objects are left out unless `keep` names them: those of Parquet stay what they
    are, those of JSON become JSON text.

    Types are text, integer, number, boolean and (for JSON) json. Where nothing is said, Parquet
    columns keep their type, CSV columns are text, and JSON fields are what most of their
    values in the first 2 MB are; fields that first occur later are left out.
    """

    user: str = "user"
    time: str = "timestamp"
    time_unit: Literal["s", "ms", "us"] = "s"
    """Of times that are numbers."""
    keep: tuple[str, ...] | None = None
    """The payload, in this order. None: all of it, in the file's order."""
    rename: tuple[tuple[str, str], ...] = ()
    types: tuple[tuple[str, str], ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    """Columns to add, such as category=books."""
    header: tuple[str, ...] | None = None
    """The names, for a CSV file that has no line of them."""
    format: str | None = None
    """parquet, csv or json. None: by the file's name."""

    def __post_init__(self) -> None:
        if self.time_unit not in _UNITS:
            raise _invalid(f"{self.time_unit!r} is no unit of time: s, ms and us are")
        if self.format not in (None, *FORMATS):
            raise _invalid(f"{self.format!r} is no format: {', '.join(FORMATS)} are")
        if self.user == self.time:
            raise _invalid(f"{self.user} cannot be both the user and the time")
        for name, kind in self.types:
            if kind not in _TYPES:
                raise _invalid(f"{kind!r} is no type for {name}: {', '.join(_TYPES)} are")
        for name in (self.user, self.time):
            if name in (self.keep or ()):
                raise _invalid(f"{name} is kept in any case, as the user or the time")
            if name in dict(self.rename):
                raise _invalid(f"{name} is the user or the time, which cannot be renamed")
        for what, names in (
            ("kept", self.keep or ()),
            ("renamed", [old for old, _ in self.rename]),
            ("given a type", [name for name, _ in self.types]),
            ("added or renamed to", self._new_names()),
            ("in the header", self.header or ()),
        ):
            if twice := _twice(names):
                raise _invalid(f"{twice[0]} is {what} twice")
        for name in (*self._new_names(), *(self.keep or ())):
            if name in (USER, TIME):
                raise _invalid(
                    f"a column cannot be called {name}: that is what ingest calls its own"
                )

    def _new_names(self) -> list[str]:
        return [new for _, new in self.rename] + [name for name, _ in self.constants]


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


COLUMNS = Layout()
AMAZON = Layout(
    user="reviewerID",
    time="unixReviewTime",
    keep=("product", "text", "rating", "summary"),
    rename=(("asin", "product"), ("reviewText", "text"), ("overall", "rating")),
    types=(("product", "text"), ("text", "text"), ("rating", "number"), ("summary", "text")),
    format="json",
)
"""The public Amazon reviews of 2014 and 2018, as JSON lines. Names of people are left out."""
AMAZON_CSV_2014 = Layout(
    header=("user", "product", "rating", "timestamp"), types=(("rating", "number"),), format="csv"
)
AMAZON_CSV_2018 = Layout(
    header=("product", "user", "rating", "timestamp"), types=(("rating", "number"),), format="csv"
)
LAYOUTS: Mapping[str, Layout] = {
    "columns": COLUMNS,
    "amazon-json": AMAZON,
    "amazon-csv-2014": AMAZON_CSV_2014,
    "amazon-csv-2018": AMAZON_CSV_2018,
}


def layout_named(name: str) -> Layout:
    """A layout by the name that the command line has for it."""
    if name not in LAYOUTS:
        raise _invalid(f"there is no layout {name!r}: there are {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


# What cannot be read


class BadRow(StrEnum):
    """Why a row is left out. A row has one reason, the first of these."""

    MALFORMED = "malformed"
    NO_USER = "no user"
    NO_TIME = "no time"
    BAD_TIME = "bad time"
    WRONG_TYPE = "wrong type"
    # For whoever knows which times make sense.
    ABSURD_TIME = "absurd time"


@dataclass
class BadRows:
    """Counts rows that are left out, and stops where they are too many.

    It knows where the first of each kind is, not what is in it. `limit` None is no limit.
    """

    limit: int | None = DEFAULT_LIMIT
    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, kind: str, count: int, where: str) -> None:
        if not count:
            return
        name = BadRow(kind).value
        self.first.setdefault(name, where)
        self.counts[name] = self.counts.get(name, 0) + count
        if self.limit is not None and self.total > self.limit:
            raise PrivateKubeError(
                Reason.TOO_MANY_BAD_ROWS, f"more than {self.limit} rows are bad: {self}"
            )

    def restore(self, counts: Mapping[str, int]) -> None:
        """Go on from earlier counts; those of anything but bad rows are passed over."""
        self.counts = {kind.value: counts[kind] for kind in BadRow if counts.get(kind)}

    def __str__(self) -> str:
        return "; ".join(
            f"{count} {kind}" + (f", first at {self.first[kind]}" if kind in self.first else "")
            for kind, count in self.counts.items()
        )


# A table


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
        self._file = _File(self.uri)
        self.size = self._file.size
        """In bytes, as it is stored; 0 where the store does not tell."""
        self.fingerprint = _fingerprint(self._file, layout)
        """Changes when the file does, or what is read of it. Says nothing of the contents."""
        self.format = layout.format or _format_of(self._file)
        if layout.header is not None and self.format != "csv":
            raise _invalid(f"a header is for CSV files, and {self._file.shown} is {self.format}")
        with _in_a_sentence(self._file.shown):
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

        with _in_a_sentence(self._file.shown):
            for piece in reader.pieces(skip, note):
                rows = reader.columns.normal(piece, note)
                yield Read(rows, piece.bytes_read, piece.rows_read)


def _fingerprint(file: _File, layout: Layout) -> str:
    """Of what the store says without reading: when it changed, or which version it is."""
    info = file.info
    told = ("etag", "mtime", "lastmodified", "updated", "generation", "versionid", "created")
    known = {name.lower().replace("_", ""): str(value) for name, value in info.items()}
    version = [f"{name}={known[name]}" for name in told if known.get(name)]
    if "file" in file.protocols:
        version = [f"mtime={info.get('mtime')}"]
    place = _without_secrets(file.files.unstrip_protocol(file.path))
    text = json.dumps([place, file.size, version, repr(layout)])
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _format_of(file: _File) -> str:
    name = file.path.rpartition("/")[2].lower().removesuffix(".gz")
    for ending, kind in _ENDINGS.items():
        if name.endswith(ending):
            return kind
    raise _invalid(
        f"the name of {file.shown} does not say what it is: it ends in none of"
        f" {', '.join(_ENDINGS)}. Say its format: {', '.join(FORMATS)}"
    )


# Files


_IN_PAGES = {"pre_buffer": False, "buffer_size": _BLOCK}


class _File:
    """A file in some store, and its name for people: without passwords and signatures."""

    def __init__(self, uri: str) -> None:
        self.shown = _without_secrets(uri)
        with _in_a_sentence(self.shown):
            try:
                self.files, self.path = fsspec.core.url_to_fs(uri)
            except ValueError as error:
                raise _unreadable(self.shown, f"its address makes no sense: {error}") from error
            self.info: Mapping[str, Any] = self.files.info(self.path)
        if self.info.get("type") == "directory":
            raise _unreadable(self.shown, "it is a folder; name the files in it")
        protocol = self.files.protocol
        self.protocols = (protocol,) if isinstance(protocol, str) else tuple(protocol)
        self.size = int(self.info.get("size") or 0)

    @contextmanager
    def table(self) -> Iterator[parquet.ParquetFile]:
        """Reads pages as they are needed, not whole row groups."""
        if "file" in self.protocols:
            with parquet.ParquetFile(self.path, **_IN_PAGES) as table:
                yield table
        else:
            with (
                self.files.open(self.path, "rb") as opened,
                parquet.ParquetFile(opened, **_IN_PAGES) as table,
            ):
                yield table

    @contextmanager
    def text(self, *, counts_quotes: bool = False) -> Iterator[_Text]:
        with self.files.open(self.path, "rb") as opened:
            is_zipped = opened.read(2) == b"\x1f\x8b"
            opened.seek(0)
            source = gzip.GzipFile(fileobj=opened) if is_zipped else opened
            yield _Text(source, opened, self.shown, counts_quotes)


_OTHER_KINDS = {
    b"PAR1": "it is Parquet",
    b"PK\x03\x04": "it is a ZIP archive; unpack it",
    b"\x28\xb5\x2f\xfd": "it is compressed with zstd; only gzip is read",
    b"BZh": "it is compressed with bzip2; only gzip is read",
    b"\xfd7zX": "it is compressed with xz; only gzip is read",
    b"\xff\xfe": "it is UTF-16; convert it to UTF-8",
    b"\xfe\xff": "it is UTF-16; convert it to UTF-8",
}
_NOT_TEXT = "\ufdd0\ufdef"
"""Stands for bytes that are no text. No text has these: Unicode says so."""
_NOT_TEXT_BYTES = _NOT_TEXT.encode()

codecs.register_error("privatekube-mark", lambda error: (_NOT_TEXT, _end_of(error)))


def _end_of(error: UnicodeError) -> int:
    assert isinstance(error, UnicodeDecodeError)
    return error.end


class _Text(io.RawIOBase):
    """Bytes that are UTF-8 for sure: whatever is not, and NUL, comes out as a mark.

    The parsers would give up at such bytes, or carry them on; with marks only their rows are lost.
    """

    def __init__(
        self,
        source: BinaryIO | gzip.GzipFile,
        stored: BinaryIO,
        shown: str,
        counts_quotes: bool,
    ) -> None:
        super().__init__()
        self.marked = False
        self.quotes = 0
        self._counts_quotes = counts_quotes
        self._source = source
        self._stored = stored
        self._decoder = codecs.getincrementaldecoder("utf-8")("privatekube-mark")
        head = source.read(4)
        for magic, what in _OTHER_KINDS.items():
            if head.startswith(magic):
                raise _unreadable(shown, what)
        self._left = memoryview(self._cleaned(head.removeprefix(codecs.BOM_UTF8)))

    @property
    def bytes_read(self) -> int:
        return self._stored.tell()

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while not self._left:
            chunk = self._source.read(max(len(target), io.DEFAULT_BUFFER_SIZE))
            self._left = memoryview(self._cleaned(chunk))
            if not chunk and not self._left:
                return 0
        count = min(len(target), len(self._left))
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def _cleaned(self, chunk: bytes) -> bytes:
        if self._counts_quotes:
            self.quotes += int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == ord('"')))
        if not (chunk.isascii() and not self._decoder.getstate()[0]):
            chunk = self._decoder.decode(chunk, final=not chunk).encode()
        if b"\0" in chunk:
            chunk = chunk.replace(b"\0", _NOT_TEXT_BYTES)
        self.marked = self.marked or (not chunk.isascii() and _NOT_TEXT_BYTES in chunk)
        return chunk


def _without_secrets(uri: str) -> str:
    parts = urlsplit(uri)
    if not parts.scheme or "://" not in uri:
        return uri
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@contextmanager
def _in_a_sentence(shown: str) -> Iterator[None]:
    """What the store or the format has to say, without contents: messages of parsers quote them."""
    try:
        yield
    except FileNotFoundError as error:
        raise _unreadable(shown, "there is nothing there") from error
    except EOFError as error:
        raise _unreadable(
            shown,
            "it is cut short: its compressed data end in the middle. What was read of it so far"
            " may be half a table",
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _unreadable(shown, "its compressed data are damaged") from error
    except (pa.ArrowException, ValueError) as error:
        raise _unreadable(shown, "it is damaged, or not what its name says") from error
    except (OSError, ImportError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise _unreadable(shown, why.splitlines()[0]) from error


# Columns


Note = Callable[[BadRow, int, int], None]
"""Is told of bad rows: why, how many, and the number of the first."""


Faults = dict[BadRow, Mask]


class _Piece(NamedTuple):
    """Rows as a file has them, with the numbers that people count them by."""

    rows: pa.RecordBatch
    numbers: Sequence[int] | npt.NDArray[np.int64]
    bytes_read: int
    rows_read: int
    faults: Faults


class _Column(NamedTuple):
    source: str
    name: str
    type: pa.DataType


class _Columns:
    """From a file's columns to those of every table: a user, a time, the payload, constants."""

    def __init__(self, layout: Layout, payload: Sequence[_Column]) -> None:
        self._layout = layout
        self._payload = payload
        self._constants = [
            (name, pa.scalar(value, pa.string())) for name, value in layout.constants
        ]
        self.sources = [layout.user, layout.time, *(column.source for column in payload)]
        self.schema = pa.schema(
            [(USER, pa.string()), (TIME, _MOMENT)]
            + [(column.name, column.type) for column in payload]
            + [(name, pa.string()) for name, _ in layout.constants]
        )

    def normal(self, piece: _Piece, note: Note) -> pa.RecordBatch:
        """The good rows of a piece."""
        raw, faults = piece.rows, dict(piece.faults)
        arrays = [
            _users(_plain(raw.column(self._layout.user)), faults),
            _times(_plain(raw.column(self._layout.time)), self._layout.time_unit, faults),
        ]
        arrays += [
            _typed(_plain(raw.column(column.source)), column.type, faults)
            for column in self._payload
        ]
        arrays += [pa.repeat(value, raw.num_rows) for _, value in self._constants]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if not faults:
            return rows
        good = np.ones(raw.num_rows, bool)
        for kind in BadRow:
            here = good & faults[kind] if kind in faults else np.zeros(0, bool)
            if here.any():
                note(kind, int(here.sum()), int(piece.numbers[int(here.argmax())]))
                good &= ~here
        return rows.filter(pa.array(good))


def _chosen(
    layout: Layout,
    shown: str,
    present: Mapping[str, pa.DataType],
    nested: Container[str] = (),
    *,
    optional: bool = False,
) -> _Columns:
    """The columns that are read of a file that has these.

    With `optional`, columns whose type is declared need not be there.
    """
    declared = dict(layout.types)
    renamed = dict(layout.rename)
    sources = {new: old for old, new in layout.rename}
    if layout.keep is not None:
        names = expected = list(layout.keep)
    else:
        expected = [*sources, *(name for name in declared if name not in sources)]
        names = [
            renamed.get(source, source)
            for source in present
            if source not in (layout.user, layout.time)
            and (source not in nested or source in renamed)
        ]
        names += [name for name in declared if optional and name not in names]
    needed = [layout.user, layout.time] + [
        sources.get(name, name) for name in expected if not (optional and name in declared)
    ]
    missing = [name for name in needed if name not in present]
    if missing:
        raise _wrong_columns(
            f"{shown} has no column {', '.join(missing)}. Its columns are {_listed(present)}"
        )
    if clash := _twice([USER, TIME, *names, *(name for name, _ in layout.constants)]):
        raise _wrong_columns(
            f"{shown} would have two columns {clash[0]}; rename one of them, or leave it out"
        )
    payload = []
    for name in names:
        source = sources.get(name, name)
        kind = present.get(source, pa.null())
        if name in declared:
            if pa.types.is_nested(kind):
                raise _wrong_columns(f"column {source} of {shown} is {kind}, not {declared[name]}")
            kind = _TYPES[declared[name]]
        payload.append(_Column(source, name, _plain_type(kind)))
    return _Columns(layout, payload)


def _listed(names: Iterable[str]) -> str:
    known = list(names)
    return ", ".join(known[:50]) + (f" and {len(known) - 50} more" if len(known) > 50 else "")


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """One type for each sort of values, however they are laid out."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _plain(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    kind = _plain_type(values.type)
    return values if values.type == kind else values.cast(kind)


def _each(values: pa.Array, kind: pa.DataType, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Every value changed, and null where it cannot be: a few bad ones cost little."""
    try:
        return change(values)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, kind)
        half = len(values) // 2
        parts = (values.slice(0, half), values.slice(half))
        return pa.concat_arrays([_each(part, kind, change) for part in parts])


def _mask(values: pa.Array) -> Mask:
    return np.asarray(values.to_numpy(zero_copy_only=False), bool)


def _fault(faults: Faults, kind: BadRow, rows: Mask) -> None:
    if rows.any():
        faults[kind] = faults[kind] | rows if kind in faults else rows


def _cast(values: pa.Array, kind: pa.DataType, why: BadRow, faults: Faults) -> pa.Array:
    """Of another type; rows whose value cannot be are at fault."""
    cast = _each(values, kind, lambda part: part.cast(kind))
    if cast.null_count > values.null_count:
        _fault(faults, why, _mask(cast.is_null()) & _mask(values.is_valid()))
    return cast


def _typed(values: pa.Array, kind: pa.DataType, faults: Faults) -> pa.Array:
    if values.type == kind:
        return values
    if pa.types.is_string(values.type):
        # What CSV leaves empty is nothing, where it is not text.
        values = pc.if_else(pc.equal(values, ""), None, values)
    return _cast(values, kind, BadRow.WRONG_TYPE, faults)


def _users(values: pa.Array, faults: Faults) -> pa.Array:
    if not pa.types.is_string(values.type):
        values = _cast(values, pa.string(), BadRow.MALFORMED, faults)
    lengths = pc.binary_length(values)
    if values.null_count or pc.min(lengths).as_py() == 0:
        _fault(faults, BadRow.NO_USER, ~_mask(pc.greater(lengths, 0).fill_null(False)))
    return values


# Times


_WHOLE = r"^-?[0-9]{1,18}$"
_NUMBER = r"^-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$"
_LOCAL = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?$"
_ZONED = rf"{_LOCAL[:-1]}(Z|[-+][0-9]{{2}}(:?[0-9]{{2}})?)$"


def _times(values: pa.Array, unit: str, faults: Faults) -> pa.Array:
    """Times in UTC; those that are none, or not in the years 1 to 9999, are at fault."""
    if pa.types.is_string(values.type):
        values = pc.ascii_trim_whitespace(values)
        values = pc.if_else(pc.equal(values, ""), None, values)
    found = _moments(values, unit)
    if found.null_count:
        missing = _mask(values.is_null())
        _fault(faults, BadRow.NO_TIME, missing)
        _fault(faults, BadRow.BAD_TIME, _mask(found.is_null()) & ~missing)
    return found.cast(_MOMENT)


def _moments(values: pa.Array, unit: str) -> pa.Array:
    """Microseconds, or null."""
    kind = values.type
    if pa.types.is_string(kind):
        return _from_text(values, unit)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _from_numbers(values.cast(pa.float64()), _UNITS[unit])
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return _from_whole(values.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64()), 1)
    if pa.types.is_timestamp(kind):
        return _from_whole(values.cast(pa.int64()), _UNITS[kind.unit])
    if pa.types.is_date32(kind):
        return _from_whole(values.cast(pa.int32()).cast(pa.int64()), 86_400_000_000)
    if pa.types.is_date64(kind):
        return _from_whole(values.cast(pa.int64()), 1_000)
    whole = _each(values, pa.int64(), lambda part: part.cast(pa.int64()))
    return _from_whole(whole, _UNITS[unit])


def _from_whole(values: pa.Array, factor: int) -> pa.Array:
    first, last = -(-_FIRST // factor), _LAST // factor
    ends = pc.min_max(values).as_py()
    if ends["min"] is not None and (ends["min"] < first or ends["max"] > last):
        fits = pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last))
        values = pc.if_else(fits, values, None)
    return values if factor == 1 else pc.multiply(values, pa.scalar(factor, pa.int64()))


def _from_numbers(values: pa.Array, factor: int) -> pa.Array:
    with np.errstate(over="ignore", invalid="ignore"):
        exact = values.to_numpy(zero_copy_only=False) * factor
        # The first float after the last moment is exact; NaN is in no range.
        fits = (exact >= _FIRST) & (exact < float(_LAST + 1))
    return pa.array(np.rint(np.where(fits, exact, 0)).astype(np.int64), mask=~fits)


def _from_text(values: pa.Array, unit: str) -> pa.Array:
    """Numbers in the unit, or ISO 8601; without a zone it is UTC."""
    readings: list[tuple[str, Callable[[pa.Array], pa.Array]]] = [
        (_WHOLE, lambda part: _from_whole(part.cast(pa.int64()), _UNITS[unit])),
        (_NUMBER, lambda part: _from_numbers(part.cast(pa.float64()), _UNITS[unit])),
        (_LOCAL, lambda part: _from_iso(part, pa.timestamp("us"))),
        (_ZONED, lambda part: _from_iso(part, _MOMENT)),
    ]
    found = pa.nulls(len(values), pa.int64())
    left = values.is_valid()
    for pattern, read in readings:
        here = pc.and_(left, pc.match_substring_regex(values, pattern).fill_null(False))
        if here.true_count == len(values):
            return read(values)
        if here.true_count:
            found = pc.replace_with_mask(found, here, read(values.filter(here)))
            left = pc.and_not(left, here)
    return found


def _from_iso(values: pa.Array, kind: pa.DataType) -> pa.Array:
    cut = pc.replace_substring_regex(values, r"(\.[0-9]{6})[0-9]+", r"\1")
    return _from_whole(_each(cut, kind, lambda part: part.cast(kind)).cast(pa.int64()), 1)


# Parquet


class _Parquet:
    counted_in = "row"

    def __init__(self, file: _File, layout: Layout) -> None:
        self._file = file
        if file.size and file.size < 12:
            raise _unreadable(file.shown, "it is not Parquet")
        with self._open() as table:
            schema = table.schema_arrow
            present = dict(zip(schema.names, schema.types, strict=True))
            nested = {name for name, kind in present.items() if pa.types.is_nested(kind)}
            self.columns = _chosen(layout, file.shown, present, nested)
            for name in _twice(schema.names):
                if name in self.columns.sources:
                    raise _wrong_columns(f"{file.shown} has several columns {name}")
            self._check_type(layout.user, present, _can_be_user, "a user")
            self._check_type(layout.time, present, _can_be_time, "a time")

    def _check_type(
        self,
        name: str,
        present: Mapping[str, pa.DataType],
        can_be: Callable[[pa.DataType], bool],
        what: str,
    ) -> None:
        if not can_be(_plain_type(present[name])):
            raise _wrong_columns(
                f"column {name} of {self._file.shown} is {present[name]}, which is no type of"
                f" {what}"
            )

    @contextmanager
    def _open(self) -> Iterator[parquet.ParquetFile]:
        with self._file.table() as table:
            yield table

    def pieces(self, skip: int, note: Note) -> Iterator[_Piece]:
        with self._open() as table:
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
                for rows in _bounded(batch):
                    start += rows.num_rows
                    numbers = range(start - rows.num_rows + 1, start + 1)
                    read = self._file.size * start // total
                    yield _Piece(rows, numbers, read, start, _not_text(rows))

    def _batches(
        self, table: parquet.ParquetFile, groups: Sequence[int]
    ) -> Iterator[pa.RecordBatch]:
        """As many rows at once as fit, judged by what the file says and by its first rows."""
        rows_at_once = MOST_ROWS
        for group in groups:
            about = table.metadata.row_group(group)
            if about.num_rows and about.total_byte_size:
                fit = MOST_BYTES * about.num_rows // about.total_byte_size
                rows_at_once = max(1, min(rows_at_once, fit))
        wanted = {"row_groups": list(groups), "columns": list(dict.fromkeys(self.columns.sources))}
        if not wanted["row_groups"]:
            return
        probe = next(table.iter_batches(min(rows_at_once, 256), **wanted), None)
        if probe is not None and probe.nbytes:
            rows_at_once = max(1, min(rows_at_once, MOST_BYTES * probe.num_rows // probe.nbytes))
        yield from table.iter_batches(rows_at_once, **wanted)


def _can_be_user(kind: pa.DataType) -> bool:
    of = pa.types
    return any(check(kind) for check in (of.is_string, of.is_binary, of.is_integer))


def _can_be_time(kind: pa.DataType) -> bool:
    of = pa.types
    numbers = (of.is_integer, of.is_floating, of.is_decimal)
    return any(check(kind) for check in (*numbers, of.is_timestamp, of.is_date, of.is_string))


def _bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """In parts of at most so many rows and bytes; a row is never cut."""
    if batch.num_rows <= MOST_ROWS and (batch.num_rows <= 1 or batch.nbytes <= MOST_BYTES):
        yield batch
    else:
        half = batch.num_rows // 2
        yield from _bounded(batch.slice(0, half))
        yield from _bounded(batch.slice(half))


def _not_text(rows: pa.RecordBatch) -> Faults:
    """Parquet does not check that text is UTF-8."""
    try:
        rows.validate(full=True)
        return {}
    except pa.ArrowInvalid:
        faults: Faults = {}
        for column in map(_plain, rows.columns):
            if pa.types.is_string(column.type):
                binary = column.cast(pa.binary())
                _cast(binary, pa.string(), BadRow.MALFORMED, faults)
        return faults


# CSV


class _Csv:
    counted_in = "row"

    def __init__(self, file: _File, layout: Layout) -> None:
        self._file = file
        self._header = layout.header
        self._names = list(layout.header or self._first_line())
        known = {layout.user, layout.time, *(old for old, _ in layout.rename), *(layout.keep or ())}
        if not known & set(self._names):
            # It may be a row, and then it is nobody's business.
            raise _wrong_columns(
                f"the first line of {file.shown} names none of the columns"
                f" {', '.join(sorted(known))}. Say what its columns are called, or their names if"
                " it has no line of them"
            )
        self.columns = _chosen(layout, file.shown, dict.fromkeys(self._names, pa.string()))
        for name in _twice(self._names):
            if name in self.columns.sources:
                raise _wrong_columns(f"{file.shown} has several columns {name}")

    def _first_line(self) -> list[str]:
        with self._file.text() as text:
            lines = io.TextIOWrapper(io.BufferedReader(text), encoding="utf-8", newline="")
            try:
                for names in csv.reader(lines):
                    if names:
                        return names
            except csv.Error:
                raise _unreadable(self._file.shown, "its first line is not CSV") from None
            finally:
                lines.detach()
        raise _unreadable(self._file.shown, "it is empty")

    def pieces(self, skip: int, note: Note) -> Iterator[_Piece]:
        """A row that is longer than a block makes us begin again with longer blocks."""
        block = _BLOCK
        while True:
            reading = _CsvReading(self._file, self._names, self._header is None, block)
            try:
                for piece in reading.pieces(skip, note):
                    yield piece
                    skip = piece.rows_read
                return
            except _RowTooLong:
                if block >= LONGEST_LINE:
                    raise _unreadable(
                        self._file.shown,
                        f"a value after row {skip} does not end: a quote is not closed, or it is"
                        f" longer than {LONGEST_LINE // 2**20} MB",
                    ) from None
                block = min(8 * block, LONGEST_LINE)


class _RowTooLong(Exception):
    """A row does not fit in a block."""


class _CsvReading:
    """One pass over a CSV file. pyarrow's parser decides what is a row."""

    def __init__(self, file: _File, names: Sequence[str], first_line: bool, block: int) -> None:
        self._file = file
        self._names = list(names)
        self._first_line = first_line
        self._block = block
        self._unusable: deque[tuple[int, int]] = deque()
        """Rows with too many or too few columns: their number, and how many lines they have."""

    def _leave_out(self, row: Any) -> str:
        number = row.number - self._first_line
        self._unusable.append((number, len(re.findall(r"\r\n?|\n", row.text)) + 1))
        return "skip"

    def pieces(self, skip: int, note: Note) -> Iterator[_Piece]:
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
                yield _Piece(rows, numbers, text.bytes_read, done, faults)
            if text.quotes % 2 and last is not None and _has_lines(last):
                raise _unreadable(
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

    def _parts(self, text: _Text) -> Iterator[pa.RecordBatch]:
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
                    raise _unreadable(self._file.shown, "its first line is not CSV")
                for batch in reader:
                    yield from _bounded(batch)
                yield pa.RecordBatch.from_pylist([], reader.schema)
        except pa.ArrowInvalid as error:
            if "straddl" in str(error):
                raise _RowTooLong from None
            if "Empty CSV" not in str(error):
                raise


def _marked(rows: pa.RecordBatch) -> Faults:
    faults: Faults = {}
    for column in rows.columns:
        _fault(faults, BadRow.MALFORMED, _mask(pc.match_substring(column, _NOT_TEXT)))
    return faults


def _has_lines(row: pa.RecordBatch) -> bool:
    return any("\n" in (value or "") for column in row.columns for value in column.to_pylist())


# JSON lines


class _Json:
    """JSON lines: blocks are parsed at once, and line by line where that fails.

    Both ways give the same rows. Anything but one object a line is never given to pyarrow, which
    would take what is on two lines for one row, and crashes where the first line is `null`.
    """

    counted_in = "line"

    def __init__(self, file: _File, layout: Layout) -> None:
        self._file = file
        self._user, self._time = layout.user, layout.time
        fields = self._first_fields()
        present = {name: _TYPES[kind] for name, kind in fields.items()}
        nested = {name for name, kind in fields.items() if kind == "json"}
        self.columns = _chosen(layout, file.shown, present, nested, optional=True)
        for name, what, can_be in (
            (self._user, "a user", ("text", "integer")),
            (self._time, "a time", ("text", "integer", "number")),
        ):
            if fields[name] not in can_be:
                raise _wrong_columns(
                    f"field {name} of {file.shown} is {fields[name]}, which is no type of {what}"
                )
        old_names = {new: old for old, new in layout.rename}
        declared = {old_names.get(name, name): kind for name, kind in layout.types}
        self._kinds = {name: declared.get(name) or fields[name] for name in self.columns.sources}
        self._parsing = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([(name, _TYPES[kind]) for name, kind in self._kinds.items()]),
            newlines_in_values=False,
            unexpected_field_behavior="ignore",
        )

    def _first_fields(self) -> dict[str, str]:
        """The fields of the first lines, each with the type that most of its values have."""
        found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        tried, first = 0, b""
        with self._file.text() as text:
            for block in _blocks(io.BufferedReader(text)):
                for _, line in _Lines.of(block or b"", 1).listed():
                    tried += 1
                    first = first or line.lstrip()[:1]
                    for name, value in (_object_in(line) or {}).items():
                        found[name][_kind(value)] += 1
                if tried:
                    break
        if not tried:
            raise _unreadable(self._file.shown, "it is empty")
        if not found:
            why = f"none of its first {tried} lines is a JSON object"
            if first == b"[":
                why = "it is one JSON list; put one object on each line, as `jq -c '.[]'` does"
            raise _unreadable(self._file.shown, why)
        return {name: _most_common(kinds) for name, kinds in found.items()}

    def pieces(self, skip: int, note: Note) -> Iterator[_Piece]:
        rows_done = lines_done = 0
        with self._file.text() as text:
            for block in _blocks(io.BufferedReader(text)):
                if block is None:
                    rows_done, lines_done = rows_done + 1, lines_done + 1
                    if rows_done > skip:
                        note(BadRow.MALFORMED, 1, lines_done)
                        yield _Piece(self._rows([]), [], text.bytes_read, rows_done, {})
                    continue
                lines = _Lines.of(block, lines_done + 1)
                before, rows_done = rows_done, rows_done + len(lines.numbers)
                lines_done += _count_lines(block)
                if rows_done <= skip:
                    continue
                if before < skip:
                    lines = lines.without(skip - before)
                rows, numbers = self._parsed(lines), lines.numbers
                if rows is None:
                    rows, numbers = self._one_by_one(lines, note)
                yield _Piece(rows, numbers, text.bytes_read, rows_done, {})

    def _parsed(self, lines: _Lines) -> pa.RecordBatch | None:
        """All lines at once; None where any of them is not quite as it should be."""
        if not lines.are_objects or "json" in self._kinds.values():
            return None
        reading = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines.text) + 1)
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(lines.text), read_options=reading, parse_options=self._parsing
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if table.num_rows != len(lines.numbers):
            return None
        for column in table.columns:
            # JSON has no infinity, though pyarrow reads it.
            if pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py():
                return None
        return table.combine_chunks().to_batches()[0]

    def _one_by_one(self, lines: _Lines, note: Note) -> tuple[pa.RecordBatch, list[int]]:
        good: list[list[object]] = []
        numbers: list[int] = []
        bad: dict[BadRow, list[int]] = {}
        for number, line in lines.listed():
            row = self._row(line)
            if isinstance(row, BadRow):
                bad.setdefault(row, []).append(number)
            else:
                good.append(row)
                numbers.append(number)
        for kind, where in bad.items():
            note(kind, len(where), where[0])
        return self._rows(good), numbers

    def _rows(self, rows: Sequence[Sequence[object]]) -> pa.RecordBatch:
        """Users and times as text, for they may be of several types."""
        types = {name: _TYPES[kind] for name, kind in self._kinds.items()}
        types |= {self._user: pa.string(), self._time: pa.string()}
        columns = zip(*rows, strict=True) if rows else ([] for _ in types)
        arrays = [
            pa.array(column, kind) for column, kind in zip(columns, types.values(), strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, list(types))

    def _row(self, line: bytes) -> list[object] | BadRow:
        found = _object_in(line)
        if found is None or (isinstance(found, _Twice) and found.names & self._kinds.keys()):
            return BadRow.MALFORMED
        row: list[object] = []
        try:
            for name, kind in self._kinds.items():
                value = found.get(name)
                if name == self._time:
                    row.append(_time_as_text(value, kind))
                elif name == self._user and _kind(value) == "integer":
                    row.append(str(value))
                else:
                    row.append(_checked(value, kind))
                # A part of a character that takes two: no text, though JSON can write it.
                if isinstance(row[-1], str):
                    row[-1].encode()
        except UnicodeEncodeError:
            return BadRow.MALFORMED
        except (TypeError, OverflowError):
            return BadRow.WRONG_TYPE
        return row


_BLANK = b" \t\r"


class _Lines:
    """The lines of a block that are not blank, with their numbers in the file."""

    def __init__(self, text: bytes, numbers: Sequence[int]) -> None:
        self.text = text
        self.numbers = numbers
        self.are_objects = _are_objects(text)

    @staticmethod
    def of(block: bytes, first: int) -> _Lines:
        lines = _Lines(block, range(first, first + _count_lines(block)))
        return lines if lines.are_objects else lines.without(0)

    def listed(self) -> list[tuple[int, bytes]]:
        numbered = zip(self.numbers, self.text.split(b"\n"), strict=False)
        return [(number, line) for number, line in numbered if line.strip(_BLANK)]

    def without(self, count: int) -> _Lines:
        """The same but for the first so many, and for blanks."""
        listed = self.listed()[count:]
        text = b"\n".join(line.strip(_BLANK) for _, line in listed)
        return _Lines(text, [number for number, _ in listed])


def _count_lines(block: bytes) -> int:
    return block.count(b"\n") + (not block.endswith(b"\n"))


def _are_objects(block: bytes) -> bool:
    """Whether every line begins and ends as an object does, and none has a mark.

    Then no object goes on on another line: between `}` and `{` it would need a comma.
    """
    if not block or _NOT_TEXT_BYTES in block:
        return False
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(text))
    starts = np.append(0, ends[:-1] + 1)
    if not (text[starts] == ord("{")).all():
        return False
    last = text[ends - 1]
    last = np.where(last == ord("\r"), text[ends - 2], last)
    return bool((last == ord("}")).all())


def _blocks(stream: io.BufferedReader) -> Iterator[bytes | None]:
    """Whole lines, so many that they are worth the call; None for a line that is too long."""
    begun: list[bytes] = []
    length = 0
    while chunk := stream.read(_BLOCK):
        end = chunk.find(b"\n") + 1
        if not end:
            length += len(chunk)
            begun = [*begun, chunk] if length <= LONGEST_LINE else []
            continue
        if length > LONGEST_LINE:
            yield None
        elif length >= _BLOCK:
            yield b"".join([*begun, chunk[:end]])
        else:
            end = chunk.rfind(b"\n") + 1
            yield from _few_lines(b"".join([*begun, chunk[:end]]))
        last = chunk.rfind(b"\n") + 1
        if last > end:
            yield from _few_lines(chunk[end:last])
        begun, length = [chunk[last:]], len(chunk) - last
    if length > LONGEST_LINE:
        yield None
    elif length:
        yield b"".join(begun)


def _few_lines(block: bytes) -> Iterator[bytes]:
    """In parts of at most so many lines."""
    if _count_lines(block) <= MOST_ROWS:
        yield block
        return
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
    cuts = [0, *(int(end) for end in ends[MOST_ROWS - 1 :: MOST_ROWS])]
    if cuts[-1] < len(block):
        cuts.append(len(block))
    for start, end in pairwise(cuts):
        yield block[start:end]


class _Twice(dict[str, Any]):
    """An object in which these names occur more than once."""

    names: frozenset[str] = frozenset()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        found = _Twice(found)
        found.names = frozenset(_twice(name for name, _ in pairs))
    return found


def _constant(name: str) -> float:
    if name != "NaN":
        raise ValueError("JSON has no infinity")
    return math.nan


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


def _object_in(line: bytes) -> dict[str, Any] | None:
    if _NOT_TEXT_BYTES in line:
        return None
    try:
        found = _DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "boolean"
        case str():
            return "text"
        case int():
            return "integer"
        case float():
            return "number"
    return "json"


def _most_common(kinds: Counter[str]) -> str:
    """Of all values that are there; whole numbers are numbers where there are others."""
    del kinds["nothing"]
    if kinds["number"]:
        kinds["number"] += kinds.pop("integer", 0)
    return max(kinds, key=kinds.__getitem__) if +kinds else "text"


def _checked(value: object, kind: str) -> object:
    """The value as that type. A whole number is a number too; nothing else is anything else."""
    if value is None:
        return None
    if kind == "json":
        return json.dumps(value)
    if kind == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        value = float(value)
        if math.isinf(value):
            raise OverflowError
    elif _kind(value) != kind:
        raise TypeError
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise OverflowError
    return value


def _time_as_text(value: object, kind: str) -> object:
    if kind == "number" and _kind(value) == "integer":
        value = _checked(value, kind)
    if value is None or isinstance(value, str):
        return value
    return repr(value)


# In a sentence


def _invalid(message: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, message)


def _wrong_columns(message: str) -> Invalid:
    return Invalid(Reason.WRONG_COLUMNS, message)


def _unreadable(shown: str, why: str) -> PrivateKubeError:
    return PrivateKubeError(Reason.DATA_UNREADABLE, f"{shown} cannot be read: {why}")


class _Reader(Protocol):
    """Knows one format."""

    columns: _Columns
    counted_in: str

    def pieces(self, skip: int, note: Note) -> Iterator[_Piece]: ...


_READERS: Mapping[str, Callable[[_File, Layout], _Reader]] = {
    "parquet": _Parquet,
    "csv": _Csv,
    "json": _Json,
}
_ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
