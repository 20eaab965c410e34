"""Objects that make no sense, edits by hand, and a server in trouble: each gets a reason, and
nothing stops the rest."""

import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from types import SimpleNamespace

import pytest

from privatekube_kfp import __version__
from privatekube_kfp.core.claim import Phase
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.unlocking import ByTime
from privatekube_kfp.ledger.kubernetes.api import (
    BLOCKS,
    CLAIMS,
    STREAMS,
    Api,
    Refused,
    _NoAnswer,
)
from privatekube_kfp.ledger.kubernetes.objects import (
    FINALIZER,
    check_bound,
    request_item,
    stream_object,
)
from privatekube_kfp.ledger.requests import ConsumeRequest, ReleaseRequest
from privatekube_kfp.ledger.times import parse_time, system_clock
from scheduler.election import Election
from scheduler.leader import Habits
from scheduler.metrics import Metrics
from scheduler.scheduling import Scheduler
from tests.contract.world import (
    DAY,
    SECOND,
    ask,
    basic_stream,
    epsilons,
    renyi_stream,
    spend,
)
from tests.kubernetes.world import (
    consumed_half,
    is_set_aside,
    is_well,
    metric,
    others_go_on,
    stream_with_blocks,
)
from tests.scheduler.running import SettledLedger, settle, until

# Claims edited by hand


def test_requests_that_changed_places_count_as_they_were(world, ledger, edit):
    consumed_half(world)
    edit(lambda: world.edit(CLAIMS, "c", lambda obj: obj["spec"]["requests"].reverse()))
    assert others_go_on(world)
    assert epsilons(ledger, "b1") == ("0", "0.5", "0.3", "0.2")
    assert ledger.submit("c", ReleaseRequest("release")).done
    assert epsilons(ledger, "b1") == ("0", "0.8", "0", "0.2")
    assert is_well(world)


# Statuses edited by hand


def without_answers(status):
    status["responses"] = []


def as_if_nothing_was_spent(status):
    status["responses"][1]["state"] = "Denied"
    status["responses"][1].pop("amounts")


def as_if_it_had_asked_for_less(status):
    status["receipts"][0]["steps"][0]["budget"]["epsilon"] = "0.2"


EDITS = [without_answers, as_if_nothing_was_spent, as_if_it_had_asked_for_less]


@pytest.mark.parametrize("change", EDITS, ids=lambda change: change.__name__)
def test_a_running_scheduler_restores_what_a_claim_was_told(world, ledger, change):
    consumed_half(world)
    before = world.find(CLAIMS, "c")["status"]
    world.edit_status(CLAIMS, "c", change)
    until(lambda: world.find(CLAIMS, "c")["status"] == before)
    assert epsilons(ledger, "b1") == ("0", "0.5", "0.3", "0.2")
    assert others_go_on(world)
    assert is_well(world)


def test_a_running_scheduler_restores_what_a_claim_shows(world, ledger):
    consumed_half(world)
    before = world.find(CLAIMS, "c")["status"]
    world.edit_status(CLAIMS, "c", lambda status: status.update(phase="Pending", consumed=[]))
    until(lambda: world.find(CLAIMS, "c")["status"] == before)


@pytest.mark.parametrize("change", EDITS, ids=lambda change: change.__name__)
def test_what_a_finished_claim_spent_stays_spent_whatever_is_written(world, ledger, edit, change):
    consumed_half(world)
    ledger.submit("c", ReleaseRequest("release"))
    edit(lambda: world.edit_status(CLAIMS, "c", change))
    assert others_go_on(world)
    for _ in range(2):
        assert Decimal(epsilons(ledger, "b1")[3]) >= Decimal("0.2")
        world.restart()
    assert Decimal(epsilons(ledger, "b1")[3]) >= Decimal("0.2")


def test_an_edited_status_of_a_finished_claim_is_set_aside(world, ledger):
    consumed_half(world)
    ledger.submit("c", ReleaseRequest("release"))
    world.edit_status(CLAIMS, "c", as_if_nothing_was_spent)
    said = is_set_aside(world, CLAIMS, "c", "Unreadable")
    assert "its status was edited" in said
    assert others_go_on(world)


def unknown_label(status):
    status["responses"][1]["amounts"][0]["budget"] = {"3": "0.2"}


def finer_than_any(status):
    status["responses"][1]["amounts"][0]["budget"]["epsilon"] = "0.000000000000000001"


def of_another_block(status):
    status["responses"][1]["amounts"][0]["blocks"] = ["nowhere"]


