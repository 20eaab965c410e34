"""Deleting claims, blocks and streams: what was spent is never forgotten or counted twice."""

import itertools
import threading

import pytest

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.stream import BlockPhase
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.kubernetes.api import BLOCKS, CLAIMS, EVENTS, STREAMS, Api
from privatekube_kfp.ledger.kubernetes.objects import FINALIZER
from privatekube_kfp.ledger.requests import ConsumeRequest, ReleaseRequest
from tests.contract.world import ask, basic_stream, epsilons, renyi_stream, spend
from tests.kubernetes.world import a_world, stream_with_blocks
from tests.scheduler.running import until

WRITES = {"create", "update", "patch", "delete"}


@pytest.fixture
def world(control_plane, namespace):
    with a_world(control_plane, namespace) as made:
        yield made
        made.verify()


@pytest.fixture
def ledger(world):
    return world.ledger


RUNS, DOWN, RESTARTS = "while it runs", "while it is down", "before it restarts"
MOMENTS = (RUNS, DOWN, RESTARTS)


@pytest.fixture(params=MOMENTS)
def delete(world, request):
    """Deletes objects at one of the moments of a scheduler's life, and waits until it is done."""

    def delete(kind, *names, done=None):
        if request.param == DOWN:
            world.stop()
        for name in names:
            world.delete(kind, name)
        if request.param == DOWN:
            world.start()
        until(done or (lambda: world.is_gone(kind, *names)))
        if request.param == RESTARTS:
            world.restart()

    return delete


def folded(world, block):
    return world.find(BLOCKS, block)["status"].get("folded", {})


def uids_kept(world, *blocks):
    return [uid for block in blocks for uid in folded(world, block).get("claims", ())]


# Claims


def test_deleting_a_consumed_claim_refunds_nothing(world, ledger, delete):
    stream_with_blocks(ledger, "b1", "b2")
    ledger.submit("c", ask("0.4", "b1", "b2"))
    ledger.submit("c", ConsumeRequest("consume"))
    delete(CLAIMS, "c")
    for block in ("b1", "b2"):
        assert epsilons(ledger, block) == ("0", "0.6", "0", "0.4")
    assert ledger.submit("more", ask("0.7", "b1")).reason is Reason.EXCEEDS_CAPACITY
    assert ledger.submit("rest", ask("0.6", "b1", "b2")).done


def test_deleting_an_allocated_claim_gives_back_what_it_held(world, ledger, delete):
    stream_with_blocks(ledger, "b1", "b2")
    ledger.submit("c", ask("1", "b1", "b2"))
    ledger.submit("next", ask("1", "b1", "b2", timeout=None))
    assert epsilons(ledger, "b1") == ("0", "0", "1", "0")
    delete(CLAIMS, "c")
    assert ledger.response("next", "allocate").done
    assert epsilons(ledger, "b2") == ("0", "0", "1", "0")


def test_deleting_a_claim_that_consumed_a_part_keeps_exactly_that_part(world, ledger, delete):
    stream_with_blocks(ledger, "b1", "b2", "b3")
    ledger.submit("c", ask("0.5", "b1", "b2", "b3"))
    ledger.submit("c", spend("0.2", "first"))
    ledger.submit("c", spend("0.000000000001", "second"))
    delete(CLAIMS, "c")
    for block in ("b1", "b2", "b3"):
        assert epsilons(ledger, block) == ("0", "0.799999999999", "0", "0.200000000001")


def test_deleting_a_waiting_claim_withdraws_it_and_the_others_go_on(world, ledger, delete):
    stream_with_blocks(ledger, "b1")
    ledger.submit("holds", ask("0.6", "b1"))
    ledger.submit("first", ask("0.5", "b1", timeout=None))
    ledger.submit("second", ask("0.5", "b1", timeout=None))
    delete(CLAIMS, "first")
    assert ledger.response("second", "allocate") is None
    ledger.submit("holds", ReleaseRequest("release"))
    assert ledger.response("second", "allocate").done
    assert epsilons(ledger, "b1") == ("0", "0.5", "0.5", "0")


def test_deleting_a_denied_claim_changes_nothing(world, ledger, delete):
    stream_with_blocks(ledger, "b1", stream=basic_stream(unlocking=ByPipelines(4)))
    ledger.submit("c", ask("2", "b1"))
    before = ledger.block("b1").budget
    delete(CLAIMS, "c")
    assert ledger.block("b1").budget == before


