"""Every ledger, behind one fixture: the contract tests know only the protocol."""

import pytest

from privatekube_kfp.ledger.client import ClaimClient
from privatekube_kfp.ledger.memory import MemoryLedger
from privatekube_kfp.ledger.sqlite import SqliteLedger
from tests.contract.world import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, clock, tmp_path):
    if request.param == "memory":
        made = MemoryLedger(clock)
    else:
        made = SqliteLedger(tmp_path / "ledger.db", create=True, clock=clock)
    with made:
        yield made
        verdict = made.verify()
        assert verdict.ok, verdict.difference


@pytest.fixture
def claims(ledger, clock):
    return ClaimClient(ledger, sleep=clock.sleep, monotonic=clock.monotonic)
