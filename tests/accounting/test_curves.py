"""Renyi curves: never below the truth, and no further above it than a unit needs."""

import math
from decimal import Decimal
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from privatekube_kfp.accounting import curves
from privatekube_kfp.accounting.enclosure import Enclosure, ln_up
from tests.often import times

ORDERS = ("1.1", "1.5", "2", "2.5", "3", "4", "8", "16", "64", "256")


def theirs(event: dp_accounting.DpEvent, relation=None) -> list[float]:
    relation = relation or dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = RdpAccountant([float(order) for order in ORDERS], relation)
    accountant.compose(event)
    return [float(value) for value in accountant.rdp]


def assert_close_from_above(ours: float, reference: float) -> None:
    assert ours >= reference * (1 - 1e-9)
    assert ours <= reference * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("epsilon", ["0.001", "0.1", "1", "10"])
def test_laplace_agrees_with_dp_accounting(epsilon: str) -> None:
    reference = theirs(dp_accounting.LaplaceDpEvent(1 / float(epsilon)))
    for order, expected in zip(ORDERS, reference, strict=True):
        ours = curves.laplace(Decimal(order), Enclosure.of(Fraction(epsilon)))
        assert_close_from_above(float(ours.high), expected)
        assert ours.high - ours.low < Decimal("1e-50")


@pytest.mark.parametrize("epsilon", ["0.1", "1", "10"])
def test_pure_epsilon_agrees_with_dp_accountings_randomized_response(epsilon: str) -> None:
    noise = 2 / (1 + math.exp(float(epsilon)))
    reference = theirs(
        dp_accounting.RandomizedResponseDpEvent(noise, 2),
        dp_accounting.NeighboringRelation.REPLACE_ONE,
    )
    for order, expected in zip(ORDERS, reference, strict=True):
        ours = curves.randomized_response(Decimal(order), Enclosure.of(Fraction(epsilon)))
        assert_close_from_above(float(ours.high), expected)


@pytest.mark.parametrize("sigma", ["0.5", "6.5", "100"])
def test_gaussian_agrees_with_dp_accounting(sigma: str) -> None:
    reference = theirs(dp_accounting.GaussianDpEvent(float(sigma)))
    for order, expected in zip(ORDERS, reference, strict=True):
        assert_close_from_above(float(curves.gaussian(Decimal(order), Decimal(sigma))), expected)


@pytest.mark.parametrize(
    ("sigma", "rate"), [("1.1", "0.01"), ("0.5", "0.3"), ("4", "0.001"), ("1", "1"), ("8", "0.9")]
)
def test_sampled_gaussian_agrees_with_dp_accounting(sigma: str, rate: str) -> None:
    step = dp_accounting.PoissonSampledDpEvent(
        float(rate), dp_accounting.GaussianDpEvent(float(sigma))
    )
    for order, expected in zip(ORDERS, theirs(step), strict=True):
        ours = float(curves.sampled_gaussian(Decimal(order), Decimal(sigma), Decimal(rate)))
        assert ours <= expected * (1 + 1e-6) + 1e-12
        # At fractional orders dp-accounting adds up an alternating series as if it did not
        # alternate, and is itself above the truth: by 6% at order 1.1, sigma 8 and rate 0.9.
        if float(order).is_integer():
            assert ours >= expected * (1 - 1e-9)


@pytest.mark.parametrize(
    ("order", "sigma", "rate"),
    [
        ("1.01", "1", "0.1"),
        ("1.1", "8", "0.9"),
        ("1.5", "1.1", "0.01"),
        ("2.5", "0.7", "0.2"),
        ("2.5", "4", "0.001"),
        ("4.25", "2", "0.5"),
    ],
)
def test_fractional_orders_agree_with_numerical_integration(
    order: str, sigma: str, rate: str
) -> None:
    a, s, q = float(order), float(sigma), float(rate)
    x = np.linspace(-40, 60, 100_001)
    excess = q * np.expm1(x / s - 1 / (2 * s * s))
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    # The excess has mean 0, so a * excess may be taken off without changing the integral.
    above_one = density * (np.expm1(a * np.log1p(excess)) - a * excess)
    expected = math.log1p(math.fsum(above_one) * (x[1] - x[0])) / (a - 1)
    ours = float(curves.sampled_gaussian(Decimal(order), Decimal(sigma), Decimal(rate)))
    assert ours == pytest.approx(expected, rel=1e-9)


