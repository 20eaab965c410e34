"""Budgets are exact: what fits, fits to the last unit, and what cannot be exact is refused."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privatekube_kfp.core.budget import (
    BASIC,
    DELTA_DIGITS,
    EPSILON_DIGITS,
    INFINITE,
    Budget,
    basic,
    ceil_units,
    floor_units,
    format_amount,
    parse_amount,
    parse_delta,
    parse_epsilon,
    renyi,
)
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.core.policy import POLICIES
from privatekube_kfp.core.pool import Pool
from privatekube_kfp.core.unlocking import ByPipelines

RENYI = renyi(["2", "4"])


@pytest.mark.parametrize(
    ("capacity", "tenth"),
    [
        (basic("1"), basic("0.1")),
        (basic("1", "1e-6"), basic("0.1", "1e-7")),
        (basic("1", "1e-6"), basic("0.000000000001", "1e-7")),
        (RENYI.parse({"2": "1", "4": "1"}), RENYI.parse({"2": "0.1", "4": "0.1"})),
        (RENYI.parse({"2": "1", "4": "1"}), RENYI.parse({"2": "inf", "4": "0.1"})),
        (RENYI.parse({"2": "-3", "4": "1"}), RENYI.parse({"2": "0", "4": "0.1"})),
    ],
    ids=["epsilon", "epsilon-and-delta", "delta", "renyi", "renyi-infinite", "renyi-unusable"],
)
def test_ten_claims_of_a_tenth_fit_exactly_and_an_eleventh_does_not(capacity, tenth):
    pool = Pool(capacity.accounting, ByPipelines(1), POLICIES["dpf"])
    pool.add_block("b", capacity, created=0)
    demand = PerBlock.uniform(tenth, ["b"])
    for number in range(10):
        pool.arrive(f"claim-{number}", demand, arrival=number)
        assert pool.plan(now=0).grants == (f"claim-{number}",)
    view = pool.view("b")
    assert view.allocated == tenth.times(10)
    pool.arrive("eleventh", demand, arrival=10)
    assert pool.plan(now=0).grants == ()
    for _ in range(10):
        pool.consume(demand)
    [refusal] = pool.plan(now=0).refusals
    assert (refusal.claim, refusal.reason) == ("eleventh", Reason.EXHAUSTED)
    assert pool.view("b").consumed == tenth.times(10)


# Parsing what people type

GOOD = {
    "0.1": 10**11,
    " 0.1 ": 10**11,
    "1": 10**12,
    "1.": 10**12,
    ".5": 5 * 10**11,
    "1e-12": 1,
    "1E-7": 10**5,
    "0.10000000000000000000000000": 10**11,
    "10e-1": 10**12,
    "0": 0,
    "0e5": 0,
    "0.0e-999999": 0,
    "9007.199254740990": INFINITE - 1,
}


@pytest.mark.parametrize(("text", "units"), GOOD.items(), ids=GOOD)
def test_a_decimal_is_parsed_exactly(text, units):
    assert parse_epsilon(text) == units


BAD = {
    "-1": "negative",
    "-0.1": "negative",
    "-inf": "negative",
    "NaN": "not a decimal",
    "sNaN": "not a decimal",
    "inf": "not a decimal",
    "Infinity": "not a decimal",
    "": "empty",
    "   ": "empty",
    ".": "not a decimal",
    "e5": "not a decimal",
    "+1": "not a decimal",
    "1_0": "not a decimal",
    "1,5": "not a decimal",
    "0x10": "not a decimal",
    "1/3": "not a decimal",
    "1 0": "not a decimal",
    "\N{FULLWIDTH DIGIT ONE}": "not a decimal",
    "\N{ARABIC-INDIC DIGIT ONE}": "not a decimal",
    "0.0000000000001": "finer than 1e-12",
    "0." + "1" * 50: "finer than 1e-12",
    "1e-999999": "finer than 1e-12",
    "1e999999": "too large",
    str(10**9): "too large",
    "9007.199254740991": "too large",
    "9" * 61: "not a decimal",
    "1e9999999": "not a decimal",
}


@pytest.mark.parametrize(("text", "why"), BAD.items(), ids=[repr(text)[:20] for text in BAD])
def test_what_is_no_exact_budget_is_refused_with_a_reason(text, why):
    with pytest.raises(Invalid, match=why) as refused:
        parse_epsilon(text)
    assert refused.value.reason is Reason.INVALID_BUDGET
    assert len(refused.value.message) < 250


@pytest.mark.parametrize("number", [0.1, 1, Decimal("0.1"), True, None, b"1"], ids=repr)
def test_numbers_are_refused_by_type_for_their_digits_may_already_be_wrong(number):
    with pytest.raises(
        Invalid, match=f"decimal string such as '0.1', not the {type(number).__name__}"
    ):
        parse_epsilon(number)


@pytest.mark.parametrize("number", [0.5, True, None, "1", Decimal(1)], ids=repr)
def test_a_budget_holds_nothing_but_integers(number):
    with pytest.raises(TypeError, match="integers"):
        Budget(BASIC, (number, 0))


def test_delta_has_finer_units_than_epsilon():
    assert parse_delta("1e-18") == 1
    with pytest.raises(Invalid, match="finer than 1e-18"):
        parse_delta("1e-19")
    with pytest.raises(Invalid, match="finer than 1e-12"):
        parse_epsilon("1e-18")


@given(units=st.integers(0, INFINITE - 1), digits=st.sampled_from([EPSILON_DIGITS, DELTA_DIGITS]))
def test_what_is_shown_is_read_back(units, digits):
    text = format_amount(units, digits)
    assert parse_amount(text, digits, "amount") == units
    assert Fraction(text) == Fraction(units, 10**digits)


signed = st.integers(-(10**25), 10**25)


@given(amounts=st.tuples(signed, signed | st.just(INFINITE)))
def test_our_own_records_are_read_back_whatever_they_hold(amounts):
    for accounting in (BASIC, RENYI):
        budget = accounting.budget(amounts)
        assert accounting.parse(budget.to_json()) == budget


@pytest.mark.parametrize(
    "amounts",
    [
        {},
        {"2": "1"},
        {"2": "1", "4": "1", "8": "1"},
        {"2": "1", "4": "nan"},
        {"2": "1", "4": ""},
        {"2": "1", "4": 1},
        {"2": "1", "4": "1e3"},
        {"2": "1", "4": "0.0000000000001"},
        {"2": "1", "4": "\N{FULLWIDTH DIGIT ONE}"},
    ],
    ids=repr,
)
def test_a_record_that_is_no_budget_is_refused(amounts):
    with pytest.raises(Invalid) as refused:
        RENYI.parse(amounts)
    assert refused.value.reason is Reason.INVALID_BUDGET


@given(value=st.fractions(-5, 5))
def test_a_price_rounds_up_and_a_capacity_down_by_less_than_a_unit(value):
    unit = Fraction(1, 10**EPSILON_DIGITS)
    assert 0 <= ceil_units(value) * unit - value < unit
    assert 0 <= value - floor_units(value) * unit < unit


def test_a_price_beyond_every_capacity_is_infinite():
    assert ceil_units(Decimal("inf")) == ceil_units(Fraction(10**9)) == INFINITE


# Orders


@pytest.mark.parametrize(
    "orders", [[], ["1"], ["0.5"], ["2", "2.0"], ["nan"], ["1e7"], ["2"] * 300], ids=str
)
def test_orders_that_make_no_sense_are_refused(orders):
    with pytest.raises(Invalid) as refused:
        renyi(orders)
    assert refused.value.reason is Reason.INVALID_BUDGET


def test_orders_are_sorted_and_written_one_way():
    assert renyi(["64", "1.50", "8.0"]).orders == ("1.5", "8", "64")


# Fitting

amount = st.integers(0, 9)
pair = st.tuples(amount, amount)


@given(demand=pair, room=st.tuples(st.integers(-9, 9), st.integers(-9, 9)))
def test_a_basic_demand_fits_where_both_epsilon_and_delta_do(demand, room):
    fits = BASIC.budget(demand).fits(BASIC.budget(room), BASIC.budget((9, 9)))
    assert fits == (demand[0] <= room[0] and demand[1] <= room[1])


def test_a_renyi_demand_fits_at_any_order_but_an_unusable_one():
    room = RENYI.budget((5, 1))
    demand = RENYI.budget((5, 9))
    assert demand.fits(room, RENYI.budget((9, 9)))
    assert not demand.fits(room, RENYI.budget((0, 9)))
    assert not RENYI.budget((6, 9)).fits(room, RENYI.budget((9, 9)))


@given(a=pair, b=pair)
def test_adding_and_taking_away_are_exact(a, b):
    one, other = BASIC.budget(a), BASIC.budget(b)
    assert (one + other) - other == one
    assert one + one + one == one.times(3)


def test_budgets_of_different_accounting_do_not_mix():
    for mix in (
        lambda: basic("1") + RENYI.zero(),
        lambda: basic("1").covers(RENYI.zero()),
        lambda: RENYI.zero() - renyi(["2", "8"]).zero(),
    ):
        with pytest.raises(TypeError):
            mix()


@pytest.mark.parametrize(
    "orders",
    [["1.0000000000000000000000000000000001"], ["2", "2.0000000000000000000000000000000001"]],
)
def test_orders_are_not_rounded_to_each_other(orders):
    with pytest.raises(Invalid, match="at most 12 decimals"):
        renyi(orders)


def test_orders_are_written_one_way():
    assert renyi(["64", "2.50", "1e1"]).orders == ("2.5", "10", "64")
