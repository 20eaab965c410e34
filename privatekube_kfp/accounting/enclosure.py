"""Decimal arithmetic that knows how wrong it may be.

A price must never be below the true cost and a capacity never above the true room, so no closed
form here is evaluated as one rounded number. An `Enclosure` is a pair of decimals that the real
value is sure to lie between; every operation rounds the lower one down and the upper one up.
Precision then decides only how close the two are, never on which side an answer errs.

`curves`, `hockey_stick` and `capacity` calculate with it, then take `high` for what is spent and
`low` for what there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

PRECISION = 120

DOWN = Context(prec=PRECISION, rounding=ROUND_FLOOR, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
UP = Context(prec=PRECISION, rounding=ROUND_CEILING, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def exp_up(value: Decimal, context: Context = UP) -> Decimal:
    """At least e**value. `Context.exp` rounds to nearest whatever the context says."""
    return context.next_plus(context.exp(value))


def ln_up(value: Decimal, context: Context = UP) -> Decimal:
    """At least the natural logarithm of `value`."""
    return context.next_plus(context.ln(value))


@dataclass(frozen=True, slots=True)
class Enclosure:
    """A real number, known to lie from `low` to `high`."""

    low: Decimal
    high: Decimal

    @classmethod
    def of(cls, value: Fraction | Decimal | int) -> Enclosure:
        exact = Fraction(value)
        top, bottom = Decimal(exact.numerator), Decimal(exact.denominator)
        return cls(DOWN.divide(top, bottom), UP.divide(top, bottom))

    def __add__(self, other: Enclosure) -> Enclosure:
        return Enclosure(DOWN.add(self.low, other.low), UP.add(self.high, other.high))

    def __sub__(self, other: Enclosure) -> Enclosure:
        return Enclosure(DOWN.subtract(self.low, other.high), UP.subtract(self.high, other.low))

    def __neg__(self) -> Enclosure:
        return Enclosure(self.high.copy_negate(), self.low.copy_negate())

    def __mul__(self, other: Enclosure) -> Enclosure:
        corners = [(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Enclosure(
            min(DOWN.multiply(a, b) for a, b in corners),
            max(UP.multiply(a, b) for a, b in corners),
        )

    def __truediv__(self, other: Enclosure) -> Enclosure:
        if other.low <= 0 <= other.high:
            raise ZeroDivisionError(f"{other} may be zero")
        corners = [(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Enclosure(
            min(DOWN.divide(a, b) for a, b in corners),
            max(UP.divide(a, b) for a, b in corners),
        )

    def exp(self) -> Enclosure:
        # Underflow rounds to zero, and below zero no exponential goes.
        low = DOWN.next_minus(DOWN.exp(self.low))
        return Enclosure(max(low, Decimal(0)), exp_up(self.high))

    def ln(self) -> Enclosure:
        if self.low <= 0:
            raise ValueError(f"{self} may not have a logarithm")
        return Enclosure(DOWN.next_minus(DOWN.ln(self.low)), ln_up(self.high))

    def sqrt(self) -> Enclosure:
        return Enclosure(DOWN.next_minus(DOWN.sqrt(self.low)), UP.next_plus(UP.sqrt(self.high)))


ONE = Enclosure.of(1)

_PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510"
    "58209749445923078164062862089986280348253421170679"
)
PI = Enclosure(_PI, UP.add(_PI, Decimal("1e-100")))
