"""Where a run of ours departs from bare `kfp.local`: all that reaches into kfp is in this module.

kfp offers no such hooks, so its functions are replaced where its own modules look them up. It is
done in the worker only, a process that runs one pipeline and ends. What is different:

* The run's id is ours, so that claims can be found again by it.
* A task is told of when it starts, completes, fails or is tried again, and has a log of its own.
* A task that completed in an earlier process of the same run is not run again.
* Every execution has a folder of its own. kfp names it by component: an attempt finds what the one
  before it left, and where tasks share a component, which a compiled pipeline may have them do,
  they overwrite each other's artifacts. What is charged to one claim could then be made from the
  data of another.
* Results go where this run says, not where a cluster's settings in a compiled pipeline do.
* A task of an image whose packages cannot be here runs in another Python (see `interpreters`).
* A task that kfp cannot even start fails, as it would on a cluster, so that exit handlers run.
* A condition or a loop over one of several named outputs finds it, and an optional parameter of a
  pipeline may be left out; kfp takes the first for false and breaks on the others.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from kfp import dsl
from kfp.local import (
    executor_input_utils,
    executor_output_utils,
    io,
    status,
    subprocess_task_handler,
)
from kfp.local.orchestrator import orchestrator_utils, task_executor, task_spec_utils

from privatekube_kfp.data.places import RESULTS_VARIABLE
from privatekube_kfp.local.folder import RunFolder, file_name
from privatekube_kfp.local.journal import Journal, OutputGone, Outputs
from privatekube_kfp.roles import ROLE_VARIABLE, Role, roles_in_source

Emit = Callable[[Mapping[str, Any]], None]

_CHANNEL = "pipelinechannel--"
_WRAPPER = re.compile(r"(exit-handler|condition|condition-branches)-\d+")
"""How kfp names the groups of tasks that it makes itself: nobody looks for them in a path."""


@dataclass
class _Execution:
    """A task that runs: where in the pipeline, what it is called, in what, how often tried."""

    path: str
    label: str
    python: str = sys.executable
    attempts: int = 0


class Hooks:
    """The hooks of one run."""

    def __init__(self, folder: RunFolder, pythons: Mapping[str, str], emit: Emit) -> None:
        self._folder = folder
        self._pythons = pythons
        self._journal = Journal(folder.done)
        self._emit = emit
        self._execute = task_executor.execute_single_task
        # Loops run their rounds in threads, and kfp works on a task in the thread it began in.
        self._here = threading.local()
        self._labels: dict[str, str] = {}
        self._naming = threading.Lock()

    def install(self) -> None:
        """Replace what kfp calls. Fails where kfp has no such function."""
        for module, name, ours in (
            (task_executor, "execute_single_task", self._execute_task),
            (executor_input_utils, "construct_local_task_root", self._task_root),
            (executor_input_utils, "get_local_pipeline_resource_name", lambda _: self._folder.run),
            (
                executor_input_utils,
                "construct_executor_input",
                _leaving_out(executor_input_utils.construct_executor_input),
            ),
            (
                executor_output_utils,
                "pb2_value_to_python",
                _none_for_unset(executor_output_utils.pb2_value_to_python),
            ),
            (task_spec_utils, "get_nested_pipeline_resource_name", _nested_path),
            (subprocess_task_handler, "run_local_subprocess", self._run_command),
            (
                subprocess_task_handler,
                "replace_python_executable",
                self._in_its_python(subprocess_task_handler.replace_python_executable),
            ),
            (io.IOStore, "get_parent_input", _or_task_output(io.IOStore.get_parent_input)),
        ):
            if not hasattr(module, name):
                raise RuntimeError(f"this version of kfp has no {name}")
            setattr(module, name, ours)

    # A task

    def _execute_task(self, **given: Any) -> tuple[Outputs, status.Status]:
        """Stands in for `task_executor.execute_single_task`."""
        path = f"{given['pipeline_resource_name']}/{given['task_name']}"
        path = path.removeprefix(f"{self._folder.run}/")
        task = _Execution(path, self._label(path))
        self._here.task = task
        try:
            return self._completed(task, given)
        except Exception as error:
            kind = "" if isinstance(error, OutputGone) else f"{type(error).__name__}: "
            self._say(task, f"{kind}{error}")
            self._tell("failed", task)
            return {}, status.Status.FAILURE
        finally:
            self._here.task = None

    def _completed(self, task: _Execution, given: Mapping[str, Any]) -> tuple[Outputs, Any]:
        spec, store = given["task_spec"], given["io_store"]
        component = given["components"][spec.component_ref.name]
        inputs = orchestrator_utils.OrchestratorUtils.make_task_arguments(spec.inputs, store)
        upstream_failed = any(_failed(store, name) for name in spec.dependent_tasks)
        # A release acts on what is held now, and what runs in spite of a failure on the failure.
        executor = given["executors"][component.executor_label]
        repeated = upstream_failed or _releases(executor)
        if not repeated:
            known = self._journal.find(task.path, inputs)
            if known is not None:
                self._tell("cached", task, **_described(component, known))
                return known, status.Status.SUCCESS
        task.python = self._pythons[component.executor_label]
        self._tell("started", task)
        outputs, result = self._execute(**{**given, "unique_pipeline_id": self._folder.run})
        if result is not status.Status.SUCCESS:
            self._tell("failed", task)
            return outputs, result
        if not repeated:
            self._journal.note(task.path, inputs, outputs)
        self._tell("completed", task, **_described(component, outputs))
        return outputs, result

    def _task_root(self, **_: Any) -> str:
        """Stands in for `construct_local_task_root`, which kfp calls once for every attempt.

        An attempt never finds what an earlier one left behind.
        """
        task: _Execution = self._here.task
        task.attempts += 1
        if task.attempts > 1:
            self._tell("retried", task, attempt=task.attempts)
        name = file_name(task.label)
        for number in count(1):
            root = self._folder.artifacts / (name if number == 1 else f"{name}.{number}")
            try:
                root.mkdir()
            except FileExistsError:
                continue
            return str(root)
        raise AssertionError("unreachable")

    def _run_command(
        self, full_command: list[str], env_vars: Mapping[str, str] | None = None
    ) -> int:
        """Stands in for `run_local_subprocess`: the task writes its log itself.

        What it prints need not be text, and what it leaves running in the background does not
        keep it from ending.
        """
        task: _Execution = self._here.task
        own = dict(env_vars or {})
        # A pipeline may have been compiled for a cluster, with its settings.
        own.pop(RESULTS_VARIABLE, None)
        with self._folder.log(task.label).open("ab") as log:
            code = subprocess.run(
                full_command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **own},
                check=False,
            ).returncode
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            self._say(task, "the task was killed (SIGKILL): often it is out of memory")
        return code

    def _in_its_python(self, replace: Callable[..., list[str]]) -> Callable[..., list[str]]:
        def command(full_command: list[str], new_executable: str) -> list[str]:
            return replace(full_command, self._here.task.python)

        return command

    # What is told of it

    def _say(self, task: _Execution, sentence: str) -> None:
        with self._folder.log(task.label).open("a") as log:
            log.write(f"Error: {sentence}\n")

    def _tell(self, event: str, task: _Execution, **more: Any) -> None:
        log = str(self._folder.log(task.label))
        self._emit({"event": event, "task": task.label, "log": log, **more})

    def _label(self, path: str) -> str:
        """A task's path without the groups that kfp wraps tasks in, unless another has that."""
        parts = path.split("/")
        inner = [part for part in parts[:-1] if not _WRAPPER.fullmatch(part)]
        label = "/".join([*inner, parts[-1]])
        with self._naming:
            return path if self._labels.setdefault(label, path) != path else label


