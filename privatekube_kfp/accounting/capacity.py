"""How much budget a fresh block of a stream holds.

A stream promises (epsilon, delta). Under Basic accounting that is a block's capacity. Under Renyi
accounting the promise has to be translated to every order, and with care: a block may be granted
from any order with room, and which order survives depends on what the earlier steps output, so
the order is chosen adaptively. Split the transcripts by an order that survived; on each part the
run equals one that was filtered at that fixed order; so the chance of failure is at most the sum
over orders of what each would fail with alone. With capacity c, order a alone fails with

    g(a) exp((a - 1) (c - epsilon)),    g(a) = (1/a) (1 - 1/a)**(a - 1).

`Classic` and `Weighted` both keep that sum within delta, and refuse where they cannot. Ledgers
call `block_capacity` when a stream makes a block. Capacities round down; an order that cannot be
used has capacity 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from typing import ClassVar

from privatekube_kfp.accounting import curves
from privatekube_kfp.accounting.enclosure import Enclosure
from privatekube_kfp.core.budget import (
    DELTA_DIGITS,
    EPSILON_DIGITS,
    INFINITE,
    Accounting,
    Budget,
    ceil_units,
    decimal_text,
    floor_units,
    format_amount,
    parse_decimal,
    parse_delta,
    parse_epsilon,
    renyi,
)
from privatekube_kfp.core.errors import Invalid, Reason

DEFAULT_ORDERS = ("1.5", "1.75", "2", "2.5", "3", "4", "5", "6", "8", "16", "32", "64")
DEFAULT_DAYS = 2**15
MAX_DAYS = 2**40

_WEIGHT = Context(prec=40, rounding=ROUND_FLOOR)


@dataclass(frozen=True)
class Counter:
    """The DP user counter of a User or User-Time stream, whose cost every block bears.

    It counts over fewer than `days` days with a binary tree: a person's arrival changes
    log2(days) nodes, each noised with epsilon / log2(days).
    """

    epsilon: str
    days: int = DEFAULT_DAYS

    def __post_init__(self) -> None:
        units = parse_epsilon(self.epsilon, "counter epsilon")
        if not units:
            raise Invalid(
                Reason.INVALID_STREAM, f"counter epsilon {self.epsilon!r} must be above 0"
            )
        object.__setattr__(self, "epsilon", format_amount(units, EPSILON_DIGITS))
        if (
            type(self.days) is not int
            or not 2 <= self.days <= MAX_DAYS
            or self.days.bit_count() != 1
        ):
            raise Invalid(
                Reason.INVALID_STREAM,
                f"counter days {self.days!r} must be a power of two from 2 to 2**40",
            )

    @property
    def levels(self) -> int:
        """The nodes of the tree that one person's arrival changes."""
        return self.days.bit_length() - 1

    def price(self, accounting: Accounting) -> Budget:
        return _counter_price(self, accounting)


@lru_cache(maxsize=256)
def _counter_price(counter: Counter, accounting: Accounting) -> Budget:
    """Under Renyi, the sum of one Laplace curve per level (the theorem on the binary mechanism)."""
    if not accounting.is_renyi:
        return accounting.budget((parse_epsilon(counter.epsilon), 0))
    levels = Enclosure.of(counter.levels)
    node = Enclosure.of(Fraction(counter.epsilon)) / levels
    return accounting.budget(
        ceil_units((levels * curves.laplace(order, node)).high) for order in accounting.order_values
    )


@dataclass(frozen=True)
class Promise:
    """What a conversion has to translate: the guarantee, the orders, and what is spent already."""

    epsilon: int
    delta: int
    accounting: Accounting
    reserved: Budget

    def units_at(self, index: int, room: Enclosure) -> int:
        """`room` at this order as a capacity: rounded down, and less what is reserved."""
        return min(floor_units(room.low), INFINITE - 1) - self.reserved.amounts[index]

    @property
    def orders(self) -> tuple[Decimal, ...]:
        return self.accounting.order_values

    @property
    def exact_epsilon(self) -> Fraction:
        return Fraction(self.epsilon, 10**EPSILON_DIGITS)

    @property
    def exact_delta(self) -> Fraction:
        return Fraction(self.delta, 10**DELTA_DIGITS)


@lru_cache(maxsize=4096)
def failure(order: Decimal) -> Enclosure:
    """g(a): the part of delta that one order at its Classic capacity can fail with."""
    a = Fraction(order)
    return (Enclosure.of(a - 1) * Enclosure.of((a - 1) / a).ln() - Enclosure.of(a).ln()).exp()


