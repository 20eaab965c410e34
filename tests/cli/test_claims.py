"""A claim's life at the command line: asking, waiting, spending, giving back, and trying again."""

import json
import os
import pty
import signal
import subprocess
import time

import pytest

from tests.cli.running import command_line, environment, in_own_process

ON_B1 = ("--stream", "s", "--block", "b1")
NOW = ("--timeout", "0s")
PLAN = json.dumps(
    {
        "steps": [
            {"name": "preprocess", "mechanism": "pure", "epsilon": "0.25"},
            {"name": "train", "mechanism": "pure", "epsilon": "0.5"},
        ]
    }
)


def allocate(name, *options):
    return ("claim", "allocate", name, *ON_B1, *options)


def ids(claim):
    return [request["id"] for request in claim["requests"]]


def test_a_claim_as_json(basic):
    claim = basic.json(*allocate("c1", "--epsilon", "0.1", "--owner", "run-1", *NOW))
    budget = [{"blocks": ["b1"], "budget": {"epsilon": "0.1", "delta": "0"}}]
    (request,) = claim.pop("requests")
    created = claim.pop("created")
    assert claim == {
        "name": "c1",
        "stream": "s",
        "owner": "run-1",
        "phase": "Allocated",
        "blocks": ["b1"],
        "allocated": budget,
        "consumed": [],
        "released": [],
        "held": budget,
    }
    assert request == {
        "id": "allocate",
        "kind": "allocate",
        "state": "Done",
        "reason": "Allocated",
        "message": "epsilon 0.1 on 1 block",
        "submitted": created,
        "at": created,
        "amounts": budget,
        "asked": {
            "stream": "s",
            "select": {"names": ["b1"]},
            "plan": {"steps": [{"name": "all", "mechanism": "pure", "epsilon": "0.1"}]},
            "timeout": "0s",
        },
        "deadline": created,
        "blocks": ["b1"],
        "price": {"epsilon": "0.1", "delta": "0"},
        "weight": 1,
        "steps": {"all": {"epsilon": "0.1", "delta": "0"}},
    }


def test_the_same_again_is_done_once(basic):
    for _ in range(2):
        basic.ok(*allocate("c1", "--epsilon", "0.4", *NOW))
    for _ in range(2):
        basic.ok("claim", "consume", "c1")
    for _ in range(2):
        basic.ok("claim", "release", "c1")
    claim = basic.json("claim", "show", "c1")
    assert ids(claim) == ["allocate", "consume", "release"]
    assert claim["consumed"][0]["budget"]["epsilon"] == "0.4"
    again = basic.ok(*allocate("c1", "--epsilon", "0.4", *NOW)).out
    assert again.startswith("claim c1: Allocated: epsilon 0.4 on 1 block (done before, at ")
    assert again.endswith("; the claim is now Consumed)\n")


def test_an_amount_is_spent_as_often_as_it_is_asked(basic):
    basic.ok(*allocate("c1", "--epsilon", "0.4", *NOW))
    for _ in range(2):
        basic.ok("claim", "consume", "c1", "--epsilon", "0.1")
    for _ in range(2):
        basic.ok("claim", "consume", "c1", "--epsilon", "0.1", "--request-id", "third")
    claim = basic.json("claim", "show", "c1")
    assert claim["held"][0]["budget"]["epsilon"] == "0.1"
    over = basic("claim", "consume", "c1", "--epsilon", "0.2")
    assert over.code == 1
    assert over.err == (
        "privatekube: consume on claim c1 denied: ExceedsAllocation:"
        " block b1: epsilon 0.2 asked, epsilon 0.1 left of what the claim holds\n"
    )


def test_steps_of_a_plan(basic):
    basic.ok(*allocate("c1", "--plan", PLAN, *NOW))
    for _ in range(2):
        basic.ok("claim", "consume", "c1", "--step", "train")
    claim = basic.json("claim", "show", "c1")
    assert claim["held"] == [{"blocks": ["b1"], "budget": {"epsilon": "0.25", "delta": "0"}}]
    assert ids(claim) == ["allocate", "consume-train"]
    unknown = basic("claim", "consume", "c1", "--step", "deploy")
    assert "UnknownStep: no step 'deploy' in the plan; it has preprocess, train" in unknown.err
    released = basic.json("claim", "release", "c1")
    assert released["released"][0]["budget"]["epsilon"] == "0.25"
    late = basic("claim", "consume", "c1", "--step", "preprocess")
    assert (late.code, "AlreadyReleased" in late.err) == (1, True)


