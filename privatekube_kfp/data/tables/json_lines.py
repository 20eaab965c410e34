"""JSON lines: blocks are parsed at once, and line by line where that fails.

Both ways give the same rows. Anything but one object a line is never given to pyarrow, which would
take what is on two lines for one row, and crashes where the first line is `null`.
"""

from __future__ import annotations

import io
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from privatekube_kfp.data.tables.bad_rows import BadRow, Note
from privatekube_kfp.data.tables.columns import Piece, chosen
from privatekube_kfp.data.tables.files import NOT_TEXT_BYTES, File
from privatekube_kfp.data.tables.layout import TYPES, Layout, twice
from privatekube_kfp.data.tables.lines import Lines, blocks, count_lines
from privatekube_kfp.data.tables.refusals import unreadable, wrong_columns


class JsonReader:
    counted_in = "line"

    def __init__(self, file: File, layout: Layout) -> None:
        self._file = file
        self._user, self._time = layout.user, layout.time
        fields = self._first_fields()
        self.columns = chosen(
            layout,
            file.shown,
            [(name, TYPES[kind]) for name, kind in fields.items()],
            json_text=[name for name, kind in fields.items() if kind == "json"],
            optional=True,
        )
        for name, what, can_be in (
            (self._user, "a user", ("text", "integer")),
            (self._time, "a time", ("text", "integer", "number")),
        ):
            if fields[name] not in can_be:
                raise wrong_columns(
                    f"field {name} of {file.shown} is {fields[name]}, which is no type of {what}"
                )
        declared = {layout.in_file(name): kind for name, kind in layout.types}
        self._kinds = {name: declared.get(name) or fields[name] for name in self.columns.sources}
        self._parsing = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([(name, TYPES[kind]) for name, kind in self._kinds.items()]),
            newlines_in_values=False,
            unexpected_field_behavior="ignore",
        )

    def _first_fields(self) -> dict[str, str]:
        """The fields of the first lines, each with the type that most of its values have."""
        found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        tried, first = 0, b""
        with self._file.text() as text:
            for block in filter(None, blocks(io.BufferedReader(text))):
                for _, line in Lines.of(block, 1).listed():
                    tried += 1
                    first = first or line.lstrip()[:1]
                    for name, value in (_object_in(line) or {}).items():
                        found[name][_kind(value)] += 1
                if tried:
                    break
        if not tried:
            raise unreadable(self._file.shown, "it is empty")
        if not found:
            why = f"none of its first {tried} lines is a JSON object"
            if first == b"[":
                why = "it is one JSON list; put one object on each line, as `jq -c '.[]'` does"
            raise unreadable(self._file.shown, why)
        return {name: _most_common(kinds) for name, kinds in found.items()}

    def pieces(self, skip: int, note: Note) -> Iterator[Piece]:
        rows_done = lines_done = 0
        with self._file.text() as text:
            for block in blocks(io.BufferedReader(text)):
                if block is None:
                    rows_done, lines_done = rows_done + 1, lines_done + 1
                    if rows_done > skip:
                        note(BadRow.MALFORMED, 1, lines_done)
                        yield Piece(self._rows([]), [], text.bytes_read, rows_done, {})
                    continue
                lines = Lines.of(block, lines_done + 1)
                before, rows_done = rows_done, rows_done + len(lines.numbers)
                lines_done += count_lines(block)
                if rows_done <= skip:
                    continue
                if before < skip:
                    lines = lines.without(skip - before)
                rows, numbers = self._parsed(lines), lines.numbers
                if rows is None:
                    rows, numbers = self._one_by_one(lines, note)
                yield Piece(rows, numbers, text.bytes_read, rows_done, {})

    def _parsed(self, lines: Lines) -> pa.RecordBatch | None:
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

    def _one_by_one(self, lines: Lines, note: Note) -> tuple[pa.RecordBatch, list[int]]:
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
        types = {name: TYPES[kind] for name, kind in self._kinds.items()}
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


class _Twice(dict[str, Any]):
    """An object in which these names occur more than once."""

    names: frozenset[str] = frozenset()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        found = _Twice(found)
        found.names = frozenset(twice(name for name, _ in pairs))
    return found


def _constant(name: str) -> float:
    if name != "NaN":
        raise ValueError("JSON has no infinity")
    return math.nan


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


def _object_in(line: bytes) -> dict[str, Any] | None:
    if NOT_TEXT_BYTES in line:
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


def _checked(value: Any, kind: str) -> object:
    """The value as that type. A whole number is a number too; nothing else is anything else."""
    found = _kind(value)
    if found == "nothing":
        return None
    if kind == "json":
        return json.dumps(value)
    if kind == "number" and found == "integer":
        value = float(value)
    elif found != kind:
        raise TypeError
    if kind == "integer" and not -(2**63) <= value < 2**63:
        raise OverflowError
    if kind == "number" and math.isinf(value):
        raise OverflowError
    return value


def _time_as_text(value: object, kind: str) -> object:
    if kind == "number" and _kind(value) == "integer":
        value = _checked(value, kind)
    if value is None or isinstance(value, str):
        return value
    return repr(value)
