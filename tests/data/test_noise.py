"""Noise is distributed as it must be: tails, middle and sign."""

import random
from fractions import Fraction
from math import exp

import pytest

from privatekube_kfp.data.noise import rounded_laplace

DRAWS = 20_000


def drawn(scale, count=DRAWS, seed=1):
    rng = random.Random(seed)
    return [rounded_laplace(Fraction(scale), rng.randrange) for _ in range(count)]


def close(share, expected):
    """Within five standard deviations of so many draws."""
    return abs(share - expected) <= 5 * (expected * (1 - expected) / DRAWS) ** 0.5


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(150)])
def test_the_distribution(scale):
    values = drawn(scale)
    b = float(scale)
    assert close(sum(v == 0 for v in values) / DRAWS, 1 - exp(-0.5 / b))
    for n in {1, 2, int(b) + 1, int(3 * b) + 1}:
        assert close(sum(v >= n for v in values) / DRAWS, exp(-(n - 0.5) / b) / 2), n
        assert close(sum(v <= -n for v in values) / DRAWS, exp(-(n - 0.5) / b) / 2), n


def test_a_large_scale_is_no_slower():
    calls = 0
    rng = random.Random(2)

    def counting(below):
        nonlocal calls
        calls += 1
        return rng.randrange(below)

    for _ in range(100):
        rounded_laplace(Fraction(10**12), counting)
    assert calls < 5_000


def test_the_same_randomness_gives_the_same_noise():
    assert drawn(5, 50, seed=3) == drawn(5, 50, seed=3) != drawn(5, 50, seed=4)


@pytest.mark.parametrize("scale", [0, -1])
def test_a_scale_must_be_positive(scale):
    with pytest.raises(ValueError, match="must be above 0"):
        rounded_laplace(Fraction(scale), random.Random(1).randrange)
