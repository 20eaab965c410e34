"""Epsilon at a delta: the exact Gaussian answer, and the best single Renyi order."""

import math
from decimal import Decimal
from fractions import Fraction

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from privatekube_kfp.accounting import DpSgd, Gaussian
from privatekube_kfp.accounting import hockey_stick as hs
from privatekube_kfp.core.budget import BASIC
from tests.often import times


@pytest.mark.parametrize("x", ["-10", "-6", "-2.5", "0", "0.1", "3", "6", "6.01", "25", "4000"])
def test_mills_ratio_agrees_with_scipy(x: str) -> None:
    found = hs._mills(Decimal(x))
    expected = math.sqrt(math.pi / 2) * special.erfcx(float(x) / math.sqrt(2))
    assert float(found.low) == pytest.approx(expected, rel=1e-12)
    assert 0 < found.low <= found.high
    assert found.high - found.low < found.low * Decimal("1e-40")


def test_the_series_and_the_continued_fraction_meet() -> None:
    for x in ("5", "6", "9"):
        series, fraction = hs._mills_series(Decimal(x)), hs._mills_fraction(Decimal(x))
        assert max(series.low, fraction.low) <= min(series.high, fraction.high)


@settings(max_examples=times(40), deadline=None)
@given(st.floats(0.05, 20), st.floats(0.3, 30))
def test_gaussian_delta_agrees_with_the_normal_distribution(epsilon: float, sigma: float) -> None:
    found = hs.gaussian_delta(Fraction(epsilon), Fraction(sigma) ** 2)
    a, b = epsilon * sigma - 1 / (2 * sigma), epsilon * sigma + 1 / (2 * sigma)
    expected = special.ndtr(-a) - math.exp(epsilon + special.log_ndtr(-b))
    assert float(found) == pytest.approx(expected, rel=1e-6, abs=1e-14)


@settings(max_examples=times(8), deadline=None)
@given(st.decimals("0.05", "500", places=4), st.integers(1, 10**15))
def test_the_gaussian_epsilon_is_the_smallest_that_holds(sigma: Decimal, delta: int) -> None:
    variance = Fraction(sigma) ** 2
    found = hs.gaussian_epsilon(variance, delta)
    assert hs.gaussian_holds(found, variance, delta)
    assert found == 1 or not hs.gaussian_holds(found - 1, variance, delta)


def test_known_gaussian_figures() -> None:
    assert str(Gaussian("1", "1e-5").price(BASIC)) == "epsilon 4.377178095682, delta 0.00001"
    assert str(Gaussian("6.5", "1e-9").price(BASIC)) == "epsilon 0.838874794378, delta 0.000000001"


@pytest.mark.parametrize("sigma", ["1e-20", "1e20"])
def test_extreme_gaussians_have_a_price(sigma: str) -> None:
    epsilon, _ = Gaussian(sigma, "1e-18").price(BASIC).amounts
    assert epsilon == (1 if sigma == "1e20" else 2**53 - 1)


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "delta"),
    [("1.1", "0.01", 10000, "1e-5"), ("0.7", "0.001", 1000, "1e-7"), ("20", "0.01", 100, "1e-6")],
)
def test_training_agrees_with_dp_accountings_renyi_accountant(
    noise: str, rate: str, steps: int, delta: str
) -> None:
    accountant = RdpAccountant()
    accountant.compose(
        dp_accounting.PoissonSampledDpEvent(
            float(rate), dp_accounting.GaussianDpEvent(float(noise))
        ),
        steps,
    )
    expected = accountant.get_epsilon(float(delta))
    found, _ = DpSgd(noise, rate, steps, delta).price(BASIC).amounts
    # Ours looks at fewer fractional orders, and at more of the high ones.
    assert 0.9 * expected < found / 1e12 < 1.01 * expected


def test_training_on_every_row_is_plain_gaussian_noise() -> None:
    whole = DpSgd("13", "1", 4, "1e-9").price(BASIC)
    assert whole == Gaussian("6.5", "1e-9").price(BASIC)


def test_sampling_never_costs_more_than_seeing_every_row() -> None:
    often = DpSgd("13", "0.999", 4, "1e-9").price(BASIC)
    assert DpSgd("13", "1", 4, "1e-9").price(BASIC).covers(often)


@given(
    st.decimals("1.01", "100", places=2), st.decimals("0", "50", places=4), st.integers(1, 10**15)
)
def test_one_order_converts_as_dp_accounting_does(
    order: Decimal, divergence: Decimal, delta: int
) -> None:
    a, d = float(order), delta / 1e18
    expected = float(divergence) + math.log1p(-1 / a) - math.log(d * a) / (a - 1)
    assert float(hs.converted(order, divergence, delta)) == pytest.approx(expected, abs=1e-9)
