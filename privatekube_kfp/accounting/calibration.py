"""From noise to epsilon and back, for whoever is still choosing.

Authors call these while they write a plan (and the CLI on their behalf); nothing that grants
budget does. Every answer is a decimal string on the safe side: what `epsilon_of` returns is at
least the true epsilon, and the noise returned for a target, priced again, never exceeds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction

from privatekube_kfp.accounting.hockey_stick import converted, gaussian_holds, smallest
from privatekube_kfp.accounting.mechanisms import (
    Curve,
    DpSgd,
    EpsilonDelta,
    Gaussian,
    Laplace,
    Mechanism,
    PureEpsilon,
    parameter,
    positive_delta,
    positive_epsilon,
    shown,
)
from privatekube_kfp.core.budget import (
    EPSILON_DIGITS,
    INFINITE,
    ceil_units,
    format_amount,
    parse_delta,
    parse_epsilon,
)
from privatekube_kfp.core.errors import Invalid, Reason

SIGMA_DIGITS = 9
NOISE_DIGITS = 6
LARGEST_NOISE = 10**19
_WIDE = Context(prec=200)


def epsilon_of(mechanism: Mechanism, delta: str) -> str:
    """The epsilon this mechanism has at `delta`, at most; its own delta, if any, is set aside."""
    return format_amount(_epsilon_units(mechanism, delta), EPSILON_DIGITS)


def _epsilon_units(mechanism: Mechanism, delta: str) -> int:
    match mechanism:
        case Gaussian() | DpSgd():
            positive_delta(delta)
            return replace(mechanism, delta=delta).basic_price()[0]
        case Laplace() | PureEpsilon():
            parse_delta(delta)
            return mechanism.basic_price()[0]
        case EpsilonDelta():
            epsilon, own = mechanism.basic_price()
            if own > parse_delta(delta):
                raise Invalid(
                    Reason.CANNOT_PRICE,
                    f"nothing is known at delta {delta} of a step that is only promised at delta"
                    f" {mechanism.delta}",
                )
            return epsilon
        case Curve():
            allowed = positive_delta(delta)
            points = [Decimal(order) for order, epsilon in mechanism.orders if epsilon != "inf"]
            best = min(converted(a, mechanism.divergence(a), allowed) for a in points)
            return max(1, ceil_units(best))
    raise Invalid(Reason.CANNOT_PRICE, f"nothing is known of the epsilon of {shown(mechanism)}")


def gaussian_sigma(epsilon: str, delta: str) -> str:
    """The smallest sigma, to nine decimals, whose Gaussian noise is (epsilon, delta)-DP."""
    wanted, allowed = parse_epsilon(positive_epsilon(epsilon)), positive_delta(delta)
    return _least(
        lambda sigma: gaussian_holds(wanted, Fraction(sigma) ** 2, allowed),
        SIGMA_DIGITS,
        f"epsilon {epsilon} at delta {delta}",
    )


def dp_sgd_noise(epsilon: str, delta: str, sample_rate: str, steps: int) -> str:
    """The smallest noise multiplier, to six decimals, that keeps training within the target."""
    wanted = parse_epsilon(positive_epsilon(epsilon))
    positive_delta(delta)
    return _least(
        lambda noise: DpSgd(noise, sample_rate, steps, delta).within(wanted),
        NOISE_DIGITS,
        f"epsilon {epsilon} at delta {delta} over {steps} steps",
    )


def laplace_scale(epsilon: str) -> str:
    """The noise scale that gives this epsilon at sensitivity 1, rounded up."""
    exact = 1 / Fraction(positive_epsilon(epsilon))
    return _written(math.ceil(exact * 10**EPSILON_DIGITS), EPSILON_DIGITS)


def laplace_epsilon(scale: str) -> str:
    """The epsilon of Laplace noise of this scale at sensitivity 1, rounded up."""
    units = ceil_units(1 / Fraction(parameter(scale, "scale")))
    if units >= INFINITE:
        raise Invalid(
            Reason.CANNOT_PRICE,
            f"scale {scale!r} is so small that its epsilon is beyond any budget",
        )
    return format_amount(units, EPSILON_DIGITS)


def _least(enough: Callable[[str], bool], digits: int, target: str) -> str:
    """The least amount of noise that is enough, in steps of 10**-digits."""
    high = 10**digits
    while not enough(_written(high, digits)):
        high *= 2
        if high > LARGEST_NOISE * 10**digits:
            raise Invalid(Reason.CANNOT_PRICE, f"no noise up to {LARGEST_NOISE:e} reaches {target}")
    low = high // 2
    while low and enough(_written(low, digits)):
        low, high = low // 2, low
    return _written(smallest(lambda n: enough(_written(n, digits)), low, high), digits)


def _written(units: int, digits: int) -> str:
    return f"{Decimal(units).scaleb(-digits, _WIDE).normalize(_WIDE):f}"
