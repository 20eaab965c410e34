"""Counts of users in a cluster: from a stream's annotation to its status, whoever leads."""

import contextlib
import json
import os
import signal
from dataclasses import replace

import pytest

from privatekube_kfp.accounting import Counter
from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.ledger.kubernetes.api import LEASES, STREAMS, Api, Conflict
from privatekube_kfp.ledger.kubernetes.ledger import KubernetesLedger
from privatekube_kfp.ledger.kubernetes.objects import COUNT
from privatekube_kfp.ledger.streams import Semantic
from tests.contract.test_counts import MONDAY, TUESDAY
from tests.contract.world import ask, basic_stream
from tests.kubernetes.world import a_world, stream_with_blocks
from tests.scheduler.running import is_stopped, settle, start_process, until

USERS = basic_stream(semantic=Semantic.USER, counter=Counter("0.1"))


@pytest.fixture
def world(control_plane, namespace):
    with a_world(control_plane, namespace) as made:
        stream_with_blocks(made.ledger, "b1", stream=USERS)
        yield made


@pytest.fixture
def asking(control_plane, namespace):
    """A ledger that does not wait for a scheduler."""
    with KubernetesLedger(Api(control_plane.client), namespace, answer_within=0) as made:
        yield made


def annotate(world, text, stream="s"):
    """What somebody writes with `kubectl annotate`."""
    change = {"metadata": {"annotations": {COUNT: text}}}

    def annotated():
        with contextlib.suppress(Conflict):
            return world.api.patch(STREAMS, world.find(STREAMS, stream), change)

    until(annotated)


def said(**change):
    return json.dumps({**TUESDAY.to_json(), **change})


