"""What a pipeline step does to the data, and what that costs.

A mechanism is one small value: which noise, how much of it. It is what an author writes down and
what a claim keeps; its price is only worked out against a stream's accounting, so the same
mechanism can be asked of a Basic and of a Renyi stream. `plan` composes mechanisms into named
steps, `calibration` goes from a wanted epsilon back to the noise.

Numbers are decimal strings, as in the rest of the library, and are kept in their shortest form:
equal mechanisms are equal values, whatever zeros were typed. Prices round up.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import ClassVar

from privatekube_kfp.accounting import curves, hockey_stick
from privatekube_kfp.accounting.enclosure import UP, Enclosure
from privatekube_kfp.core.budget import (
    DELTA_DIGITS,
    EPSILON_DIGITS,
    INFINITE,
    Accounting,
    Budget,
    ceil_units,
    format_amount,
    parse_decimal,
    parse_delta,
    parse_epsilon,
    renyi,
)
from privatekube_kfp.core.errors import Invalid, Reason

MAX_STEPS = 10**9
MAX_DIGITS = 50
_SMALLEST, _LARGEST, _LARGEST_RATE = Decimal("1e-20"), Decimal("1e20"), Decimal(1)
_WIDE = Context(prec=200)


@dataclass(frozen=True)
class Mechanism(ABC):
    """One randomized step over the data of a block."""

    kind: ClassVar[str]

    def price(self, accounting: Accounting) -> Budget:
        """What running this once costs, rounded up; `Invalid` where that cannot be told."""
        return _price(self, accounting)

    @abstractmethod
    def basic_price(self) -> tuple[int, int]:
        """Epsilon and delta, in units."""

    @abstractmethod
    def divergence(self, order: Decimal) -> Fraction | Decimal:
        """At least the Renyi divergence at this order, and above 0."""

    def to_json(self) -> dict[str, object]:
        values = {_json_key(field.name): getattr(self, field.name) for field in fields(self)}
        return {"mechanism": self.kind} | {k: v for k, v in values.items() if v is not None}


@lru_cache(maxsize=4096)
def _price(mechanism: Mechanism, accounting: Accounting) -> Budget:
    if not accounting.is_renyi:
        return accounting.budget(mechanism.basic_price())
    costs = [ceil_units(mechanism.divergence(a)) for a in accounting.order_values]
    # Renyi divergence never falls as the order rises, so what bounds it at an order bounds it at
    # every order below.
    rising = list(accumulate(reversed(costs), min))
    return accounting.budget(reversed(rising))


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Laplace noise of scale 1/epsilon on a value that one person changes by at most 1."""

    kind: ClassVar[str] = "laplace"
    epsilon: str

    def __post_init__(self) -> None:
        _keep(self, epsilon=positive_epsilon(self.epsilon))

    def basic_price(self) -> tuple[int, int]:
        return parse_epsilon(self.epsilon), 0

    def divergence(self, order: Decimal) -> Decimal:
        return curves.laplace(order, Enclosure.of(Fraction(self.epsilon))).high


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Gaussian noise of standard deviation sigma on a value one person changes by at most 1.

    On a Basic stream it has an epsilon only at a chosen delta; a Renyi stream ignores `delta`.
    """

    kind: ClassVar[str] = "gaussian"
    sigma: str
    delta: str | None = None

    def __post_init__(self) -> None:
        _keep(self, sigma=parameter(self.sigma, "sigma"), delta=_optional_delta(self.delta))

    def basic_price(self) -> tuple[int, int]:
        delta = _needed_delta(self)
        return hockey_stick.gaussian_epsilon(Fraction(self.sigma) ** 2, delta), delta

    def divergence(self, order: Decimal) -> Fraction:
        return curves.gaussian(order, Decimal(self.sigma))


@dataclass(frozen=True)
class DpSgd(Mechanism):
    """`steps` gradient steps, each on a Poisson sample of the rows, with clipped gradients.

    `noise_multiplier` is the noise's standard deviation over the clipping norm, `sample_rate`
    the probability with which each row enters a step. On a Basic stream it has an epsilon only
    at a chosen delta, by the best Renyi order; a Renyi stream ignores `delta`.
    """

    kind: ClassVar[str] = "dp-sgd"
    noise_multiplier: str
    sample_rate: str
    steps: int
    delta: str | None = None

    def __post_init__(self) -> None:
        _keep(
            self,
            noise_multiplier=parameter(self.noise_multiplier, "noise multiplier"),
            sample_rate=parameter(self.sample_rate, "sample rate", _LARGEST_RATE),
            steps=_checked_steps(self.steps),
            delta=_optional_delta(self.delta),
        )

    def basic_price(self) -> tuple[int, int]:
        """By the best Renyi order, or where that is less, as if every step saw every row."""
        delta = _needed_delta(self)
        by_order = hockey_stick.renyi_epsilon(self.divergence, delta)
        if hockey_stick.gaussian_holds(by_order, self._unsampled_variance, delta):
            return hockey_stick.gaussian_epsilon(self._unsampled_variance, delta), delta
        return by_order, delta

    def within(self, epsilon: int) -> bool:
        """Whether `basic_price` is at most this; quicker than working it out."""
        delta = _needed_delta(self)
        return (
            hockey_stick.gaussian_holds(epsilon, self._unsampled_variance, delta)
            or hockey_stick.renyi_epsilon(self.divergence, delta, epsilon) <= epsilon
        )

    @property
    def _unsampled_variance(self) -> Fraction:
        return Fraction(self.noise_multiplier) ** 2 / self.steps

    def divergence(self, order: Decimal) -> Decimal:
        one = curves.sampled_gaussian(
            order, Decimal(self.noise_multiplier), Decimal(self.sample_rate)
        )
        return UP.multiply(Decimal(self.steps), one)


@dataclass(frozen=True)
class PureEpsilon(Mechanism):
    """Anything that is epsilon-DP, whatever it does inside."""

    kind: ClassVar[str] = "pure"
    epsilon: str

    def __post_init__(self) -> None:
        _keep(self, epsilon=positive_epsilon(self.epsilon))

    def basic_price(self) -> tuple[int, int]:
        return parse_epsilon(self.epsilon), 0

    def divergence(self, order: Decimal) -> Decimal:
        return curves.randomized_response(order, Enclosure.of(Fraction(self.epsilon))).high


@dataclass(frozen=True)
class EpsilonDelta(Mechanism):
    """Anything that is (epsilon, delta)-DP. With a delta it has no Renyi curve at all."""

    kind: ClassVar[str] = "epsilon-delta"
    epsilon: str
    delta: str

    def __post_init__(self) -> None:
        epsilon, delta = parse_epsilon(self.epsilon), parse_delta(self.delta)
        if not epsilon and not delta:
            raise Invalid(
                Reason.INVALID_BUDGET,
                "epsilon and delta are both 0; a step that touches data costs something",
            )
        _keep(
            self,
            epsilon=format_amount(epsilon, EPSILON_DIGITS),
            delta=format_amount(delta, DELTA_DIGITS),
        )

    def basic_price(self) -> tuple[int, int]:
        return parse_epsilon(self.epsilon), parse_delta(self.delta)

    def divergence(self, order: Decimal) -> Fraction | Decimal:
        if self.delta != "0":
            raise Invalid(
                Reason.CANNOT_PRICE,
                f"(epsilon {self.epsilon}, delta {self.delta}) has no Renyi curve, since it says"
                " nothing of how bad the failures are; this stream is accounted at Renyi orders,"
                " so name the mechanism: laplace, gaussian, dp-sgd or a curve",
            )
        return PureEpsilon(self.epsilon).divergence(order)


@dataclass(frozen=True, init=False)
class Curve(Mechanism):
    """A Renyi curve that the author has proven elsewhere: an epsilon at every order.

    An epsilon may be `inf` from some order on.
    """

    kind: ClassVar[str] = "curve"
    orders: tuple[tuple[str, str], ...]

    def __init__(self, orders: Mapping[str, str]) -> None:
        if not isinstance(orders, Mapping):
            raise Invalid(
                Reason.INVALID_PLAN,
                "a curve is a map from orders to epsilons such as {'2': '0.1', '4': '0.2'},"
                f" not the {type(orders).__name__} {shown(orders)}",
            )
        known = renyi(orders)
        points = {renyi([order]).orders[0]: value for order, value in orders.items()}
        epsilons = {order: _curve_epsilon(points[order], order) for order in known.orders}
        _check_rising(epsilons)
        _keep(
            self, orders=tuple((o, format_amount(e, EPSILON_DIGITS)) for o, e in epsilons.items())
        )

    def basic_price(self) -> tuple[int, int]:
        raise Invalid(
            Reason.CANNOT_PRICE,
            "a Renyi curve has no price on a stream with basic accounting; declare the step as"
            " epsilon-delta, with the epsilon that the curve gives at a delta",
        )

    def price(self, accounting: Accounting) -> Budget:
        if accounting.is_renyi:
            self._check_orders(accounting)
        return super().price(accounting)

    def _check_orders(self, accounting: Accounting) -> None:
        mine = dict(self.orders)
        for order in accounting.orders:
            if order not in mine:
                raise Invalid(
                    Reason.CANNOT_PRICE,
                    f"the curve has no epsilon at order {order}; the stream is accounted at"
                    f" {', '.join(accounting.orders)}",
                )
        for order in mine:
            if order not in accounting.orders:
                raise Invalid(
                    Reason.CANNOT_PRICE,
                    f"the curve has an epsilon at order {order}, which the stream does not have;"
                    f" it is accounted at {', '.join(accounting.orders)}",
                )

    def divergence(self, order: Decimal) -> Decimal:
        value = {Decimal(known): epsilon for known, epsilon in self.orders}[order]
        return Decimal("Infinity") if value == "inf" else Decimal(value)

    def to_json(self) -> dict[str, object]:
        return {"mechanism": self.kind, "orders": dict(self.orders)}


MECHANISMS: dict[str, type[Mechanism]] = {
    cls.kind: cls for cls in (Laplace, Gaussian, DpSgd, PureEpsilon, EpsilonDelta, Curve)
}


def mechanism_from_json(value: object) -> Mechanism:
    """A mechanism as `to_json` writes it; anything unknown or missing is refused."""
    if not isinstance(value, Mapping):
        raise Invalid(
            Reason.INVALID_PLAN,
            "a mechanism is an object such as {'mechanism': 'laplace', 'epsilon': '0.1'},"
            f" not the {type(value).__name__} {shown(value)}",
        )
    kind = value.get("mechanism")
    if not isinstance(kind, str) or kind not in MECHANISMS:
        said = f"unknown mechanism {shown(kind)}" if "mechanism" in value else "no mechanism given"
        raise Invalid(Reason.INVALID_PLAN, f"{said}; known are {', '.join(MECHANISMS)}")
    cls = MECHANISMS[kind]
    known = {_json_key(field.name): field for field in fields(cls)}
    given = {key: part for key, part in value.items() if key != "mechanism"}
    allowed = f"{kind} has {', '.join(known)}"
    for key, part in given.items():
        if key not in known:
            raise Invalid(Reason.INVALID_PLAN, f"unknown key {shown(key)}; {allowed}")
        if part is None:
            raise Invalid(Reason.INVALID_PLAN, f"{key} is null; give a value or leave it out")
    for key, field in known.items():
        if key not in given and field.default is MISSING:
            raise Invalid(Reason.INVALID_PLAN, f"no {key} given; {allowed}")
    return cls(**{known[key].name: part for key, part in given.items()})


def _json_key(field: str) -> str:
    return re.sub(r"_(.)", lambda match: match[1].upper(), field)


def _keep(mechanism: Mechanism, **values: object) -> None:
    """Store the checked, shortest form of what the author typed."""
    for name, value in values.items():
        object.__setattr__(mechanism, name, value)


def shown(value: object) -> str:
    """The value as an error message quotes it, cut where it is absurdly long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def positive_epsilon(text: str) -> str:
    """An epsilon in its shortest form, which must not be zero."""
    units = parse_epsilon(text)
    if not units:
        raise Invalid(Reason.INVALID_BUDGET, f"epsilon {text!r} must be above 0")
    return format_amount(units, EPSILON_DIGITS)


