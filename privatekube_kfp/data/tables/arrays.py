"""Arrow's arrays, where a few values may be bad: casts that lose those and keep the rest."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privatekube_kfp.data.tables.bad_rows import BadRow, Faults, Mask, fault


def plain_type(kind: pa.DataType) -> pa.DataType:
    """One type for each sort of values, however they are laid out."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def plain(values: pa.Array) -> pa.Array:
    """As its plain type."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    kind = plain_type(values.type)
    return values if values.type == kind else values.cast(kind)


def without_empty(text: pa.Array) -> pa.Array:
    """Null where it is empty."""
    return pc.if_else(pc.equal(text, ""), None, text)


def cast_or_null(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Every value cast, and null where it cannot be: a few bad ones cost little."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, kind)
        half = len(values) // 2
        parts = (values.slice(0, half), values.slice(half))
        return pa.concat_arrays([cast_or_null(part, kind) for part in parts])


def cast_or_fault(values: pa.Array, kind: pa.DataType, why: BadRow, faults: Faults) -> pa.Array:
    """Every value cast; rows whose value cannot be are at fault."""
    found = cast_or_null(values, kind)
    if found.null_count > values.null_count:
        fault(faults, why, mask(found.is_null()) & mask(values.is_valid()))
    return found


def mask(values: pa.Array) -> Mask:
    return np.asarray(values.to_numpy(zero_copy_only=False), bool)
