"""Every ledger follows the memory ledger, step by step, however often it is killed."""

import itertools
import os
import random
import signal

import pytest

from privatekube_kfp.ledger.kubernetes.api import Api
from privatekube_kfp.ledger.memory import MemoryLedger
from privatekube_kfp.ledger.sqlite import SqliteLedger
from tests.contract.random_walk import do, everything, random_call
from tests.contract.world import ManualClock
from tests.scheduler.running import SettledLedger, clean, install, running

pytestmark = pytest.mark.slow


def open_again(path, clock):
    return SqliteLedger(path, create=True, clock=clock)


@pytest.mark.parametrize("seed", range(6))
def test_sqlite_follows_memory(tmp_path, seed):
    """Through one connection, through a second process's eyes, and after reopening."""
    rng, clock = random.Random(seed), ManualClock()
    model = MemoryLedger(clock)
    path = tmp_path / "ledger.db"
    ledgers = [open_again(path, clock), open_again(path, clock)]
    for step in range(400):
        call = random_call(rng, step)
        if call[0] == "pass":
            clock.now += call[1][0]
            call = ("tend", ())
        writer = rng.choice(ledgers)
        assert do(writer, call) == do(model, call), call
        if step % 10 == 0:
            assert everything(rng.choice(ledgers)) == everything(model), call
        if rng.random() < 0.02:
            ledgers.pop().close()
            ledgers.append(open_again(path, clock))
    assert everything(ledgers[0]) == everything(model)
    verdict = ledgers[0].verify()
    assert verdict.ok, verdict.difference
    assert verdict.claims > 50
    for ledger in ledgers:
        ledger.close()


def _killed_in(path, clock, call, instructions):
    """Make the call in a child that dies after so many instructions of SQLite."""
    child = os.fork()
    if child == 0:
        countdown = itertools.count(instructions, -1)

        def die_when_due():
            if next(countdown) <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            ledger = open_again(path, clock)
            ledger._db.set_progress_handler(die_when_due, 1)
            do(ledger, call)
            ledger.close()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("seed", range(3))
def test_killed_in_the_middle_of_any_call_and_asked_again(tmp_path, seed):
    rng, clock = random.Random(100 + seed), ManualClock()
    model = MemoryLedger(clock)
    path = tmp_path / "ledger.db"
    killed = 0
    for step in range(100):
        call = random_call(rng, step)
        if call[0] == "pass":
            clock.now += call[1][0]
            call = ("tend", ())
        for _ in range(rng.randrange(3)):
            killed += _killed_in(path, clock, call, rng.randrange(1, 800))
        with open_again(path, clock) as ledger:
            assert do(ledger, call) == do(model, call), call
            assert everything(ledger) == everything(model), call
    with open_again(path, clock) as ledger:
        verdict = ledger.verify()
    assert verdict.ok, verdict.difference
    assert killed > 5


@pytest.mark.server
@pytest.mark.parametrize("seed", range(3))
def test_kubernetes_follows_memory(control_plane, namespace, seed):
    """Through a real cluster, with one scheduler after the other."""
    install(control_plane)
    rng, clock = random.Random(200 + seed), ManualClock()
    model = MemoryLedger(clock)
    step = 0
    with SettledLedger(Api(control_plane.client), namespace, clock=clock) as ledger:
        for _ in range(5):
            with running(control_plane, namespace, clock) as scheduler:
                ledger.scheduler = scheduler
                for _ in range(rng.randrange(20, 60)):
                    call = random_call(rng, step)
                    clock.now += 1  # blocks are of different age, and so in the same order
                    if call[0] == "pass":
                        clock.now += call[1][0]
                        call = ("tend", ())
                    assert do(ledger, call) == do(model, call), call
                    if step % 10 == 0:
                        assert everything(ledger) == everything(model), call
                    step += 1
                assert everything(ledger) == everything(model)
                verdict = ledger.verify()
                assert verdict.ok, verdict.difference
    clean(control_plane)
