"""How many users a stream has, under differential privacy, day after day.

The binary mechanism (Chan, Shi and Song): a tree over days, whose nodes hold the new users of the
days that they span, each with noise of its own. The count after a day is the sum of at most
log2(days) nodes. A user is new on one day only, and so in log2(days) nodes.

The noise of a node is drawn once, when its last day ends, and kept with the true counts: `to_json`
is as private as the data, and belongs beside them. Only a `Count` may be told.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import Any

from privatekube_kfp.accounting import Counter
from privatekube_kfp.core.budget import parse_decimal
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.noise import RandBelow, rounded_laplace

DEFAULT_CONFIDENCE = "0.999"
_PRECISE = Context(prec=60)
_MOST_USERS = 10**15


@dataclass(frozen=True)
class Count:
    """What may be told of the number of users after a day.

    With the stated confidence the true count is from `lower` to `upper` on every day of the stream.
    """

    day: int
    estimate: int
    lower: int
    upper: int


class UserCounter:
    """Counts the users of one stream."""

    def __init__(
        self,
        counter: Counter,
        confidence: str = DEFAULT_CONFIDENCE,
        randbelow: RandBelow = secrets.randbelow,
    ) -> None:
        self._counter = counter
        self._confidence = confidence
        self._randbelow = randbelow
        self._scale = Fraction(counter.levels) / Fraction(counter.epsilon)
        _chance_of_failure(counter, confidence)
        # For each level of the tree the newest complete node: its true count, and its noise.
        self._nodes: list[tuple[int, int]] = [(0, 0)] * counter.levels
        self._new_today = 0
        self._told = Count(0, 0, 0, 0)

    @property
    def last(self) -> Count:
        """What was told at the end of the last day."""
        return self._told

    def end_day(self, day: int, new_users: int) -> Count:
        """The count after a day that brought so many new users.

        Days are numbered from 1, without gaps. The last day again draws nothing anew: a crash
        between counting and telling does no harm.
        """
        if type(new_users) is not int or not 0 <= new_users <= _MOST_USERS:
            raise _invalid(f"{new_users!r} new users: it must be a whole number from 0 on")
        if day == self._told.day and day:
            if new_users != self._new_today:
                raise _invalid(
                    f"day {day} has ended with another number of new users; count late ones with"
                    " the next day"
                )
            return self._told
        if day != self._told.day + 1:
            raise _invalid(f"day {day} cannot end now: the last that has is {self._told.day}")
        if day >= self._counter.days:
            raise _invalid(
                f"the counter was made for {self._counter.days - 1} days, and they are over"
            )
        # The day completes one node, which takes in all smaller ones before it.
        level = (day & -day).bit_length() - 1
        spanned = new_users + sum(count for count, _ in self._nodes[:level])
        noise = rounded_laplace(self._scale, self._randbelow)
        self._nodes[: level + 1] = [*[(0, 0)] * level, (spanned, noise)]
        self._new_today = new_users
        self._told = self._count(day)
        return self._told

    def _count(self, day: int) -> Count:
        used = [self._nodes[level] for level in range(self._counter.levels) if day >> level & 1]
        estimate = sum(count + noise for count, noise in used)
        off = margin(self._counter, self._confidence, len(used))
        # Users do not become fewer, so what was a lower bound once stays one.
        lower = max(self._told.lower, estimate - off)
        return Count(day, max(estimate, lower), lower, max(estimate + off, lower))

    # Kept with the private data

    def to_json(self) -> dict[str, Any]:
        """All that there is to remember. It has true counts: keep it where the data are."""
        return {
            "epsilon": self._counter.epsilon,
            "days": self._counter.days,
            "confidence": self._confidence,
            "nodes": [list(node) for node in self._nodes],
            "newToday": self._new_today,
            "told": asdict(self._told),
        }

    @staticmethod
    def from_json(
        value: Mapping[str, Any], randbelow: RandBelow = secrets.randbelow
    ) -> UserCounter:
        known = UserCounter(
            Counter(value["epsilon"], value["days"]), value["confidence"], randbelow
        )
        known._nodes = [(count, noise) for count, noise in value["nodes"]]
        known._new_today = value["newToday"]
        known._told = Count(**value["told"])
        return known


def margin(counter: Counter, confidence: str, nodes: int) -> int:
    """How far a sum of so many nodes is off at most, to either side, on all days, so confidently.

    From the exact distribution of a sum of Laplace noise, not from a bound on it; each of the
    days may fail with its part of the probability.
    """
    return _margin(counter, _chance_of_failure(counter, confidence), nodes)


@lru_cache(maxsize=4096)
def _margin(counter: Counter, chance: Fraction, nodes: int) -> int:
    with localcontext(_PRECISE):
        allowed = Decimal(chance.numerator) / chance.denominator
        scale = Decimal(counter.levels) / Decimal(counter.epsilon)
        low, high = 0, 1
        while _tail(Decimal(high) / scale, nodes) > allowed:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if _tail(Decimal(middle) / scale, nodes) > allowed:
                low = middle
            else:
                high = middle
    # Each node is rounded, by a half at most.
    return high + (nodes + 1) // 2


def _tail(x: Decimal, terms: int) -> Decimal:
    """The probability that a sum of so many Laplace variables of scale 1 is above x >= 0.

    The sum is, on this side, a mixture of Gamma distributions: partial fractions of (1 - s^2)^-n.
    """
    total, below, power = Decimal(0), Decimal(0), Decimal(1)
    for shape in range(1, terms + 1):
        below += power  # the sum of x^i / i! for i below the shape
        power = power * x / shape
        total += comb(2 * terms - shape - 1, terms - shape) * below / 2 ** (2 * terms - shape)
    return total * (-x).exp()


def _chance_of_failure(counter: Counter, confidence: str) -> Fraction:
    """For one day, and one side."""
    parsed = Fraction(parse_decimal(confidence, "confidence"))
    if not 0 < parsed < 1:
        raise _invalid(f"confidence {confidence!r} must be above 0 and below 1")
    return (1 - parsed) / (2 * counter.days)


def _invalid(message: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, message)
