"""Exact privacy budgets.

Every amount is an integer: epsilon (and each Renyi order's epsilon) in units of 1e-12, delta in
units of 1e-18. People's numbers are decimal strings, never floats, and a string that the unit
cannot hold exactly is refused rather than rounded behind their back. Prices that we compute
round up, capacities round down, and there is no tolerance anywhere: ten claims of a tenth fit
in one, an eleventh never does.

A demand may be infinite at some orders. It is kept as the number `INFINITE`, above every
capacity, so that sums stay plain integers and what was added can be taken away again exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from privatekube_kfp.core.errors import Invalid, Reason

EPSILON_DIGITS = 12
DELTA_DIGITS = 18
INFINITE = 2**53 - 1

MAX_ORDERS = 256
_DECIMAL = re.compile(r"[0-9]{0,60}(\.[0-9]{0,60})?([eE][+-]?[0-9]{1,6})?", re.ASCII)
_EXACT = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,18})?", re.ASCII)
_SHOWN_INFINITE = "inf"


def _shown(text: object) -> str:
    """The value as an error message shows it: quoted, and cut where it is absurdly long."""
    shown = str(text)
    return repr(shown if len(shown) <= 60 else shown[:57] + "...")


def parse_decimal(text: str, name: str) -> Decimal:
    """A non-negative decimal that a person typed, or `Invalid` naming it.

    Takes strings only: by the time a number is a float, its last digits are already wrong.
    """
    if not isinstance(text, str):
        raise Invalid(
            Reason.INVALID_BUDGET,
            f"{name} must be a decimal string such as '0.1',"
            f" not the {type(text).__name__} {_shown(text)}",
        )
    cleaned = text.strip()
    if not cleaned:
        raise Invalid(Reason.INVALID_BUDGET, f"{name} is empty; give a decimal such as 0.1")
    if cleaned.startswith("-"):
        raise Invalid(Reason.INVALID_BUDGET, f"{name} {_shown(text)} is negative")
    if not _DECIMAL.fullmatch(cleaned) or not any(
        c.isdigit() for c in cleaned.lower().split("e")[0]
    ):
        raise Invalid(
            Reason.INVALID_BUDGET,
            f"{name} {_shown(text)} is not a decimal number; write it like 0.1 or 1e-7",
        )
    return Decimal(cleaned)


def decimal_text(value: Decimal) -> str:
    """The one way to write a decimal: plainly, without zeros at the end."""
    whole, _, decimals = f"{value:f}".partition(".")
    return f"{whole}.{decimals}".rstrip("0").rstrip(".")


def parse_amount(text: str, digits: int, name: str) -> int:
    """`text` in whole units of 10**-digits, or `Invalid` saying what is allowed."""
    value = parse_decimal(text, name)
    if value and value.adjusted() > 6:
        raise Invalid(Reason.INVALID_BUDGET, _too_large(text, digits, name))
    if not value:
        return 0
    scaled = Fraction(value) * 10**digits if value.adjusted() > -100 else None
    if scaled is None or scaled.denominator != 1:
        raise Invalid(
            Reason.INVALID_BUDGET,
            f"{name} {_shown(text)} is finer than 1e-{digits}; at most {digits} decimals are kept,"
            " and a budget is never rounded silently",
        )
    if scaled >= INFINITE:
        raise Invalid(Reason.INVALID_BUDGET, _too_large(text, digits, name))
    return int(scaled)


def _too_large(text: str, digits: int, name: str) -> str:
    most = format_amount(INFINITE - 1, digits)
    return f"{name} {_shown(text)} is too large; it must be at most {most}"


def parse_epsilon(text: str, name: str = "epsilon") -> int:
    """Epsilon in units of 1e-12."""
    return parse_amount(text, EPSILON_DIGITS, name)


def parse_delta(text: str, name: str = "delta") -> int:
    """Delta in units of 1e-18."""
    return parse_amount(text, DELTA_DIGITS, name)


def format_amount(units: int, digits: int) -> str:
    """The exact decimal, shortest form: what `parse_amount` would read back."""
    if units == INFINITE:
        return _SHOWN_INFINITE
    sign = "-" if units < 0 else ""
    whole, rest = divmod(abs(units), 10**digits)
    decimals = f"{rest:0{digits}d}".rstrip("0")
    return f"{sign}{whole}.{decimals}" if decimals else f"{sign}{whole}"


def ceil_units(value: Fraction | Decimal, digits: int = EPSILON_DIGITS) -> int:
    """A price in whole units, rounded up and saturating at `INFINITE`."""
    if isinstance(value, Decimal) and (not value.is_finite() or value.adjusted() > 12):
        return INFINITE
    scaled: Fraction = Fraction(value) * 10**digits
    return min(math.ceil(scaled), INFINITE)


def floor_units(value: Fraction | Decimal, digits: int = EPSILON_DIGITS) -> int:
    """A capacity in whole units, rounded down (towards minus infinity)."""
    scaled: Fraction = Fraction(value) * 10**digits
    return math.floor(scaled)


@dataclass(frozen=True)
class Accounting:
    """What the numbers of a budget are, and when a demand fits into what is there.

    Basic: epsilon and delta, and a demand must fit in both. Renyi: one epsilon per order, and a
    demand fits when it fits at any one usable order.
    """

    orders: tuple[str, ...] = ()

    @property
    def is_renyi(self) -> bool:
        return bool(self.orders)

    @property
    def name(self) -> str:
        return "renyi" if self.is_renyi else "basic"

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return self.orders or ("epsilon", "delta")

    @cached_property
    def digits(self) -> tuple[int, ...]:
        return (EPSILON_DIGITS,) * len(self.orders) or (EPSILON_DIGITS, DELTA_DIGITS)

    @cached_property
    def order_values(self) -> tuple[Decimal, ...]:
        return tuple(Decimal(order) for order in self.orders)

    def budget(self, amounts: Iterable[int]) -> Budget:
        return Budget(self, tuple(amounts))

    def zero(self) -> Budget:
        return Budget(self, (0,) * len(self.labels))

    def parse(self, amounts: Mapping[str, str]) -> Budget:
        """A budget from its labels and decimal strings; every label must be there, no other."""
        unknown = sorted(set(amounts) - set(self.labels))
        missing = [label for label in self.labels if label not in amounts]
        kind = "order" if self.is_renyi else "component"
        if unknown or missing:
            problem = (
                f"unknown {kind} {unknown[0]!r}" if unknown else f"no value at {kind} {missing[0]}"
            )
            raise Invalid(
                Reason.INVALID_BUDGET,
                f"{problem}: a {self.name} budget here has {', '.join(self.labels)}",
            )
        return Budget(
            self,
            tuple(
                _parse_signed(amounts[label], digits, label)
                for label, digits in zip(self.labels, self.digits, strict=True)
            ),
        )


def _parse_signed(text: str, digits: int, label: str) -> int:
    """Our own records hold sums and differences too: negative, or beyond one demand's bound."""
    if text == _SHOWN_INFINITE:
        return INFINITE
    if not isinstance(text, str) or not _EXACT.fullmatch(text):
        raise Invalid(Reason.INVALID_BUDGET, f"{label} {_shown(text)} is not an exact decimal")
    whole, _, decimals = text.partition(".")
    if len(decimals) > digits:
        raise Invalid(Reason.INVALID_BUDGET, f"{label} {_shown(text)} is finer than 1e-{digits}")
    return int(whole + decimals.ljust(digits, "0"))


