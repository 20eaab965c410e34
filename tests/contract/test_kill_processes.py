"""Eight processes on one ledger, killed again and again: nothing lost, doubled or overdrawn."""

import collections
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.kubernetes.api import Api
from privatekube_kfp.ledger.kubernetes.ledger import KubernetesLedger
from privatekube_kfp.ledger.sqlite import SqliteLedger
from tests.contract.kill_worker import BLOCKS
from tests.contract.world import basic_stream, renyi_stream
from tests.scheduler.running import assert_verified, clean, install, start_process

PROCESSES = 8
TOP = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def fill(ledger):
    ledger.create_stream(basic_stream("basic", epsilon="10", unlocking=ByPipelines(40)))
    ledger.create_stream(renyi_stream("renyi", unlocking=ByPipelines(40)))
    for stream in ("basic", "renyi"):
        for block in range(BLOCKS):
            ledger.create_block(f"{stream}-{block}", stream)


def work_and_kill(address, folder, claims, kills, others=(), env=None):
    """Run the workers to their ends, killing some of them, and of the others, on the way.

    `others` are functions that kill something else and start it again. Returns how many workers
    were killed.
    """

    def start(worker):
        module = ["-m", "tests.contract.kill_worker"]
        log = folder / f"answers-{worker}.jsonl"
        return subprocess.Popen(
            [sys.executable, *module, address, log, str(worker), str(claims)],
            cwd=TOP,
            env={**os.environ, **(env or {})},
        )

    rng = random.Random(7)
    running = {worker: start(worker) for worker in range(PROCESSES)}
    killed = 0
    try:
        while running:
            time.sleep(rng.uniform(0.05, 0.4))
            for worker, process in list(running.items()):
                if process.poll() is not None:
                    assert process.returncode == 0, f"worker {worker} failed"
                    del running[worker]
            if running and killed < kills:
                worker = rng.choice(list(running))
                running[worker].kill()
                if running[worker].wait() == 0:
                    del running[worker]
                    continue
                killed += 1
                running[worker] = start(worker)
            for kill in others:
                kill(rng)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return killed


def assert_all_is_told_and_sound(ledger, folder, claims_each):
    assert_verified(ledger)
    claims = {claim.name: claim for claim in ledger.claims()}
    assert len(claims) == PROCESSES * claims_each
    assert any(claim.responses["allocate"].denied for claim in claims.values())
    for claim in claims.values():
        assert claim.unanswered() is None
        assert claim.held().is_zero
    for block in ledger.blocks():
        capacity = block.budget.capacity
        assert (block.budget.allocated + block.budget.consumed).fits(capacity, capacity)
    answers = _logged_answers(folder)
    assert answers.keys() == {
        (claim.name, request.id) for claim in claims.values() for request in claim.requests
    }
    for (claim, request), seen in answers.items():
        recorded = claims[claim].responses[request]
        for answer in seen:
            assert answer["done"] == recorded.done
            assert answer["reason"] == recorded.reason
            assert answer["at"] == recorded.at
            assert answer["amounts"] == recorded.amounts.to_json()


def test_killed_again_and_again_and_all_finish(tmp_path):
    path = tmp_path / "ledger.db"
    with SqliteLedger(path, create=True) as ledger:
        fill(ledger)
    killed = work_and_kill(f"sqlite:///{path}", tmp_path, claims=200, kills=60)
    assert killed >= 30
    with SqliteLedger(path) as ledger:
        assert_all_is_told_and_sound(ledger, tmp_path, 200)


@pytest.mark.server
def test_in_a_cluster_with_schedulers_killed_too(control_plane, namespace, tmp_path):
    install(control_plane)
    schedulers = [start_process(control_plane.kubeconfig, namespace) for _ in range(2)]
    deaths = []

    def kill_a_scheduler(rng):
        if len(deaths) < 10 and rng.random() < 0.05:
            victim = schedulers.pop(rng.randrange(len(schedulers)))
            victim.kill()
            victim.wait()
            deaths.append(victim.pid)
            schedulers.append(start_process(control_plane.kubeconfig, namespace))

    try:
        with KubernetesLedger(Api(control_plane.client), namespace, answer_within=180) as ledger:
            fill(ledger)
            killed = work_and_kill(
                f"kubernetes://{namespace}",
                tmp_path,
                claims=25,
                kills=20,
                others=[kill_a_scheduler],
                env={"KUBECONFIG": str(control_plane.kubeconfig)},
            )
            assert killed >= 10
            assert len(deaths) >= 5
            assert_all_is_told_and_sound(ledger, tmp_path, 25)
    finally:
        for process in schedulers:
            process.kill()
            process.wait()
        clean(control_plane)


def _logged_answers(folder):
    """Every answer any process got; a line cut off by a kill does not count."""
    answers = collections.defaultdict(list)
    for log in folder.glob("answers-*.jsonl"):
        for line in log.read_text().splitlines():
            try:
                answer = json.loads(line)
            except json.JSONDecodeError:
                continue
            if "claim" in answer:
                answers[answer["claim"], answer["request"]].append(answer)
    return answers