@settings(max_examples=times(25), deadline=None)
@given(
    st.integers(2, 12),
    st.decimals("0.4", "50", places=3),
    st.decimals("0.000001", "0.99", places=6),
)
def test_the_grid_is_just_above_the_exact_binomial_sum(
    order: int, sigma: Decimal, rate: Decimal
) -> None:
    exact = curves._log_moment_at_integer(order, sigma, rate)
    grid = curves._Grid.choose(Decimal(order), sigma, rate)
    found = ln_up(grid.moment(Decimal(order), sigma, rate))
    assert exact <= found < exact + Decimal("1e-25")


@settings(max_examples=times(15), deadline=None)
@given(
    st.decimals("1.05", "6", places=2).filter(lambda order: order % 1),
    st.decimals("0.3", "50", places=3),
    st.decimals("0.000001", "0.99", places=6),
)
def test_a_finer_and_wider_grid_finds_no_more(
    order: Decimal, sigma: Decimal, rate: Decimal
) -> None:
    """At fractional orders the integrand has branch points, which bound how coarse it may be."""
    grid = curves._Grid.choose(order, sigma, rate)
    finer = curves._Grid(grid.width / 2, grid.strip, grid.left * 3, grid.right * 3)
    found = Fraction(grid.moment(order, sigma, rate))
    reference = Fraction(finer.moment(order, sigma, rate))
    assert -Fraction(1, 10**40) < found / reference - 1 < Fraction(1, 10**25)


@settings(max_examples=times(25), deadline=None)
@given(
    st.decimals("1.05", "20", places=2),
    st.decimals("0.4", "50", places=3),
    st.decimals("0.0001", "0.99", places=4),
)
def test_sampling_costs_at_most_a_chord_and_the_plain_gaussian(
    order: Decimal, sigma: Decimal, rate: Decimal
) -> None:
    found = curves.sampled_gaussian(order, sigma, rate)
    chord = curves._log_moment_between_integers(order, sigma, rate) / (order - 1)
    assert 0 < found <= curves.gaussian(order, sigma)
    assert found <= chord + Decimal("1e-20")


@settings(max_examples=times(60), deadline=None)
@given(
    st.sampled_from([curves.laplace, curves.randomized_response]),
    st.decimals("1.000001", "20480", places=6),
    st.integers(1, 9000 * 10**12),
)
def test_a_pure_curve_is_narrow_and_below_its_epsilon(curve, order: Decimal, units: int) -> None:
    epsilon = Fraction(units, 10**12)
    found = curve(order, Enclosure.of(epsilon))
    assert 0 < found.low <= found.high <= epsilon
    assert found.high - found.low < Decimal("1e-40")
    # Hoeffding: an epsilon-DP step costs at most a * epsilon**2 / 2.
    assert found.high <= Fraction(order) * epsilon**2 / 2 + Fraction(1, 10**40)


@given(st.decimals("1.000001", "20480", places=6), st.integers(1, 9000 * 10**12))
def test_laplace_noise_is_cheaper_than_the_worst_of_its_epsilon(order: Decimal, units: int) -> None:
    epsilon = Enclosure.of(Fraction(units, 10**12))
    assert curves.laplace(order, epsilon).low <= curves.randomized_response(order, epsilon).high


@pytest.mark.parametrize("order", ["1.5", "2", "64", "65536", "1000000"])
@pytest.mark.parametrize("sigma", ["1e-20", "0.001", "1e20"])
@pytest.mark.parametrize("rate", ["1e-20", "0.5", "0.99999999999999999999", "1"])
def test_extreme_sampling_is_a_number_between_nothing_and_the_plain_gaussian(
    order: str, sigma: str, rate: str
) -> None:
    found = curves.sampled_gaussian(Decimal(order), Decimal(sigma), Decimal(rate))
    ceiling = curves.gaussian(Decimal(order), Decimal(sigma))
    assert 0 < Fraction(found) <= ceiling * (1 + Fraction(1, 10**100))


def test_a_rare_sample_keeps_the_digits_a_float_would_lose() -> None:
    """The moment is 1 + 2.5e-15 here; to first order it is rate**2 (exp(1/sigma**2) - 1)."""
    rate, sigma = Decimal("1e-6"), Decimal(20)
    expected = rate**2 * ((1 / sigma**2).exp() - 1)
    found = curves.sampled_gaussian(Decimal(2), sigma, rate)
    assert abs(found / expected - 1) < Decimal("1e-14")
