"""Noise on whole numbers, by OpenDP's exact samplers.

Everything that gets noise is a whole number before, so that noise can be whole too: no float has
gaps here that tell something. OpenDP draws the discrete Laplace and the discrete Gaussian
distribution exactly, with a scale that it takes for the exact number which a float is.

Gaussian. The Renyi divergence of discrete Gaussian noise between whole numbers is at most that of
continuous Gaussian noise, at every order (Canonne, Kamath and Steinke 2020). So it can stand in
for it wherever the price is a Renyi curve. For an epsilon at a delta that is not known, so there
its Renyi curve is converted.

Laplace. Discrete Laplace noise has a larger Renyi divergence than continuous noise of its scale.
So it is not used as it is: of a draw at twice the scale that is not 0, half, towards 0, is
continuous Laplace noise that was rounded to the nearest whole number. (Of such a draw Y the size
is at least 2m with probability exp(-(2m - 1) / 2s), which is what continuous noise of scale s has
for at least m - 1/2.) On whole numbers rounding only forgets, so what is proven for continuous
Laplace noise holds, for an epsilon and for a curve alike.

Draws that leave 64 bits are cut there by OpenDP. `noisy` cuts values before and after much lower,
which changes no sensitivity and hides whether the noise was cut.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from math import inf, nextafter
from typing import Any

LIMIT = 2**60
LARGEST_SCALE = 2.0**50


class Kind(StrEnum):
    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"


Draw = Callable[[Kind, float], int]
"""Noise of a scale: the parameter of Laplace noise, the standard deviation of Gaussian noise."""


def draw(kind: Kind, scale: float) -> int:
    """One draw from the operating system's randomness."""
    if kind is Kind.GAUSSIAN:
        return int(_sampler(kind, scale)(0))
    # Of so little noise nearly all draws are 0: it is drawn in smaller steps, and rounded again.
    steps = 1
    while scale * steps < 1:
        steps *= 2
    twice = 0
    while not twice:
        twice = int(_sampler(kind, 2 * scale * steps)(0))
    rounded = twice // 2 if twice > 0 else -(-twice // 2)
    return (2 * rounded + steps) // (2 * steps)


def noisy(value: int, noise: int) -> int:
    return _cut(_cut(value) + noise)


def float_above(value: Fraction) -> float:
    """The smallest float that is not below."""
    near = float(value)
    return near if Fraction(near) >= value else nextafter(near, inf)


def _cut(value: int) -> int:
    return max(-LIMIT, min(LIMIT, value))


@lru_cache(maxsize=64)
def _sampler(kind: Kind, scale: float) -> Callable[[int], Any]:
    # Here, since only a step that draws needs it, and it takes a moment to load.
    import opendp.prelude as dp

    dp.enable_features("contrib")
    whole = dp.atom_domain(T="i64")
    if kind is Kind.GAUSSIAN:
        made = dp.m.make_gaussian(whole, dp.absolute_distance(T="f64"), scale)
    else:
        made = dp.m.make_laplace(whole, dp.absolute_distance(T="i64"), scale)
    return made  # type: ignore[no-any-return]
