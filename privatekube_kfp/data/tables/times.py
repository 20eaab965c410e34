"""Times, however a table writes them: as moments in UTC, in microseconds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privatekube_kfp.data.tables.arrays import cast_or_null, mask, without_empty
from privatekube_kfp.data.tables.bad_rows import BadRow, Faults, fault
from privatekube_kfp.data.tables.layout import TIME_UNITS

MOMENT = pa.timestamp("us", "UTC")
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, in microseconds."""

_WHOLE = r"^-?[0-9]{1,18}$"
_NUMBER = r"^-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$"
_LOCAL = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?$"
_ZONED = rf"{_LOCAL[:-1]}(Z|[-+][0-9]{{2}}(:?[0-9]{{2}})?)$"


def times(values: pa.Array, unit: str, faults: Faults) -> pa.Array:
    """Times in UTC; those that are none, or not in the years 1 to 9999, are at fault."""
    if pa.types.is_string(values.type):
        values = without_empty(pc.ascii_trim_whitespace(values))
    found = _moments(values, unit)
    if found.null_count:
        missing = mask(values.is_null())
        fault(faults, BadRow.NO_TIME, missing)
        fault(faults, BadRow.BAD_TIME, mask(found.is_null()) & ~missing)
    return found.cast(MOMENT)


def _moments(values: pa.Array, unit: str) -> pa.Array:
    """Microseconds, or null."""
    kind = values.type
    if pa.types.is_string(kind):
        return _from_text(values, unit)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _from_numbers(values.cast(pa.float64()), TIME_UNITS[unit])
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return _from_whole(values.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64()), 1)
    if pa.types.is_timestamp(kind):
        return _from_whole(values.cast(pa.int64()), TIME_UNITS[kind.unit])
    if pa.types.is_date32(kind):
        return _from_whole(values.cast(pa.int32()).cast(pa.int64()), 86_400_000_000)
    if pa.types.is_date64(kind):
        return _from_whole(values.cast(pa.int64()), 1_000)
    return _from_whole(cast_or_null(values, pa.int64()), TIME_UNITS[unit])


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
        (_WHOLE, lambda part: _from_whole(part.cast(pa.int64()), TIME_UNITS[unit])),
        (_NUMBER, lambda part: _from_numbers(part.cast(pa.float64()), TIME_UNITS[unit])),
        (_LOCAL, lambda part: _from_iso(part, pa.timestamp("us"))),
        (_ZONED, lambda part: _from_iso(part, MOMENT)),
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
    return _from_whole(cast_or_null(cut, kind).cast(pa.int64()), 1)
