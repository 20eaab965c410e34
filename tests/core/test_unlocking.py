"""Shares of a block: together its capacity to the unit, and none below the fair share."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privatekube_kfp.core.budget import BASIC, INFINITE, basic, renyi
from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.core.policy import POLICIES
from privatekube_kfp.core.pool import Pool
from privatekube_kfp.core.unlocking import (
    MAX_SHARES,
    AtOnce,
    ByPipelines,
    ByTime,
    format_duration,
    parse_duration,
    unlocked_amount,
)


@given(capacity=st.integers(1, 500), shares=st.integers(1, 60))
def test_shares_add_up_to_the_capacity_and_each_is_a_fair_share(capacity, shares):
    opened = [unlocked_amount(capacity, k, shares) for k in range(shares + 1)]
    each = [after - before for before, after in pairwise(opened)]
    assert opened[0] == 0
    assert sum(each) == capacity
    assert min(each) == capacity // shares
    assert max(each) - min(each) <= 1


@given(
    capacity=st.integers(1, INFINITE - 1),
    shares=st.integers(1, MAX_SHARES),
    part=st.fractions(0, 1),
)
def test_k_shares_are_at_least_k_fair_shares_at_any_size(capacity, shares, part):
    opened = int(part * shares)
    unlocked = unlocked_amount(capacity, opened, shares)
    assert unlocked_amount(capacity, shares, shares) == capacity
    assert opened * (capacity // shares) <= unlocked <= capacity
    assert unlocked - Fraction(capacity * opened, shares) < shares


@given(capacity=st.integers(-100, 0), opened=st.integers(0, 5))
def test_an_unusable_order_unlocks_nothing(capacity, opened):
    assert unlocked_amount(capacity, opened, 5) == 0


def unlocked_in(pool):
    return pool.view("b").unlocked.amounts


def ask(pool, number):
    """Somebody asks for all that the block has, so that nobody is ever granted."""
    pool.arrive(f"c{number}", PerBlock.uniform(pool.view("b").capacity, ["b"]), arrival=number)


def test_each_of_the_first_n_pipelines_unlocks_one_share():
    pool = Pool(BASIC, ByPipelines(3), POLICIES["dpf"])
    pool.add_block("b", BASIC.budget((11, 2)), created=0)
    pool.add_block("never asked for", BASIC.budget((11, 2)), created=0)
    seen = [unlocked_in(pool)]
    for number in range(5):
        ask(pool, number)
        seen.append(unlocked_in(pool))
    assert seen == [(0, 0), (4, 1), (8, 2), (11, 2), (11, 2), (11, 2)]
    assert pool.view("b").arrivals == 5
    assert pool.view("never asked for").unlocked.is_zero


def test_a_pipeline_unlocks_only_where_it_is_new():
    pool = Pool(BASIC, ByPipelines(2), POLICIES["dpf"])
    for block in ("old", "new"):
        pool.add_block(block, BASIC.budget((10, 0)), created=0)
    demand = PerBlock.uniform(BASIC.budget((10, 0)), ["old", "new"])
    pool.arrive("again", demand, arrival=1, unlocks=["new"])
    assert pool.view("old").unlocked.amounts == (0, 0)
    assert pool.view("new").unlocked.amounts == (5, 0)


def test_a_pipeline_that_can_never_be_met_unlocks_nothing():
    pool = Pool(BASIC, ByPipelines(2), POLICIES["dpf"])
    pool.add_block("b", BASIC.budget((10, 0)), created=0)
    pool.arrive("too much", PerBlock.uniform(BASIC.budget((11, 0)), ["b"]), arrival=1)
    assert unlocked_in(pool) == (0, 0)
    assert [refusal.claim for refusal in pool.plan(0).refusals] == ["too much"]


def test_each_interval_of_a_blocks_own_lifetime_unlocks_one_share():
    pool = Pool(BASIC, ByTime(lifetime=40, interval=10), POLICIES["dpf"])
    pool.add_block("b", BASIC.budget((10, 0)), created=100)
    seen = {}
    for now in (90, 100, 109, 110, 119, 120, 139, 140, 500, 110):
        pool.plan(now)
        seen[now] = unlocked_in(pool)[0]
    assert seen == {90: 0, 100: 0, 109: 0, 119: 3, 120: 6, 139: 8, 140: 10, 500: 10, 110: 10}


def test_the_next_pass_is_due_when_time_could_serve_somebody():
    pool = Pool(BASIC, ByTime(lifetime=40, interval=10), POLICIES["dpf"])
    pool.add_block("b", basic("4"), created=100)
    assert pool.next_due() is None
    pool.arrive("c", PerBlock.uniform(basic("3"), ["b"]), arrival=1)
    pool.plan(100)
    assert pool.next_due() == 130
    assert pool.plan(129).grants == ()
    assert pool.plan(130).grants == ("c",)
    assert pool.next_due() is None


def test_at_once_everything_is_unlocked_but_what_is_unusable():
    accounting = renyi(["2", "4"])
    pool = Pool(accounting, AtOnce(), POLICIES["fcfs"])
    pool.add_block("b", accounting.budget((-3, 7)), created=0)
    assert pool.view("b").unlocked.amounts == (0, 7)
    assert pool.view("b").locked.amounts == (-3, 0)


@pytest.mark.parametrize("pipelines", [0, -1, MAX_SHARES + 1])
def test_unlocking_by_no_or_too_many_pipelines_is_refused(pipelines):
    with pytest.raises(Invalid, match="pipelines"):
        ByPipelines(pipelines)


@pytest.mark.parametrize(
    ("lifetime", "interval"), [(0, 1), (10, 0), (-10, 5), (10, 3), (10**10, 1)]
)
def test_unlocking_over_no_whole_number_of_intervals_is_refused(lifetime, interval):
    with pytest.raises(Invalid, match="unlocking over"):
        ByTime(lifetime, interval)


@given(microseconds=st.integers(0, 365 * 24 * 3600 * 10**6))
def test_durations_are_read_back(microseconds):
    assert parse_duration(format_duration(microseconds)) == microseconds


@pytest.mark.parametrize(
    "text", ["", "1", "d", "1.5h", "-1h", "1h ", "1y", "1_0s", "99999999w", 90, None]
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(Invalid, match="lifetime"):
        parse_duration(text, "lifetime")
