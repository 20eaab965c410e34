"""The paper's experiments come out as the paper has them, over many seeds."""

import statistics

import numpy as np
import pytest

from privatekube_kfp.core.unlocking import AtOnce, ByPipelines, ByTime
from privatekube_kfp.simulator.experiments import (
    EXPERIMENTS,
    POLICY_NAMES,
    Run,
    with_points,
    with_policies,
)
from privatekube_kfp.simulator.workloads import (
    ELEPHANTS,
    MICE,
    SECOND,
    basic_demand,
    gaussian_demand,
    multi_block,
    single_block,
)
from tests.simulator.reference import DEMANDS, with_reference

SEEDS = range(20)


def granted(workload, policy, seeds, pipelines=None, **more):
    return [
        Run(workload, policy, seed, pipelines=pipelines, **more).result()["granted"]
        for seed in seeds
    ]


@pytest.mark.slow
def test_one_block_over_many_seeds():
    fcfs = granted("single-block", "fcfs", SEEDS)
    # 10 elephants less for every 9 mice more: nothing else is possible.
    assert set(fcfs) <= {19, 28, 37, 46, 55}
    assert 28 < statistics.fmean(fcfs) < 42
    assert granted("single-block", "dpf-n", SEEDS, 1) == fcfs
    # Now and then so many elephants come early that one of them finds a tenth unlocked.
    at_125 = granted("single-block", "dpf-n", SEEDS, 125)
    assert set(at_125) <= {91, 100}
    assert at_125.count(100) >= 12
    assert granted("single-block", "dpf-n", SEEDS, 175) == [100] * len(SEEDS)
    robin = {n: statistics.fmean(granted("single-block", "rr-n", SEEDS, n)) for n in (1, 100, 325)}
    assert robin[325] < statistics.fmean(fcfs) < robin[100] < 60


@pytest.mark.parametrize("mice", [0.0, 1.0])
def test_with_one_kind_of_pipeline_dpf_and_fcfs_grant_the_same(mice):
    fcfs = granted("single-block", "fcfs", [0], mice=mice)
    assert granted("single-block", "dpf-n", [0], 125, mice=mice) == fcfs


@pytest.mark.slow
def test_many_blocks_dpf_grants_twice_fcfs_and_by_time_does_not_fall():
    fcfs = granted("multi-block", "fcfs", [0])[0]
    by_pipelines = {n: granted("multi-block", "dpf-n", [0], n)[0] for n in (1, 175, 1500)}
    assert by_pipelines[1] == fcfs
    assert by_pipelines[175] >= 1.95 * fcfs
    assert by_pipelines[1500] < fcfs
    assert granted("multi-block", "dpf-t", [0], 1500)[0] > 1.5 * fcfs


@pytest.mark.slow
def test_packing_grants_a_tenth_more_where_demands_are_unlike_and_no_fewer_fair_claims():
    at = {"pipelines": 200, "period": 30, "accounting": "classic"}
    results = {
        policy: [Run("mixed", policy, seed, **at).result() for seed in range(3)]
        for policy in ("dpf-n", "fair-first-n")
    }
    total = {
        (policy, what): sum(result[what] for result in found)
        for policy, found in results.items()
        for what in ("granted", "fair_granted")
    }
    assert total["fair-first-n", "granted"] >= 1.1 * total["dpf-n", "granted"]
    assert total["fair-first-n", "fair_granted"] >= total["dpf-n", "fair_granted"] > 0


@with_reference
@pytest.mark.slow
def test_the_macrobenchmark():
    def at(pipelines, accounting):
        run = Run(
            "macro",
            "dpf-n",
            0,
            pipelines=pipelines,
            accounting=accounting,
            demands=str(DEMANDS),
        )
        return run.result()["granted"]

    basic, renyi = at(400, "basic"), at(400, "classic")
    assert 10_000 < basic < 10_800
    assert 1.22 < renyi / basic < 1.32
    assert at(400, "weighted") > renyi


@pytest.mark.slow
def test_renyi_grants_many_times_as_many():
    """The paper's load for each, at or near their peaks."""
    basic = granted("multi-block", "dpf-n", [0], 175)[0]
    renyi = granted("multi-block", "dpf-n", [0], 10_885, accounting="classic")[0]
    assert renyi >= 14 * basic


def test_workloads_are_those_of_their_seed():
    one, again, other = multi_block(3, seconds=20), multi_block(3, seconds=20), multi_block(4)
    assert one.at.tolist() == again.at.tolist()
    assert one.demands == again.demands
    assert one.at[:5].tolist() != other.at[:5].tolist()


def test_mice_and_elephants_come_as_the_paper_has_them():
    workload = single_block(0, seconds=20_000)
    sizes = np.array([budget.amounts[0] / 1e12 for budget in workload.demands])
    mice = np.isclose(sizes, MICE, rtol=1e-6)
    assert (mice | np.isclose(sizes, ELEPHANTS, rtol=1e-6)).all()
    assert 0.73 < mice.mean() < 0.77
    assert 19_000 < len(workload) < 21_000
    many = multi_block(0)
    assert 0.72 < (many.count == 1).mean() < 0.78
    assert set(many.count.tolist()) == {1, 10}
    newest = np.searchsorted(np.array(many.blocks), many.at, side="right")
    assert (many.first + many.count == newest).all()


def test_a_gaussian_demand_is_never_below_its_curve_and_hardly_above():
    from decimal import Decimal, getcontext

    getcontext().prec = 50
    log = (Decimal("1.25") / Decimal("1e-9")).ln()
    for epsilon in (0.01, 0.0999999, 0.00999999123):
        demand = gaussian_demand(epsilon)
        for order, amount in zip(demand.accounting.order_values, demand.amounts, strict=True):
            exact = order * Decimal(repr(epsilon)) ** 2 / (4 * log) * 10**12
            assert exact <= amount <= exact * (1 + Decimal("1e-15")) + 1
    assert basic_demand(0.1).amounts == (10**11, 0)


def test_how_budget_unlocks_is_in_the_policys_name():
    assert Run("single-block", "fcfs", 0).unlocking() == AtOnce()
    assert Run("single-block", "dpf-n", 0, pipelines=7).unlocking() == ByPipelines(7)
    by_time = Run("multi-block", "rr-t", 0, pipelines=8).unlocking()
    assert by_time == ByTime(625_000, 78_125)
    assert Run("single-block", "dpf-t", 0, pipelines=8).unlocking() == ByTime(8 * SECOND, SECOND)


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_every_policy_runs_the_first_experiment(policy):
    pipelines = None if policy in ("fcfs", "limit") else 125
    result = Run("single-block", policy, 1, pipelines=pipelines).result()
    assert 0 < result["granted"] <= 101


def test_lines_and_points_can_be_chosen():
    chosen = with_points(with_policies(EXPERIMENTS["macro"], ["dpf-t", "rr-n"]), [9, 3, 9])
    assert [chosen.label(line) for line in chosen.lines] == [
        "DPF-T, Renyi classic",
        "DPF-T, Renyi weighted",
        "DPF-T, basic",
        "RR-N, basic",
    ]
    assert EXPERIMENTS["single-block"].label(chosen.lines[0]) == "DPF-T"
    assert chosen.points == (3, 9)
    renyi = with_points(EXPERIMENTS["renyi"], [7])
    assert [list(renyi.points_of(line)) for line in renyi.lines] == [[7], [None], [7], [None]]