def test_what_deleted_claims_unlocked_stays_unlocked(world, ledger, delete):
    stream_with_blocks(ledger, "b1", "b2", stream=basic_stream(unlocking=ByPipelines(4)))
    ledger.submit("consumed", ask("0.1", "b1", "b2"))
    ledger.submit("consumed", ConsumeRequest("consume"))
    ledger.submit("held", ask("0.2", "b1"))
    ledger.submit("waits", ask("0.9", "b1", "b2", timeout=None))
    delete(CLAIMS, "consumed", "held", "waits")
    assert epsilons(ledger, "b1") == ("0.25", "0.65", "0", "0.1")
    assert epsilons(ledger, "b2") == ("0.5", "0.4", "0", "0.1")
    assert ledger.block("b1").budget.arrivals == 3
    ledger.submit("last", ask("0.9", "b1", timeout=None))
    assert ledger.response("last", "allocate").done


def test_claims_on_some_of_the_same_blocks_are_each_kept_once(world, ledger, delete):
    stream_with_blocks(ledger, "b1", "b2", "b3", stream=renyi_stream("s"))
    for name, blocks in (("x", ["b1", "b2", "b3"]), ("y", ["b2", "b3"]), ("z", ["b3"])):
        ledger.submit(name, ask("0.5", *blocks))
        ledger.submit(name, ConsumeRequest("consume"))
    before = [ledger.block(name).budget for name in ("b1", "b2", "b3")]
    delete(CLAIMS, "x", "y", "z")
    assert [ledger.block(name).budget for name in ("b1", "b2", "b3")] == before
    one, two, three = (budget.consumed for budget in before)
    assert (two, three) == (one + one, one + one + one)


def test_a_block_does_not_remember_claims_that_are_gone(world, ledger, delete):
    stream_with_blocks(ledger, "b1", "b2")
    names = [f"c{number}" for number in range(5)]
    for name in names:
        ledger.submit(name, ask("0.1", "b1", "b2"))
        ledger.submit(name, ConsumeRequest("consume"))
    delete(CLAIMS, *names)
    until(lambda: not uids_kept(world, "b1", "b2"))
    assert folded(world, "b1")["consumed"]["epsilon"] == "0.5"
    assert folded(world, "b1")["arrivals"] == 5


def test_a_later_claim_of_the_same_name_is_another(world, ledger, delete):
    stream_with_blocks(ledger, "b1")
    for time in (1, 2):
        assert ledger.submit("c", ask("0.3", "b1")).done
        ledger.submit("c", ConsumeRequest("consume"))
        delete(CLAIMS, "c")
        assert epsilons(ledger, "b1")[3] == f"0.{3 * time}"


def test_kubectl_delete_ends_once_the_claim_is_gone(world, ledger):
    stream_with_blocks(ledger, "b1")
    ledger.submit("c", ask("0.3", "b1"))
    ledger.submit("c", spend("0.1", "consume"))
    said = world.control_plane.kubectl("delete", "pclaim", "c", "-n", world.namespace).stdout
    assert 'privacyclaim.privatekube.io "c" deleted' in said
    assert world.is_gone(CLAIMS, "c")
    assert epsilons(ledger, "b1") == ("0", "0.9", "0", "0.1")


# Force


@pytest.mark.parametrize("runs", [True, False], ids=["it runs", "it is down"])
def test_removing_a_claim_by_force_refunds_nothing(world, ledger, runs):
    stream_with_blocks(ledger, "b1", "b2", stream=basic_stream(unlocking=ByPipelines(2)))
    ledger.submit("c", ask("0.5", "b1", "b2"))
    ledger.submit("c", spend("0.2", "consume"))
    if not runs:
        world.stop()
    world.remove_by_force(CLAIMS, "c")
    if not runs:
        world.start()
        for block in ("b1", "b2"):
            assert until(lambda name=block: world.events(name, "Unaccounted"))
    until(lambda: epsilons(ledger, "b1") == ("0.5", "0.3", "0", "0.2"))
    for _ in range(2):
        for block in ("b1", "b2"):
            assert epsilons(ledger, block) == ("0.5", "0.3", "0", "0.2")
            assert ledger.block(block).budget.arrivals == 1
        assert ledger.verify().ok
        world.restart()