NONSENSE = {
    "empty": ("", "Unreadable"),
    "no JSON": ("about 120", "Unreadable"),
    "no object": ("[120, 100, 140]", "Unreadable"),
    "null": ("null", "Unreadable"),
    "too deep": ("[" * 100_000, "Unreadable"),
    "a field is missing": ('{"estimate": 120}', "Unreadable"),
    "a field too many": (said(trueCount=117), "Unreadable"),
    "a fraction": (said(estimate=110.5), "Unreadable"),
    "a number as text": (said(lowerBound="100"), "Unreadable"),
    "no bounds": (said(lowerBound=200), "Unreadable"),
    "no integer of 64 bits": (said(upperBound=2**63), "Unreadable"),
    "too confident": (said(confidence="1"), "Unreadable"),
    "never": (said(time="some day"), "Unreadable"),
    "another one": (said(time=MONDAY.to_json()["time"]), "AlreadyPublished"),
    "fewer": (said(lowerBound=99), "InvalidRequest"),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_a_count_that_makes_no_sense_is_an_event_and_stops_nobody(world, what):
    text, reason = NONSENSE[what]
    world.ledger.publish_count("s", MONDAY)
    term = world.scheduler.term
    annotate(world, text)
    assert until(lambda: world.events("s", reason))
    assert world.ledger.submit("c1", ask("0.1", "b1")).done
    assert world.ledger.stream("s").count == MONDAY
    assert len(world.events("s", reason)) == 1
    assert world.scheduler.term is term
    # Whoever publishes the next one writes over it.
    assert world.ledger.publish_count("s", TUESDAY).count == TUESDAY
    world.verify()


def test_a_count_of_events_is_an_event_too(world):
    world.ledger.create_stream(basic_stream("clicks"))
    annotate(world, said(), "clicks")
    (message,) = until(lambda: world.events("clicks", "InvalidRequest"))
    assert message == "stream clicks is of event semantic and counts no users"
    assert world.ledger.stream("clicks").count is None


def test_published_while_no_scheduler_runs(world, asking):
    world.stop()
    assert asking.publish_count("s", MONDAY).count is None
    assert asking.publish_count("s", MONDAY).count is None
    with pytest.raises(Invalid, match="a second look at the same people"):
        asking.publish_count("s", replace(MONDAY, estimate=130))
    asking.publish_count("s", TUESDAY)
    asking.publish_count("s", MONDAY)
    assert json.loads(world.find(STREAMS, "s")["metadata"]["annotations"][COUNT]) == (
        TUESDAY.to_json()
    )
    world.start()
    assert world.ledger.stream("s").count == TUESDAY
    assert world.find(STREAMS, "s")["status"]["count"] == TUESDAY.to_json()


def test_whoever_leads_next_shows_the_same(world):
    world.ledger.publish_count("s", MONDAY)
    for number in range(2):
        world.restart()
        assert world.ledger.stream("s").count == MONDAY
        assert world.ledger.submit(f"c{number}", ask("0.1", "b1")).done
    assert world.ledger.publish_count("s", TUESDAY).count == TUESDAY
    world.verify()


def test_nothing_is_written_once_it_is_shown(world):
    world.ledger.publish_count("s", MONDAY)
    settle(world.scheduler)
    before = world.find(STREAMS, "s")
    for _ in range(3):
        world.ledger.publish_count("s", MONDAY)
    assert world.find(STREAMS, "s") == before


def test_a_count_that_was_edited_away_comes_back(world):
    world.ledger.publish_count("s", MONDAY)
    world.edit_status(STREAMS, "s", lambda status: status.pop("count"))
    until(lambda: world.find(STREAMS, "s")["status"].get("count") == MONDAY.to_json())


class Meddled(Api):
    """Somebody labels the stream whenever its count is about to be written, for a few times."""

    times = 3

    def replace_status(self, kind, obj):
        if kind is STREAMS and "count" in obj["status"] and Meddled.times:
            Meddled.times -= 1
            there = self.get(STREAMS, obj["metadata"]["name"])
            self.patch(STREAMS, there, {"metadata": {"labels": {"touched": str(self.times)}}})
        return super().replace_status(kind, obj)


def test_others_may_write_on_the_stream_meanwhile(world):
    world.restart(make_api=Meddled)
    term = world.scheduler.term
    assert world.ledger.publish_count("s", MONDAY).count == MONDAY
    assert Meddled.times == 0
    assert world.find(STREAMS, "s")["metadata"]["labels"] == {"touched": "0"}
    assert world.scheduler.term is term


def test_a_stream_can_go_with_a_count_that_nobody_has_shown(world, asking):
    world.ledger.create_stream(replace(USERS, name="t"))
    world.stop()
    asking.publish_count("t", MONDAY)
    world.delete(STREAMS, "t")
    world.start()
    until(lambda: world.is_gone(STREAMS, "t"))
    assert world.ledger.submit("c1", ask("0.1", "b1")).done


# Leaders that die or freeze at the very write


@pytest.fixture
def about_to_publish(nursery, asking, tmp_path):
    """A stream with a count that the first scheduler to come shows with its third write."""
    asking.create_stream(USERS)
    asking.publish_count("s", MONDAY)
    writes = tmp_path / "writes"

    def start(**more):
        return nursery.start(writes, **more)

    yield start
    guarded, taken, shown = writes.read_text().splitlines()[:3]
    assert "patch" in guarded
    assert taken == shown
    assert shown.startswith("update")


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_the_write(nursery, about_to_publish, asking, tmp_path, when):
    about_to_publish(die_at=3, when=when)
    assert nursery.ended() == -signal.SIGKILL
    assert asking.stream("s").count == (MONDAY if when == "after" else None)
    second = nursery.start(tmp_path / "second")
    until(lambda: asking.stream("s").count == MONDAY)
    os.kill(second, signal.SIGTERM)
    assert nursery.ended() == 0


def test_a_leader_that_was_replaced_writes_no_count(
    control_plane, namespace, nursery, about_to_publish, asking
):
    first = about_to_publish(freeze_at=3, identity="first")
    until(lambda: is_stopped(first))
    assert asking.stream("s").count is None
    second = start_process(control_plane.kubeconfig, namespace, "--identity=second")
    try:
        until(lambda: asking.stream("s").count == MONDAY)
        asking.publish_count("s", TUESDAY)
        until(lambda: asking.stream("s").count == TUESDAY)
        os.kill(first, signal.SIGCONT)
        second.terminate()
        assert second.wait(timeout=180) == 0
        until(lambda: _leads(asking, namespace) == "first")  # anew, from what is written
        assert asking.stream("s").count == TUESDAY
        os.kill(first, signal.SIGTERM)
        assert nursery.ended() == 0
        assert asking.stream("s").count == TUESDAY
    finally:
        if second.poll() is None:
            second.kill()
            second.wait()


def _leads(ledger, namespace):
    """Who has written the stream's commit record and holds the lease."""
    lease = ledger._api.find(LEASES, "privatekube-scheduler", namespace)
    holder = ledger._api.get(STREAMS, "s")["status"]["commit"]["holder"]
    return holder if lease["spec"].get("holderIdentity") == holder else None
