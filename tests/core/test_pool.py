"""What the pool tells people, and what it refuses to be told."""

import pytest

from privatekube_kfp.core.budget import BASIC, basic, renyi
from privatekube_kfp.core.errors import Reason
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.core.policy import POLICIES
from privatekube_kfp.core.pool import Pool
from privatekube_kfp.core.unlocking import AtOnce, ByPipelines

RENYI = renyi(["2", "4"])


def pool_of(capacity, *blocks, unlocking=None):
    pool = Pool(capacity.accounting, unlocking or AtOnce(), POLICIES["dpf"])
    for block in blocks:
        pool.add_block(block, capacity, created=0)
    return pool


def all_of(budget, *blocks):
    return PerBlock.uniform(budget, blocks)


def test_a_block_of_which_no_order_has_capacity_refuses_everybody():
    pool = pool_of(RENYI.budget((-5, 0)), "b")
    pool.arrive("c", all_of(RENYI.budget((0, 0)), "b"), arrival=1)
    [refusal] = pool.plan(0).refusals
    assert refusal.reason is Reason.EXCEEDS_CAPACITY
    assert "no order of it has any capacity" in refusal.message


def test_capacities_far_below_zero_are_kept_exactly():
    pool = pool_of(RENYI.budget((-(10**30), 7)), "b")
    assert pool.view("b").capacity.amounts == (-(10**30), 7)
    pool.arrive("c", all_of(RENYI.budget((1, 7)), "b"), arrival=1)
    assert pool.plan(0).grants == ("c",)


def test_a_claim_that_can_never_be_met_is_told_both_numbers():
    pool = pool_of(basic("1"), "b")
    pool.arrive("c", all_of(basic("1.5"), "b"), arrival=1)
    [refusal] = pool.plan(0).refusals
    assert refusal.message == "block b: epsilon 1.5 asked, 1 left, and no more will ever be"


def test_a_waiting_claim_is_told_what_would_help():
    pool = pool_of(basic("2"), "b", unlocking=ByPipelines(2))
    pool.arrive("waits", all_of(basic("1.5"), "b"), arrival=1)
    pool.plan(0)
    assert pool.why_waiting("waits").reason is Reason.WAITING_FOR_UNLOCK
    pool.arrive("holds", all_of(basic("1"), "b"), arrival=2)
    assert pool.plan(0).grants == ("holds",)
    assert pool.why_waiting("waits").reason is Reason.WAITING_FOR_RELEASE
    pool.release(all_of(basic("1"), "b"))
    assert pool.why_waiting("waits").message == "its turn has not come yet"
    assert pool.plan(0).grants == ("waits",)


def test_two_demands_on_one_block_are_refused_for_each_might_fit_where_both_do_not():
    pool = pool_of(basic("1"), "a", "b")
    twice = PerBlock(((basic("0.7"), ("a", "b")), (basic("0.6"), ("b",))))
    with pytest.raises(ValueError, match="asks twice"):
        pool.arrive("c", twice, arrival=1)
    with pytest.raises(ValueError, match="named twice"):
        pool.arrive("c", all_of(basic("0.1"), "a", "a"), arrival=1)
    assert pool.waiting == 0


def test_a_claim_waits_once_and_a_block_is_added_once():
    pool = pool_of(basic("1"), "b", unlocking=ByPipelines(9))
    pool.arrive("c", all_of(basic("1"), "b"), arrival=1)
    with pytest.raises(ValueError, match="already waiting"):
        pool.arrive("c", all_of(basic("1"), "b"), arrival=2)
    with pytest.raises(ValueError, match="already here"):
        pool.add_block("b", basic("1"), created=0)


@pytest.mark.parametrize("amount", [-1, 2**60 + 1])
def test_a_demand_beyond_sense_never_reaches_the_tables(amount):
    pool = pool_of(basic("1"), "b")
    with pytest.raises(ValueError, match="no demand can be"):
        pool.arrive("c", all_of(BASIC.budget((amount, 0)), "b"), arrival=1)


def test_an_unknown_block_leaves_nothing_behind():
    pool = pool_of(basic("1"), "b")
    with pytest.raises(KeyError):
        pool.arrive("c", PerBlock.of({"b": basic("0.1"), "gone": basic("0.2")}), arrival=1)
    assert pool.waiting == 0
    assert pool.view("b").arrivals == 0