def test_a_claim_removed_by_force_while_others_wait_lets_them_go_on(world, ledger):
    stream_with_blocks(ledger, "b1")
    ledger.submit("holds", ask("0.8", "b1"))
    ledger.submit("holds", spend("0.3", "consume"))
    ledger.submit("waits", ask("0.7", "b1", timeout=None))
    world.remove_by_force(CLAIMS, "holds")
    until(lambda: ledger.response("waits", "allocate"))
    assert epsilons(ledger, "b1") == ("0", "0", "0.7", "0.3")


# Death in the middle


class Died(Exception):
    """The scheduler is no more."""


class Death:
    """Ends a scheduler at its n-th write: nothing more of it reaches the cluster."""

    def __init__(self, before):
        self._before = before
        self._left = None
        self._lock = threading.Lock()
        self.happened = False

    def come_at(self, write):
        self._left = write

    def api(self, *args, **kwargs):
        return _Mortal(self, *args, **kwargs)

    def on_the_way(self, send, verb, kind):
        if verb not in WRITES or kind is EVENTS:
            self.check()
            return send()
        with self._lock:
            self.check()
            if self._left is None:
                return send()
            self._left -= 1
            if self._left and not self.happened:
                return send()
            self.happened = True
            if not self._before:
                send()
            raise Died

    def check(self):
        if self.happened:
            raise Died


