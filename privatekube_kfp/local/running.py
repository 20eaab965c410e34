"""One run of a pipeline, seen from the command: prepare, supervise, give back.

What a crash of the command leaves behind: the worker kills the tasks and itself; claims stay as
they are, allocated budget included; the folder says `Running`. The same run can go on, and then
comes to its own release.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from privatekube_kfp.core.claim import Claim
from privatekube_kfp.core.errors import PrivateKubeError
from privatekube_kfp.data.places import RESULTS_VARIABLE
from privatekube_kfp.ledger.opening import LEDGER_VARIABLE, open_ledger
from privatekube_kfp.local.budget import give_back, is_hopeless
from privatekube_kfp.local.errors import PipelineError
from privatekube_kfp.local.folder import Record, RunFolder, State, now
from privatekube_kfp.local.interpreters import pythons_of
from privatekube_kfp.local.lease import kept_alive
from privatekube_kfp.local.logs import last_lines
from privatekube_kfp.local.pipeline import CompiledPipeline
from privatekube_kfp.local.processes import Signals, end_group
from privatekube_kfp.settings.schema import Images
from privatekube_kfp.steps.claims import claims_of_run
from privatekube_kfp.steps.log_lines import error_in

if TYPE_CHECKING:
    # Loads the Kubernetes client: only a run that declares something does.
    from privatekube_kfp.local.manifests import Declarations

_SQLITE = "sqlite:///"
_TICK = 0.1
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Order:
    """What to run, where, and on which budget."""

    pipeline: CompiledPipeline
    arguments: Mapping[str, Any]
    folder: RunFolder
    ledger: str | None = None
    ledger_source: str = "--ledger"
    declarations: Declarations | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    images: Images = field(default_factory=Images)
    """What site settings call our images, in a pipeline that was compiled with them."""


@dataclass
class Task:
    """A task as far as it got."""

    name: str
    state: str
    log: Path
    artifacts: list[dict[str, str]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """Why a run did not succeed: a reason, a sentence, and the task if it was one."""

    reason: str
    message: str
    task: str | None = None


@dataclass(frozen=True)
class Ending:
    """How a run ended, and what there is of it."""

    state: State
    tasks: Mapping[str, Task]
    claims: tuple[Claim, ...]
    problem: Problem | None = None
    interrupted_by: signal.Signals | None = None
    notes: tuple[str, ...] = ()


class Watcher(Protocol):
    """Whoever shows progress."""

    def event(self, event: Mapping[str, Any]) -> None: ...

    def tick(self) -> None: ...


def run_pipeline(order: Order, watcher: Watcher) -> Ending:
    """Run a pipeline, or go on with a run that was cut short; returns when all of it has ended."""
    pythons = pythons_of(order.pipeline.containers, order.images)
    folder = order.folder
    folder.make()
    with folder.locked() as lock:
        # 1. The same run is the same pipeline, arguments and ledger.
        known = folder.read()
        address = _ledger_of(order, known)
        if known is not None:
            _refuse_another(known, order, address)
        # 2. The ledger, with the streams and blocks that were declared.
        _prepare_ledger(order, address, known)
        record = Record(
            run=folder.run,
            pipeline=order.pipeline.name,
            digest=order.pipeline.digest,
            arguments=dict(order.arguments),
            ledger=address,
            state=State.RUNNING,
            started=known.started if known else now(),
        )
        folder.begin(record, order.pipeline.text)
        # 3. The tasks, in a process group of their own.
        tasks = _Tasks(watcher)
        with Signals() as signals:
            try:
                with kept_alive(address, folder.run) as signs:
                    own = {**_results_of(folder), **order.environment}
                    environment = {**own, **os.environ, **signs, LEDGER_VARIABLE: address}
                    problem = _supervise(order, pythons, environment, lock, tasks, signals)
                state = _state(problem, signals)
            except BaseException:
                _conclude(folder, record, address, State.INTERRUPTED)
                raise
            # 4. Nothing stays held.
            return _conclude(folder, record, address, state, tasks.seen, problem, signals.received)


# Before


def _results_of(folder: RunFolder) -> dict[str, str]:
    """Results go into the run's folder, where nobody says another place."""
    return {RESULTS_VARIABLE: str(folder.path.parent / "{run}" / folder.published.name)}


def _ledger_of(order: Order, known: Record | None) -> str:
    """The ledger's address, one that means the same in every folder."""
    if order.ledger is None:
        return known.ledger if known else f"{_SQLITE}{order.folder.ledger}"
    path = order.ledger.removeprefix(_SQLITE)
    if path == order.ledger or not path:
        return order.ledger
    return f"{_SQLITE}{Path(path).absolute()}"


def _refuse_another(known: Record, order: Order, address: str) -> None:
    """The same run id with something else would mix two runs in one budget."""
    run = known.run
    if known.digest != order.pipeline.digest:
        what = "has changed since" if known.pipeline == order.pipeline.name else "is another"
        raise _not_the_same(
            run, f"it began with pipeline {known.pipeline}, and {order.pipeline.source} {what}"
        )
    for name in sorted(known.arguments.keys() | order.arguments.keys()):
        before, given = known.arguments.get(name), order.arguments.get(name)
        if before != given:
            raise _not_the_same(
                run, f"it began with {name}={json.dumps(before)}, not {json.dumps(given)}"
            )
    if known.ledger != address:
        raise _not_the_same(run, f"its budget is in {known.ledger}, not in {address}")


def _not_the_same(run: str, why: str) -> PipelineError:
    return PipelineError(
        "AnotherRun", f"run {run} cannot go on: {why}. Start a new run, without --run-id"
    )