def _described(component: Any, outputs: Outputs) -> dict[str, Any]:
    """A task's outputs for whoever watches: where artifacts are, metrics, and other numbers."""
    kinds = component.output_definitions.artifacts
    artifacts: list[dict[str, str]] = []
    numbers: dict[str, float] = {}
    for name, value in sorted(outputs.items()):
        if name in kinds:
            kind = kinds[name].artifact_type.schema_title
            for one in value if isinstance(value, list) else [value]:
                artifacts.append({"name": name, "type": kind, "path": one.uri})
                if kind == dsl.Metrics.schema_title:
                    said = sorted(one.metadata.items())
                    numbers |= {k: v for k, v in said if _is_number(v)}
        elif _is_number(value):
            numbers[name] = value
    return {"artifacts": artifacts, "metrics": numbers}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _failed(store: io.IOStore, task: str) -> bool:
    try:
        return bool(store.get_task_status(task) == "FAILED")
    except ValueError:
        return False


def _releases(executor: Any) -> bool:
    """Whether a task gives budget back: that is never taken as done."""
    container = executor.container
    if any(v.name == ROLE_VARIABLE and v.value == Role.RELEASE for v in container.env):
        return True
    return Role.RELEASE in roles_in_source(container.command)


# What kfp gets wrong


def _nested_path(task_name: str, pipeline_resource_name: str) -> str:
    """Stands in for `get_nested_pipeline_resource_name`, which tells nested pipelines not apart."""
    return f"{pipeline_resource_name}/{task_name}"


def _or_task_output(get_parent_input: Callable[..., Any]) -> Callable[..., Any]:
    """Looks for `task-output`, as compiled pipelines name a task's output, among outputs too.

    The name of an output is a Python name: it has no dash.
    """

    def find(store: io.IOStore, key: str) -> Any:
        try:
            return get_parent_input(store, key)
        except ValueError:
            task, _, output = key.removeprefix(_CHANNEL).rpartition("-")
            try:
                return store.get_task_output(task, output)
            except ValueError:
                pass
            raise

    return find


def _leaving_out(construct: Callable[..., Any]) -> Callable[..., Any]:
    """An argument that is None is one that was not given."""

    def executor_input(*, arguments: Mapping[str, Any], **more: Any) -> Any:
        given = {name: value for name, value in arguments.items() if value is not None}
        return construct(arguments=given, **more)

    return executor_input


def _none_for_unset(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def value(message: Any) -> Any:
        return None if message.WhichOneof("kind") is None else convert(message)

    return value