class _Mortal(Api):
    def __init__(self, death, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._death = death

    def _send(self, verb, kind, *args, **kwargs):
        send = super()._send
        return self._death.on_the_way(lambda: send(verb, kind, *args, **kwargs), verb, kind)


@pytest.mark.parametrize("part", [True, False], ids=["a part", "all"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_scheduler_that_dies_at_any_write_folds_a_claim_once(world, ledger, before, part):
    blocks = ("b1", "b2", "b3")
    stream_with_blocks(ledger, *blocks)
    deaths = 0
    for write in itertools.count(1):
        death = Death(before)
        world.restart(make_api=death.api, connections=1)
        spent = f"{deaths / 100:.2f}".rstrip("0").rstrip(".")
        until(lambda number=deaths: world.is_gone(CLAIMS, f"c{number}"))
        until(lambda: not uids_kept(world, *blocks))
        for block in blocks:
            assert (epsilons(ledger, block)[2:]) == ("0", spent)
        assert ledger.verify().ok
        name = f"c{deaths + 1}"
        ledger.submit(name, ask("0.02" if part else "0.01", *blocks))
        ledger.submit(name, spend("0.01", "consume"))
        ledger.verify()
        death.come_at(write)
        world.delete(CLAIMS, name)
        until(
            lambda name=name, death=death: (
                death.happened or (world.is_gone(CLAIMS, name) and not uids_kept(world, *blocks))
            )
        )
        if not death.happened:
            break
        deaths += 1
    # Fold three blocks, let the claim go, forget it on three blocks; give the rest back first.
    assert deaths >= (9 if part else 7)
    assert not any(world.events(block, "Unaccounted") for block in blocks)


# Blocks and streams


def test_deleting_a_block_that_was_used_is_refused_and_retires_it(world, ledger, delete):
    stream_with_blocks(ledger, "b1", "b2")
    ledger.submit("c", ask("0.5", "b1"))
    ledger.submit("c", spend("0.2", "first"))
    delete(BLOCKS, "b1", done=lambda: ledger.block("b1").phase is BlockPhase.RETIRED)
    until(lambda: world.events("b1", "DeletionRefused"))
    assert FINALIZER in world.find(BLOCKS, "b1")["metadata"]["finalizers"]
    assert epsilons(ledger, "b1") == ("0", "0.5", "0.3", "0.2")
    # What is held of it can still be spent, and no more of it can be had.
    assert ledger.submit("c", spend("0.3", "second")).done
    with pytest.raises(Invalid, match="block b1 is retired"):
        ledger.submit("late", ask("0.1", "b1"))
    assert ledger.submit("other", ask("0.1", "b2")).done


def test_what_was_spent_of_a_block_under_deletion_is_kept(world, ledger, delete):
    stream_with_blocks(ledger, "b1")
    ledger.submit("c", ask("0.5", "b1"))
    ledger.submit("c", spend("0.2", "first"))
    world.delete(BLOCKS, "b1")
    until(lambda: ledger.block("b1").phase is BlockPhase.RETIRED)
    delete(CLAIMS, "c")
    assert epsilons(ledger, "b1")[2:] == ("0", "0.2")
    assert ledger.block("b1").phase is BlockPhase.RETIRED


def test_a_claim_that_waits_for_a_block_under_deletion_is_told(world, ledger, delete):
    stream_with_blocks(ledger, "b1")
    ledger.submit("holds", ask("1", "b1"))
    ledger.submit("waits", ask("1", "b1", timeout=None))
    delete(BLOCKS, "b1", done=lambda: ledger.response("waits", "allocate"))
    assert ledger.response("waits", "allocate").reason is Reason.BLOCK_RETIRED
    assert not world.is_gone(BLOCKS, "b1")


@pytest.mark.parametrize(
    "runs",
    [
        True,
        False,
    ],
    ids=["it runs", "it is down"],
)
def test_a_claim_that_waits_for_a_block_that_is_retired_is_told(world, ledger, runs):
    stream_with_blocks(ledger, "b1")
    ledger.submit("holds", ask("1", "b1"))
    ledger.submit("waits", ask("1", "b1", timeout=None))
    if not runs:
        world.stop()
    world.edit(BLOCKS, "b1", lambda obj: obj["spec"].update(retired=True))
    if not runs:
        world.start()
    until(lambda: ledger.response("waits", "allocate"))
    assert ledger.response("waits", "allocate").reason is Reason.BLOCK_RETIRED
    assert ledger.block("b1").budget.arrivals == 2
    assert ledger.verify().ok


def test_an_unused_block_can_be_deleted_and_made_again(world, ledger, delete):
    stream_with_blocks(ledger, "b1", "b2")
    ledger.submit("before", ask("0.5", "b2"))
    delete(BLOCKS, "b1")
    ledger.create_block("b1", "s", data_source="file:///another.parquet")
    assert ledger.block("b1").block.data_source == "file:///another.parquet"
    assert ledger.block("b1").phase is BlockPhase.ACTIVE
    assert ledger.submit("after", ask("0.5", "b1", "b2")).done
    assert epsilons(ledger, "b2") == ("0", "0", "1", "0")


def test_an_unused_block_can_be_made_again_in_another_stream(world, ledger, delete):
    stream_with_blocks(ledger, "b1")
    stream_with_blocks(ledger, stream=basic_stream("t", epsilon="3"))
    delete(BLOCKS, "b1")
    ledger.create_block("b1", "t")
    assert ledger.submit("c", ask("2", "b1", stream="t")).done
    assert epsilons(ledger, "b1") == ("0", "1", "2", "0")


def test_deleting_a_stream_that_has_blocks_is_refused(world, ledger, delete):
    stream_with_blocks(ledger, "b1")
    ledger.submit("c", ask("0.5", "b1"))
    ledger.submit("c", spend("0.2", "first"))
    delete(STREAMS, "s", done=lambda: world.events("s", "DeletionRefused"))
    assert "would forget what was spent" in world.events("s", "DeletionRefused")[0]
    assert FINALIZER in world.find(STREAMS, "s")["metadata"]["finalizers"]
    assert ledger.submit("c", spend("0.1", "second")).done
    assert epsilons(ledger, "b1") == ("0", "0.5", "0.2", "0.3")


def test_a_stream_without_blocks_can_be_deleted_and_made_again(world, ledger, delete):
    stream_with_blocks(ledger)
    ledger.streams()
    delete(STREAMS, "s")
    stream_with_blocks(ledger, "b1", stream=basic_stream(epsilon="2"))
    assert ledger.submit("c", ask("2", "b1")).done


def test_a_stream_whose_blocks_were_deleted_unused_can_be_deleted(world, ledger, delete):
    stream_with_blocks(ledger, "b1")
    delete(BLOCKS, "b1")
    delete(STREAMS, "s")
    assert ledger.streams() == []


def test_a_stream_under_deletion_goes_with_its_last_unused_block(world, ledger, delete):
    stream_with_blocks(ledger, "b1")
    delete(STREAMS, "s", done=lambda: world.events("s", "DeletionRefused"))
    delete(BLOCKS, "b1")
    until(lambda: world.is_gone(STREAMS, "s"))