def to_what_was_never_asked(status):
    status["responses"][1]["id"] = "never-asked"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (unknown_label, "InvalidBudget"),
        (finer_than_any, "InvalidBudget"),
        (to_what_was_never_asked, "Unreadable"),
        (of_another_block, "Unreadable"),
    ],
)
def test_a_status_that_makes_no_sense_is_set_aside(world, ledger, change, reason):
    consumed_half(world)
    world.stop()
    world.edit_status(CLAIMS, "c", change)
    world.start()
    is_set_aside(world, CLAIMS, "c", reason)
    assert others_go_on(world)
    assert others_go_on(world, block="b1")
    assert epsilons(ledger, "b1")[3] == "0.2"


def test_a_status_that_spends_more_than_there_is_stops_its_blocks_only(world, ledger):
    consumed_half(world)
    world.stop()

    def change(status):
        status["responses"][1]["amounts"][0]["budget"]["epsilon"] = "1000"

    world.edit_status(CLAIMS, "c", change)
    world.start()
    assert others_go_on(world)
    world.claim("more", request_item(ask("0.9", "b1")))
    assert world.answer("more")["state"] == "Denied"


def test_what_an_unreadable_claim_holds_is_not_given_to_others(world, ledger):
    ledger.submit("c", ask("0.8", "b1"))
    world.stop()
    good = copy.deepcopy(world.find(CLAIMS, "c")["status"])
    world.edit_status(CLAIMS, "c", lambda s: s["receipts"][0]["steps"][0].update(budget={"3": "1"}))
    world.start()
    is_set_aside(world, CLAIMS, "c", "InvalidBudget")
    world.claim("next", request_item(ask("0.8", "b1", timeout=None)))
    until(lambda: "phase" in world.find(CLAIMS, "next").get("status", {}))
    world.stop()
    world.edit_status(CLAIMS, "c", lambda status: (status.clear(), status.update(good)))
    world.start()
    allocated = float(epsilons(ledger, "b1")[2])
    assert allocated <= 1


def test_a_weight_that_no_scheduler_has_read_is_set_aside(world, ledger):
    """The stream's policy knows no weights, so the claim cannot be waiting with one."""
    assert ledger.submit("holder", ask("1", "b1")).done
    assert ledger.submit("c", ask("0.5", "b1", timeout=None)) is None
    world.stop()
    world.edit_status(CLAIMS, "c", lambda status: status["receipts"][0].update(weight=5))
    world.start()
    assert "cannot be waiting: weight 5" in is_set_aside(world, CLAIMS, "c", "Unreadable")
    assert others_go_on(world)


BLOCK_EDITS = {
    "consumed": lambda status: status["consumed"].update(epsilon="0"),
    "phase": lambda status: status.update(phase="Retired"),
    "folded": lambda status: status.pop("folded"),
    "everything": lambda status: status.clear(),
}


@pytest.mark.parametrize("what", BLOCK_EDITS)
def test_a_running_scheduler_restores_what_a_block_shows(world, ledger, what):
    consumed_half(world, "gone")
    world.delete(CLAIMS, "gone")
    until(lambda: world.is_gone(CLAIMS, "gone"))
    consumed_half(world)
    until(lambda: not world.find(BLOCKS, "b1")["status"]["folded"]["claims"])
    settle(world.scheduler)
    before = world.find(BLOCKS, "b1")["status"]
    world.edit_status(BLOCKS, "b1", BLOCK_EDITS[what])
    until(lambda: world.find(BLOCKS, "b1")["status"] == before)
    assert others_go_on(world)
    assert others_go_on(world, block="b1")
    assert is_well(world)


def test_a_block_that_was_edited_while_no_scheduler_ran_has_spent_no_less(world, ledger):
    consumed_half(world)
    world.stop()
    world.edit_status(BLOCKS, "b1", BLOCK_EDITS["consumed"])
    world.start()
    until(lambda: epsilons(ledger, "b1") == ("0", "0.5", "0.3", "0.2"))
    assert is_well(world)


def test_a_commit_record_that_makes_no_sense_stops_its_stream_only(world, ledger, edit):
    stream_with_blocks(ledger, "t1", stream=basic_stream("t"))
    ledger.submit("c", ask("0.5", "t1", stream="t"))
    edit(
        lambda: world.edit_status(STREAMS, "t", lambda s: s["commit"].update(batch="bm9uc2Vuc2U="))
    )
    assert "commit record" in is_set_aside(world, STREAMS, "t", "Unreadable")
    assert others_go_on(world)
    assert others_go_on(world)


