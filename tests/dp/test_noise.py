"""Whole noise: its shape is exactly that of continuous noise, rounded."""

from collections import Counter
from fractions import Fraction
from math import erf, exp, sqrt

import pytest

from privatekube_kfp.dp.noise import LIMIT, Kind, draw, float_above, noisy

RUNS = 4_000


def laplace_within(x, scale):
    return 1 - exp(-x / scale)


def gaussian_within(x, scale):
    return erf(x / scale / sqrt(2))


@pytest.mark.parametrize("scale", [1.0, 7.25])
def test_laplace_is_continuous_noise_rounded(scale):
    found = Counter(draw(Kind.LAPLACE, scale) for _ in range(RUNS))
    for size in range(4):
        share = sum(n for value, n in found.items() if abs(value) <= size) / RUNS
        expected = laplace_within(size + 0.5, scale)
        assert abs(share - expected) < 6 * sqrt(expected * (1 - expected) / RUNS) + 1e-9
    above = sum(n for value, n in found.items() if value > 0)
    below = sum(n for value, n in found.items() if value < 0)
    assert abs(above - below) < 6 * sqrt(RUNS)


@pytest.mark.parametrize("scale", [3.0, 40.0])
def test_gaussian(scale):
    found = [draw(Kind.GAUSSIAN, scale) for _ in range(RUNS)]
    for size in (int(scale), int(2 * scale)):
        share = sum(abs(value) <= size for value in found) / RUNS
        expected = gaussian_within(size + 0.5, scale)
        assert abs(share - expected) < 6 * sqrt(expected * (1 - expected) / RUNS) + 1e-3


def test_hardly_any_noise():
    found = Counter(draw(Kind.LAPLACE, 0.5) for _ in range(RUNS))
    # In steps of a half, rounded again: 0 is what was from -0.75 to 0.25.
    expected = 1 - (exp(-1.5) + exp(-0.5)) / 2
    assert abs(found[0] / RUNS - expected) < 6 * sqrt(expected * (1 - expected) / RUNS)
    assert {draw(kind, 0.001) for kind in Kind for _ in range(100)} == {0}


def test_what_leaves_the_range_is_cut_before_and_after():
    assert noisy(2 * LIMIT, -5) == LIMIT - 5
    assert noisy(LIMIT, 2**62) == LIMIT
    assert noisy(-5, -(2**63)) == -LIMIT


def test_floats_are_rounded_up():
    for value in (Fraction(1, 3), Fraction(2, 3), Fraction(10**17 + 1), Fraction(1, 2)):
        assert Fraction(float_above(value)) >= value
        assert float_above(value) == pytest.approx(float(value), rel=1e-15)
