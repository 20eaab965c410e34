"""Ranks compare exactly as the share vectors of the paper do."""

from fractions import Fraction
from itertools import zip_longest

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from privatekube_kfp.core.budget import INFINITE
from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.core.policy import POLICIES, exact_share, policy_named

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
    assert Fraction(exact_share(demand, capacity), 2**107) <= fraction_of(demand, capacity)
    assert (exact_share(demand, capacity) == 0) == (fraction_of(demand, capacity) == 0)
    for d, c in orders:
        if c > 0:
            assert exact_share(demand, capacity) >= exact_share((d,), (c,))


def dpf_rank(blocks):
    counts = {}
    for demand, capacity in blocks:
        key = exact_share((demand,), (capacity,))
        counts[key] = counts.get(key, 0) + 1
    return POLICIES["dpf"].rank(counts)


block = st.tuples(st.integers(0, 4), small) | st.tuples(large, large)
claim = st.lists(block, min_size=1, max_size=6)


@given(one=claim, other=claim)
def test_ranks_compare_as_sorted_share_vectors(one, other):
    """Dominant share first, then the second, ...; a block not asked for is a share of zero."""
    vectors = [sorted((Fraction(*b) for b in blocks), reverse=True) for blocks in (one, other)]
    padded = list(zip_longest(*vectors, fillvalue=Fraction(0)))
    first, second = [a for a, _ in padded], [b for _, b in padded]
    ranks = dpf_rank(one), dpf_rank(other)
    assert (ranks[0] < ranks[1], ranks[0] == ranks[1]) == (first < second, first == second)


def test_first_come_first_served_ranks_everybody_alike():
    assert POLICIES["fcfs"].rank({5: 1}) == POLICIES["fcfs"].rank({9: 3, 1: 1})


def test_policies_go_by_name():
    assert policy_named("dpf").name == "dpf"
    with pytest.raises(Invalid, match="known policies: dpf, fcfs"):
        policy_named("best")