def test_a_commit_record_by_somebody_else_ends_the_term(world, ledger):
    consumed_half(world)
    world.edit_status(STREAMS, "s", lambda s: s["commit"].update(epoch=99, holder="me"))
    until(lambda: world.find(STREAMS, "s")["status"]["commit"]["epoch"] == 100)
    assert others_go_on(world)
    assert epsilons(ledger, "b1") == ("0", "0.5", "0.3", "0.2")
    assert is_well(world)


# Requests that the server lets through


def plan(**step):
    return {"steps": [{"name": "step", **step}]}


PURE = plan(mechanism="pure", epsilon="0.1")
B1 = {"names": ["b1"]}
SGD = {"mechanism": "dp-sgd", "noiseMultiplier": "1", "steps": 10}
NONSENSE = {
    "sample rate above 1": (B1, plan(**SGD, sampleRate="2", delta="1e-8"), "InvalidBudget"),
    "nothing to price it at": (B1, plan(**SGD, sampleRate="0.1"), "CannotPrice"),
    "at least above at most": (
        {"last": 2, "atLeast": 3, "atMost": 2},
        PURE,
        "InvalidRequest",
    ),
    "more than there are": ({"last": 3, "atLeast": 3}, PURE, "NoMatchingBlocks"),
    "users of events": ({"users": [0, 9]}, PURE, "NoMatchingBlocks"),
    "no such block": ({"names": ["b1", "nowhere"]}, PURE, "UnknownBlock"),
    "no price": (B1, plan(mechanism="epsilon-delta", epsilon="0", delta="0"), "InvalidBudget"),
    "finer than any": (B1, plan(mechanism="pure", epsilon="1e-13"), None),
    "more than any": (B1, plan(mechanism="pure", epsilon="9e999999"), None),
    "a curve": (B1, plan(mechanism="curve", orders={"3": "0.1"}), "CannotPrice"),
    "delta above 1": (B1, plan(mechanism="epsilon-delta", epsilon="0.1", delta="2"), None),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_an_allocate_that_makes_no_sense_is_denied_with_a_reason(world, ledger, what):
    select, plan, reason = NONSENSE[what]
    world.claim("c", {"id": "allocate", "allocate": {"select": select, "plan": plan}})
    answer = world.answer("c")
    if reason is None and answer["state"] == "Done":
        assert what == "finer than any"  # asked for as the least that there is
    else:
        assert answer["state"] == "Denied"
        assert reason in (None, answer["reason"]), answer
        assert answer["message"]
        until(lambda: answer["message"] in world.events("c", answer["reason"]))
        said = {"stream": "s", "kind": "allocate", "reason": answer["reason"]}
        assert metric(world, "requests_answered_total", **said) == 1
        assert epsilons(ledger, "b1")[2:] == ("0", "0")
    assert others_go_on(world)
    assert is_well(world)


def test_epsilon_and_delta_have_no_price_under_renyi_accounting(world, ledger):
    stream_with_blocks(ledger, "r1", stream=renyi_stream())
    said = plan(mechanism="epsilon-delta", epsilon="0.1", delta="1e-9")
    world.claim(
        "c",
        {"id": "allocate", "allocate": {"select": {"names": ["r1"]}, "plan": said}},
        stream="r",
    )
    assert world.answer("c")["reason"] == "CannotPrice"
    assert others_go_on(world, stream="r", block="r1")


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"consume": {"step": "nowhere"}}, "UnknownStep"),
        ({"consume": {"amount": plan(mechanism="pure", epsilon="5")}}, "ExceedsAllocation"),
        ({"consume": {"amount": plan(mechanism="curve", orders={"3": "1"})}}, "CannotPrice"),
    ],
    ids=["unknown step", "too much", "no price"],
)
def test_a_consume_that_makes_no_sense_is_denied_with_a_reason(world, ledger, request_, reason):
    world.claim("c", request_item(ask("0.5", "b1")), {"id": "next", **request_})
    answer = world.answer("c", "next")
    assert (answer["state"], answer["reason"]) == ("Denied", reason)
    assert epsilons(ledger, "b1") == ("0", "0.5", "0.5", "0")
    assert ledger.submit("c", ConsumeRequest("all")).done
    assert others_go_on(world)


