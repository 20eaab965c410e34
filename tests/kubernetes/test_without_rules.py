"""A server before 1.25 ignores the CEL rules of our definitions, so the scheduler itself keeps what
must not change. These tests run on the definitions without their rules.

test_rules.py has what a server with rules refuses.
"""

import copy
import os

import pytest

from privatekube_kfp.core.stream import BlockPhase
from privatekube_kfp.core.unlocking import AtOnce
from privatekube_kfp.ledger.kubernetes.api import BLOCKS, CLAIMS, STREAMS
from privatekube_kfp.ledger.kubernetes.objects import request_item, stream_object
from privatekube_kfp.ledger.requests import ReleaseRequest
from tests.contract.world import ask, basic_stream, epsilons, spend
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.control_plane.cluster import EXISTING
from tests.kubernetes.objects import Objects
from tests.kubernetes.rules import CASES, without_rules
from tests.kubernetes.world import (
    consumed_half,
    intact,
    is_set_aside,
    is_well,
    metric,
    others_go_on,
    stream_with_blocks,
)
from tests.scheduler.running import settle, until

YEARS = {"start": "2026-01-01T00:00:00Z", "end": "2025-01-01T00:00:00Z"}


@pytest.fixture(scope="module")
def control_plane(request):
    """A cluster of its own: in the shared one the rules hold."""
    if os.environ.get(EXISTING):
        pytest.skip(f"needs our own control plane, and {EXISTING} names another")
    with ControlPlane(request.getfixturevalue("binaries")) as own:
        own.apply(without_rules())
        yield own


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_a_rule_refuses_is_stored(control_plane, namespace, case):
    """So nothing but the rule refuses it on other servers."""
    objects = Objects(control_plane, namespace)
    try:
        made = objects.before(case)
        if case.edit:
            objects.edit(case.plural, made, case.edit)
    finally:
        objects.clean()


# Claims


def reword(obj):
    obj["spec"]["requests"][0]["allocate"]["plan"]["steps"][0]["epsilon"] = "0.01"


@pytest.mark.parametrize(
    "change", [lambda obj: obj["spec"]["requests"].pop(0), reword], ids=["removed", "reworded"]
)
def test_a_request_that_is_changed_after_it_was_read_counts_as_it_was(world, ledger, edit, change):
    consumed_half(world)
    before = copy.deepcopy(world.find(CLAIMS, "c"))
    edit(lambda: world.edit(CLAIMS, "c", change))
    said = intact(world, CLAIMS, "c")
    assert said["reason"] == "RequestChanged"
    assert "allocate" in said["message"]
    assert epsilons(ledger, "b1") == ("0", "0.5", "0.3", "0.2")
    assert ledger.submit("c", spend("0.1", "more")).done
    assert others_go_on(world)
    assert is_well(world)
    # Whoever puts the words back is believed.
    more = world.find(CLAIMS, "c")["spec"]["requests"][-1]
    words = [*before["spec"]["requests"], more]
    world.edit(CLAIMS, "c", lambda obj: obj["spec"].update(requests=words))
    until(lambda: "Intact" not in str(world.find(CLAIMS, "c")["status"]["conditions"]))


def test_a_claim_stays_on_its_stream(world, ledger, edit):
    ledger.create_stream(basic_stream("t"))
    consumed_half(world)
    edit(lambda: world.edit(CLAIMS, "c", lambda obj: obj["spec"].update(stream="t")))
    assert "stream" in intact(world, CLAIMS, "c")["message"]
    for _ in range(2):
        assert epsilons(ledger, "b1") == ("0", "0.5", "0.3", "0.2")
        assert world.find(CLAIMS, "c")["status"]["stream"] == "s"
        world.restart()
    assert others_go_on(world)
    assert is_well(world)


@pytest.mark.parametrize("select", [YEARS, {"users": [9, 0]}], ids=["times", "users"])
def test_a_selection_the_wrong_way_round_is_denied(world, ledger, select):
    plan = {"steps": [{"name": "step", "mechanism": "pure", "epsilon": "0.1"}]}
    world.claim("c", {"id": "allocate", "allocate": {"select": select, "plan": plan}})
    answer = world.answer("c")
    assert (answer["state"], answer["reason"]) == ("Denied", "InvalidRequest")
    until(lambda: answer["message"] in world.events("c", "InvalidRequest"))
    assert epsilons(ledger, "b1")[2:] == ("0", "0")
    assert others_go_on(world)
    assert is_well(world)


def test_a_weight_that_was_read_counts_whatever_the_claim_says_later(world, ledger):
    stream = basic_stream("w", unlocking=AtOnce(), policy="weighted-dpf")
    stream_with_blocks(ledger, "w1", stream=stream)
    assert ledger.submit("holder", ask("1", "w1", stream="w")).done
    for name, epsilon, weight in (("light", "0.2", 1), ("heavy", "0.9", 10)):
        item = request_item(ask(epsilon, "w1", stream="w", timeout=None))
        item["allocate"]["weight"] = weight
        world.claim(name, item, stream="w")
        assert ledger.why_waiting(name, "allocate").reason == "WaitingForRelease"
    world.stop()
    world.edit(CLAIMS, "heavy", lambda obj: obj["spec"]["requests"][0]["allocate"].update(weight=1))
    world.start()
    assert ledger.submit("holder", ReleaseRequest("release")).done
    assert world.answer("heavy")["state"] == "Done"
    assert ledger.response("light", "allocate") is None
    assert is_well(world)


# Blocks


def promise_more(status):
    status["capacity"].update(epsilon="100")