def test_what_was_denied_may_be_asked_again(basic):
    basic.ok(*allocate("holder", "--epsilon", "1", *NOW))
    for _ in range(2):
        assert basic(*allocate("c1", "--epsilon", "0.5", *NOW)).code == 1
    assert basic("claim", "consume", "c1").code == 1
    basic.ok("claim", "release", "holder")
    basic.ok(*allocate("c1", "--epsilon", "0.5", *NOW))
    basic.ok("claim", "consume", "c1")
    claim = basic.json("claim", "show", "c1")
    assert ids(claim) == ["allocate", "allocate-2", "consume", "allocate-3", "consume-2"]
    states = [request["state"] for request in claim["requests"]]
    assert states == ["Denied", "Denied", "Denied", "Done", "Done"]


def test_consuming_all_after_being_allocated_more(basic):
    basic.ok(*allocate("c1", "--epsilon", "0.1", *NOW))
    basic.ok("claim", "consume", "c1")
    basic.ok(*allocate("c1", "--epsilon", "0.2", *NOW, "--request-id", "more"))
    basic.ok("claim", "consume", "c1")
    claim = basic.json("claim", "show", "c1")
    assert claim["held"] == []
    assert claim["consumed"][0]["budget"]["epsilon"] == "0.3"


def test_waiting_in_line(basic):
    basic.ok(*allocate("holder", "--epsilon", "1", *NOW))
    waiting = basic.json(*allocate("c1", "--epsilon", "0.5", "--timeout", "none", "--no-wait"))
    (request,) = waiting["requests"]
    assert (waiting["phase"], request["state"], request["at"]) == ("Pending", "Waiting", None)
    assert request["reason"] == "WaitingForRelease"
    assert "epsilon 0.5 asked, 0 unlocked; other claims hold what is missing" in request["message"]
    assert request["deadline"] is None
    impatient = basic("claim", "wait", "c1", "--patience", "0s")
    assert impatient.code == 1
    assert impatient.err.startswith(
        "privatekube: claim c1 still waits: WaitingForRelease: block b1"
    )
    in_json = basic("claim", "wait", "c1", "--patience", "0s", "--json").json
    assert in_json["error"]["reason"] == "WaitingForRelease"
    assert in_json["claim"]["phase"] == "Pending"
    basic.ok("claim", "release", "holder")
    assert basic.ok("claim", "wait", "c1").out == "claim c1: Allocated: epsilon 0.5 on 1 block\n"


def test_releasing_withdraws(basic):
    basic.ok(*allocate("holder", "--epsilon", "1", *NOW))
    basic.ok(*allocate("c1", "--epsilon", "0.5", "--no-wait"))
    basic.ok("claim", "release", "c1")
    withdrawn = basic("claim", "wait", "c1", "--request-id", "allocate")
    assert (withdrawn.code, "Withdrawn" in withdrawn.err) == (1, True)


def test_looking_shows_what_is_true_now(basic):
    """No scheduler runs: whoever looks finds that a time has passed."""
    basic.ok(*allocate("holder", "--epsilon", "1", *NOW))
    basic.ok(*allocate("c1", "--epsilon", "0.5", "--timeout", "1ms", "--no-wait"))
    time.sleep(0.01)
    assert basic.json("claim", "show", "c1")["requests"][0]["reason"] == "TimedOut"


def test_time_unlocks_while_nobody_asks(run):
    unlock = ("--unlock-lifetime", "20ms", "--unlock-interval", "10ms")
    run.ok("stream", "create", "t", "--epsilon", "1", *unlock)
    run.ok("block", "create", "b", "--stream", "t")
    time.sleep(0.03)
    assert run.json("block", "show", "b")["unlocked"]["epsilon"] == "1"
    run.ok("claim", "allocate", "c", "--stream", "t", "--last", "1", "--epsilon", "1", *NOW)


