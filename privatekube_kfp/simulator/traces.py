"""Traces: who came when and asked for what, in a CSV file.

Columns: `arrival` (seconds), `start_block`, `num_blocks`, `epsilon`; may be there: `delta` and
`weight`. Under Renyi accounting the demand at each order is there instead of epsilon, as `rdp_2`,
`rdp_2.5`, ... Other columns are passed over. Demands are read as decimals and rounded up
to the unit.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import numpy as np

from privatekube_kfp.core.budget import DELTA_DIGITS, Accounting, Budget, ceil_units, parse_decimal
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.policy import MAX_WEIGHT
from privatekube_kfp.simulator.workload import Workload

_ALWAYS = ("arrival", "start_block", "num_blocks")
MOST_BLOCKS = 100_000
_LATEST = Decimal(10**9)


def read_trace(
    path: Path,
    accounting: Accounting,
    capacity: Budget,
    *,
    blocks: int | None = None,
    timeout: int | None = None,
) -> Workload:
    """A trace of blocks that all exist from the start: as many as it asks for, unless told."""
    known: dict[Budget, int] = {}
    rows = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            _check_columns(path, reader.fieldnames or (), accounting)
            last = 0
            for number, row in enumerate(reader, start=2):
                try:
                    at, first, count, demand, weight = _read(row, accounting)
                except Invalid as error:
                    raise _invalid(path, f"line {number}: {error.message}") from error
                if at < last:
                    raise _invalid(
                        path, f"line {number}: it arrives before the line above; sort by arrival"
                    )
                last = at
                rows.append((at, first, count, known.setdefault(demand, len(known)), weight))
    except (csv.Error, UnicodeDecodeError) as error:
        raise _invalid(path, f"it is no CSV file: {error}") from error
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T.copy()
    at_, first_, count_, demand_, weight_ = columns
    there = int((first_ + count_).max(initial=0)) if blocks is None else blocks
    return Workload(
        accounting=accounting,
        capacity=capacity,
        blocks=(0,) * there,
        at=at_,
        first=first_,
        count=count_,
        demand=demand_,
        demands=list(known),
        timeout=timeout,
        weight=weight_,
    )


def _check_columns(path: Path, columns: object, accounting: Accounting) -> None:
    there = list(columns) if isinstance(columns, (list, tuple)) else []
    wanted = [*_ALWAYS, *_amounts(accounting)]
    missing = [name for name in wanted if name not in there]
    if missing:
        has = f"it has {', '.join(map(str, there))}" if there else "it is empty"
        raise _invalid(path, f"there is no column {missing[0]!r}; {has}")


def _amounts(accounting: Accounting) -> list[str]:
    return [f"rdp_{order}" for order in accounting.orders] or ["epsilon"]


def _read(row: Mapping[str, str], accounting: Accounting) -> tuple[int, int, int, Budget, int]:
    if None in row or None in row.values():
        raise Invalid(Reason.INVALID_REQUEST, "it has not as many values as there are columns")
    at = parse_decimal(row["arrival"], "arrival")
    if at > _LATEST:
        raise Invalid(Reason.INVALID_REQUEST, f"arrival {row['arrival']} is absurdly late")
    first = _whole(row["start_block"], "start_block", 0, MOST_BLOCKS)
    count = _whole(row["num_blocks"], "num_blocks", 1, MOST_BLOCKS)
    values = [parse_decimal(row[name], name) for name in _amounts(accounting)]
    if accounting.is_renyi:
        demand = accounting.budget(map(ceil_units, values))
    else:
        delta = parse_decimal(row.get("delta") or "0", "delta")
        demand = accounting.budget((ceil_units(values[0]), ceil_units(delta, DELTA_DIGITS)))
    if demand.is_zero:
        raise Invalid(Reason.INVALID_BUDGET, "it asks for nothing")
    weight = _whole(row.get("weight") or "1", "weight", 1, MAX_WEIGHT)
    return int(at * 1_000_000), first, count, demand, weight


def _whole(text: str, name: str, least: int, most: int) -> int:
    if not text.strip().isdecimal() or not text.isascii() or not least <= int(text) <= most:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"{name} {text[:40]!r} is not a whole number from {least} to {most}",
        )
    return int(text)


def _invalid(path: Path, message: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, f"{path}: {message}")
