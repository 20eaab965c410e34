"""Laplace noise, rounded to whole numbers, drawn exactly.

Noise that is computed with floats has gaps, and gaps tell. Here everything is a comparison of whole
numbers: coins that fall with probability exp(-n/d), and what is made of them (after Canonne, Kamath
and Steinke). The outcome is distributed as continuous Laplace noise that was rounded afterwards. On
whole numbers rounding only forgets, so what is proven for Laplace noise holds. Noise that is
geometric from the start would not do: its Renyi divergence is larger.

Randomness is passed in: `secrets.randbelow`, or a seeded one in tests.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

RandBelow = Callable[[int], int]
"""A whole number from 0 to below its argument, each with the same probability."""


def rounded_laplace(scale: Fraction, randbelow: RandBelow) -> int:
    """Laplace noise of this scale, rounded to the nearest whole number."""
    if scale <= 0:
        raise ValueError(f"the scale {scale} must be above 0")
    rate = 1 / scale
    # It is further than a half from 0 with probability exp(-rate / 2), and then as far again as a
    # geometric number of ones.
    if not _coin(rate / 2, randbelow):
        return 0
    size = 1 + _geometric(rate, randbelow)
    return size if randbelow(2) else -size


def _geometric(rate: Fraction, randbelow: RandBelow) -> int:
    """At least n with probability exp(-rate * n), for every n."""
    whole = rate.denominator
    while True:
        part = randbelow(whole)
        if _coin(Fraction(part, whole), randbelow):
            break
    times = 0
    while _coin(Fraction(1), randbelow):
        times += 1
    return (part + whole * times) // rate.numerator


def _coin(exponent: Fraction, randbelow: RandBelow) -> bool:
    """True with probability exp(-exponent)."""
    while exponent > 1:
        if not _coin(Fraction(1), randbelow):
            return False
        exponent -= 1
    tries = 1
    while randbelow(exponent.denominator * tries) < exponent.numerator:
        tries += 1
    return tries % 2 == 1
