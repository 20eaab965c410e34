"""Runs that are cut short: budget comes back, no task is left, and a killed run goes on."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
from contextlib import suppress

import pytest

from privatekube_kfp.core.claim import Kind, Phase
from privatekube_kfp.local import processes
from tests.cli.running import command_line, environment
from tests.local.world import WAITS, World, children, runs, wait_until

pytestmark = pytest.mark.slow

ARGS = ("--run-id", "r", "--data", "data.yaml", "--json")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_tasks_and_gives_the_budget_back(
    world: World, number: signal.Signals, code: int
) -> None:
    run = world.start(world.write(WAITS), *ARGS)
    task = world.wait_for_worker()
    assert [claim.phase for claim in world.claims()] == [Phase.ALLOCATED]
    run.send_signal(number)
    out, err = run.communicate(timeout=180)
    assert run.returncode == code
    assert not runs(task)
    said = json.loads(out)
    assert said["state"] == "Interrupted"
    assert said["error"]["reason"] == "Interrupted"
    (claim,) = said["claims"]
    assert claim["phase"] == "Released"
    assert claim["released"] == claim["granted"] != []
    assert err.splitlines()[-1] == f"privatekube: run r was interrupted by {number.name}"
    (left,) = world.claims()
    assert left.held().is_zero
    # What was given back unspent is not worth going on with.
    (world.folder / "go").touch()
    again = world.cli("run", "pipeline.py", *ARGS)
    assert again.json["error"]["reason"] == "GivenBack"


def test_ctrl_c_at_a_terminal(world: World) -> None:
    """Progress is live there, and the key goes to the command, not to the tasks."""
    source = world.write(WAITS)
    process, terminal = pty.fork()
    if process == 0:  # pragma: no cover
        os.chdir(world.folder)
        line = command_line("run", source, *ARGS[:-1])
        os.execve(line[0], line, {**environment(), "TERM": "xterm", "COLUMNS": "200"})
    task = world.wait_for_worker()
    shown = b""
    while b"work" not in shown.rpartition(b"tick")[2]:
        shown += os.read(terminal, 1 << 16)
    os.write(terminal, b"\x03")
    with suppress(OSError):  # how a terminal says that nobody is there any more
        while more := os.read(terminal, 1 << 16):
            shown += more
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert re.search(r"✓ allocate +done in [\d.]+ s", text)
    assert text.splitlines()[-1] == "privatekube: run r was interrupted by SIGINT"
    assert not runs(task)
    assert [claim.phase for claim in world.claims()] == [Phase.RELEASED]


def test_a_task_that_ignores_being_asked_to_end_is_killed(world: World) -> None:
    stubborn = WAITS.replace(
        "import os, time", "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    )
    run = world.start(world.write(stubborn), *ARGS)
    task = world.wait_for_worker()
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=180)
    assert run.returncode == 143
    assert not runs(task)
    assert [claim.phase for claim in world.claims()] == [Phase.RELEASED]


def test_a_killed_run_leaves_no_task_and_goes_on_where_it_was(world: World) -> None:
    run = world.start(world.write(WAITS), *ARGS)
    task = world.wait_for_worker()
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    wait_until(lambda: not runs(task))
    assert [claim.phase for claim in world.claims()] == [Phase.ALLOCATED]
    (world.folder / "go").touch()
    again = world.cli("run", "pipeline.py", *ARGS)
    assert again.code == 0, again.err
    assert world.lines("ticks") == ["tick"]
    assert len(world.lines("began")) == 2
    for before in ("allocate", "tick"):
        assert f"{before}: done before" in again.err
    (claim,) = again.json["claims"]
    assert claim["phase"] == "Consumed"
    assert claim["consumed"] == claim["granted"]
    assert claim["granted"][0]["budget"]["epsilon"] == "0.25"
    (left,) = world.claims()
    assert sum(request.id.startswith("allocate") for request in left.requests) == 1


@pytest.mark.parametrize("moment", ["started", "done"])
@pytest.mark.parametrize("task", ["allocate", "tick", "consume", "release"])
def test_killed_at_any_task_a_run_goes_on_and_spends_once(
    world: World, task: str, moment: str
) -> None:
    (world.folder / "go").touch()
    run = world.start(world.write(WAITS), *ARGS)
    assert run.stderr is not None
    for line in run.stderr:
        if line.startswith(f"{task}: {moment}"):
            break
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    again = world.cli("run", "pipeline.py", *ARGS)
    assert again.code == 0, again.err
    (claim,) = world.claims()
    assert claim.phase is Phase.CONSUMED
    assert [budget.to_json()["epsilon"] for budget, _ in claim.total(Kind.CONSUME).groups] == [
        "0.25"
    ]
    # A task that was killed at work runs again; one that was done does not.
    assert len(world.lines("ticks")) <= (2 if (task, moment) == ("tick", "started") else 1)


def test_a_worker_that_dies_ends_the_run_and_gives_the_budget_back(world: World) -> None:
    run = world.start(world.write(WAITS), *ARGS)
    task = world.wait_for_worker()
    (worker,) = children(run.pid)
    os.kill(worker, signal.SIGKILL)
    out, err = run.communicate(timeout=180)
    assert run.returncode == 1
    assert json.loads(out)["error"]["reason"] == "WorkerDied"
    assert "killed by SIGKILL" in err.splitlines()[-1]
    assert not runs(task)
    assert [claim.phase for claim in world.claims()] == [Phase.RELEASED]


def test_where_the_folder_cannot_be_written_the_budget_is_given_back_too(world: World) -> None:
    run = world.start(world.write(WAITS), *ARGS)
    world.wait_for_worker()
    # What is to become run.json is written here first.
    (world.home / "run.new").mkdir()
    (worker,) = children(run.pid)
    os.kill(worker, signal.SIGKILL)
    out, err = run.communicate(timeout=180)
    assert run.returncode == 1
    assert json.loads(out)["error"]["reason"] == "FolderUnwritable"
    assert err.splitlines()[-1].endswith(f"{world.home} cannot be written: Is a directory")
    assert [claim.phase for claim in world.claims()] == [Phase.RELEASED]


def test_a_task_that_is_killed_says_so(world: World) -> None:
    run = world.start(world.write(WAITS), *ARGS)
    task = world.wait_for_worker()
    os.kill(task, signal.SIGKILL)
    out, _ = run.communicate(timeout=180)
    assert run.returncode == 1
    assert "SIGKILL" in json.loads(out)["error"]["message"]
    assert [claim.phase for claim in world.claims()] == [Phase.RELEASED]


def test_a_second_process_keeps_off_a_run(world: World) -> None:
    run = world.start(world.write(WAITS), *ARGS)
    world.wait_for_worker()
    second = world.cli("run", "pipeline.py", *ARGS)
    assert second.code == 1
    assert second.json["error"]["reason"] == "StillRunning"
    assert "run r is still running" in second.err
    (world.folder / "go").touch()
    out, err = run.communicate(timeout=180)
    assert run.returncode == 0, err
    assert json.loads(out)["claims"][0]["phase"] == "Consumed"
    assert len(world.lines("began")) == 1


def test_a_claim_that_waits_is_withdrawn(world: World) -> None:
    waiting = """
@dsl.pipeline(name="waits")
def pipeline():
    with privacy_budget(**ASK, epsilon="0.5", claim_name="a") as budget:
        later = {**ASK, "timeout": "1h"}
        second = budget.another(**later, epsilon="0.9", claim_name="b")
        second.allocated.after(budget.allocated)
        budget.consume(after=[second.allocated])
        second.consume()
"""
    run = world.start(world.write(waiting), *ARGS)
    wait_until(lambda: Phase.PENDING in [claim.phase for claim in world.claims()])
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=180)
    assert run.returncode == 130
    held, waited = sorted(world.claims(), key=lambda claim: claim.name)
    assert held.phase is Phase.RELEASED
    assert waited.phase is not Phase.PENDING
    assert waited.held().is_zero


def test_looking_for_processes_leaves_no_folder_open() -> None:
    """Whoever finds one returns early; with warnings as errors a folder left open fails."""
    assert processes._runs(os.getpgrp())
