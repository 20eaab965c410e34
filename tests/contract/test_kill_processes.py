"""Eight processes on one file, killed again and again: nothing lost, doubled or over-committed."""

import collections
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.sqlite import SqliteLedger
from tests.contract.kill_worker import BLOCKS, CLAIMS
from tests.contract.world import basic_stream, renyi_stream

PROCESSES = 8
KILLS = 60
TOP = Path(__file__).parents[2]


@pytest.mark.slow
def test_killed_again_and_again_and_all_finish(tmp_path):
    path = tmp_path / "ledger.db"
    with SqliteLedger(path, create=True) as ledger:
        ledger.create_stream(basic_stream("basic", epsilon="10", unlocking=ByPipelines(40)))
        ledger.create_stream(renyi_stream("renyi", unlocking=ByPipelines(40)))
        for stream in ("basic", "renyi"):
            for block in range(BLOCKS):
                ledger.create_block(f"{stream}-{block}", stream)

    def start(worker):
        module = ["-m", "tests.contract.kill_worker"]
        log = tmp_path / f"answers-{worker}.jsonl"
        return subprocess.Popen([sys.executable, *module, path, log, str(worker)], cwd=TOP)

    rng = random.Random(7)
    running = {worker: start(worker) for worker in range(PROCESSES)}
    kills = 0
    try:
        while running:
            time.sleep(rng.uniform(0.05, 0.4))
            for worker, process in list(running.items()):
                if process.poll() is not None:
                    assert process.returncode == 0, f"worker {worker} failed"
                    del running[worker]
            if running and kills < KILLS:
                worker = rng.choice(list(running))
                running[worker].kill()
                if running[worker].wait() == 0:
                    del running[worker]
                    continue
                kills += 1
                running[worker] = start(worker)
    finally:
        for process in running.values():
            process.kill()
            process.wait()

    assert kills >= KILLS // 2
    with SqliteLedger(path) as ledger:
        verdict = ledger.verify()
        assert verdict.ok, verdict.difference
        claims = {claim.name: claim for claim in ledger.claims()}
        blocks = ledger.blocks()
    assert len(claims) == PROCESSES * CLAIMS
    assert any(claim.responses["allocate"].denied for claim in claims.values())
    for claim in claims.values():
        assert claim.unanswered() is None
        assert claim.held().is_zero
    for block in blocks:
        capacity = block.budget.capacity
        assert (block.budget.allocated + block.budget.consumed).fits(capacity, capacity)
    answers = _logged_answers(tmp_path)
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