@dataclass(frozen=True)
class Classic:
    """epsilon - log(1/delta) / (a - 1), sound while g adds up to at most 1 over usable orders."""

    name: ClassVar[str] = "classic"

    def capacity(self, promise: Promise) -> list[int]:
        rooms = [max(0, self._units(promise, i)) for i in range(len(promise.orders))]
        self._check(a for a, room in zip(promise.orders, rooms, strict=True) if room)
        return rooms

    def _units(self, promise: Promise, index: int) -> int:
        above = Enclosure.of(Fraction(promise.orders[index]) - 1)
        lost = Enclosure.of(1 / promise.exact_delta).ln() / above
        return promise.units_at(index, Enclosure.of(promise.exact_epsilon) - lost)

    def _check(self, usable: Iterable[Decimal]) -> None:
        orders = list(usable)
        fails = _total(failure(order) for order in orders).high
        if fails > 1:
            raise Invalid(
                Reason.UNSOUND_CAPACITY,
                f"the classic conversion over {len(orders)} usable orders can fail with"
                f" {fails.quantize(Decimal('0.0001'), ROUND_CEILING)} times delta, and must stay"
                " within delta; give fewer orders, or use the weighted conversion",
            )


@dataclass(frozen=True, init=False)
class Weighted:
    """Each order's own tight conversion at its weight's part of delta.

    The capacity is epsilon + log(w delta a) / (a - 1) - log(1 - 1/a). Weights add up to at most
    1; unless given, they are in proportion to g(a), which is at every order at least what
    `Classic` gives wherever that is sound. An order that is left without room is dropped and its
    weight goes to the others; explicit weights stay as they are.
    """

    name: ClassVar[str] = "weighted"
    weights: tuple[tuple[str, str], ...] | None

    def __init__(self, weights: Mapping[str, str] | None = None) -> None:
        object.__setattr__(self, "weights", None if weights is None else _parse_weights(weights))

    def capacity(self, promise: Promise) -> list[int]:
        weights = self.weights_for(promise)
        return [
            max(0, _weighted_units(promise, i, weights[order])) if order in weights else 0
            for i, order in enumerate(promise.accounting.orders)
        ]

    def weights_for(self, promise: Promise) -> dict[str, Decimal]:
        """The weight of every order in use; they add up to at most 1."""
        if self.weights is None:
            return _default_weights(promise)
        given = {order: Decimal(weight) for order, weight in self.weights}
        for order in promise.accounting.orders:
            if order not in given:
                raise Invalid(
                    Reason.UNSOUND_CAPACITY,
                    f"no weight at order {order}; give one for each of"
                    f" {', '.join(promise.accounting.orders)}",
                )
        for order in given:
            if order not in promise.accounting.orders:
                raise Invalid(
                    Reason.UNSOUND_CAPACITY,
                    f"a weight at order {order}, which the stream does not have; it has"
                    f" {', '.join(promise.accounting.orders)}",
                )
        return given


