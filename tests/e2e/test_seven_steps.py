"""A whole pipeline: when all goes well, and when each of its steps does not."""

import json
import os
import re
import signal
import threading
import time
from decimal import Decimal

import pytest
from kfp import compiler

from tests.e2e.conftest import HERE
from tests.e2e.seven_steps import seven_steps
from tests.scheduler.running import until

pytestmark = pytest.mark.slow
TASKS = ["allocate", "download", "preprocess", "train", "evaluate", "consume", "upload"]


@pytest.mark.parametrize("form", ["dsl", "yaml"])
def test_it_runs(place, tmp_path, form):
    pipeline = HERE / "seven_steps.py"
    if form == "yaml":
        pipeline = tmp_path / "seven_steps.yaml"
        compiler.Compiler().compile(seven_steps, str(pipeline))
    ended = place.run(pipeline, uri=place.out, journal=place.journal)
    assert (ended.code, ended.document["state"]) == (0, "Succeeded"), ended.told
    assert ended.tasks == [*TASKS, "release"]
    assert place.out.read_text() == "the sum is 12"
    assert ended.claim["phase"] == "Consumed"
    granted = [{"blocks": ["monday", "tuesday"], "budget": {"epsilon": "0.2", "delta": "0"}}]
    assert ended.claim["granted"] == ended.claim["consumed"] == granted
    assert ended.claim["released"] == []
    assert "scores" in [artifact["name"] for artifact in ended.document["artifacts"]]
    until(lambda: place.epsilons("monday") == ("0", "0.2"))


def test_what_was_not_spent_is_given_back(place):
    ended = place.seven_steps(spent=[only("0.1"), only("0.05")])
    assert ended.code == 0, ended.told
    assert ended.claim["phase"] == "Released"
    until(lambda: place.epsilons("monday") == ("0", "0.15"))


def only(epsilon):
    return {"mechanism": "pure", "epsilon": epsilon}


class Trap:
    """A block's data that nobody may look at: a pipe, on which opening it for reading is seen."""

    def __init__(self, path):
        path.unlink()
        os.mkfifo(path)
        self._path = path
        self.was_opened = False
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self):
        with open(self._path, "wb"):
            self.was_opened = True

    def close(self):
        """Let the thread go."""
        opened = self.was_opened
        with open(self._path, "rb"):
            self._thread.join(timeout=180)
        return opened


@pytest.fixture
def traps(place):
    return [Trap(place.folder / f"{day}.parquet") for day in ("monday", "tuesday")]


@pytest.mark.parametrize("why", ["denied", "timed out"])
def test_without_budget_nothing_is_read(place, traps, why):
    if why == "denied":
        plan = {"steps": [{"name": "all", **only("2")}]}
        ended = place.seven_steps(plan=plan)
        reason = "ExceedsCapacity: "
    else:
        place.hold("0.95")
        ended = place.seven_steps(timeout="100ms")
        reason = "TimedOut: "
    assert ended.code == 1
    assert ended.tasks == ["allocate", "release"]
    assert reason in ended.told.strip().splitlines()[-1]
    assert reason in json.dumps(ended.document["error"])
    assert place.done == []
    held = "0.95" if why == "timed out" else "0"
    assert place.epsilons("monday") == (held, "0")
    assert [trap.close() for trap in traps] == [False, False]


def test_the_trap_sees_a_reader(place, traps):
    """The other half of the test above: a run with budget does open its data."""
    process = place.begin(HERE / "seven_steps.py", uri=place.out, journal=place.journal)
    until(lambda: any(trap.was_opened for trap in traps))
    process.kill()
    process.communicate()


@pytest.mark.parametrize("step", ["preprocess", "train", "evaluate"])
def test_a_step_fails(place, step):
    ended = place.seven_steps(fail_at=step)
    assert (ended.code, ended.document["state"]) == (1, "Failed")
    assert ended.told.strip().splitlines()[-1].endswith(f"{step} was told to fail")
    assert ended.tasks == [*TASKS[: TASKS.index(step) + 1], "release"]
    assert ended.claim["phase"] == "Released"
    assert not place.out.exists()
    assert place.epsilons("monday") == ("0", "0")


def test_consume_fails(place):
    ended = place.seven_steps(spent=[only("0.3")])
    assert ended.code == 1
    assert ended.tasks == [*TASKS[:-1], "release"]
    assert "ExceedsAllocation: " in ended.told.strip().splitlines()[-1]
    assert not place.out.parent.exists()
    assert place.epsilons("monday") == ("0", "0")


def test_upload_out_of_order(place):
    """The linter sees it, and where nobody asks the linter, Upload itself refuses."""
    refused = place.run(HERE / "hasty.py", uri=place.out)
    assert refused.code == 1
    assert refused.tasks == []
    ended = place.run(HERE / "hasty.py", "--no-lint", uri=place.out)
    assert ended.code == 1
    assert "NotConsumed: " in ended.told
    assert not place.out.parent.exists()
    assert place.epsilons("monday") == ("0", "0")


def kill_at(place, task, run_id, delay):
    """Start a run and kill it, with `kill -9`, once the task has begun.

    If it was the last, it may be done before.
    """
    process = place.begin(
        HERE / "seven_steps.py", f"--run-id={run_id}", uri=place.out, journal=place.journal
    )
    told = ""
    for line in process.stderr:
        told += line
        if line.strip() == f"{task}: started":
            time.sleep(delay)
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL or task == "release", told


@pytest.mark.parametrize("delay", [0.0, 0.25])
@pytest.mark.parametrize("task", [*TASKS, "release"])
def test_killed_and_run_again(on_a_file, task, delay):
    place = on_a_file
    kill_at(place, task, "nightly-17", delay)
    # Whatever the first run held, it may still hold; it has not spent more than it was granted.
    allocated, consumed = map(Decimal, place.epsilons("monday"))
    assert allocated + consumed <= Decimal("0.2")
    ended = place.seven_steps("--run-id=nightly-17")
    assert ended.code == 0, ended.told
    assert place.epsilons("monday") == ("0", "0.2")
    assert place.out.read_text() == "the sum is 12"
    assert len(list(place.ledger.claims())) == 1
    before = TASKS[: TASKS.index(task)] if task in TASKS else TASKS
    for step in ("preprocess", "train", "evaluate"):
        if step in before:
            assert place.done.count(step) == 1, f"{step} was complete and ran again"


@pytest.mark.server
@pytest.mark.parametrize("task", ["allocate", "train", "consume", "upload"])
def test_killed_and_run_again_in_a_cluster(in_a_cluster, task):
    place = in_a_cluster
    kill_at(place, task, "nightly-17", 0.1)
    ended = place.seven_steps("--run-id=nightly-17")
    assert ended.code == 0, ended.told
    until(lambda: place.epsilons("monday") == ("0", "0.2"))


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(place, sign):
    process = place.begin(
        HERE / "seven_steps.py", uri=place.out, journal=place.journal, fail_at="sleep"
    )
    until(lambda: "train" in place.done)
    process.send_signal(sign)
    answer, told = process.communicate(timeout=180)
    assert process.returncode == 128 + sign, told
    assert json.loads(answer)["state"] == "Interrupted"
    assert not place.out.exists()
    until(lambda: place.epsilons("monday") == ("0", "0"))


def test_nothing_of_the_data_is_printed(on_a_file):
    place = on_a_file
    ended = place.seven_steps("-v")
    assert ended.code == 0
    assert not re.search(r"\[1, 2, 3\]", ended.told + json.dumps(ended.document))