def test_a_running_scheduler_restores_the_capacity_of_a_block(world, ledger):
    consumed_half(world)
    settle(world.scheduler)
    before = world.find(BLOCKS, "b1")["status"]
    world.edit_status(BLOCKS, "b1", promise_more)
    until(lambda: world.find(BLOCKS, "b1")["status"] == before)
    assert others_go_on(world, block="b1")
    assert is_well(world)


def test_a_block_that_promises_more_than_its_stream_is_set_aside(world, ledger):
    consumed_half(world)
    world.stop()
    world.edit_status(BLOCKS, "b1", promise_more)
    world.start()
    assert "its capacity is not what" in is_set_aside(world, BLOCKS, "b1", "Unreadable")
    assert others_go_on(world)


def test_a_block_is_set_aside_until_it_is_corrected(world, ledger, edit):
    edit(lambda: world.create(BLOCKS, "users", {"stream": "s", "users": [0, 9]}))
    assert "has no user ranges" in is_set_aside(world, BLOCKS, "users", "InvalidRequest")
    world.claim("c", request_item(ask("0.1", "users")))
    assert world.answer("c")["reason"] == "UnknownBlock"
    assert others_go_on(world)
    # Whoever corrects it is believed: nothing of it has been asked for yet.
    world.edit(BLOCKS, "users", lambda obj: obj["spec"].pop("users"))
    until(lambda: others_go_on(world, block="users"))
    assert is_well(world)


def test_a_block_that_ends_before_it_starts_is_set_aside(world, ledger, edit):
    edit(lambda: world.create(BLOCKS, "b3", {"stream": "s", **YEARS}))
    assert "a start before an end" in is_set_aside(world, BLOCKS, "b3", "InvalidRequest")
    world.claim("c", request_item(ask("0.1", "b3")))
    assert world.answer("c")["reason"] == "UnknownBlock"
    world.delete(BLOCKS, "b3")
    until(lambda: world.is_gone(BLOCKS, "b3"))
    until(lambda: metric(world, "bad_objects", kind="blocks") == 0)
    assert others_go_on(world)


@pytest.mark.parametrize(
    "change",
    [
        {"dataSource": "file:///elsewhere.parquet"},
        {"stream": "t"},
        {"start": "2026-01-01T00:00:00Z", "end": "2027-01-01T00:00:00Z"},
        {"users": [0, 9]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_block_is_what_it_was_when_it_was_read(world, ledger, edit, change):
    ledger.create_stream(basic_stream("t", epsilon="9"))
    consumed_half(world)
    before = ledger.block("b1").block
    edit(lambda: world.edit(BLOCKS, "b1", lambda obj: obj["spec"].update(change)))
    assert intact(world, BLOCKS, "b1")["reason"] == "SpecChanged"
    for _ in range(2):
        assert ledger.block("b1").block == before
        assert epsilons(ledger, "b1") == ("0", "0.5", "0.3", "0.2")
        world.restart()
    assert others_go_on(world, block="b1")
    assert is_well(world)


def test_a_retired_block_stays_retired(world, ledger, edit):
    ledger.retire_block("b1")
    edit(lambda: world.edit(BLOCKS, "b1", lambda obj: obj["spec"].update(retired=False)))
    assert others_go_on(world)
    assert ledger.block("b1").phase is BlockPhase.RETIRED
    world.claim("c", request_item(ask("0.1", "b1")))
    assert world.answer("c")["state"] == "Denied"


# Streams


def test_a_stream_is_set_aside_until_it_is_corrected(world, ledger, edit):
    good = stream_object(basic_stream("t"))["spec"]
    wrong = {**good, "unlocking": {"lifetime": "10d", "interval": "3d"}}
    edit(lambda: world.create(STREAMS, "t", wrong))
    world.claim("c", request_item(ask("0.5", "t1", stream="t")), stream="t")
    world.create(BLOCKS, "t1", {"stream": "t"})
    assert is_set_aside(world, STREAMS, "t", "InvalidStream")
    assert others_go_on(world)
    world.edit(STREAMS, "t", lambda obj: obj.update(spec=good))
    assert world.answer("c")["state"] == "Done"
    conditions = world.find(STREAMS, "t")["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in conditions] == [("Accepted", "True")]
    assert is_well(world)


def test_a_guarantee_does_not_change_once_it_was_read(world, ledger, edit):
    consumed_half(world)
    edit(lambda: world.edit(STREAMS, "s", lambda obj: obj["spec"].update(epsilon="100")))
    assert intact(world, STREAMS, "s")["reason"] == "SpecChanged"
    for block, claim in (("b3", "before"), ("b4", "after")):
        ledger.create_block(block, "s")
        assert ledger.block(block).budget.capacity.to_json()["epsilon"] == "1"
        assert ledger.stream("s").spec.epsilon == "1"
        world.claim(claim, request_item(ask("2", "b2")))
        assert world.answer(claim)["reason"] == "ExceedsCapacity"
        world.restart()
    assert others_go_on(world)
    assert is_well(world)


def test_a_guarantee_that_is_put_back_is_intact_again(world, ledger):
    world.edit(STREAMS, "s", lambda obj: obj["spec"].update(epsilon="100"))
    intact(world, STREAMS, "s")
    world.edit(STREAMS, "s", lambda obj: obj["spec"].update(epsilon="1"))
    until(lambda: "Intact" not in str(world.find(STREAMS, "s")["status"]["conditions"]))


def test_people_are_told_when_a_guarantee_was_changed(world, ledger, edit):
    edit(lambda: world.edit(STREAMS, "s", lambda obj: obj["spec"].update(epsilon="100")))
    (said,) = set(until(lambda: world.events("s", "SpecChanged")))
    assert "what it said when it was first read counts" in said
