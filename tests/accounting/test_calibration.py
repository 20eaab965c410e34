"""Noise for a target: safe when priced again, and no more of it than needed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatekube_kfp.accounting import (
    Curve,
    DpSgd,
    EpsilonDelta,
    Gaussian,
    Laplace,
    PureEpsilon,
    dp_sgd_noise,
    epsilon_of,
    gaussian_sigma,
    laplace_epsilon,
    laplace_scale,
)
from privatekube_kfp.core.budget import BASIC, format_amount, parse_epsilon
from privatekube_kfp.core.errors import Invalid, Reason
from tests.accounting.strategies import deltas
from tests.often import times


@settings(max_examples=times(8), deadline=None)
@given(st.integers(10**9, 10**14), deltas)
def test_gaussian_noise_priced_again_is_within_its_target(epsilon: int, delta: str) -> None:
    sigma = gaussian_sigma(format_amount(epsilon, 12), delta)
    priced, _ = Gaussian(sigma, delta).price(BASIC).amounts
    assert epsilon * 0.999 < priced <= epsilon


def test_known_gaussian_sigma() -> None:
    sigma = gaussian_sigma("1", "1e-5")
    assert sigma == "3.730631635"
    assert epsilon_of(Gaussian(sigma), "1e-5") <= "1"
    assert parse_epsilon(epsilon_of(Gaussian("3.730631634"), "1e-5")) > 10**12


@pytest.mark.parametrize("epsilon", ["0.000000000001", "9000"])
def test_extreme_gaussian_targets(epsilon: str) -> None:
    sigma = gaussian_sigma(epsilon, "1e-18")
    assert Gaussian(sigma, "1e-18").price(BASIC).amounts[0] <= parse_epsilon(epsilon)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "steps"),
    [
        ("1", "1e-7", "0.01", 1000),
        ("0.5", "1e-9", "0.0001", 10**6),
        ("8", "1e-5", "0.1", 100),
        ("5", "1e-5", "1", 10),
    ],
)
def test_training_noise_priced_again_is_within_its_target(
    epsilon: str, delta: str, rate: str, steps: int
) -> None:
    noise = dp_sgd_noise(epsilon, delta, rate, steps)
    target = parse_epsilon(epsilon)
    assert 0.999 * target < DpSgd(noise, rate, steps, delta).price(BASIC).amounts[0] <= target
    less = format_amount(round(float(noise) * 10**6) - 1, 6)
    assert DpSgd(less, rate, steps, delta).price(BASIC).amounts[0] > target


@given(st.integers(1, 9 * 10**15))
def test_laplace_scale_priced_again_is_within_its_target(units: int) -> None:
    epsilon = format_amount(units, 12)
    assert parse_epsilon(laplace_epsilon(laplace_scale(epsilon))) <= units


def test_laplace_both_ways() -> None:
    assert laplace_scale("0.1") == "10"
    assert laplace_scale("0.3") == "3.333333333334"
    assert laplace_scale("0.000000000001") == "1000000000000"
    assert laplace_epsilon("3") == "0.333333333334"


def test_epsilon_of_each_mechanism() -> None:
    assert epsilon_of(Laplace("0.1"), "0") == "0.1"
    assert epsilon_of(PureEpsilon("2"), "1e-9") == "2"
    assert epsilon_of(EpsilonDelta("1", "1e-9"), "1e-8") == "1"
    assert epsilon_of(Gaussian("1"), "1e-5") == "4.377178095682"
    trained = DpSgd("1.1", "0.01", 1000)
    assert epsilon_of(trained, "1e-7") == epsilon_of(DpSgd("1.1", "0.01", 1000, "1e-9"), "1e-7")
    # 0.2 + ln(1 - 1/8) - ln(8e-7)/7 = 2.0721..., and order 4 would give 4.7...
    assert epsilon_of(Curve({"4": "0.1", "8": "0.2", "16": "inf"}), "1e-7").startswith("2.07")


def test_a_curve_uses_its_best_order() -> None:
    one = Curve({"8": "0.2"})
    more = Curve({"4": "0.1", "8": "0.2", "1000": "inf"})
    assert epsilon_of(one, "1e-7") == epsilon_of(more, "1e-7")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: epsilon_of(Gaussian("1"), "0"), "delta '0' must be above 0"),
        (lambda: epsilon_of(Laplace("1"), 0.1), "delta must be a decimal string"),
        (lambda: epsilon_of(EpsilonDelta("1", "1e-9"), "1e-10"), "nothing is known at delta 1e-10"),
        (lambda: gaussian_sigma("0", "1e-9"), "epsilon '0' must be above 0"),
        (lambda: gaussian_sigma("1", "0"), "delta '0' must be above 0"),
        (lambda: laplace_epsilon("0"), "scale '0' is out of range"),
        (lambda: laplace_epsilon("1e-10"), "beyond any budget"),
        (lambda: dp_sgd_noise("1", "1e-7", "2", 10), "sample rate '2' is out of range"),
        (lambda: dp_sgd_noise("1", "1e-7", "0.1", 0), "steps 0 must be a whole number"),
    ],
)
def test_a_wrong_target_is_refused(call, words: str) -> None:
    with pytest.raises(Invalid) as refusal:
        call()
    assert words in refusal.value.message


def test_what_is_not_known_cannot_be_priced() -> None:
    with pytest.raises(Invalid) as refusal:
        epsilon_of(EpsilonDelta("1", "1e-9"), "0")
    assert refusal.value.reason is Reason.CANNOT_PRICE
