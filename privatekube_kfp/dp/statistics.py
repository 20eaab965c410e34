"""Six statistics of reviews, with noise that is calibrated to a step of a claim's plan.

    count = statistic("reviews_total")
    planned = calibrate(count, Laplace("0.1"), BASIC)
    planned.cost          # what it costs, worked out from the noise
    planned.run("data.parquet")

A statistic is made of parts: sums over rows of whole numbers that are bounded for each row, and of
rows that are bounded for each protected unit (`contribution`). So one unit more or less changes a
part by at most its sensitivity, exactly. Each part gets noise (`noise`) for its share of the step,
and everything else is computed from what has noise already. What is a fraction in the data is
rounded to whole steps of 0.001 row by row, before it is summed: bounds and sensitivity are those
of the rounded numbers.

Whatever a row holds that makes no sense (no text, no rating, one that is not a number, a category
that is not listed) leaves that row out, and nothing is said of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, expm1, log, sqrt
from pathlib import Path
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet

from privatekube_kfp.accounting import (
    EpsilonDelta,
    Gaussian,
    Laplace,
    Mechanism,
    PureEpsilon,
    gaussian_sigma,
)
from privatekube_kfp.accounting.enclosure import Enclosure
from privatekube_kfp.accounting.hockey_stick import renyi_epsilon, smallest
from privatekube_kfp.core.budget import (
    EPSILON_DIGITS,
    Accounting,
    Budget,
    ceil_units,
    format_amount,
    parse_epsilon,
)
from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.data.blocks import TIME, USER, blocks_of_rows
from privatekube_kfp.dp.contribution import Unit
from privatekube_kfp.dp.noise import LARGEST_SCALE, Draw, Kind, draw, float_above, noisy
from privatekube_kfp.ledger.streams import Semantic

MOST_CATEGORIES = 10_000
_WIDEST = 2**20
_STEPS = 1000
_BATCH = 64 * 1024
_SEARCHED = 2**44
_SURE = 0.95
_COUNTED = 1000
"""Up to this deviation the tails of discrete Gaussian noise are summed up; beyond, it is smooth."""

Ints = npt.NDArray[np.int64]
Value = float | int | dict[str, int]


@dataclass(frozen=True)
class Part:
    """A sum, or several of which a row is in one at most, and what a row adds to it at most."""

    name: str
    per_row: int
    share: Fraction = Fraction(1)
    width: int = 1


# The statistics


@dataclass(frozen=True)
class Statistic(ABC):
    """What is computed, on which column, between which bounds, of which unit."""

    name: str
    unit: Unit
    column: str | None

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]: ...

    @abstractmethod
    def numbers(self, column: pa.Array) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """A whole number for each row, and whether the row has one."""

    @abstractmethod
    def sums(self, numbers: Ints) -> list[list[int]]:
        """Of the rows that count: each part, exactly. Private."""

    @abstractmethod
    def value(self, sums: Sequence[Sequence[int]]) -> Value:
        """What is told, of parts that have noise."""

    @abstractmethod
    def error(self, sums: Sequence[Sequence[int]], sizes: Sequence[float]) -> float | None:
        """How far off that may be, if each part is off by so much; None where it cannot be told."""

    @property
    def values(self) -> int:
        """How many values are told, each with noise of its own."""
        return 1

    def exact(self, data: str | Path) -> list[list[int]]:
        """Each part of the data in a Parquet file, without noise. Private."""
        totals = [[0] * part.width for part in self.parts]
        for numbers in self._counted(data):
            for total, more in zip(totals, self.sums(numbers), strict=True):
                total[:] = [a + b for a, b in zip(total, more, strict=True)]
        return totals

    def sensitivity(self, part: Part) -> int:
        """By how much one unit, all of it, changes a part at most."""
        return part.per_row * self.unit.rows

    def bounds(self) -> dict[str, object]:
        return {}

    def _counted(self, data: str | Path) -> Iterator[Ints]:
        """The numbers of the rows that count, of each unit its first ones."""
        by_unit = self.unit.semantic is not Semantic.EVENT
        columns = [*([USER, TIME] if by_unit else []), *([self.column] if self.column else [])]
        with parquet.ParquetFile(data) as file:
            # All that may be refused is, before there are rows: whether there are any is private.
            self._of_batch(_no_rows(file.schema_arrow, columns))
            blocks = self._blocks(file)
            batches = file.iter_batches(_BATCH, columns=columns)
            if by_unit:
                yield from self._of_units(batches, blocks)
                return
            for batch in batches:
                numbers, there = self._of_batch(batch)
                yield numbers[there]

    def _of_units(self, batches: Iterable[pa.RecordBatch], blocks: Ints) -> Iterator[Ints]:
        found: list[tuple[Ints, npt.NDArray[np.bool_]]] = []
        users: list[pa.Array] = []
        times: list[Ints] = []
        for batch in batches:
            found.append(self._of_batch(batch))
            users.append(batch.column(USER))
            times.append(batch.column(TIME).cast(pa.int64()).to_numpy(zero_copy_only=False))
        if not found:
            return
        numbers, there = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        names = pa.chunked_array(users).combine_chunks().dictionary_encode().indices
        whose = names.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        (rows,) = np.nonzero(there & (whose >= 0))
        count = self.unit.kept(whose[rows], np.concatenate(times)[rows], blocks[rows])
        kept = numbers[rows][count]
        for first in range(0, len(kept), _BATCH):
            yield kept[first : first + _BATCH]

    def _of_batch(self, batch: pa.RecordBatch) -> tuple[Ints, npt.NDArray[np.bool_]]:
        if self.column is None:
            return np.ones(batch.num_rows, np.int64), np.ones(batch.num_rows, bool)
        return self.numbers(batch.column(self.column))

    def _blocks(self, file: parquet.ParquetFile) -> Ints:
        rows = file.metadata.num_rows
        if self.unit.semantic is not Semantic.USER_TIME:
            return np.zeros(rows, np.int64)
        return blocks_of_rows(file.metadata)


@dataclass(frozen=True)
class Count(Statistic):
    """How many rows there are."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("count", 1),)

    def numbers(self, column: pa.Array) -> tuple[Ints, npt.NDArray[np.bool_]]:
        raise AssertionError("it has no column")

    def sums(self, numbers: Ints) -> list[list[int]]:
        return [[len(numbers)]]

    def value(self, sums: Sequence[Sequence[int]]) -> Value:
        return max(0, sums[0][0])

    def error(self, sums: Sequence[Sequence[int]], sizes: Sequence[float]) -> float | None:
        return sizes[0]


