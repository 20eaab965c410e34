"""The workloads of the paper's evaluation, with the constants of its published simulator.

Micro: mice and elephants that come by chance at a steady rate, on one block or on blocks that keep
appearing. Macro: a mix of training and statistics pipelines, whose demands are read from a table.
Mixed is our own: demands that differ in what they are cheap at.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np

from privatekube_kfp.accounting import (
    DEFAULT_ORDERS,
    Classic,
    Conversion,
    DpSgd,
    Gaussian,
    Laplace,
    Mechanism,
    block_capacity,
)
from privatekube_kfp.accounting.enclosure import Enclosure
from privatekube_kfp.core.budget import (
    BASIC,
    DELTA_DIGITS,
    EPSILON_DIGITS,
    INFINITE,
    Accounting,
    Budget,
    ceil_units,
    parse_decimal,
    renyi,
)
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.exact_sums import Ints
from privatekube_kfp.core.unlocking import MICROSECONDS
from privatekube_kfp.simulator.workload import Workload

MICRO_ORDERS = renyi(
    ["1.000001", "1.0001", "1.5", "2", *(str(2**power) for power in range(2, 12)), "20480"]
)
SECOND, DAY = MICROSECONDS["s"], MICROSECONDS["d"]
MICE, ELEPHANTS = 0.01, 0.1
_LEAST_FACTOR = 0.9999999
"""Demands are multiplied by a number from here to 1, so that no two are quite alike."""
_DELTA, _DEMAND_DELTA = "1e-6", "1e-9"
_TIMEOUT = 300 * SECOND


def single_block(
    seed: int, *, mice: float = 0.75, with_renyi: bool = False, seconds: float | None = None
) -> Workload:
    """One block, one pipeline a second."""
    random = np.random.default_rng(seed)
    long = seconds or (34_289 if with_renyi else 236)
    at = _poisson(random, long, gap=1.0)
    zeros = np.zeros(len(at), dtype=np.int64)
    return _micro(random, at, with_renyi, mice, (0,), zeros, zeros + 1, _TIMEOUT, long)


BASIC_GAP, RENYI_GAP = 0.078125, 0.004264781


def multi_block(
    seed: int,
    *,
    mice: float = 0.75,
    with_renyi: bool = False,
    gap: float | None = None,
    seconds: float = 300,
) -> Workload:
    """Twelve blocks at first and one each ten seconds; three of four ask for the last, else ten."""
    random = np.random.default_rng(seed)
    at = _poisson(random, seconds, gap or (RENYI_GAP if with_renyi else BASIC_GAP))
    blocks = (0,) * 12 + tuple(range(10 * SECOND, math.ceil(seconds) * SECOND, 10 * SECOND))
    there = np.searchsorted(np.array(blocks), at, side="right")
    count = np.where(random.random(len(at)) < 0.75, 1, 10)
    return _micro(random, at, with_renyi, mice, blocks, there - count, count, None, seconds)


def _poisson(random: np.random.Generator, seconds: float, gap: float) -> Ints:
    """Arrivals in microseconds, by chance, one each `gap` seconds on average."""
    many = math.ceil(seconds / gap + 10 * math.sqrt(seconds / gap) + 10)
    at = np.cumsum(random.exponential(gap, many))
    return (at[at < seconds] * SECOND).astype(np.int64)


def _micro(
    random: np.random.Generator,
    at: Ints,
    with_renyi: bool,
    mice: float,
    blocks: tuple[int, ...],
    first: Ints,
    count: Ints,
    timeout: int | None,
    seconds: float,
) -> Workload:
    sizes = np.where(random.random(len(at)) < mice, MICE, ELEPHANTS)
    epsilons = (sizes * random.uniform(_LEAST_FACTOR, 1, len(at))).tolist()
    accounting = MICRO_ORDERS if with_renyi else BASIC
    return Workload(
        accounting=accounting,
        capacity=block_capacity("1", _DELTA, accounting, Classic() if with_renyi else None),
        blocks=blocks,
        at=at,
        first=first,
        count=count,
        demand=np.arange(len(at), dtype=np.int64),
        demands=[(gaussian_demand if with_renyi else basic_demand)(e) for e in epsilons],
        timeout=timeout,
        end=math.ceil(seconds) * SECOND,
    )


def basic_demand(epsilon: float) -> Budget:
    return BASIC.budget((ceil_units(Decimal(repr(epsilon))), 0))


@lru_cache(maxsize=1)
def _gaussian_factors() -> tuple[int, tuple[int, ...]]:
    """For each order, what epsilon squared is multiplied by, over a common power of ten.

    With sigma = sqrt(2 ln(1.25 / delta)) / epsilon, order a costs
    a epsilon**2 / (4 ln(1.25 / delta)).
    """
    log = Enclosure.of(Fraction(5, 4) / Fraction(_DEMAND_DELTA)).ln()
    digits = 24
    factors = [
        math.ceil(Fraction((Enclosure.of(Fraction(a)) / (Enclosure.of(4) * log)).high) * 10**digits)
        for a in MICRO_ORDERS.order_values
    ]
    return digits, tuple(factors)


def gaussian_demand(epsilon: float) -> Budget:
    """What the published simulator asks under Renyi for (epsilon, 1e-9): a Gaussian's curve."""
    digits, factors = _gaussian_factors()
    units, fine = int(Fraction(repr(epsilon)) * 10**20), 40
    scale = 10 ** (digits + fine - EPSILON_DIGITS)
    square = (units + 1) ** 2
    return MICRO_ORDERS.budget(min(-(-factor * square // scale), INFINITE) for factor in factors)


@dataclass(frozen=True)
class Pipeline:
    """A kind of pipeline of the macrobenchmark: what it asks, of how many of the latest blocks."""

    group: str
    name: str
    blocks: int
    epsilon: Decimal
    delta: Decimal
    curve: dict[str, Decimal]

    def demand(self, accounting: Accounting) -> Budget:
        if accounting.is_renyi:
            return accounting.budget(ceil_units(self.curve[order]) for order in accounting.orders)
        return accounting.budget((ceil_units(self.epsilon), ceil_units(self.delta, DELTA_DIGITS)))


_CURVE = "rdp_"


def read_pipelines(path: Path) -> list[Pipeline]:
    """Kinds of pipelines of a table: group, name, epsilon, delta, n_blocks_days, rdp_<order>."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, strict=True))
        pipelines = [
            Pipeline(
                row["group"],
                row["name"],
                int(row["n_blocks_days"]),
                parse_decimal(row["epsilon"], "epsilon"),
                parse_decimal(row["delta"], "delta"),
                {
                    column.removeprefix(_CURVE): parse_decimal(row[column], column)
                    for column in row
                    if column.startswith(_CURVE)
                },
            )
            for row in rows
        ]
    except (
        csv.Error,
        UnicodeDecodeError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        said = f"there is no column {error}" if isinstance(error, KeyError) else str(error)
        raise Invalid(Reason.INVALID_REQUEST, f"{path}: {said}") from error
    if not {"elephants", "mice-laplace"} <= {pipeline.group for pipeline in pipelines}:
        raise Invalid(
            Reason.INVALID_REQUEST, f"{path}: it has no groups 'elephants' and 'mice-laplace'"
        )
    return pipelines


def macro(
    seed: int,
    pipelines: list[Pipeline],
    *,
    conversion: Conversion | None = None,
    mice_group: str = "mice-laplace",
    days: int = 50,
    warm_up: int = 10,
    a_day: float = 300,
) -> Workload:
    """A block a day, and pipelines that ask for the latest; Renyi if there is a conversion."""
    random = np.random.default_rng(seed)
    accounting = BASIC if conversion is None else renyi(pipelines[0].curve)
    mice = [p for p in pipelines if p.group == mice_group]
    elephants = [p for p in pipelines if p.group == "elephants"]
    kinds = mice + elephants
    at = _poisson(random, days, 1 / a_day) * (DAY // SECOND)
    blocks = (0,) * warm_up + tuple(day * DAY for day in range(days))
    kind = np.where(
        random.random(len(at)) < 0.75,
        random.integers(len(mice), size=len(at)),
        len(mice) + random.integers(len(elephants), size=len(at)),
    )
    there = np.searchsorted(np.array(blocks), at, side="right")
    count = np.minimum(np.array([p.blocks for p in kinds])[kind], there)
    return Workload(
        accounting=accounting,
        capacity=block_capacity("10", "1e-7", accounting, conversion),
        blocks=blocks,
        at=at,
        first=there - count,
        count=count,
        demand=kind,
        demands=[p.demand(accounting) for p in kinds],
        timeout=5 * DAY,
        end=days * DAY,
    )


def mixed_kinds() -> list[Mechanism]:
    """Mechanisms that are cheap at different orders: Laplace at high, DP-SGD at low ones."""
    return [
        *(Gaussian(sigma) for sigma in ("3", "5", "8", "12", "20")),
        *(Laplace(epsilon) for epsilon in ("0.05", "0.1", "0.2", "0.4", "0.8")),
        *(DpSgd(noise, "0.01", 200) for noise in ("0.6", "0.7", "0.8", "1", "1.3")),
    ]


def mixed(seed: int, *, seconds: float = 300, gap: float = BASIC_GAP) -> Workload:
    """Pipelines unlike in blocks and in orders, where packing has something to choose from.

    Blocks appear as in `multi_block`. Each pipeline runs one of `mixed_kinds` on 1 to 30 of the
    latest blocks, mostly on few.
    """
    random = np.random.default_rng(seed)
    accounting = renyi(DEFAULT_ORDERS)
    at = _poisson(random, seconds, gap)
    blocks = (0,) * 30 + tuple(range(10 * SECOND, math.ceil(seconds) * SECOND, 10 * SECOND))
    there = np.searchsorted(np.array(blocks), at, side="right")
    count = np.minimum(np.ceil(random.pareto(0.8, len(at)) + 0.5), 30).astype(np.int64)
    demands = [kind.price(accounting) for kind in mixed_kinds()]
    return Workload(
        accounting=accounting,
        capacity=block_capacity("10", "1e-7", accounting, Classic()),
        blocks=blocks,
        at=at,
        first=there - count,
        count=count,
        demand=random.integers(len(demands), size=len(at)),
        demands=demands,
        end=math.ceil(seconds) * SECOND,
    )
