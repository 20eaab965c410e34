"""A run on this machine, on a cluster's budget: what it holds does not outlive it for long."""

import pytest

from privatekube_kfp.ledger.kubernetes.api import CLAIMS
from privatekube_kfp.local.lease import DURATION, kept_alive
from tests.contract.world import ask
from tests.scheduler.running import until

pytestmark = [pytest.mark.slow, pytest.mark.server]


def lease_of(place, claim):
    return place.ledger._api.find(CLAIMS, claim, place.ledger.namespace)["spec"]["lease"]


def test_a_run_has_a_lease(in_a_cluster):
    place = in_a_cluster
    assert place.seven_steps("--run-id=here").code == 0
    assert lease_of(place, "here.claim")["duration"] == DURATION


def test_it_is_renewed_meanwhile(in_a_cluster, monkeypatch):
    place = in_a_cluster
    monkeypatch.setenv("KUBECONFIG", place.environment["KUBECONFIG"])
    place.ledger.lives_with({"PRIVATEKUBE_CLAIM_LEASE": DURATION})
    for name, owner in (("here.claim", "here"), ("there.claim", "there")):
        place.ledger.submit(name, ask("0.1", "monday", stream="clicks", owner=owner))
    first = lease_of(place, "here.claim")["renewed"]
    others = lease_of(place, "there.claim")
    with kept_alive(place.address, "here", every=0.05) as signs:
        assert signs == {"PRIVATEKUBE_CLAIM_LEASE": DURATION}
        until(lambda: lease_of(place, "here.claim")["renewed"] > first)
    last = lease_of(place, "here.claim")
    assert lease_of(place, "there.claim") == others
    assert lease_of(place, "here.claim") == last, "it goes on after the run"