def _prepare_ledger(order: Order, address: str, known: Record | None) -> None:
    declared = order.declarations
    if declared is not None and not address.startswith(_SQLITE):
        raise PipelineError(
            "Usage",
            "--data declares streams and blocks in an SQLite ledger; in a cluster, apply them with"
            " kubectl apply -f",
            malformed=True,
        )
    own = address == f"{_SQLITE}{order.folder.ledger}"
    create = own or declared is not None
    with open_ledger(address, create=create, source=order.ledger_source) as ledger:
        if declared is not None:
            declared.apply(ledger)
        claims = claims_of_run(ledger, order.folder.run)
        if known is None and claims:
            raise PipelineError(
                "RunIdTaken",
                f"the ledger has claims of a run {order.folder.run} already, and"
                f" {order.folder.path} knows nothing of it: two runs on one claim would use the"
                " data twice and pay once. Give another --run-id, or the --folder that has the run",
            )
        ended = known is not None and known.state in (State.FAILED, State.INTERRUPTED)
        if ended and is_hopeless(claims):
            raise PipelineError(
                "GivenBack",
                f"run {order.folder.run} has ended and gave its budget back, unspent: a claim that"
                " was released is not allocated again. Start a new run, without --run-id",
            )


# Meanwhile


class _Tasks:
    """Keeps what the worker tells of tasks, and passes it on."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.seen: dict[str, Task] = {}
        self.failure: str | None = None
        self.has_ended = False

    def note(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "ended":
            self.has_ended = True
            self.failure = event["failure"]
            return
        name = event["task"]
        task = self.seen.setdefault(name, Task(name, "started", Path(event["log"])))
        if event["event"] != "retried":
            task.state = event["event"]
        task.artifacts = event.get("artifacts", task.artifacts)
        task.metrics = event.get("metrics", task.metrics)
        self.watcher.event(event)

    def problem(self, code: int) -> Problem | None:
        failed = next((task for task in self.seen.values() if task.state == "failed"), None)
        if failed is not None:
            lines = last_lines(failed.log)
            why = error_in(lines) or (lines[-1].strip() if lines else "it says nothing")
            return Problem("TaskFailed", why, failed.name)
        if not self.has_ended:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended ({code})"
            return Problem("WorkerDied", f"the process that runs the tasks {how}")
        if self.failure is not None:
            return Problem("PipelineFailed", _COLOURS.sub("", self.failure))
        return None


def _supervise(
    order: Order,
    pythons: Mapping[str, str],
    environment: Mapping[str, str],
    lock: int,
    tasks: _Tasks,
    signals: Signals,
) -> Problem | None:
    """Run the worker to its end, or to a signal; none of its processes is left then."""
    folder = order.folder
    with folder.kfp_log.open("ab") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "privatekube_kfp.local.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**environment, "PYTHONUNBUFFERED": "1"},
            pass_fds=(lock,),
            start_new_session=True,
        )
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        with worker.stdin, worker.stdout:
            said = {
                "parent": str(folder.path.parent),
                "run": folder.run,
                "arguments": dict(order.arguments),
                "pythons": dict(pythons),
            }
            try:
                worker.stdin.write(json.dumps(said).encode() + b"\n")
                worker.stdin.flush()
            except BrokenPipeError:
                pass  # it died at once; how, is told below
            for event in _events(worker.stdout.fileno(), tasks.watcher, signals):
                tasks.note(event)
            end_group(worker, gently=signals.received is not None)
    finally:
        if worker.poll() is None:
            end_group(worker, gently=False)
    return tasks.problem(worker.returncode)


def _events(pipe: int, watcher: Watcher, signals: Signals) -> Iterator[Mapping[str, Any]]:
    """What the worker tells, until it ends or a signal asks us to."""
    said = b""
    while signals.received is None:
        if select.select([pipe], [], [], _TICK)[0]:
            more = os.read(pipe, 1 << 16)
            if not more:
                return
            *lines, said = (said + more).split(b"\n")
            yield from map(json.loads, lines)
        watcher.tick()


def _state(problem: Problem | None, signals: Signals) -> State:
    if signals.received is not None:
        return State.INTERRUPTED
    return State.SUCCEEDED if problem is None else State.FAILED


# After


def _conclude(
    folder: RunFolder,
    record: Record,
    address: str,
    state: State,
    tasks: Mapping[str, Task] | None = None,
    problem: Problem | None = None,
    received: signal.Signals | None = None,
) -> Ending:
    """Note how the run ended, and give back what its claims still hold.

    Where the folder cannot be written, such as on a full disk, they are given back all the same.
    """
    try:
        folder.ended(record, state)
    except PipelineError as error:
        # On a full disk a task's log breaks off anywhere: what it says last is not why it failed.
        problem = Problem(error.reason, error.message, problem.task if problem else None)
        state = State.FAILED if state is State.SUCCEEDED else state
    if received is not None:
        problem = Problem("Interrupted", f"interrupted by {received.name}")
    notes: list[str] = []
    claims: list[Claim] = []
    try:
        with open_ledger(address) as ledger:
            claims, late = give_back(ledger, folder.run)
        notes += [
            f"claim {name}: its release is asked for and waits for the scheduler" for name in late
        ]
    except PrivateKubeError as error:
        sentence = f"whether its budget is given back is not known: {error.message}"
        notes.append(sentence)
        if problem is None:
            problem = Problem(str(error.reason), sentence)
            state = State.FAILED
            folder.ended(record, state)
    return Ending(state, tasks or {}, tuple(claims), problem, received, tuple(notes))