def test_lists(basic):
    basic.ok(*allocate("c1", "--epsilon", "0.5", "--owner", "run-1", *NOW))
    basic.ok("claim", "consume", "c1", "--epsilon", "0.2")
    basic.ok(*allocate("c2", "--epsilon", "0.6", "--no-wait"))
    assert (
        basic.ok("claim", "list").out
        == """\
NAME  STREAM  PHASE      BLOCKS  CONSUMED    OWNER  REASON
c1    s       Allocated       1  0.2 of 0.5  run-1  Consumed
c2    s       Pending         1                     WaitingForRelease
"""
    )
    pending = basic.json("claim", "list", "--stream", "s", "--phase", "Pending")["claims"]
    assert [claim["name"] for claim in pending] == ["c2"]
    assert (
        basic.ok("block", "list").out
        == """\
NAME  STREAM  PHASE   CAPACITY  LOCKED  UNLOCKED  ALLOCATED  CONSUMED
b1    s       Active         1       0       0.5        0.3       0.2
"""
    )


def test_a_claim_for_people(basic):
    basic.ok("block", "create", "b2", "--stream", "s")
    blocks = ("--block", "b1", "--block", "b2")
    basic.ok("claim", "allocate", "c1", "--stream", "s", *blocks, "--epsilon", "0.5", *NOW)
    basic.ok("claim", "consume", "c1", "--epsilon", "0.2", "--request-id", "part")
    shown = basic.ok("claim", "show", "c1").out.splitlines()
    assert shown[:3] == ["claim    c1", "stream   s", "phase    Allocated"]
    assert shown[4:] == [
        "",
        "on each of b1, b2:",
        "         ALLOCATED  CONSUMED  RELEASED  HELD",
        "epsilon        0.5       0.2         0   0.3",
        "delta            0         0         0     0",
        "",
        "REQUEST   STATE  REASON     MESSAGE",
        "allocate  Done   Allocated  epsilon 0.5 on 2 blocks",
        "part      Done   Consumed   epsilon 0.3 left of the claim",
    ]


def test_selections(run):
    run.ok("stream", "create", "s", "--epsilon", "1", "--policy", "fcfs")
    for day in (16, 17, 18):
        when = ("--start", f"2026-11-{day}", "--end", f"2026-11-{day + 1}")
        run.ok("block", "create", f"d{day}", "--stream", "s", *when)

    def chosen(name, *options):
        ask = ("--stream", "s", "--epsilon", "0.01", *NOW)
        return run.json("claim", "allocate", name, *ask, *options)["blocks"]

    assert chosen("c1", "--last", "2") == ["d17", "d18"]
    assert chosen("c2", "--start", "2026-11-16T12:00:00Z", "--end", "2026-11-18") == ["d16", "d17"]
    assert chosen("c3", "--start", "2026-11-01", "--at-least", "3", "--at-most", "3") == [
        "d16",
        "d17",
        "d18",
    ]
    run.ok("block", "retire", "d18")
    assert chosen("c4", "--last", "2") == ["d16", "d17"]


def test_weights(run):
    run.ok("stream", "create", "s", "--epsilon", "1", "--policy", "dpack", "--unlock-at-once")
    run.ok("block", "create", "b", "--stream", "s")

    def ask(name, epsilon, *options):
        asked = ("--stream", "s", "--block", "b", "--epsilon", epsilon, "--no-wait", *options)
        return run.json("claim", "allocate", name, *asked)["requests"][0]

    ask("holder", "1")
    assert ask("light", "0.2")["weight"] == 1
    heavy = ask("heavy", "0.9", "--weight", "10")
    assert (heavy["weight"], heavy["asked"]["weight"]) == (10, 10)
    run.ok("claim", "release", "holder")
    phases = {claim["name"]: claim["phase"] for claim in run.json("claim", "list")["claims"]}
    assert (phases["heavy"], phases["light"]) == ("Allocated", "Pending")


