"""Policies and weights in a cluster: what a claim weighs outlives the scheduler that read it."""

import pytest

from privatekube_kfp.core.unlocking import AtOnce, ByPipelines
from privatekube_kfp.ledger.kubernetes.api import CLAIMS, STREAMS
from privatekube_kfp.ledger.kubernetes.objects import request_item
from privatekube_kfp.ledger.requests import ReleaseRequest
from tests.contract.world import ask, basic_stream
from tests.kubernetes.world import a_world, stream_with_blocks


@pytest.fixture
def world(control_plane, namespace):
    with a_world(control_plane, namespace) as made:
        yield made


def weighing(epsilon, weight, **more):
    return request_item(ask(epsilon, "b1", timeout=None, weight=weight, **more))


@pytest.mark.parametrize("policy", ["WeightedDPF", "DPack"])
def test_a_weight_that_was_read_counts_after_a_restart(world, policy):
    ledger = world.ledger
    name = {"WeightedDPF": "weighted-dpf", "DPack": "dpack"}[policy]
    stream_with_blocks(ledger, "b1", stream=basic_stream(unlocking=AtOnce(), policy=name))
    assert world.find(STREAMS, "s")["spec"]["policy"] == policy
    assert ledger.submit("holder", ask("1", "b1")).done
    world.claim("light", weighing("0.2", 1))
    world.claim("heavy", weighing("0.9", 10))
    for claim in ("light", "heavy"):
        assert ledger.why_waiting(claim, "allocate").reason == "WaitingForRelease"
    [receipt] = world.find(CLAIMS, "heavy")["status"]["receipts"]
    assert receipt["weight"] == 10
    world.restart()
    assert ledger.submit("holder", ReleaseRequest("release")).done
    assert world.answer("heavy")["state"] == "Done"
    assert ledger.response("light", "allocate") is None
    world.verify()


def test_fair_shares_go_first(world):
    ledger = world.ledger
    spec = basic_stream(unlocking=ByPipelines(4), policy="fair-first")
    stream_with_blocks(ledger, "b1", stream=spec)
    world.claim("heavy", weighing("0.5", 1000))
    assert ledger.why_waiting("heavy", "allocate").reason == "WaitingForUnlock"
    assert ledger.submit("fair", ask("0.25", "b1")).done
    assert ledger.response("heavy", "allocate") is None
    world.verify()


def test_a_weight_is_denied_where_it_would_make_no_difference(world):
    stream_with_blocks(world.ledger, "b1")
    world.claim("heavy", weighing("0.1", 2))
    answer = world.answer("heavy")
    assert (answer["state"], answer["reason"]) == ("Denied", "InvalidRequest")
    assert "policy dpf knows no weights" in answer["message"]
    world.claim("plain", weighing("0.1", 1))
    assert world.answer("plain")["state"] == "Done"
