"""What the simulator grants is what ledgers grant: the same arrivals, on the same clock."""

import numpy as np
import pytest

from privatekube_kfp.accounting import Plan, PureEpsilon
from privatekube_kfp.core.budget import BASIC
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.unlocking import AtOnce, ByPipelines, ByTime
from privatekube_kfp.ledger.requests import AllocateRequest
from privatekube_kfp.simulator.replaying import NEVER, replay
from privatekube_kfp.simulator.workload import Workload
from tests.contract.world import SECOND, basic_stream

BLOCKS = 6
PIPELINES = 60
TIMEOUT = 25 * SECOND
SIZES = [BASIC.budget((units * 10**10, 0)) for units in (1, 2, 5, 10, 30)]


def arrivals(seed: int) -> Workload:
    random = np.random.default_rng(seed)
    count = random.integers(1, BLOCKS + 1, PIPELINES)
    return Workload(
        accounting=BASIC,
        capacity=BASIC.budget((10**12, 10**11)),
        blocks=(0,) * BLOCKS,
        at=np.sort(random.integers(1, 100 * SECOND, PIPELINES)),
        first=(random.random(PIPELINES) * (BLOCKS - count + 1)).astype(np.int64),
        count=count,
        demand=random.integers(0, len(SIZES), PIPELINES),
        demands=SIZES,
        timeout=TIMEOUT,
        weight=random.integers(1, 4, PIPELINES),
    )


def granted_by(ledger, clock, workload: Workload, weighs: bool) -> set[int]:
    """Who is granted in a ledger whose clock is set to each arrival, and on to every due time."""
    start = clock.now
    names = [f"b{number}" for number in range(BLOCKS)]
    for name in names:
        ledger.create_block(name, "s")
    for index, at in enumerate(workload.at.tolist()):
        while clock.now + SECOND < start + at:
            clock.now += SECOND
            ledger.tend()
        clock.now = start + at
        first = int(workload.first[index])
        epsilon = SIZES[int(workload.demand[index])].to_json()["epsilon"]
        ledger.submit(
            f"c{index}",
            AllocateRequest(
                "allocate",
                "s",
                Selection(names=tuple(names[first : first + int(workload.count[index])])),
                Plan.of(PureEpsilon(epsilon)),
                timeout=TIMEOUT,
                weight=int(workload.weight[index]) if weighs else 1,
            ),
        )
    for _ in range(TIMEOUT // SECOND + 1):
        clock.now += SECOND
        ledger.tend()
    answers = {index: ledger.response(f"c{index}", "allocate") for index in range(PIPELINES)}
    assert all(answers.values())
    return {index for index, answer in answers.items() if answer.done}


@pytest.mark.parametrize(
    ("policy", "unlocking"),
    [
        ("dpf", ByPipelines(20)),
        ("dpf", ByTime(50 * SECOND, SECOND)),
        ("fcfs", AtOnce()),
        ("weighted-dpf", ByPipelines(25)),
        ("dpack", ByPipelines(15)),
        ("fair-first", ByPipelines(40)),
    ],
    ids=["dpf-n", "dpf-t", "fcfs", "weighted-dpf", "dpack", "fair-first"],
)
def test_the_same_claims_are_granted(ledger, clock, policy, unlocking):
    ledger.create_stream(basic_stream(unlocking=unlocking, policy=policy))
    weighs = policy not in ("dpf", "fcfs")
    workload = arrivals(seed=7)
    simulated = replay(workload, policy, unlocking)
    expected = set(np.flatnonzero(simulated.granted_at != NEVER).tolist())
    assert 10 < len(expected) < PIPELINES - 10  # there is something to decide
    assert granted_by(ledger, clock, workload, weighs) == expected