def test_blocks_of_users(run):
    declared = ("--epsilon", "1", "--policy", "fcfs", "--semantic", "user-time")
    run.ok("stream", "create", "u", *declared, "--counter-epsilon", "0.1", "--counter-days", "16")
    when = ("--start", "2026-11-16", "--end", "2026-11-17")
    where = ("--data-source", "s3://data/u0")
    block = run.json("block", "create", "u0", "--stream", "u", "--users", "0-99", *when, *where)
    assert block["users"] == [0, 99]
    assert block["dataSource"] == "s3://data/u0"
    assert (block["start"], block["end"]) == ("2026-11-16T00:00:00Z", "2026-11-17T00:00:00Z")
    assert block["capacity"] == {"epsilon": "0.9", "delta": "0"}
    ask = ("claim", "allocate", "c", "--stream", "u", "--epsilon", "0.9", *NOW)
    assert run.json(*ask, "--users", "50-150")["blocks"] == ["u0"]


def test_streams(run):
    made = run.json(
        *("stream", "create", "r", "--epsilon", "10", "--delta", "1e-7"),
        *("--orders", "8,16", "--weights", "8=0.5,16=0.5", "--unlock-at-once"),
    )
    assert made == run.json("stream", "show", "r")
    assert made["weights"] == {"8": "0.5", "16": "0.5"}
    assert made["conversion"] == "weighted"
    assert made["unlocking"] == {"atOnce": True}
    assert set(made["capacity"]) == {"8", "16"}
    same = ("--epsilon", "10.0", "--delta", "0.0000001", "--orders", "16,8.0")
    weights = ("--weights", "16=0.5,8.0=0.5", "--unlock-at-once")
    assert run.json("stream", "create", "r", *same, *weights) == made
    assert run.json("stream", "delete", "r") == {"name": "r", "deleted": True}
    assert run.json("stream", "list") == {"streams": []}


def test_many_processes_at_once(basic, workplace):
    """Four ask for 0.3 of 1 at the same time: three get it."""
    children = [
        subprocess.Popen(
            command_line(*allocate(f"c{number}", "--epsilon", "0.3", *NOW)),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(4)
    ]
    assert sorted(child.wait() for child in children) == [0, 0, 0, 1]
    assert basic.ok("ledger", "verify").out == "OK: 1 stream, 1 block, 4 claims\n"


@pytest.fixture
def waiter(basic):
    """A process that waits in line."""
    basic.ok(*allocate("holder", "--epsilon", "1", *NOW))
    command = command_line(*allocate("c1", "--epsilon", "0.5", "--timeout", "none"))
    child = subprocess.Popen(
        command, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with child:
        yield child
        child.kill()


def test_an_interrupt_leaves_the_request_in_line(basic, waiter):
    first = waiter.stderr.readline()
    assert first.startswith("privatekube: claim c1 waits: WaitingForRelease: block b1")
    waiter.send_signal(signal.SIGINT)
    out, err = waiter.communicate()
    assert waiter.returncode == 130
    assert out == ""
    assert "request 'allocate' of claim c1 stays in line" in err
    assert "`privatekube claim release c1`" in err
    assert "Traceback" not in err
    assert basic.json("claim", "show", "c1")["phase"] == "Pending"


def test_a_killed_waiter_is_resumed_by_the_same_command(basic, waiter):
    waiter.stderr.readline()
    waiter.kill()
    waiter.wait()
    basic.ok("claim", "release", "holder")
    again = in_own_process(*allocate("c1", "--epsilon", "0.5", "--timeout", "none"))
    assert again.returncode == 0, again
    assert ids(basic.json("claim", "show", "c1")) == ["allocate"]
    assert basic.ok("ledger", "verify").out == "OK: 1 stream, 1 block, 2 claims\n"


def test_a_terminal_shows_what_is_waited_for(basic):
    basic.ok(*allocate("holder", "--epsilon", "1", *NOW))
    ours, theirs = pty.openpty()
    ask = allocate("c1", "--epsilon", "0.5", "--timeout", "1500ms")
    child = subprocess.Popen(
        command_line(*ask), env=environment(), stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    with child, open(ours, "rb", buffering=0) as terminal:
        while True:
            try:
                shown += terminal.read(4096)
            except OSError:  # what Linux says when the other end is closed
                break
    assert child.returncode == 1
    assert b"claim c1 waits: WaitingForRelease" in shown
    assert b"claim c1 denied: TimedOut" in shown
