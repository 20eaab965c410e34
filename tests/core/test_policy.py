"""Ranks compare exactly as the share vectors of the paper do."""

from fractions import Fraction
from itertools import zip_longest

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from privatekube_kfp.core.budget import INFINITE
from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.core.policy import (
    MAX_WEIGHT,
    POLICIES,
    SHARE_SCALE_BITS,
    Asked,
    check_weighs,
    exact_share,
    policy_named,
)

small = st.integers(1, 5)
large = st.integers(1, INFINITE - 1)


def fraction_of(demand, capacity):
    return max(
        (Fraction(d, c) for d, c in zip(demand, capacity, strict=True) if c > 0),
        default=Fraction(0),
    )


def sign(number):
    return (number > 0) - (number < 0)


share = st.tuples(large | st.just(INFINITE), large)


@given(one=share, other=share)
@example(one=(INFINITE - 2, INFINITE - 1), other=(INFINITE - 3, INFINITE - 2))
@example(one=(1, 2), other=((INFINITE - 1) // 2, INFINITE - 1))
@example(one=(1, 3), other=(2, 6))
def test_shares_compare_as_fractions_however_close(one, other):
    exact = [exact_share((demand,), (capacity,)) for demand, capacity in (one, other)]
    assert sign(exact[0] - exact[1]) == sign(Fraction(*one) - Fraction(*other))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 9)), min_size=1, max_size=4))
def test_a_share_is_the_largest_over_usable_orders(orders):
    demand, capacity = zip(*orders, strict=True)
    assert Fraction(exact_share(demand, capacity), 2**SHARE_SCALE_BITS) <= fraction_of(
        demand, capacity
    )
    assert (exact_share(demand, capacity) == 0) == (fraction_of(demand, capacity) == 0)
    for d, c in orders:
        if c > 0:
            assert exact_share(demand, capacity) >= exact_share((d,), (c,))


def rank(policy, blocks, weight=1):
    counts = {}
    for demand, capacity in blocks:
        key = exact_share((demand,), (capacity,))
        counts[key] = counts.get(key, 0) + 1
    return POLICIES[policy].rank(Asked(counts, weight))


block = st.tuples(st.integers(0, 4), small) | st.tuples(large, large)
claim = st.lists(block, min_size=1, max_size=6)


@given(one=claim, other=claim)
def test_ranks_compare_as_sorted_share_vectors(one, other):
    """Dominant share first, then the second, ...; a block not asked for is a share of zero."""
    vectors = [[Fraction(*b) for b in blocks] for blocks in (one, other)]
    assert_ranks_compare_as(vectors, [rank("dpf", one), rank("dpf", other)])


weights = st.integers(1, MAX_WEIGHT)
fattest, flattest = INFINITE - 1, INFINITE - 2


@given(one=claim, other=claim, weight=weights, other_weight=weights)
@example(one=[(999, fattest)], other=[(998, flattest)], weight=1000, other_weight=999)
@example(one=[(fattest, flattest)], other=[(INFINITE, fattest)], weight=1000, other_weight=1000)
@example(one=[(1, 3), (1, 7)], other=[(1000, 3), (1000, 7)], weight=1, other_weight=1000)
def test_weighted_ranks_compare_as_share_vectors_per_weight(one, other, weight, other_weight):
    weighted = ((one, weight), (other, other_weight))
    vectors = [[Fraction(*b) / w for b in blocks] for blocks, w in weighted]
    assert_ranks_compare_as(vectors, [rank("weighted-dpf", blocks, w) for blocks, w in weighted])


@given(one=share, other=share, weight=weights, other_weight=weights)
@example(one=(fattest, flattest), other=(INFINITE, fattest), weight=1000, other_weight=1000)
def test_one_share_per_weight_compares_as_a_fraction_however_close(
    one, other, weight, other_weight
):
    exact = [rank("weighted-dpf", [one], weight), rank("weighted-dpf", [other], other_weight)]
    fractions = [Fraction(*one) / weight, Fraction(*other) / other_weight]
    assert (exact[0] < exact[1]) == (fractions[0] < fractions[1])
    assert (exact[0] == exact[1]) == (fractions[0] == fractions[1])


def assert_ranks_compare_as(vectors, ranks):
    descending = [sorted(shares, reverse=True) for shares in vectors]
    padded = list(zip_longest(*descending, fillvalue=Fraction(0)))
    first, second = [a for a, _ in padded], [b for _, b in padded]
    assert (ranks[0] < ranks[1], ranks[0] == ranks[1]) == (first < second, first == second)


def test_first_come_first_served_ranks_everybody_alike():
    assert rank("fcfs", [(5, 9)]) == rank("fcfs", [(9, 9), (1, 9)])


def test_a_weight_of_one_changes_nothing():
    blocks = [(3, 7), (1, 7)]
    assert rank("weighted-dpf", blocks) == rank("dpf", blocks)


def test_whoever_is_within_its_fair_share_goes_before_all_that_are_packed():
    policy = POLICIES["fair-first"]
    fair = policy.rank(Asked({9: 100}, within_fair_share=True))
    assert fair < policy.packs_from <= policy.rank(Asked({1: 1}, weight=1000))


@pytest.mark.parametrize("policy", ["dpf", "fcfs"])
def test_a_weight_that_would_make_no_difference_is_refused(policy):
    check_weighs(POLICIES[policy], 1)
    with pytest.raises(Invalid, match=f"policy {policy} knows no weights") as refused:
        check_weighs(POLICIES[policy], 2)
    assert refused.value.reason == "InvalidRequest"
    assert "policy weighted-dpf, dpack or fair-first" in refused.value.message


@pytest.mark.parametrize("weight", [0, -1, MAX_WEIGHT + 1, 1.0, "1", None, True])
def test_a_weight_is_a_whole_number_up_to_a_thousand(weight):
    with pytest.raises(Invalid, match="not a whole number from 1 to 1000"):
        check_weighs(POLICIES["dpack"], weight)


def test_policies_go_by_name():
    assert policy_named("dpf").name == "dpf"
    with pytest.raises(Invalid, match="known policies: dpf, fcfs, weighted-dpf, dpack, fair-first"):
        policy_named("best")
