"""Replays: what the published simulator grants, and what a plain scan in floats grants."""

import dataclasses

import numpy as np
import pytest

from privatekube_kfp.core.budget import BASIC, renyi
from privatekube_kfp.core.errors import Reason
from privatekube_kfp.core.unlocking import AtOnce, ByPipelines, ByTime
from privatekube_kfp.simulator.replaying import NEVER, replay
from privatekube_kfp.simulator.traces import read_trace
from privatekube_kfp.simulator.workload import Workload
from privatekube_kfp.simulator.workloads import SECOND, multi_block, single_block
from tests.simulator.reference import MULTI, SINGLE, with_reference

ONE = BASIC.budget((10**12, 0))


@with_reference
@pytest.mark.slow
@pytest.mark.parametrize(
    ("pipelines", "granted"),
    [
        (None, 1146),
        (1, 1146),
        (50, 1254),
        (75, 1623),
        (100, 2015),
        (125, 2293),
        (175, 2356),
        (375, 2201),
        (1500, 691),
    ],
)
def test_the_published_trace_of_many_blocks(pipelines, granted):
    trace = read_trace(MULTI, BASIC, ONE)
    assert _granted(trace, pipelines) == granted


@with_reference
@pytest.mark.parametrize(
    ("pipelines", "granted"),
    [(None, 46), (50, 46), (75, 64), (100, 82), (125, 100), (175, 100), (325, 82)],
)
def test_the_published_trace_of_one_block(pipelines, granted):
    trace = read_trace(SINGLE, BASIC, ONE, timeout=300 * SECOND)
    assert len(trace) == 268
    assert _granted(trace, pipelines) == granted


def _granted(trace, pipelines):
    if pipelines is None:
        return replay(trace, "fcfs", AtOnce()).granted
    return replay(trace, "dpf", ByPipelines(pipelines)).granted


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pipelines", [1, 40, 120])
def test_a_plain_scan_in_floats_grants_the_same(seed, pipelines):
    workload = multi_block(seed, seconds=40)
    found = replay(workload, "dpf", ByPipelines(pipelines))
    expected = scan(workload, pipelines)
    assert np.flatnonzero(found.granted_at != NEVER).tolist() == sorted(expected)
    assert 0 < found.granted < len(workload)


def scan(workload, pipelines):
    """Sort everybody at every arrival and try each, in floats: no demand here is a close call."""
    free = np.zeros(len(workload.blocks))
    opened = np.zeros(len(workload.blocks))
    waiting, granted = [], []
    for index in range(len(workload)):
        epsilon = workload.demands[workload.demand[index]].amounts[0] / 1e12
        first, count = int(workload.first[index]), int(workload.count[index])
        blocks = slice(first, first + count)
        free[blocks] += (opened[blocks] < pipelines) / pipelines
        opened[blocks] += 1
        waiting.append((epsilon, count, index, blocks))
        for claim in sorted(waiting, key=lambda claim: claim[:3]):
            if (free[claim[3]] >= claim[0] - 1e-9).all():
                free[claim[3]] -= claim[0]
                waiting.remove(claim)
                granted.append(claim[2])
    return granted


def small(at, demand, *, count=None, blocks=(0,), **more):
    number = len(at)
    return Workload(
        accounting=BASIC,
        capacity=ONE,
        blocks=blocks,
        at=np.array(at, dtype=np.int64) * SECOND,
        first=np.zeros(number, dtype=np.int64),
        count=np.array(count or [1] * number, dtype=np.int64),
        demand=np.arange(number),
        demands=[BASIC.budget((round(tenths * 10**11), 0)) for tenths in demand],
        **more,
    )


def test_who_waits_too_long_is_refused_at_its_time():
    played = replay(small([0, 1, 20], [6, 6, 6], timeout=10 * SECOND), "dpf", ByPipelines(2))
    assert played.granted_at.tolist() == [1 * SECOND, NEVER, NEVER]
    assert played.refused == {Reason.TIMED_OUT: 2}
    assert played.waiting == 0
    assert played.to_json()["delay_mean"] == 1.0


def test_the_end_of_an_experiment_leaves_some_waiting():
    played = replay(small([0, 1], [6, 6], timeout=10 * SECOND, end=5 * SECOND), "fcfs", AtOnce())
    assert (played.granted, played.refused.total(), played.waiting) == (1, 0, 1)


def test_budget_that_time_unlocks_is_granted_between_arrivals():
    played = replay(small([0], [5]), "dpf", ByTime(10 * SECOND, SECOND))
    assert played.granted_at.tolist() == [5 * SECOND]


def test_a_block_begins_to_unlock_when_it_appears():
    late = small([7], [5], blocks=(7 * SECOND,))
    assert replay(late, "dpf", ByTime(10 * SECOND, SECOND)).granted_at.tolist() == [12 * SECOND]


def test_with_a_period_those_who_came_meanwhile_are_ranked_together():
    workload = small([1, 2], [9, 3])
    assert replay(workload, "dpf", AtOnce()).granted_at.tolist() == [1 * SECOND, NEVER]
    each_ten = replay(workload, "dpf", AtOnce(), period=10 * SECOND)
    assert each_ten.granted_at.tolist() == [NEVER, 10 * SECOND]


def test_what_is_consumed_refuses_whom_it_leaves_too_little():
    workload = small([0, 1, 9], [6, 6, 6])
    held = replay(workload, "fcfs", AtOnce())
    assert (held.granted, held.waiting) == (1, 2)
    spent = replay(workload, "fcfs", AtOnce(), consume_after=5 * SECOND)
    assert spent.refused == {Reason.EXHAUSTED: 1, Reason.EXCEEDS_CAPACITY: 1}


def test_weights_count_where_the_policy_knows_them():
    workload = small([1, 2], [6, 7], weight=np.array([1, 9]))
    for policy, lucky in (("dpf", 0), ("weighted-dpf", 1), ("dpack", 1)):
        played = replay(workload, policy, AtOnce(), period=10 * SECOND)
        assert played.granted_at.tolist()[lucky] == 10 * SECOND, policy
        assert played.granted == 1


def test_nobody_comes():
    played = replay(small([], []), "dpf", ByPipelines(5))
    assert played.to_json() == {
        "arrivals": 0,
        "granted": 0,
        "refused": {},
        "waiting": 0,
        "delay_mean": None,
        "delay_median": None,
        "delay_p99": None,
    }


def test_progress_adds_up():
    told = []
    replay(single_block(0), "dpf", ByPipelines(9), advanced=told.append)
    assert sum(told) == len(single_block(0))


def test_fair_claims_ask_for_at_most_their_share_at_every_usable_order():
    orders = renyi(["2", "4"])
    workload = dataclasses.replace(
        small([0, 1, 2], [1, 1, 1]),
        accounting=orders,
        capacity=orders.budget((0, 1000)),
        demands=[orders.budget((999, units)) for units in (99, 100, 101)],
    )
    assert workload.is_fair(10).tolist() == [True, True, False]
