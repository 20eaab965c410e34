"""Every ledger, behind one fixture: the contract tests know only the protocol."""

import pytest

from privatekube_kfp.ledger.client import ClaimClient
from privatekube_kfp.ledger.kubernetes.api import Api
from privatekube_kfp.ledger.memory import MemoryLedger
from privatekube_kfp.ledger.sqlite import SqliteLedger
from tests.contract.world import ManualClock
from tests.kubernetes.fixtures import binaries, control_plane, namespace, own_control_plane
from tests.scheduler.running import SettledLedger, clean, install, running

__all__ = ["binaries", "control_plane", "namespace", "own_control_plane"]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def memory(clock):
    with MemoryLedger(clock) as made:
        yield made


@pytest.fixture
def sqlite(clock, tmp_path):
    with SqliteLedger(tmp_path / "ledger.db", create=True, clock=clock) as made:
        yield made


@pytest.fixture
def kubernetes(clock, control_plane, namespace):
    """A ledger in a real cluster with a real scheduler, which shares the test's clock."""
    install(control_plane)
    with (
        running(control_plane, namespace, clock) as scheduler,
        SettledLedger(Api(control_plane.client), namespace, clock=clock) as made,
    ):
        made.scheduler = scheduler
        yield made
    clean(control_plane)


@pytest.fixture(params=["memory", "sqlite", pytest.param("kubernetes", marks=pytest.mark.server)])
def ledger(request):
    made = request.getfixturevalue(request.param)
    yield made
    verdict = made.verify()
    assert verdict.ok, verdict.difference


@pytest.fixture(params=["memory", "sqlite"])
def embedded_ledger(request):
    """Those whose callers run the scheduling pass, and so bring the clock."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def claims(ledger, clock):
    return ClaimClient(ledger, sleep=clock.sleep, monotonic=clock.monotonic)