def positive_delta(text: str) -> int:
    """A delta in units, which must not be zero."""
    units = parse_delta(text)
    if not units:
        raise Invalid(Reason.INVALID_BUDGET, f"delta {text!r} must be above 0")
    return units


def _optional_delta(text: str | None) -> str | None:
    return None if text is None else format_amount(positive_delta(text), DELTA_DIGITS)


def _needed_delta(mechanism: Gaussian | DpSgd) -> int:
    if mechanism.delta is None:
        raise Invalid(
            Reason.CANNOT_PRICE,
            f"{mechanism.kind} has no epsilon without a delta, and this stream has basic"
            " accounting; give the step's delta, for example 1e-9",
        )
    return parse_delta(mechanism.delta)


def parameter(text: str, name: str, largest: Decimal = _LARGEST) -> str:
    """An amount of noise or a rate in its shortest form: no budget, so of any fineness."""
    value = parse_decimal(text, name)
    if not _SMALLEST <= value <= largest:
        raise Invalid(
            Reason.INVALID_BUDGET,
            f"{name} {shown(text)} is out of range; it must be above 0"
            f" (at least {_SMALLEST:e}) and at most {largest:f}",
        )
    shortest = value.normalize(_WIDE)
    if len(shortest.as_tuple().digits) > MAX_DIGITS:
        raise Invalid(
            Reason.INVALID_BUDGET, f"{name} {shown(text)} has more than {MAX_DIGITS} digits"
        )
    return f"{shortest:f}"


def _checked_steps(steps: int) -> int:
    if type(steps) is not int or not 1 <= steps <= MAX_STEPS:
        raise Invalid(
            Reason.INVALID_PLAN,
            f"steps {shown(steps)} must be a whole number from 1 to {MAX_STEPS}",
        )
    return steps


def _curve_epsilon(text: str, order: str) -> int:
    if text == "inf":
        return INFINITE
    units = parse_epsilon(text, f"epsilon at order {order}")
    if not units:
        raise Invalid(Reason.INVALID_BUDGET, f"epsilon {text!r} at order {order} must be above 0")
    return units


def _check_rising(epsilons: Mapping[str, int]) -> None:
    points = list(epsilons.items())
    for (lower, below), (upper, above) in pairwise(points):
        if above < below:
            raise Invalid(
                Reason.INVALID_BUDGET,
                f"the curve falls from {format_amount(below, EPSILON_DIGITS)} at order {lower} to"
                f" {format_amount(above, EPSILON_DIGITS)} at order {upper}; a Renyi curve never"
                " falls as the order rises",
            )
    if points[0][1] == INFINITE:
        raise Invalid(
            Reason.INVALID_BUDGET,
            "the curve is infinite at every order; no stream could ever grant it",
        )