def test_a_claim_that_never_asked_for_anything_has_nothing_to_consume(world, ledger):
    world.claim("c", {"id": "consume", "consume": {}}, {"id": "release", "release": {}})
    assert world.answer("c", "consume")["reason"] == "NotAllocated"
    assert world.answer("c", "release")["state"] == "Done"
    assert others_go_on(world)
    assert is_well(world)


def test_a_timeout_beyond_all_time_does_not_stop_the_others(world, ledger):
    item = request_item(ask("0.5", "b1"))
    item["allocate"]["timeout"] = "999999999999w"
    world.claim("c", item)
    assert world.answer("c")["message"]
    assert others_go_on(world)
    assert is_well(world)


@pytest.mark.parametrize("id", ["scheduler.deleted", "scheduler.abandoned"])
def test_the_ids_of_the_scheduler_itself_are_no_shield(world, ledger, id):
    world.claim(
        "c",
        request_item(ask("0.5", "b1")),
        {"id": id, "consume": {"step": "nowhere"}},
        lease={"duration": "60s", "renewed": "2026-01-01T00:00:00Z"},
    )
    world.answer("c", id)
    if id == "scheduler.deleted":
        world.delete(CLAIMS, "c")
        until(lambda: world.is_gone(CLAIMS, "c"))
    else:
        world.clock.now += 60 * SECOND
    until(lambda: epsilons(ledger, "b1") == ("0", "1", "0", "0"))


def test_the_server_refuses_two_requests_with_one_id(world, ledger):
    item = request_item(ask("0.1", "b1"))
    with pytest.raises(Refused, match="Duplicate value"):
        world.claim("c", item, item)
    assert others_go_on(world)


# Claims, blocks and streams that do not fit together


def test_a_claim_waits_for_its_stream(world, ledger, edit):
    edit(lambda: world.claim("c", request_item(ask("0.5", "t1", stream="t")), stream="t"))
    until(lambda: world.find(CLAIMS, "c").get("status", {}).get("reason") == "UnknownStream")
    said = world.find(CLAIMS, "c")["status"]
    assert (said["phase"], said["message"]) == (
        "Pending",
        "there is no stream 't'; it is read when there is",
    )
    world.create(BLOCKS, "t1", {"stream": "t"})
    assert others_go_on(world)
    world.api.create(STREAMS, stream_object(basic_stream("t")))
    assert world.answer("c")["state"] == "Done"
    assert epsilons(ledger, "t1") == ("0", "0.5", "0.5", "0")
    assert is_well(world)


def test_a_claim_without_a_stream_can_be_deleted(world, ledger):
    world.claim("c", request_item(ask("0.5", "t1", stream="t")), stream="t")
    until(lambda: world.find(CLAIMS, "c").get("status"))
    world.delete(CLAIMS, "c")
    until(lambda: world.is_gone(CLAIMS, "c"))
    ledger.create_stream(basic_stream("t"))
    assert others_go_on(world)


def test_a_guarded_claim_without_a_stream_can_be_deleted(world, ledger, edit):
    said = {"stream": "t", "requests": [request_item(ask("0.5", "t1", stream="t"))]}
    world.create(CLAIMS, "c", said, finalizers=[FINALIZER])
    until(lambda: world.find(CLAIMS, "c").get("status"))
    edit(lambda: world.delete(CLAIMS, "c"))
    until(lambda: world.is_gone(CLAIMS, "c"))


def test_a_block_of_events_has_no_users(world, ledger, edit):
    edit(lambda: world.create(BLOCKS, "users", {"stream": "s", "users": [0, 9]}))
    assert "has no user ranges" in is_set_aside(world, BLOCKS, "users", "InvalidRequest")
    world.claim("c", request_item(ask("0.1", "users")))
    assert world.answer("c")["reason"] == "UnknownBlock"
    assert others_go_on(world)
    world.delete(BLOCKS, "users")
    until(lambda: world.is_gone(BLOCKS, "users"))
    world.create(BLOCKS, "users", {"stream": "s"})
    until(lambda: others_go_on(world, block="users"))
    assert is_well(world)


MANY = [f"{number / 10 + 1.5:g}" for number in range(60)]
BAD_STREAMS = {
    "no multiple": ({"unlocking": {"lifetime": "10d", "interval": "3d"}}, "InvalidStream"),
    "unsound": (
        {"epsilon": "30", "accounting": {"type": "Renyi", "orders": MANY, "conversion": "Classic"}},
        "UnsoundCapacity",
    ),
    "weights": (
        {
            "accounting": {
                "type": "Renyi",
                "orders": ["3", "4"],
                "conversion": "Weighted",
                "weights": {"3": "0.7", "4": "0.7"},
            }
        },
        None,
    ),
    "orders": (
        {"accounting": {"type": "Renyi", "orders": ["1"], "conversion": "Weighted"}},
        None,
    ),
    "delta": ({"delta": "1e-19"}, None),
}


