"""Round robin: evenly to those who are present, up to what each lacks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privatekube_kfp.core.budget import BASIC, renyi
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.core.unlocking import AtOnce, ByPipelines, ByTime
from privatekube_kfp.simulator.round_robin import RoundRobin, even_level


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(0, 300))
def test_an_even_split_gives_as_much_as_there_is_and_no_more(lacking, free):
    level = even_level(np.array(lacking), free)
    assert sum(min(lack, level) for lack in lacking) <= free
    if level < max(lacking):
        assert sum(min(lack, level + 1) for lack in lacking) > free


def asks(*amounts):
    return [BASIC.budget((amount, 0)) for amount in amounts]


def scheduler(unlocking, capacity=100, blocks=("a", "b")):
    made = RoundRobin(BASIC, unlocking)
    for name in blocks:
        made.add_block(name, BASIC.budget((capacity, 0)), 0)
    return made


def arrive(made, name, demand, *blocks, deadline=None):
    made.arrive(
        name, PerBlock.uniform(demand, blocks), arrival=int(name), deadline=deadline, weight=1
    )


def test_each_gets_an_even_part_and_is_granted_once_it_has_all():
    made = scheduler(ByPipelines(4))
    large, small = asks(40, 20)
    arrive(made, "1", large, "a")
    assert made.plan(0).grants == ()  # has 25
    arrive(made, "2", small, "a")
    assert made.plan(0).grants == ()  # 12 more each: 37 and 12, and 1 is left
    arrive(made, "3", small, "a")
    assert made.plan(0).grants == ("1", "2")  # 26 for three: 3, 8 and 15
    arrive(made, "4", small, "a")
    assert made.plan(0).grants == ("3", "4")  # all is unlocked, and all is asked for


def test_all_blocks_must_be_full():
    made = scheduler(AtOnce())
    arrive(made, "1", asks(80)[0], "a")
    assert made.plan(0).grants == ("1",)
    arrive(made, "2", asks(30)[0], "a", "b")
    assert made.plan(0).grants == ()


def test_who_gives_up_gives_back_what_it_had():
    made = scheduler(AtOnce())
    arrive(made, "1", asks(90)[0], "a", deadline=5)
    assert made.plan(0).grants == ("1",)
    arrive(made, "2", asks(30)[0], "a", "b", deadline=5)
    arrive(made, "3", asks(100)[0], "b", deadline=9)
    assert made.plan(1).grants == ()
    outcome = made.plan(5)
    assert [(r.claim, r.reason) for r in outcome.refusals] == [("2", Reason.TIMED_OUT)]
    assert outcome.grants == ("3",)
    assert made.next_due() is None


def test_time_unlocks_too():
    made = scheduler(ByTime(40, 10))
    arrive(made, "1", asks(50)[0], "a")
    assert made.next_due() == 0
    assert made.plan(0).grants == ()
    assert made.next_due() == 10
    assert made.plan(10).grants == ()
    assert made.plan(20).grants == ("1",)
    assert made.next_due() is None


def test_it_knows_basic_accounting_only():
    with pytest.raises(Invalid, match="basic accounting only"):
        RoundRobin(renyi(["2"]), ByPipelines(3))