BASIC = Accounting()


def renyi(orders: Iterable[str]) -> Accounting:
    """Renyi accounting over these orders, given as decimal strings, each above 1."""
    values: list[Decimal] = []
    for text in orders:
        value = parse_decimal(text, "order")
        if not 1 < value <= 1_000_000 or len(decimal_text(value).partition(".")[2]) > 12:
            raise Invalid(
                Reason.INVALID_BUDGET,
                f"order {_shown(text)} must be above 1, at most 1000000, and have at most 12"
                " decimals",
            )
        values.append(value)
    if not values:
        raise Invalid(Reason.INVALID_BUDGET, "no Renyi orders given; name at least one above 1")
    if len(values) > MAX_ORDERS:
        raise Invalid(
            Reason.INVALID_BUDGET,
            f"{len(values)} Renyi orders given; at most {MAX_ORDERS} are kept",
        )
    ordered = sorted(values)
    for lower, upper in pairwise(ordered):
        if lower == upper:
            raise Invalid(Reason.INVALID_BUDGET, f"order {lower} is given twice")
    return Accounting(tuple(map(decimal_text, ordered)))


@dataclass(frozen=True)
class Budget:
    """An immutable exact amount of privacy budget: one integer per label of its accounting."""

    accounting: Accounting
    amounts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.amounts) != len(self.accounting.labels):
            raise TypeError(f"{len(self.amounts)} amounts for {self.accounting.labels}")
        for amount in self.amounts:
            if type(amount) is not int:
                raise TypeError(f"a budget holds integers, not {type(amount).__name__}")

    def __add__(self, other: Budget) -> Budget:
        self._same(other)
        return Budget(
            self.accounting, tuple(a + b for a, b in zip(self.amounts, other.amounts, strict=True))
        )

    def __sub__(self, other: Budget) -> Budget:
        self._same(other)
        return Budget(
            self.accounting, tuple(a - b for a, b in zip(self.amounts, other.amounts, strict=True))
        )

    def times(self, count: int) -> Budget:
        return Budget(self.accounting, tuple(a * count for a in self.amounts))

    def covers(self, other: Budget) -> bool:
        """Whether `other` is at most this in every component: what a consumption must satisfy."""
        self._same(other)
        return all(b <= a for a, b in zip(self.amounts, other.amounts, strict=True))

    def fits(self, room: Budget, capacity: Budget) -> bool:
        """Whether this demand fits in `room` of a block of `capacity`, by its accounting's rule."""
        self._same(room)
        if self.accounting.is_renyi:
            usable = zip(self.amounts, room.amounts, capacity.amounts, strict=True)
            return any(d <= r for d, r, c in usable if c > 0)
        return room.covers(self)

    @property
    def is_zero(self) -> bool:
        return not any(self.amounts)

    def _same(self, other: Budget) -> None:
        if other.accounting != self.accounting:
            raise TypeError(f"budgets of {self.accounting.labels} and {other.accounting.labels}")

    def to_json(self) -> dict[str, str]:
        return {
            label: format_amount(amount, digits)
            for label, amount, digits in zip(
                self.accounting.labels, self.amounts, self.accounting.digits, strict=True
            )
        }

    def first_above(self, other: Budget) -> str:
        """The label of the first component in which this is more than `other`."""
        self._same(other)
        compared = zip(self.accounting.labels, self.amounts, other.amounts, strict=True)
        return next(label for label, mine, its in compared if mine > its)

    def at(self, label: str) -> str:
        """One component, for a sentence: `epsilon 0.1`, or `epsilon 0.1 at order 4`."""
        shown = self.to_json()[label]
        return (
            f"epsilon {shown} at order {label}" if self.accounting.is_renyi else f"{label} {shown}"
        )

    def brief(self) -> str:
        """For a sentence: a Renyi budget by its first and last order."""
        if len(self.accounting.orders) <= 2:
            return str(self)
        return f"{self.at(self.accounting.labels[0])} to {self.at(self.accounting.labels[-1])}"

    def __str__(self) -> str:
        if self.accounting.is_renyi:
            return ", ".join(f"{value} at order {label}" for label, value in self.to_json().items())
        epsilon, delta = self.to_json().values()
        return f"epsilon {epsilon}" if delta == "0" else f"epsilon {epsilon}, delta {delta}"


def basic(epsilon: str, delta: str = "0") -> Budget:
    """A Basic budget from decimal strings."""
    return Budget(BASIC, (parse_epsilon(epsilon), parse_delta(delta)))