def _parse_weights(weights: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if not isinstance(weights, Mapping):
        raise Invalid(
            Reason.INVALID_STREAM,
            "weights are a map from orders to weights such as {'4': '0.5', '8': '0.5'},"
            f" not the {type(weights).__name__} {weights!r}",
        )
    known = renyi(weights)
    parsed = {
        renyi([order]).orders[0]: parse_decimal(weight, f"weight at order {order}")
        for order, weight in weights.items()
    }
    for order, weight in parsed.items():
        if not Decimal("1e-50") <= weight <= 1:
            raise Invalid(
                Reason.UNSOUND_CAPACITY,
                f"weight {weight} at order {order} must be above 0 (at least 1e-50) and at most 1",
            )
    total = sum((Fraction(weight) for weight in parsed.values()), start=Fraction(0))
    if total > 1:
        raise Invalid(
            Reason.UNSOUND_CAPACITY,
            f"the weights add up to {float(total):.12g}, so blocks could fail with that many times"
            " delta; they must add up to at most 1",
        )
    return tuple((order, decimal_text(parsed[order])) for order in known.orders)


def _default_weights(promise: Promise) -> dict[str, Decimal]:
    """In proportion to g over the orders that have room with their weight.

    With weights g / G the capacity at order a is epsilon + log(delta / G) / (a - 1): positive
    while G, the sum of g over the orders kept, is small enough for that order. So orders go one
    at a time, the one that needs the smallest G first, until the next one has room.
    """
    kept = sorted(range(len(promise.orders)), key=lambda i: _endurance(promise, i))
    while kept:
        weights = _proportional([promise.orders[i] for i in kept])
        if _weighted_units(promise, kept[0], weights[0]) > 0:
            return {promise.accounting.orders[i]: w for i, w in zip(kept, weights, strict=True)}
        kept.pop(0)
    return {}


def _endurance(promise: Promise, index: int) -> Fraction:
    """Grows with the largest sum of g at which this order still has room."""
    left = promise.epsilon - promise.reserved.amounts[index]
    return (Fraction(promise.orders[index]) - 1) * left


def _proportional(orders: list[Decimal]) -> list[Decimal]:
    shares = [failure(order) for order in orders]
    total = _total(shares).high
    return [_WEIGHT.divide(share.low, total) for share in shares]


def _weighted_units(promise: Promise, index: int, weight: Decimal) -> int:
    a = Fraction(promise.orders[index])
    gained = Enclosure.of(Fraction(weight) * promise.exact_delta * a).ln() / Enclosure.of(a - 1)
    lost = Enclosure.of((a - 1) / a).ln()
    return promise.units_at(index, Enclosure.of(promise.exact_epsilon) + gained - lost)


def _total(parts: Iterable[Enclosure]) -> Enclosure:
    return reduce(Enclosure.__add__, parts, Enclosure.of(0))


Conversion = Classic | Weighted


def conversion_from_name(name: str) -> Conversion:
    """The conversion a stream names; what is not sound is known, and refused with the reason."""
    if name == "classic":
        return Classic()
    if name == "weighted":
        return Weighted()
    if name == "tight":
        raise Invalid(
            Reason.UNSOUND_CAPACITY,
            "the tight conversion at the full delta is sound for one order only: a block's"
            " surviving order is chosen by what ran, and whoever chooses well reaches twice delta"
            " and more; use weighted, which is the tight conversion where there is one order",
        )
    raise Invalid(
        Reason.INVALID_STREAM, f"unknown conversion {name!r}; known are classic and weighted"
    )


def block_capacity(
    epsilon: str,
    delta: str,
    accounting: Accounting,
    conversion: Conversion | None = None,
    counter: Counter | None = None,
) -> Budget:
    """What a new block of a stream that promises (epsilon, delta) can spend.

    `conversion` is what Renyi accounting needs (`Weighted()` unless given); the counter's cost
    is taken off at once.
    """
    promised, allowed = parse_epsilon(epsilon), parse_delta(delta)
    if not promised:
        raise Invalid(Reason.INVALID_STREAM, "a stream's epsilon must be above 0")
    reserved = accounting.zero()
    if counter is not None:
        if parse_epsilon(counter.epsilon) >= promised:
            raise Invalid(
                Reason.INVALID_STREAM,
                f"the user counter's epsilon {counter.epsilon} leaves nothing of the stream's"
                f" epsilon {format_amount(promised, EPSILON_DIGITS)}; it must be below it",
            )
        reserved = counter.price(accounting)
    if not accounting.is_renyi:
        return accounting.budget((promised, allowed)) - reserved
    if not allowed:
        raise Invalid(
            Reason.INVALID_STREAM,
            "Renyi accounting needs a delta above 0, for example 1e-7; for a promise without"
            " delta use basic accounting",
        )
    promise = Promise(promised, allowed, accounting, reserved)
    amounts = _renyi_capacity(promise, conversion or Weighted())
    if not any(amounts):
        raise Invalid(
            Reason.INVALID_STREAM,
            f"no order among {', '.join(accounting.orders)} has any capacity for epsilon"
            f" {epsilon} and delta {delta}; add higher orders, or promise more",
        )
    return accounting.budget(amounts)


@lru_cache(maxsize=256)
def _renyi_capacity(promise: Promise, conversion: Conversion) -> tuple[int, ...]:
    return tuple(conversion.capacity(promise))


def how_often(capacity: Budget, demand: Budget) -> int:
    """How many times `demand` fits into a fresh block of this capacity."""
    if capacity.accounting != demand.accounting:
        raise TypeError(f"budgets of {capacity.accounting.labels} and {demand.accounting.labels}")
    if capacity.accounting.is_renyi:
        rooms = [room for room in zip(capacity.amounts, demand.amounts, strict=True) if room[0] > 0]
        return max((_times(*room, demand) for room in rooms), default=0)
    asked = [room for room in zip(capacity.amounts, demand.amounts, strict=True) if room[1]]
    if not asked:
        raise Invalid(Reason.INVALID_BUDGET, "a demand of nothing would fit without end")
    return min(_times(*room, demand) for room in asked)


def _times(room: int, cost: int, demand: Budget) -> int:
    if cost <= 0:
        raise Invalid(Reason.INVALID_BUDGET, f"a demand of {demand} would fit without end")
    return max(0, room) // cost
