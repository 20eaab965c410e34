"""Plans: the price of the whole is the exact sum of its steps."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatekube_kfp.accounting import (
    Curve,
    EpsilonDelta,
    Gaussian,
    Laplace,
    Plan,
    PureEpsilon,
    Step,
    plan_from_json,
)
from privatekube_kfp.core.budget import (
    BASIC,
    INFINITE,
    basic,
    format_amount,
    parse_delta,
    parse_epsilon,
    renyi,
)
from privatekube_kfp.core.errors import Invalid, Reason
from tests.accounting.strategies import PAPER_ORDERS, mechanisms, names, plans, with_curves
from tests.often import times

PAPER = renyi(PAPER_ORDERS)


@settings(max_examples=times(40), deadline=None)
@given(plans(with_curves))
def test_consuming_every_step_consumes_the_whole_plan(plan: Plan) -> None:
    left = plan.price(PAPER)
    for part in plan.parts(PAPER).values():
        assert left.covers(part)
        left = left - part
    assert left.is_zero


@settings(max_examples=times(40), deadline=None)
@given(plans(with_curves))
def test_a_price_survives_its_record(plan: Plan) -> None:
    price = plan.price(PAPER)
    assert PAPER.parse(price.to_json()) == price


def test_infinite_parts_add_up_and_never_fit() -> None:
    orders = renyi(["2", "4"])
    endless = Curve({"2": "1", "4": "inf"})
    plan = Plan.of({"one": endless, "two": endless, "three": Laplace("1")})
    price = plan.price(orders)
    assert price.amounts[1] > 2 * INFINITE
    assert price == endless.price(orders).times(2) + Laplace("1").price(orders)
    assert orders.parse(price.to_json()) == price
    everything = orders.budget([INFINITE - 1, INFINITE - 1])
    only_upper = orders.budget([0, INFINITE - 1])
    assert price.fits(everything, everything)
    assert not price.fits(only_upper, everything)


@given(plans(mechanisms))
def test_json_round_trips(plan: Plan) -> None:
    assert plan_from_json(plan.to_json()) == plan


def test_a_bare_mechanism_is_a_plan_of_one_step() -> None:
    plan = plan_from_json({"mechanism": "gaussian", "sigma": "6.5"})
    assert plan == Plan.of(Gaussian("6.5")) == Plan((Step("all", Gaussian("6.5")),))
    assert plan.to_json() == {"steps": [{"name": "all", "mechanism": "gaussian", "sigma": "6.5"}]}


def test_steps_keep_their_order() -> None:
    plan = Plan.of({"train": Laplace("1"), "a": Laplace("2"), "evaluate": Laplace("3")})
    assert [step.name for step in plan_from_json(plan.to_json()).steps] == [
        "train",
        "a",
        "evaluate",
    ]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (None, "a plan is an object with 'steps'"),
        ({}, "a plan is an object with 'steps'"),
        ([{"mechanism": "pure", "epsilon": "1"}], "a plan is an object with 'steps'"),
        ({"steps": []}, "the plan has no steps"),
        ({"steps": {}}, "steps must be a list"),
        ({"steps": [], "epsilon": "1"}, "unknown key 'epsilon'; a plan has steps"),
        ({"steps": ["train"]}, "step 1 must be an object with a name and a mechanism"),
        (
            {"steps": [{"mechanism": "pure", "epsilon": "1"}]},
            "step 1 must be an object with a name",
        ),
        ({"steps": [{"name": "train"}]}, "step 'train': no mechanism given"),
        (
            {"steps": [{"name": "train", "mechanism": "gaussian", "sigma": "-1"}]},
            "step 'train': sigma '-1' is negative",
        ),
        (
            {"steps": [{"name": "Train", "mechanism": "pure", "epsilon": "1"}]},
            "step name 'Train' must be 1 to 63 lower-case letters",
        ),
        (
            {"steps": [{"name": 3, "mechanism": "pure", "epsilon": "1"}]},
            "step name 3 must be 1 to 63",
        ),
        ({"steps": [{"name": "a", "mechanism": "pure", "epsilon": "1"}] * 2}, "'a' is named twice"),
        (
            {"steps": [{"name": f"s{n}", "mechanism": "pure", "epsilon": "1"} for n in range(65)]},
            "the plan has 65 steps; at most 64",
        ),
    ],
)
def test_json_is_strict(said: object, words: str) -> None:
    with pytest.raises(Invalid) as refusal:
        plan_from_json(said)
    assert words in refusal.value.message


@pytest.mark.parametrize("name", ["", "-a", "a-", "a.b", "a" * 64, "a\n", "é"])
def test_step_names_are_labels(name: str) -> None:
    with pytest.raises(Invalid, match="step name"):
        Step(name, Laplace("1"))


def test_a_step_is_a_mechanism() -> None:
    with pytest.raises(Invalid, match=r"step 'train' is the str '0.1', not a mechanism"):
        Plan.of({"train": "0.1"})


def test_what_cannot_be_priced_names_its_step() -> None:
    plan = Plan.of({"prepare": Laplace("1"), "train": Gaussian("1")})
    with pytest.raises(Invalid, match=r"step 'train': gaussian has no epsilon") as refusal:
        plan.price(BASIC)
    assert refusal.value.reason is Reason.CANNOT_PRICE


def test_split_by_percentages() -> None:
    plan = Plan.split("1", {"preprocess": "25", "train": "50", "evaluate": "25"})
    assert plan == Plan.of(
        {
            "preprocess": PureEpsilon("0.25"),
            "train": PureEpsilon("0.5"),
            "evaluate": PureEpsilon("0.25"),
        }
    )


def test_split_with_a_delta() -> None:
    plan = Plan.split("1", {"a": "10", "b": "90"}, delta="1e-9")
    assert plan.parts(BASIC) == {"a": basic("0.1", "1e-10"), "b": basic("0.9", "9e-10")}
    assert plan.steps[0].mechanism == EpsilonDelta("0.1", "1e-10")


@given(
    st.integers(10**7, 9 * 10**15),
    st.integers(0, 10**15),
    st.lists(st.integers(1, 10**6), min_size=1, max_size=10),
)
def test_a_split_loses_and_makes_up_nothing(epsilon: int, delta: int, weights: list[int]) -> None:
    # Percentages with six decimals; the last takes what is left of a hundred.
    cents = [weight * 10**8 // sum(weights) for weight in weights]
    cents[-1] += 10**8 - sum(cents)
    shares = {f"s{n}": format_amount(cent, 6) for n, cent in enumerate(cents)}
    plan = Plan.split(format_amount(epsilon, 12), shares, format_amount(delta, 18))
    assert plan.price(BASIC).amounts == (epsilon, delta)
    for share, part in zip(cents, plan.parts(BASIC).values(), strict=True):
        assert abs(part.amounts[0] - Fraction(epsilon * share, 10**8)) < 1
        assert abs(part.amounts[1] - Fraction(delta * share, 10**8)) < 1


@pytest.mark.parametrize(
    ("epsilon", "shares", "words"),
    [
        ("1", {}, "no shares given"),
        ("1", {"a": "50", "b": "49.999999"}, "the shares add up to 99.999999 percent"),
        ("1", {"a": "50", "b": "50." + "0" * 40 + "1"}, "0000001 percent"),
        ("1", {"a": "100", "b": "0"}, "share '0' of 'b' must be a percentage above 0"),
        ("1", {"a": "101"}, "at most 100"),
        ("1", {"a": 100}, "share of 'a' must be a decimal string"),
        ("0.000000000001", {"a": "50", "b": "50"}, "step 'a' would get nothing of epsilon"),
        ("0", {"a": "100"}, "step 'a' would get nothing"),
        ("x", {"a": "100"}, "epsilon 'x' is not a decimal number"),
    ],
)
def test_a_wrong_split_is_refused(epsilon: str, shares: dict[str, str], words: str) -> None:
    with pytest.raises(Invalid) as refusal:
        Plan.split(epsilon, shares)
    assert words in refusal.value.message


@given(names)
def test_every_label_is_a_step_name(name: str) -> None:
    assert Plan.of({name: Laplace("1")}).parts(BASIC) == {name: basic("1")}


def test_units_are_the_cores() -> None:
    (part,) = Plan.split("0.1", {"all": "100"}, "1e-7").parts(BASIC).values()
    assert part.amounts == (parse_epsilon("0.1"), parse_delta("1e-7"))