@dataclass(frozen=True)
class CountPerCategory(Statistic):
    """How many rows each of the categories has that are asked for."""

    categories: tuple[str, ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("count", 1, width=len(self.categories)),)

    def numbers(self, column: pa.Array) -> tuple[Ints, npt.NDArray[np.bool_]]:
        text = _text(self.column, column)
        found = pc.index_in(text, value_set=pa.array(self.categories, text.type))
        there = found.is_valid().to_numpy(zero_copy_only=False)
        return found.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), there

    def sums(self, numbers: Ints) -> list[list[int]]:
        return [np.bincount(numbers, minlength=len(self.categories)).tolist()]

    def value(self, sums: Sequence[Sequence[int]]) -> Value:
        return {name: max(0, n) for name, n in zip(self.categories, sums[0], strict=True)}

    def error(self, sums: Sequence[Sequence[int]], sizes: Sequence[float]) -> float | None:
        return sizes[0]

    @property
    def values(self) -> int:
        return len(self.categories)

    def bounds(self) -> dict[str, object]:
        return {"categories": list(self.categories)}


@dataclass(frozen=True)
class _OfNumbers(Statistic):
    """Of a number that each row has, in steps of `1 / steps`, kept between `low` and `high`."""

    low: int
    high: int
    tokens: bool

    @property
    def steps(self) -> int:
        return 1 if self.tokens else _STEPS

    @property
    def reach(self) -> int:
        """From the middle to either bound, in half steps."""
        return (self.high - self.low) * self.steps

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def numbers(self, column: pa.Array) -> tuple[Ints, npt.NDArray[np.bool_]]:
        if self.tokens:
            found = pc.count_substring_regex(_text(self.column, column), r"\S+")
        else:
            found = _numbers(self.column, column)
        values = found.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
        there = found.is_valid().to_numpy(zero_copy_only=False) & ~np.isnan(values)
        clamped = np.clip(np.where(there, values, self.low), self.low, self.high)
        return np.rint(clamped * self.steps).astype(np.int64), there

    def centred(self, numbers: Ints) -> Ints:
        """From the middle, in half steps, so that the middle of the bounds is 0 and whole."""
        return 2 * numbers - (self.low + self.high) * self.steps

    def bounds(self) -> dict[str, object]:
        return {"low": self.low, "high": self.high}


