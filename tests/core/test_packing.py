"""Policies that pack grant more weight than DPF, where demands differ in what they leave."""

import pytest

from privatekube_kfp.core.budget import BASIC, INFINITE, renyi
from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.core.policy import POLICIES
from privatekube_kfp.core.pool import Pool
from privatekube_kfp.core.unlocking import AtOnce, ByPipelines

RENYI = renyi(["2", "8"])


class Stream:
    """Blocks with all of their budget unlocked; what each claim asks for by keyword."""

    def __init__(self, policy, capacity, *blocks, accounting=RENYI, unlocking=None):
        self.accounting = accounting
        self.pool = Pool(accounting, unlocking or AtOnce(), POLICIES[policy])
        for block in blocks:
            self.pool.add_block(block, accounting.budget(capacity), created=0)
        self.arrivals = 0

    def arrive(self, claim, weight=1, **amounts):
        budgets = {block: self.accounting.budget(amount) for block, amount in amounts.items()}
        self.arrivals += 1
        self.pool.arrive(claim, PerBlock.of(budgets), arrival=self.arrivals, weight=weight)

    def granted(self):
        return self.pool.plan(0).grants


def test_a_claim_over_many_blocks_goes_after_those_that_each_want_one():
    """DPF looks at the largest share only, so one wide claim keeps three others waiting."""

    def play(policy):
        stream = Stream(policy, (10, 0), "a", "b", "c", accounting=BASIC)
        stream.arrive("wide", a=(6, 0), b=(6, 0), c=(6, 0))
        for block in "abc":
            stream.arrive(f"only-{block}", **{block: (7, 0)})
        return stream.granted()

    assert play("dpf") == ("wide",)
    assert play("dpack") == ("only-a", "only-b", "only-c")


def test_a_block_is_packed_at_the_order_where_most_fits():
    """At order 8 two fit, at order 2 four do: those that are small there go first.

    DPF goes by the larger of both shares, and so grants two that leave no room at either order.
    """

    def play(policy):
        stream = Stream(policy, (100, 100), "b")
        for claim in "xy":
            stream.arrive(claim, b=(45, 45))
        for claim in "stuv":
            stream.arrive(claim, b=(25, 50))
        return stream.granted()

    assert play("dpf") == ("x", "y")
    assert play("dpack") == ("s", "t", "u", "v")


def test_a_weight_counts_for_as_many_claims():
    def play(weight):
        stream = Stream("dpack", (10, 0), "b", accounting=BASIC)
        stream.arrive("small", b=(4, 0))
        stream.arrive("large", weight=weight, b=(8, 0))
        return stream.granted()

    assert play(1) == ("small",)
    assert play(2) == ("small",)  # a tie, and its share is smaller
    assert play(3) == ("large",)


def test_whoever_is_infinite_at_the_packed_order_goes_last_whatever_its_weight():
    stream = Stream("dpack", (100, 100), "b")
    stream.arrive("infinite", weight=1000, b=(1, INFINITE))
    for claim in "xyz":
        stream.arrive(claim, b=(99, 2), weight=1000)
    assert stream.granted() == ("x", "y", "z")
    stream = Stream("dpack", (100, 100), "b")
    stream.arrive("infinite", weight=1000, b=(1, INFINITE))
    stream.arrive("x", weight=1, b=(INFINITE, 2))
    assert stream.granted() == ("infinite",)


def test_whoever_is_infinite_goes_after_whoever_asks_for_far_more_than_there_is():
    """Both fit at order 8 only, but what counts is order 2, where both `y` and `z` would pack.

    Only one of those can run, since the other block has no room for two.
    """
    stream = Stream("dpack", (100, 10_000), "b", "c")
    stream.arrive("infinite", weight=3, b=(INFINITE, 10))
    stream.arrive("far more", b=(9_000, 10))
    for claim in "yz":
        stream.arrive(claim, weight=1000, b=(1, 6_000), c=(100, 10_000))
    assert stream.granted() == ("y", "far more", "infinite")


def test_a_demand_of_zero_takes_no_room():
    """At order 8 all fit, though there is room for one at most that asks for something there."""
    stream = Stream("dpack", (100, 1), "b")
    stream.arrive("v", b=(30, 1))
    for claim in "xyz":
        stream.arrive(claim, b=(40, 0))
    assert stream.granted() == ("x", "y", "z", "v")


def test_under_basic_the_scarcest_component_counts():
    stream = Stream("dpack", (100, 10), "b", accounting=BASIC)
    stream.arrive("much delta", b=(1, 9))
    stream.arrive("much epsilon", b=(60, 2))
    assert stream.granted() == ("much epsilon",)


def test_fair_first_grants_fair_shares_and_packs_the_rest():
    stream = Stream("fair-first", (30, 0), "a", "b", accounting=BASIC, unlocking=ByPipelines(3))
    for claim, amounts in {
        "wide": {"a": (11, 0), "b": (11, 0)},
        "narrow": {"a": (12, 0)},
        "fair": {"a": (10, 0), "b": (10, 0)},
    }.items():
        stream.arrive(claim, weight=1000 if claim == "wide" else 1, **amounts)
    assert stream.granted() == ("fair", "narrow")


def test_weighted_dpf_goes_by_the_share_per_weight():
    stream = Stream("weighted-dpf", (10, 0), "b", accounting=BASIC)
    stream.arrive("small", b=(4, 0))
    stream.arrive("urgent", weight=3, b=(9, 0))
    assert stream.granted() == ("urgent",)


@pytest.mark.parametrize("policy", ["dpf", "fcfs"])
def test_a_pool_without_weights_takes_none(policy):
    stream = Stream(policy, (10, 0), "b", accounting=BASIC)
    with pytest.raises(Invalid, match="knows no weights"):
        stream.arrive("heavy", weight=2, b=(1, 0))
    assert stream.pool.waiting == 0
