"""What a block holds: sound at every order together, rounded down, and no less than it could be."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from privatekube_kfp.accounting import (
    DEFAULT_ORDERS,
    Classic,
    Counter,
    Curve,
    EpsilonDelta,
    Gaussian,
    Laplace,
    Weighted,
    block_capacity,
    conversion_from_name,
    how_often,
)
from privatekube_kfp.accounting.capacity import Promise, failure
from privatekube_kfp.core.budget import BASIC, INFINITE, basic, format_amount, renyi
from privatekube_kfp.core.errors import Invalid, Reason
from tests.accounting.strategies import PAPER_ORDERS, order_lists
from tests.often import times

PAPER = renyi(PAPER_ORDERS)
DEFAULT = renyi(DEFAULT_ORDERS)

stream_epsilons = st.integers(10**11, 60 * 10**12).map(lambda units: format_amount(units, 12))
stream_deltas = st.integers(1, 10**15).map(lambda units: format_amount(units, 18))
counters = st.none() | st.builds(
    Counter,
    st.integers(1, 10**11 - 1).map(lambda units: format_amount(units, 12)),
    st.sampled_from([2, 1024, 2**15]),
)


def test_basic_capacity_is_the_promise() -> None:
    capacity = block_capacity("10", "1e-7", BASIC)
    assert capacity == basic("10", "1e-7")
    assert how_often(capacity, EpsilonDelta("1", "1e-9").price(BASIC)) == 10
    assert how_often(capacity, basic("0.1", "1e-8")) == 10
    assert how_often(capacity, Laplace("0.1").price(BASIC)) == 100


def test_classic_capacities_of_the_paper() -> None:
    capacity = block_capacity("10", "1e-7", PAPER, Classic()).to_json()
    shown = {order: f"{Decimal(capacity[order]):.2f}" for order in ("3", "4", "8", "64")}
    assert shown == {"3": "1.94", "4": "4.63", "8": "7.70", "64": "9.74"}
    assert capacity["2"] == "0"


def test_how_often_steps_fit_the_papers_stream() -> None:
    classic = block_capacity("10", "1e-7", PAPER, Classic())
    weighted = block_capacity("10", "1e-7", PAPER, Weighted())
    assert how_often(classic, Gaussian("6.5").price(PAPER)) == 100
    assert how_often(classic, Laplace("0.1").price(PAPER)) == 254
    assert how_often(weighted, Gaussian("6.5").price(PAPER)) == 103
    assert how_often(weighted, Laplace("0.1").price(PAPER)) == 262


def test_how_often_is_what_fitting_one_by_one_comes_to() -> None:
    capacity = block_capacity("10", "1e-7", PAPER, Classic())
    demand = Gaussian("2").price(PAPER)
    room, times = capacity, 0
    while demand.fits(room, capacity):
        room, times = room - demand, times + 1
    assert how_often(capacity, demand) == times > 1


def test_what_is_infinite_at_every_usable_order_never_fits() -> None:
    orders = renyi(["2", "4"])
    capacity = block_capacity("10", "1e-7", orders)
    assert capacity.amounts[0] == 0
    assert how_often(capacity, Curve({"2": "1", "4": "inf"}).price(orders)) == 0


@pytest.mark.parametrize("demand", [BASIC.zero(), BASIC.budget((-1, 0))])
def test_a_demand_of_nothing_has_no_count(demand) -> None:
    with pytest.raises(Invalid, match="without end"):
        how_often(basic("10", "1e-7"), demand)


def test_how_often_needs_one_accounting() -> None:
    with pytest.raises(TypeError):
        how_often(basic("10", "1e-7"), Laplace("1").price(PAPER))


@given(st.decimals("1.0001", "100000", places=4))
def test_failure_agrees_with_its_formula(order: Decimal) -> None:
    a = float(order)
    found = failure(order)
    assert float(found.high) == pytest.approx((1 / a) * (1 - 1 / a) ** (a - 1), rel=1e-9)
    assert 0 < found.low <= found.high < 1


@settings(max_examples=times(40), deadline=None)
@given(stream_epsilons, stream_deltas, order_lists(), counters)
def test_the_chance_of_failure_stays_within_delta(
    epsilon: str, delta: str, orders: list[str], counter: Counter | None
) -> None:
    """Re-derived from the amounts themselves: sum of g(a) exp((a - 1)(spent - epsilon))."""
    accounting = renyi(orders)
    spent = counter.price(accounting) if counter else accounting.zero()
    for conversion in (Classic(), Weighted()):
        try:
            capacity = block_capacity(epsilon, delta, accounting, conversion, counter)
        except Invalid:
            continue
        logs = [
            math.log(float(failure(a).high))
            + (float(a) - 1) * (room + used - float(epsilon) * 1e12) / 1e12
            for a, room, used in zip(
                accounting.order_values, capacity.amounts, spent.amounts, strict=True
            )
            if room > 0
        ]
        assert sum(math.exp(log) for log in logs) <= float(delta) * (1 + 1e-6)


@settings(max_examples=times(50), deadline=None)
@given(stream_epsilons, stream_deltas, order_lists(), counters)
def test_weighted_gives_no_less_than_classic_wherever_that_is_sound(
    epsilon: str, delta: str, orders: list[str], counter: Counter | None
) -> None:
    accounting = renyi(orders)
    try:
        classic = block_capacity(epsilon, delta, accounting, Classic(), counter)
    except Invalid:
        assume(False)
    assert block_capacity(epsilon, delta, accounting, Weighted(), counter).covers(classic)


@settings(max_examples=times(40), deadline=None)
@given(stream_epsilons, stream_deltas, order_lists(), counters)
def test_default_weights_add_up_to_at_most_one_and_leave_room_at_every_order_kept(
    epsilon: str, delta: str, orders: list[str], counter: Counter | None
) -> None:
    accounting = renyi(orders)
    reserved = counter.price(accounting) if counter else accounting.zero()
    promise = Promise(
        int(Fraction(epsilon) * 10**12), int(Fraction(delta) * 10**18), accounting, reserved
    )
    weights = Weighted().weights_for(promise)
    total = sum(Fraction(weight) for weight in weights.values())
    assert total <= 1
    if weights:
        assert total > 1 - Fraction(1, 10**30)
    rooms = dict(zip(accounting.orders, Weighted().capacity(promise), strict=True))
    assert {order for order, room in rooms.items() if room > 0} == set(weights)


@given(stream_epsilons, stream_deltas, st.decimals("1.1", "500", places=1))
def test_one_weighted_order_is_the_tight_conversion(
    epsilon: str, delta: str, order: Decimal
) -> None:
    a, d = float(order), float(delta)
    tight = float(epsilon) + math.log(d * a) / (a - 1) - math.log(1 - 1 / a)
    assume(tight > 1e-6)
    (found,) = block_capacity(epsilon, delta, renyi([str(order)]), Weighted()).amounts
    assert found / 1e12 == pytest.approx(tight, abs=1e-9)


def test_explicit_weights() -> None:
    orders = renyi(["4", "8"])
    even = block_capacity("10", "1e-7", orders, Weighted({"4": "0.5", "8.0": "0.5"}))
    expected = [10 + math.log(0.5e-7 * a) / (a - 1) - math.log(1 - 1 / a) for a in (4, 8)]
    assert [amount / 1e12 for amount in even.amounts] == pytest.approx(expected)
    proportional = block_capacity("10", "1e-7", orders, Weighted())
    assert not even.covers(proportional)
    assert not proportional.covers(even)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"4": "1", "8": "1"}, "the weights add up to 2, so blocks could fail"),
        ({"4": "0.5", "8": "0.50000000000000000000000000000000000000001"}, "at most 1"),
        ({"4": "0", "8": "1"}, "weight 0 at order 4 must be above 0"),
        ({"4": "1"}, "no weight at order 8"),
        ({"4": "0.1", "8": "0.1", "16": "0.1"}, "order 16, which the stream does not have"),
    ],
)
def test_unsound_weights_are_refused(weights: dict[str, str], words: str) -> None:
    with pytest.raises(Invalid) as refusal:
        block_capacity("10", "1e-7", renyi(["4", "8"]), Weighted(weights))
    assert refusal.value.reason is Reason.UNSOUND_CAPACITY
    assert words in refusal.value.message


@pytest.mark.parametrize("weights", [{}, {"4": 0.5}, {"4": "-1"}, ["4"]])
def test_malformed_weights_are_refused(weights) -> None:
    with pytest.raises(Invalid):
        Weighted(weights)


def test_conversions_by_name() -> None:
    assert conversion_from_name("classic") == Classic()
    assert conversion_from_name("weighted") == Weighted()
    assert (Classic().name, Weighted().name) == ("classic", "weighted")
    with pytest.raises(Invalid, match="known are classic and weighted"):
        conversion_from_name("Classic")


@pytest.mark.parametrize(
    ("epsilon", "delta", "orders", "words"),
    [
        ("0", "1e-7", DEFAULT_ORDERS, "epsilon must be above 0"),
        ("10", "0", DEFAULT_ORDERS, "needs a delta above 0"),
        ("0.1", "1e-7", ("2", "3"), "no order among 2, 3 has any capacity"),
        ("10", "-1", DEFAULT_ORDERS, "delta '-1' is negative"),
    ],
)
def test_impossible_streams_are_refused(
    epsilon: str, delta: str, orders: tuple[str, ...], words: str
) -> None:
    for conversion in (Classic(), Weighted()):
        with pytest.raises(Invalid) as refusal:
            block_capacity(epsilon, delta, renyi(orders), conversion)
        assert words in refusal.value.message


def test_orders_that_only_spoil_the_sum_are_dropped() -> None:
    """Orders near 1 can never have room here, so they must not take weight from the rest."""
    useful = block_capacity("10", "1e-7", renyi(["8", "16"]), Weighted())
    crowded = block_capacity("10", "1e-7", renyi(["1.01", "1.02", "1.1", "8", "16"]), Weighted())
    assert crowded.amounts == (0, 0, 0, *useful.amounts)


def test_capacity_stays_below_infinite() -> None:
    largest = format_amount(INFINITE - 1, 12)
    assert max(block_capacity(largest, "0.009", renyi(["1000000"])).amounts) < INFINITE


def test_counter_costs_what_its_theorem_says() -> None:
    """log2(T)/(a-1) ln[a/(2a-1) exp((a-1)e/log2 T) + (a-1)/(2a-1) exp(-a e/log2 T)]."""
    cost = dict(Counter("0.1").price(PAPER).to_json())
    for order, found in cost.items():
        a, e = float(order), 0.1 / 15
        inner = a / (2 * a - 1) * math.exp((a - 1) * e) + (a - 1) / (2 * a - 1) * math.exp(-a * e)
        assert float(found) == pytest.approx(15 / (a - 1) * math.log(inner), abs=1.1e-12)
    body_of_paper = 2 * 4 * 0.1**2
    assert body_of_paper / float(cost["4"]) == pytest.approx(60.1, abs=0.1)


def test_counter_is_taken_off_every_block() -> None:
    counter = Counter("0.1")
    assert block_capacity("10", "1e-7", BASIC, counter=counter) == basic("9.9", "1e-7")
    without = block_capacity("10", "1e-7", PAPER, Classic())
    taken = block_capacity("10", "1e-7", PAPER, Classic(), counter)
    cost = counter.price(PAPER)
    for room, left, used in zip(without.amounts, taken.amounts, cost.amounts, strict=True):
        assert left == max(0, room - used)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Counter("0"), "counter epsilon '0' must be above 0"),
        (lambda: Counter(0.1), "counter epsilon must be a decimal string"),
        (lambda: Counter("0.1", 1), "counter days 1 must be a power of two"),
        (lambda: Counter("0.1", 30000), "counter days 30000 must be a power of two"),
        (lambda: Counter("0.1", 2.0), "counter days 2.0 must be a power of two"),
        (
            lambda: block_capacity("1", "1e-7", PAPER, Classic(), Counter("1")),
            "the user counter's epsilon 1 leaves nothing of the stream's epsilon 1",
        ),
    ],
)
def test_an_impossible_counter_is_refused(make, words: str) -> None:
    with pytest.raises(Invalid) as refusal:
        make()
    assert words in refusal.value.message


def test_two_hundred_orders_take_no_time_to_speak_of() -> None:
    many = renyi([str(Decimal(n) / 100) for n in range(101, 301)])
    capacity = block_capacity("10", "1e-7", many)
    assert any(capacity.amounts)