@dataclass(frozen=True)
class Total(_OfNumbers):
    """The sum."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("sum", max(abs(self.low), abs(self.high)) * self.steps),)

    def sums(self, numbers: Ints) -> list[list[int]]:
        return [[int(numbers.sum())]]

    def value(self, sums: Sequence[Sequence[int]]) -> Value:
        total = sums[0][0] if self.low < 0 else max(0, sums[0][0])
        return total if self.steps == 1 else total / self.steps

    def error(self, sums: Sequence[Sequence[int]], sizes: Sequence[float]) -> float | None:
        return sizes[0] / self.steps


@dataclass(frozen=True)
class Mean(_OfNumbers):
    """The mean: half of the step for the sum, measured from the middle, half for the count."""

    @property
    def parts(self) -> tuple[Part, ...]:
        half = Fraction(1, 2)
        return (Part("sum", self.reach, half), Part("count", 1, half))

    def sums(self, numbers: Ints) -> list[list[int]]:
        return [[int(self.centred(numbers).sum())], [len(numbers)]]

    def value(self, sums: Sequence[Sequence[int]]) -> Value:
        (total,), (count,) = sums
        mean = self.middle + total / max(1, count) / (2 * self.steps)
        return min(max(mean, float(self.low)), float(self.high))

    def error(self, sums: Sequence[Sequence[int]], sizes: Sequence[float]) -> float | None:
        (total,), (count,) = sums
        if count <= 2 * sizes[1]:
            return None
        mean = min(abs(total / count), self.reach)
        return sqrt(sizes[0] ** 2 + (mean * sizes[1]) ** 2) / count / (2 * self.steps)


@dataclass(frozen=True)
class Deviation(_OfNumbers):
    """The standard deviation.

    A quarter of the step is for the squares, three eighths each for the sum and for the count,
    which matter more where values are far from the middle. Squares too are measured from the
    middle of what they can be, twice: a row's is from `-reach**2` to `reach**2`. That halves what
    a row can add.
    """

    @property
    def parts(self) -> tuple[Part, ...]:
        squares, others = Fraction(1, 4), Fraction(3, 8)
        return (
            Part("squares", self.reach**2, squares),
            Part("sum", self.reach, others),
            Part("count", 1, others),
        )

    def sums(self, numbers: Ints) -> list[list[int]]:
        centred = self.centred(numbers)
        squares = 2 * centred * centred - self.reach**2
        return [[int(squares.sum())], [int(centred.sum())], [len(numbers)]]

    def value(self, sums: Sequence[Sequence[int]]) -> Value:
        (squares,), (total,), (count,) = sums
        rows = max(1, count)
        square = (squares / rows + self.reach**2) / 2
        variance = min(max(0.0, square - (total / rows) ** 2), float(self.reach**2))
        return sqrt(variance) / (2 * self.steps)

    def error(self, sums: Sequence[Sequence[int]], sizes: Sequence[float]) -> float | None:
        (squares,), (total,), (count,) = sums
        found = self.value(sums)
        assert isinstance(found, float)
        if count <= 2 * sizes[2] or not found:
            return None
        mean = total / count
        by_squares, by_sum = sizes[0] / 2, 2 * mean * sizes[1]
        by_count = (squares / count / 2 - 2 * mean**2) * sizes[2]
        variance = sqrt(by_squares**2 + by_sum**2 + by_count**2) / count
        off = variance / (2 * found * (2 * self.steps) ** 2)
        # Further off, the first order says nothing.
        return off if off < found / 2 else None


STATISTICS: dict[str, tuple[type[Statistic], dict[str, object]]] = {
    "reviews_total": (Count, {"column": None}),
    "reviews_per_category": (CountPerCategory, {"column": "category"}),
    "tokens_total": (Total, {"column": "text", "low": 0, "high": 200, "tokens": True}),
    "tokens_mean": (Mean, {"column": "text", "low": 0, "high": 200, "tokens": True}),
    "tokens_deviation": (Deviation, {"column": "text", "low": 0, "high": 200, "tokens": True}),
    "rating_mean": (Mean, {"column": "rating", "low": 1, "high": 5, "tokens": False}),
}
"""The statistics by name, and what they are of unless said otherwise."""


def statistic(
    name: str,
    unit: Unit | None = None,
    *,
    low: int | None = None,
    high: int | None = None,
    categories: Sequence[str] | None = None,
    column: str | None = None,
) -> Statistic:
    """A statistic by its name.

    All that is given here is public: neither bounds nor categories may be taken from the data.

    Args:
        name: One of `STATISTICS`.
        unit: What is protected, and how many rows of it count; a row unless given.
        low: The least that a row's number counts for.
        high: The most that a row's number counts for.
        categories: Those to count. Any other is left out.
        column: Where the texts, ratings or categories are.
    """
    if name not in STATISTICS:
        raise _invalid(f"unknown statistic {name!r}; known are {', '.join(STATISTICS)}")
    cls, usual = STATISTICS[name]
    said: dict[str, object] = {"low": low, "high": high, "categories": categories, "column": column}
    given = {key: value for key, value in said.items() if value is not None}
    known = {*usual} - {"tokens"} if usual["column"] else set()
    if cls is CountPerCategory:
        known.add("categories")
    for key in given:
        if key not in known:
            has = f"has {', '.join(sorted(known))}" if known else "has neither bounds nor columns"
            raise _invalid(f"{name} has no {key}; it {has}")
    wanted = {**usual, **given}
    if cls is CountPerCategory:
        wanted["categories"] = _categories(name, wanted.get("categories"))
    if "low" in wanted:
        _check_bounds(name, wanted)
    return cls(name=name, unit=unit or Unit(), **wanted)  # type: ignore[arg-type]


def _categories(name: str, given: object) -> tuple[str, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise _invalid(
            f"{name} needs the list of categories to count; it cannot be taken from the data"
        )
    if not all(isinstance(each, str) and each for each in given):
        raise _invalid("categories must be texts, and none of them empty")
    if len(set(given)) < len(given):
        raise _invalid("a category is listed twice")
    if len(given) > MOST_CATEGORIES:
        raise _invalid(f"{len(given)} categories are more than {MOST_CATEGORIES}")
    return tuple(given)


def _check_bounds(name: str, wanted: Mapping[str, object]) -> None:
    low, high = wanted["low"], wanted["high"]
    for bound in (low, high):
        if type(bound) is not int:
            raise _invalid(f"bounds are whole numbers, not {bound!r}")
    assert isinstance(low, int)
    assert isinstance(high, int)
    if low >= high:
        raise _invalid(f"the bounds of {name} are {low} and {high}: low must be below high")
    if wanted["tokens"] and low < 0:
        raise _invalid(f"the lower bound {low}: no text has fewer than 0 tokens")
    widest = _WIDEST if wanted["tokens"] else _WIDEST // _STEPS
    if max(high - low, abs(low), abs(high)) > widest:
        raise _invalid(f"the bounds {low} and {high} are beyond {widest}")


# What it costs


@dataclass(frozen=True)
class Planned:
    """A statistic with the noise that a step of a plan pays for."""

    statistic: Statistic
    accounting: Accounting
    kind: Kind
    scales: tuple[float, ...]
    delta: int = 0

    @property
    def cost(self) -> Budget:
        """What the noise of all parts costs together, worked out from nothing but the noise."""
        parts = zip(self.statistic.parts, self.scales, strict=True)
        ratios = [Fraction(self.statistic.sensitivity(p)) / Fraction(s) for p, s in parts]
        if self.kind is Kind.LAPLACE:
            # The parts' curves together are at most the curve of their epsilons' sum: the
            # logarithm of a sum of exponentials is convex, and 0 for no epsilon.
            epsilon = format_amount(ceil_units(sum(ratios, Fraction())), EPSILON_DIGITS)
            return Laplace(epsilon).price(self.accounting)
        return _gaussian_cost(sum((r * r for r in ratios), Fraction()), self.accounting, self.delta)

    def sizes(self, draws: int = 1) -> tuple[float, ...]:
        """How far each part is off, at most, in 95 of 100 runs: so many draws of it at once.

        Draws are independent, so all of them are within a size with the power of the chance that
        one is.
        """
        beyond = -expm1(log(_SURE) / draws)
        return tuple(_size(self.kind, scale, beyond) for scale in self.scales)

    def run(self, data: str | Path, draw: Draw = draw) -> Release:
        """Compute it on the data in a Parquet file. Each run costs what it costs once more."""
        sums = [
            [noisy(value, draw(self.kind, scale)) for value in part]
            for part, scale in zip(self.statistic.exact(data), self.scales, strict=True)
        ]
        return Release(self, tuple(map(tuple, sums)))


@dataclass(frozen=True)
class Release:
    """What came out. Nothing in it is of the data but through the noise."""

    planned: Planned
    sums: tuple[tuple[int, ...], ...]

    @property
    def value(self) -> Value:
        return self.planned.statistic.value(self.sums)

    @property
    def error(self) -> float | None:
        """How far off the value is at most, in about 95 of 100 runs; None if that is not known.

        Of a table: how far off any of its values is, so that all of them hold at once.
        """
        known = self.planned.statistic
        return known.error(self.sums, self.planned.sizes(known.values))

    @property
    def error_each(self) -> float | None:
        """The same of each value of a table alone: of twenty, one or more are likely beyond it."""
        return self.planned.statistic.error(self.sums, self.planned.sizes())

    def to_json(self) -> dict[str, object]:
        known = self.planned.statistic
        parts = zip(known.parts, self.planned.scales, self.sums, strict=True)
        return {
            "statistic": known.name,
            "value": self.value,
            "error95": self.error,
            **({"error95Each": self.error_each} if isinstance(self.value, dict) else {}),
            "unit": known.unit.to_json(),
            "bounds": known.bounds(),
            "noise": self.planned.kind.value,
            "parts": [
                {
                    "name": part.name,
                    "value": list(values),
                    "sensitivity": known.sensitivity(part),
                    "scale": scale,
                }
                for part, scale, values in parts
            ],
            "cost": self.planned.cost.to_json(),
        }


def calibrate(known: Statistic, step: Mechanism, accounting: Accounting) -> Planned:
    """The noise that a step of a plan pays for, to the last unit and not beyond.

    `laplace`, `pure` and `epsilon-delta` without a delta are Laplace noise, whose epsilon is
    divided among the parts by their shares. `gaussian` and `epsilon-delta` with a delta are
    Gaussian noise; it is the inverse variance that is divided.
    """
    match step:
        case Laplace() | PureEpsilon() | EpsilonDelta(delta="0"):
            epsilon = Fraction(step.epsilon)
            scales = [known.sensitivity(p) / (epsilon * p.share) for p in known.parts]
            kind, delta = Kind.LAPLACE, 0
        case Gaussian() | EpsilonDelta():
            kind = Kind.GAUSSIAN
            delta = 0 if accounting.is_renyi else step.price(accounting).amounts[1]
            precision = _inverse_variance(step, accounting, delta)
            scales = [
                known.sensitivity(p) * Fraction(Enclosure.of(1 / (precision * p.share)).sqrt().high)
                for p in known.parts
            ]
        case _:
            raise Invalid(
                Reason.INVALID_PLAN,
                f"a statistic cannot be paid by a step of {step.kind}; name the step laplace, pure,"
                " gaussian or epsilon-delta",
            )
    if max(scales) > LARGEST_SCALE:
        raise Invalid(
            Reason.INVALID_BUDGET,
            f"the step is too small for {known.name}: no noise that could be drawn is enough for"
            f" {step.price(accounting).brief()}",
        )
    planned = Planned(known, accounting, kind, tuple(map(float_above, scales)), delta)
    granted, cost = step.price(accounting), planned.cost
    if not granted.covers(cost):
        label = cost.first_above(granted)
        raise PrivateKubeError(
            Reason.EXCEEDS_ALLOCATION,
            f"{known.name} would cost {cost.at(label)}; the step has {granted.at(label)}",
        )
    return planned


@lru_cache(maxsize=256)
def _inverse_variance(
    step: Gaussian | EpsilonDelta, accounting: Accounting, delta: int
) -> Fraction:
    """Of noise on a value of sensitivity 1, as large as the step pays for.

    Discrete Gaussian noise has an epsilon at a delta by its Renyi curve; the step's price, if it
    names continuous noise, is a little below that. So there the noise is a little (about 6%) more.
    """
    if isinstance(step, Gaussian) and accounting.is_renyi:
        return 1 / Fraction(step.sigma) ** 2
    price = step.price(accounting)  # refused under Renyi accounting for what has no curve
    if isinstance(step, Gaussian):
        base = Fraction(step.sigma)
    else:
        if not parse_epsilon(step.epsilon):
            raise Invalid(Reason.INVALID_BUDGET, "the step has no epsilon, and any noise costs one")
        base = Fraction(gaussian_sigma(step.epsilon, step.delta))

    def enough(units: int) -> bool:
        sigma = base * units / _SEARCHED
        return price.covers(_gaussian_cost(1 / sigma**2, accounting, delta))

    most = 4 * _SEARCHED
    if not enough(most):
        raise Invalid(
            Reason.INVALID_BUDGET,
            f"the step is too small for Gaussian noise: {price.brief()}; a delta so small needs a"
            " larger epsilon, or Laplace noise, which needs no delta",
        )
    units = smallest(enough, _SEARCHED // 2, most)
    return (Fraction(_SEARCHED, units) / base) ** 2


def _gaussian_cost(precision: Fraction, accounting: Accounting, delta: int) -> Budget:
    """Of discrete Gaussian noise, whose divergence at order a is at most a * precision / 2."""
    if accounting.is_renyi:
        return accounting.budget(
            ceil_units(Fraction(order) * precision / 2) for order in accounting.order_values
        )
    epsilon = renyi_epsilon(lambda a: Enclosure.of(Fraction(a) * precision / 2).high, delta)
    return accounting.budget((epsilon, delta))


def _size(kind: Kind, scale: float, beyond: float) -> float:
    """The least whole number that noise is beyond with at most this chance."""
    if kind is Kind.LAPLACE:
        # It is rounded: it is beyond a whole number if it was at least a half more.
        return float(max(0, ceil(-log(beyond) * scale - 0.5)))
    if scale < _COUNTED:
        weights = [exp(-((n / scale) ** 2) / 2) for n in range(ceil(12 * scale) + 2)]
        whole = weights[0] + 2 * sum(weights[1:])
        tail, size = 0.0, len(weights) - 1
        while size > 0 and tail + 2 * weights[size] / whole <= beyond:
            tail += 2 * weights[size] / whole
            size -= 1
        return float(size)
    return float(ceil(NormalDist().inv_cdf(1 - beyond / 2) * scale))


# Reading


def _no_rows(schema: pa.Schema, needed: Sequence[str]) -> pa.RecordBatch:
    """Of a table with these columns, if it has them."""
    for name in needed:
        if name not in schema.names:
            raise PrivateKubeError(
                Reason.WRONG_COLUMNS, f"the data have no column {name!r}, which this needs"
            )
    fields = [schema.field(name) for name in needed]
    return pa.RecordBatch.from_arrays(
        [pa.array([], field.type) for field in fields], schema=pa.schema(fields)
    )


def _text(name: str | None, column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        column = column.cast(pa.string())
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise PrivateKubeError(Reason.WRONG_COLUMNS, f"the column {name!r} does not hold texts")
    return column


def _numbers(name: str | None, column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
        return column.cast(pa.float64(), safe=False)
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    raise PrivateKubeError(Reason.WRONG_COLUMNS, f"the column {name!r} does not hold numbers")


def _invalid(message: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, message)