@pytest.mark.parametrize("what", BAD_STREAMS)
def test_a_stream_that_makes_no_sense_is_set_aside_until_declared_anew(world, ledger, edit, what):
    wrong, reason = BAD_STREAMS[what]
    good = stream_object(basic_stream("t"))["spec"]
    edit(lambda: world.create(STREAMS, "t", {**good, **wrong}))
    world.claim("c", request_item(ask("0.5", "t1", stream="t")), stream="t")
    world.create(BLOCKS, "t1", {"stream": "t"})
    said = world.condition(STREAMS, "t", "Followed")
    assert reason in (None, said["reason"]), said
    assert is_set_aside(world, STREAMS, "t", said["reason"])
    assert others_go_on(world)
    world.delete(STREAMS, "t")
    until(lambda: world.is_gone(STREAMS, "t"))
    world.create(STREAMS, "t", good)
    assert world.answer("c")["state"] == "Done"
    conditions = world.find(STREAMS, "t")["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in conditions] == [("Accepted", "True")]
    assert is_well(world)


# Many blocks


def remove(world, obj):
    obj = world.api.patch(BLOCKS, obj, {"metadata": {"finalizers": []}})
    world.api.delete(BLOCKS, obj)


@pytest.mark.slow
def test_a_claim_can_name_as_many_blocks_as_fit(world, ledger):
    """As many letters as one claim can hold: whatever it does then must fit into its object."""
    names = [f"m{number:04}".ljust(250, "x") for number in range(1200)]
    ledger.create_stream(basic_stream("many"))
    with ThreadPoolExecutor(8) as pool:
        # Made while nobody looks, since each change of a block is another write.
        world.stop()
        make = partial(world.create, BLOCKS, spec={"stream": "many"}, finalizers=[FINALIZER])
        list(pool.map(make, names))
        world.claim("c", request_item(ask("0.5", *names, stream="many")), stream="many")
        world.start()
        answer = world.answer("c")
        assert answer["state"] == "Done"
        assert "1200 blocks" in answer["message"]
        assert epsilons(ledger, names[-1]) == ("0", "0.5", "0.5", "0")
        more = [request_item(each) for each in (spend("0.3", "some"), ReleaseRequest("release"))]
        world.edit(CLAIMS, "c", lambda obj: obj["spec"]["requests"].extend(more))
        for request in ("some", "release"):
            assert world.answer("c", request)["state"] == "Done"
        assert epsilons(ledger, names[-1]) == ("0", "0.7", "0", "0.3")
        assert ledger.claim("c").phase is Phase.RELEASED
        assert others_go_on(world)
        world.stop()
        list(pool.map(partial(remove, world), world.api.list_all(BLOCKS)[0]))


def test_a_claim_has_a_largest_size(world, ledger):
    names = [f"m{number}" for number in range(10_001)]
    with pytest.raises(Refused, match="at most 10000 items"):
        world.claim("c", request_item(ask("0.5", *names)))
    with pytest.raises(Invalid, match="10001 blocks are more than one claim can hold") as refused:
        check_bound(names)
    assert refused.value.reason is Reason.INVALID_REQUEST
    assert others_go_on(world)


# A server in trouble


class Trouble:
    """Lets some calls of a scheduler fail, all of them for as long as it lasts."""

    def __init__(self, fail):
        self._fail = fail
        self.lasts = False
        self.failed = 0
        self.connected = 0

    def api(self, connect, **how):
        def again():
            self.connected += 1
            return connect()

        return _Troubled(self, again, **how)

    def strike(self, api):
        if self.lasts:
            self.failed += 1
            self._fail(api)


class _Troubled(Api):
    def __init__(self, trouble, *args, **how):
        self._trouble = trouble
        super().__init__(*args, **how)

    def _send(self, verb, *args, **how):
        self._trouble.strike(self)
        return super()._send(verb, *args, **how)


def answers(code, **headers):
    """The way of an answer with this status code through the client."""
    response = SimpleNamespace(status=code, data=b'{"message": "not now"}', headers=headers)
    return lambda api: api._raise(response, api._client)


def nothing(api):
    raise _NoAnswer("no answer")


TROUBLES = {
    "401": answers(401),
    "429": answers(429, **{"Retry-After": "1"}),
    "500": answers(500),
    "503": answers(503),
    "no answer": nothing,
}


@pytest.mark.parametrize("what", TROUBLES)
def test_a_scheduler_rides_out_a_server_in_trouble(world, ledger, what):
    trouble = Trouble(TROUBLES[what])
    world.restart(make_api=trouble.api)
    consumed_half(world)
    connected = trouble.connected
    trouble.lasts = True
    world.claim("c2", request_item(ask("0.1", "b1")))
    until(lambda: trouble.failed >= 3)
    trouble.lasts = False
    assert world.answer("c2")["state"] == "Done"
    assert others_go_on(world)
    assert epsilons(ledger, "b1") == ("0", "0.4", "0.4", "0.2")
    assert is_well(world)
    assert (trouble.connected > connected) == (what == "401")  # for credentials that are accepted


# Clocks


class Machine:
    """One whose clock is off by so many seconds, with a scheduler on it."""

    def __init__(self, world, off):
        self.off = off
        self._world = world
        connect = world.control_plane.client
        self.scheduler = Scheduler(
            connect,
            Election(
                self.api(connect, patience=1.0),
                world.namespace,
                "scheduler",
                "machine",
                duration=3.0,
                renew_deadline=2.0,
                retry=0.1,
            ),
            Habits(block_status_every=0.0),
            Metrics(__version__),
            clock=lambda: system_clock() + self.off * SECOND,
            make_api=self.api,
        )
        self._thread = threading.Thread(target=self.scheduler.run, daemon=True)

    def api(self, *args, **how):
        return _OnMachine(self, *args, **how)

    def __enter__(self):
        self._thread.start()
        return self.scheduler

    def __exit__(self, *_):
        self.scheduler.stop()
        self._thread.join(180)
        assert not self._thread.is_alive()


class _OnMachine(Api):
    def __init__(self, machine, *args, **how):
        self._machine = machine
        super().__init__(*args, **how)

    def _note_time(self, date):
        super()._note_time(date)
        if self._skew is not None:
            self._skew += self._machine.off


@pytest.mark.parametrize("off", [-3600, 3600], ids=["behind", "ahead"])
def test_a_scheduler_whose_clock_is_wrong_does_not_lead(world, ledger, off):
    stream_with_blocks(ledger, "t1", stream=basic_stream("t", unlocking=ByTime(10 * DAY, DAY)))
    world.stop()
    before = world.find(STREAMS, "t")["status"]["commit"]
    with Machine(world, off) as scheduler:
        where = "ahead of" if off > 0 else "behind"
        assert f"this machine's clock is 3600 seconds {where}" in until(scheduler.why_not_ready)
        world.claim("c", request_item(ask("0.1", "b1")))
        time.sleep(0.5)  # for a few tries
        assert scheduler.term is None
    assert not world.find(CLAIMS, "c").get("status")
    assert world.find(STREAMS, "t")["status"]["commit"] == before
    world.start()
    assert world.answer("c")["state"] == "Done"


def test_a_scheduler_whose_clock_is_set_right_leads(world, ledger):
    world.stop()
    machine = Machine(world, 3600)
    with machine as scheduler:
        until(scheduler.why_not_ready)
        time.sleep(0.5)  # for a few tries
        until(lambda: scheduler.term is None)
        machine.off = 0
        until(lambda: scheduler.why_not_ready() is None and scheduler.term)
        world.claim("c", request_item(ask("0.1", "b1")))
        assert world.answer("c")["state"] == "Done"


@pytest.mark.parametrize("off", [-1000 * DAY, 1000 * DAY], ids=["behind", "ahead"])
def test_the_clock_of_a_client_changes_nothing(world, ledger, off):
    theirs = SettledLedger(
        Api(world.control_plane.client), world.namespace, clock=lambda: world.clock.now + off
    )
    theirs.scheduler = world.scheduler
    with theirs:
        ledger.submit("holds", ask("1", "b1"))
        assert theirs.submit("c", ask("0.5", "b1", timeout=60 * SECOND)) is None
        asked = world.find(CLAIMS, "c")["status"]["receipts"][0]
        assert parse_time(asked["deadline"]) == world.clock.now + 60 * SECOND
        world.clock.now += 59 * SECOND
        assert theirs.response("c", "allocate") is None
        world.clock.now += 1 * SECOND
        assert theirs.response("c", "allocate").reason is Reason.TIMED_OUT
        assert is_well(world)
