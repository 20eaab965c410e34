"""Mechanisms: what is refused and how it is said, what is kept, and what it costs."""

import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatekube_kfp.accounting import (
    Curve,
    DpSgd,
    EpsilonDelta,
    Gaussian,
    Laplace,
    Mechanism,
    PureEpsilon,
    mechanism_from_json,
)
from privatekube_kfp.core.budget import BASIC, INFINITE, basic, renyi
from privatekube_kfp.core.errors import Invalid, Reason
from tests.accounting.strategies import PAPER_ORDERS, mechanisms, order_lists, with_curves
from tests.often import times

PAPER = renyi(PAPER_ORDERS)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Laplace(0.1), "epsilon must be a decimal string such as '0.1', not the float"),
        (lambda: Laplace("-1"), "epsilon '-1' is negative"),
        (lambda: Laplace("0"), "epsilon '0' must be above 0"),
        (lambda: Laplace(""), "epsilon is empty"),
        (lambda: Laplace("nan"), "epsilon 'nan' is not a decimal number"),
        (lambda: Laplace("inf"), "epsilon 'inf' is not a decimal number"),
        (lambda: PureEpsilon("0.1234567890123"), "finer than 1e-12"),
        (lambda: PureEpsilon("9008"), "too large"),
        (lambda: Gaussian("0"), "sigma '0' is out of range; it must be above 0"),
        (lambda: Gaussian("1e21"), "sigma '1e21' is out of range"),
        (lambda: Gaussian("1." + "1" * 50), "has more than 50 digits"),
        (lambda: Gaussian(Decimal("1")), "sigma must be a decimal string"),
        (lambda: Gaussian("1", "0"), "delta '0' must be above 0"),
        (lambda: Gaussian("1", "0.5"), "delta '0.5' is too large"),
        (lambda: Gaussian("1", 1e-9), "delta must be a decimal string"),
        (lambda: DpSgd("1", "1.01", 10), "sample rate '1.01' is out of range"),
        (lambda: DpSgd("1", "0", 10), "sample rate '0' is out of range"),
        (lambda: DpSgd("x", "0.1", 10), "noise multiplier 'x' is not a decimal number"),
        (lambda: DpSgd("1", "0.1", 0), "steps 0 must be a whole number from 1 to 1000000000"),
        (lambda: DpSgd("1", "0.1", 10**9 + 1), "must be a whole number"),
        (lambda: DpSgd("1", "0.1", True), "steps True must be a whole number"),
        (lambda: DpSgd("1", "0.1", 10.0), r"steps 10.0 must be a whole number"),
        (lambda: EpsilonDelta("0", "0"), "both 0"),
        (lambda: EpsilonDelta("1", None), "delta must be a decimal string"),
        (lambda: Curve({}), "no Renyi orders given"),
        (lambda: Curve([("2", "1")]), "a curve is a map from orders to epsilons"),
        (lambda: Curve({"1": "1"}), "order '1' must be above 1"),
        (lambda: Curve({"2": "1", "2.0": "1"}), "order 2 is given twice"),
        (lambda: Curve({"2": "0"}), "epsilon '0' at order 2 must be above 0"),
        (lambda: Curve({"2": 1.0}), "epsilon at order 2 must be a decimal string"),
        (lambda: Curve({"2": "0.2", "4": "0.1"}), "falls from 0.2 at order 2 to 0.1 at order 4"),
        (lambda: Curve({"2": "inf", "4": "1"}), "falls from inf at order 2 to 1 at order 4"),
        (lambda: Curve({"2": "inf", "4": "inf"}), "infinite at every order"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name_and_value(make, words: str) -> None:
    with pytest.raises(Invalid) as refusal:
        make()
    assert words in refusal.value.message


def test_equal_numbers_make_equal_mechanisms() -> None:
    assert Laplace("0.10") == Laplace("1e-1") == Laplace(" .1 ")
    assert Gaussian("6.50", "1e-9") == Gaussian("6.5", "0.000000001")
    assert DpSgd("1.10", "1e-2", 5) == DpSgd("1.1", "0.01", 5)
    assert Curve({"4": "0.20", "2.0": "0.1"}) == Curve({"2": "0.1", "4": "0.2"})
    assert len({Curve({"2": "0.1"}), Curve({"2.0": "1e-1"})}) == 1


def test_fifty_digits_are_kept() -> None:
    sigma = "1." + "123456789" * 5 + "1234"
    assert Gaussian(sigma).sigma == sigma


def test_basic_prices() -> None:
    assert Laplace("0.1").price(BASIC) == basic("0.1")
    assert PureEpsilon("2").price(BASIC) == basic("2")
    assert EpsilonDelta("1", "1e-9").price(BASIC) == basic("1", "1e-9")
    epsilon, delta = DpSgd("1.1", "0.01", 1000, "1e-7").price(BASIC).amounts
    assert 2.2e12 < epsilon < 2.3e12
    assert delta == 10**11


@pytest.mark.parametrize("mechanism", [Gaussian("1"), DpSgd("1", "0.1", 10)])
def test_without_a_delta_there_is_no_basic_price(mechanism: Mechanism) -> None:
    with pytest.raises(Invalid, match="give the step's delta") as refusal:
        mechanism.price(BASIC)
    assert refusal.value.reason is Reason.CANNOT_PRICE


def test_a_curve_has_no_basic_price() -> None:
    with pytest.raises(Invalid, match="declare the step as epsilon-delta") as refusal:
        Curve({"2": "1"}).price(BASIC)
    assert refusal.value.reason is Reason.CANNOT_PRICE


def test_epsilon_with_a_delta_has_no_renyi_price() -> None:
    with pytest.raises(Invalid, match="laplace, gaussian, dp-sgd or a curve") as refusal:
        EpsilonDelta("1", "1e-9").price(PAPER)
    assert refusal.value.reason is Reason.CANNOT_PRICE
    assert EpsilonDelta("1", "0").price(PAPER) == PureEpsilon("1").price(PAPER)


def test_a_curve_must_have_the_streams_orders() -> None:
    curve = Curve({"2": "0.5", "4": "inf"})
    assert curve.price(renyi(["2", "4"])).amounts == (5 * 10**11, INFINITE)
    with pytest.raises(Invalid, match="no epsilon at order 8; the stream is accounted at 2, 4, 8"):
        curve.price(renyi(["2", "4", "8"]))
    with pytest.raises(Invalid, match="at order 4, which the stream does not have"):
        curve.price(renyi(["2"]))


def test_gaussian_costs_round_up_from_the_exact_rational() -> None:
    """At order 2, 1 / 6.5**2 = 0.0236686390532544...; at sigma 0.5 it is 4 and stays 4."""
    assert Gaussian("6.5").price(renyi(["2"])).to_json() == {"2": "0.023668639054"}
    assert Gaussian("0.5").price(renyi(["2"])).to_json() == {"2": "4"}


def test_a_delta_changes_nothing_on_a_renyi_stream() -> None:
    assert Gaussian("2", "1e-9").price(PAPER) == Gaussian("2").price(PAPER)


def test_too_dear_is_infinite_at_that_order_only() -> None:
    price = DpSgd("1.1", "0.01", 10**6).price(PAPER).amounts
    assert price[0] < INFINITE == price[-1]


@settings(max_examples=times(25), deadline=None)
@given(
    with_curves.filter(lambda mechanism: not isinstance(mechanism, Curve)), order_lists(highest=70)
)
def test_a_renyi_price_is_positive_and_never_falls(mechanism: Mechanism, orders: list[str]) -> None:
    amounts = mechanism.price(renyi(orders)).amounts
    assert amounts[0] >= 1
    assert list(amounts) == sorted(amounts)
    assert amounts[-1] <= INFINITE


def test_a_bound_at_an_order_bounds_every_order_below() -> None:
    @dataclass(frozen=True)
    class RoughBelow(Laplace):
        def divergence(self, order: Decimal) -> Decimal:
            return Decimal(3) if order == 2 else Decimal(1)

    assert RoughBelow("1").price(renyi(["2", "4", "8"])).to_json() == {"2": "1", "4": "1", "8": "1"}


@settings(deadline=None)
@given(st.integers(1, 9 * 10**15), order_lists(highest=20000))
def test_a_pure_step_never_costs_more_than_its_epsilon(units: int, orders: list[str]) -> None:
    epsilon = f"{units // 10**12}.{units % 10**12:012d}"
    for mechanism in (Laplace(epsilon), PureEpsilon(epsilon)):
        assert max(mechanism.price(renyi(orders)).amounts) <= units


@given(mechanisms)
def test_json_round_trips(mechanism: Mechanism) -> None:
    assert mechanism_from_json(mechanism.to_json()) == mechanism


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        (Laplace("0.1"), {"mechanism": "laplace", "epsilon": "0.1"}),
        (Gaussian("6.5"), {"mechanism": "gaussian", "sigma": "6.5"}),
        (
            DpSgd("1.1", "0.01", 1000, "1e-9"),
            {
                "mechanism": "dp-sgd",
                "noiseMultiplier": "1.1",
                "sampleRate": "0.01",
                "steps": 1000,
                "delta": "0.000000001",
            },
        ),
        (PureEpsilon("1"), {"mechanism": "pure", "epsilon": "1"}),
        (
            EpsilonDelta("1", "1e-3"),
            {"mechanism": "epsilon-delta", "epsilon": "1", "delta": "0.001"},
        ),
        (Curve({"2": "1", "3": "inf"}), {"mechanism": "curve", "orders": {"2": "1", "3": "inf"}}),
    ],
)
def test_json_shape(mechanism: Mechanism, said: dict[str, object]) -> None:
    assert mechanism.to_json() == said


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("laplace", "a mechanism is an object such as"),
        ({}, "no mechanism given; known are laplace, gaussian, dp-sgd, pure, epsilon-delta, curve"),
        ({"mechanism": "exponential"}, "unknown mechanism 'exponential'; known are laplace"),
        ({"mechanism": ["laplace"]}, "unknown mechanism ['laplace']"),
        ({"mechanism": "gaussian", "scale": "1"}, "unknown key 'scale'; gaussian has sigma, delta"),
        ({"mechanism": "gaussian"}, "no sigma given; gaussian has sigma, delta"),
        ({"mechanism": "gaussian", "sigma": None}, "sigma is null"),
        ({"mechanism": "gaussian", "sigma": "1", "delta": None}, "delta is null"),
        ({"mechanism": "gaussian", "sigma": 1}, "sigma must be a decimal string"),
        ({"mechanism": "gaussian", "sigma": ["1"]}, "sigma must be a decimal string"),
        (
            {"mechanism": "dp-sgd", "noise_multiplier": "1"},
            "unknown key 'noise_multiplier'; dp-sgd has noiseMultiplier, sampleRate, steps, delta",
        ),
        (
            {"mechanism": "dp-sgd", "noiseMultiplier": "1", "sampleRate": "1", "steps": "10"},
            "steps '10' must be a whole number",
        ),
        ({"mechanism": "curve", "orders": "2"}, "a curve is a map"),
    ],
)
def test_json_is_strict(said: object, words: str) -> None:
    with pytest.raises(Invalid) as refusal:
        mechanism_from_json(said)
    assert words in refusal.value.message


def test_importing_accounting_loads_nothing_heavy() -> None:
    code = (
        "import sys, privatekube_kfp.accounting;"
        "sys.exit(any(m in sys.modules for m in ('dp_accounting', 'numpy', 'scipy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
