"""An imitation of Kubeflow Pipelines: it hands tasks the inputs that Kubeflow 2.17 hands them.

It reads compiled YAML, of a pipeline or of one component, and runs each task as the command that
the YAML has, in a process of its own with the executor input as one argument. What a task has put
out goes to the next as Kubeflow gives it back (`metadata`). `recorded` has what a real Kubeflow
handed to tasks of ours; `test_shapes` holds the imitation against it.

Left out: conditions, loops, caching, retries, and the object store (artifacts are files).
"""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from tests.kubeflow.metadata import as_json, given_back

ROOT = Path(__file__).parents[2]
MOST_BYTES = 131_072
"""How long one argument of a process may be, and with it a task's whole input."""
RUN_ID = "{{$.pipeline_job_uuid}}"

Executor = dict[str, Any]


class TaskFailed(Exception):
    """A task ended with an error: its name, and all that it printed."""

    def __init__(self, task: str, said: str) -> None:
        super().__init__(f"{task}: {said}")
        self.task = task
        self.said = said


@dataclass(frozen=True)
class Component:
    """A component as it is compiled: what it takes, what it puts out, and its container."""

    name: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]

    @staticmethod
    def shipped(name: str) -> "Component":
        """The one of components/<name>/component.yaml."""
        compiled = yaml.safe_load((ROOT / "components" / name / "component.yaml").read_text())
        return component(compiled, compiled["components"][f"comp-{name.replace('_', '-')}"])

    def argv(self, executor_input: Executor) -> list[str]:
        """The process of a task; its input is JSON, where the arguments say `{{$}}`."""
        said = json.dumps(executor_input, separators=(",", ":"))
        return [*self.command, *(said if part == "{{$}}" else part for part in self.args)]


def component(compiled: Mapping[str, Any], spec: Mapping[str, Any]) -> Component:
    """A component of a compiled pipeline that has a container, so is no part of a pipeline."""
    label = spec["executorLabel"]
    container = compiled["deploymentSpec"]["executors"][label]["container"]
    return Component(
        label.removeprefix("exec-").replace("-", "_"),
        spec.get("inputDefinitions", {}),
        spec.get("outputDefinitions", {}),
        container["image"],
        tuple(container["command"]),
        tuple(container["args"]),
    )


@dataclass(frozen=True)
class Run:
    """One run of a pipeline: where its artifacts go.

    `place` is where they are kept, as Kubeflow names it: a URI such as minio://mlpipeline, which
    a task finds mounted under /minio, or a folder.
    """

    pipeline: str
    place: str
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    _artifacts: Iterator[int] = field(default_factory=lambda: count(171))

    def executor_input(
        self,
        task: str,
        component: Component,
        parameters: Mapping[str, Any],
        artifacts: Mapping[str, Any],
    ) -> Executor:
        """What Kubeflow hands to a task.

        `artifacts` are the inputs, each as `hand_on` made it.
        """
        folder = f"{self.place}/v2/artifacts/{self.pipeline}/{self.id}/{task}/{uuid.uuid4()}"
        inputs: dict[str, Any] = {}
        if artifacts:
            inputs["artifacts"] = {
                key: {"artifacts": [artifacts[key]]} for key in sorted(artifacts)
            }
        if parameters:
            inputs["parameterValues"] = as_json(dict(parameters))
        types = {
            key: said["artifactType"]
            for key, said in component.outputs.get("artifacts", {}).items()
        } | {"executor-logs": {"schemaTitle": "system.Artifact"}}
        outputs: dict[str, Any] = {
            "artifacts": {
                key: {"artifacts": [{"name": key, "type": kind, "uri": f"{folder}/{key}"}]}
                for key, kind in sorted(types.items())
            }
        }
        if "parameters" in component.outputs:
            outputs["parameters"] = {
                key: {"outputFile": f"/tmp/kfp/outputs/{key}"}
                for key in sorted(component.outputs["parameters"])
            }
        outputs["outputFile"] = f"{local_path(folder)}/output_metadata.json"
        return {"inputs": inputs, "outputs": outputs}

    def hand_on(self, name: str, made: Mapping[str, Any]) -> dict[str, Any]:
        """An artifact that a task has made, as the next one gets it."""
        return {
            "name": str(next(self._artifacts)),
            "type": {"instanceSchema": ""},
            "uri": made["uri"],
            "metadata": given_back(made.get("metadata", {}), name),
        }


def local_path(uri: str) -> str:
    """Where a task finds what is kept at a URI."""
    scheme, colon, path = uri.partition("://")
    return f"/{scheme}/{path}" if colon else uri


@dataclass
class Outputs:
    """What a task has put out, as the next tasks get it."""

    parameters: dict[str, Any]
    artifacts: dict[str, dict[str, Any]]


Start = Callable[[str, Component, Executor], None]
"""Runs a task, whose outputs are then at its `outputFile`; raises TaskFailed."""


@dataclass
class Kubeflow:
    """Runs pipelines, task by task, in the order in which they depend on each other.

    Attributes:
        place: Where artifacts are kept.
        start: How a task is run; `in_process` unless something else is said.
        handed: The executor inputs of all tasks so far, by the task's name.
    """

    place: str
    start: Start
    handed: dict[str, Executor] = field(default_factory=dict)

    def run(self, compiled: Mapping[str, Any], **arguments: Any) -> Run:
        """Run a compiled pipeline. Its exit task runs last, whatever became of the others."""
        run = Run(compiled["pipelineInfo"]["name"], self.place)
        defaults = {
            key: said["defaultValue"]
            for key, said in compiled["root"]
            .get("inputDefinitions", {})
            .get("parameters", {})
            .items()
            if "defaultValue" in said
        }
        _Dag(self, run, compiled, {**defaults, **arguments}, {}).run(compiled["root"]["dag"])
        return run

    def task(
        self,
        run: Run,
        task: str,
        component: Component,
        parameters: Mapping[str, Any] | None = None,
        artifacts: Mapping[str, Any] | None = None,
    ) -> Outputs:
        """Run one task."""
        given = run.executor_input(task, component, parameters or {}, artifacts or {})
        self.handed[task] = given
        self.start(task, component, given)
        made = json.loads(self.output_of(given) or "{}")
        return Outputs(
            as_json(made.get("parameterValues", {})),
            {
                name: run.hand_on(name, listed["artifacts"][0])
                for name, listed in made.get("artifacts", {}).items()
                if name != "executor-logs"
            },
        )

    def output_of(self, given: Executor) -> str:
        """What a task has said of its outputs."""
        return Path(given["outputs"]["outputFile"]).read_text()


def in_process(environment: Mapping[str, str]) -> Start:
    """Tasks as processes of this machine, with the Python that runs the tests."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def start(task: str, component: Component, given: Executor) -> None:
        done = subprocess.run(
            component.argv(given),
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise TaskFailed(task, done.stdout)

    return start


@dataclass
class _Dag:
    """A pipeline, or a part of one such as what an exit handler guards."""

    kubeflow: Kubeflow
    of: Run
    compiled: Mapping[str, Any]
    parameters: Mapping[str, Any]
    done: dict[str, Outputs]

    def run(self, dag: Mapping[str, Any]) -> None:
        tasks = dict(dag["tasks"])
        last = {name for name, said in tasks.items() if "triggerPolicy" in said}
        try:
            self._in_order({name: said for name, said in tasks.items() if name not in last})
        finally:
            for name in last:
                self._task(name, tasks[name])

    def _in_order(self, tasks: dict[str, Any]) -> None:
        while tasks:
            ready = [
                name
                for name, said in tasks.items()
                if not tasks.keys() & said.get("dependentTasks", ())
            ]
            assert ready, f"tasks wait for each other: {', '.join(tasks)}"
            for name in ready:
                self._task(name, tasks.pop(name))

    def _task(self, name: str, said: Mapping[str, Any]) -> None:
        unknown = said.keys() & {"iteratorPolicy", "parameterIterator", "artifactIterator"}
        policy = said.get("triggerPolicy", {})
        assert not unknown, f"{name}: loops are not imitated"
        assert "condition" not in policy, f"{name}: conditions are not imitated"
        spec = self.compiled["components"][said["componentRef"]["name"]]
        given = said.get("inputs", {})
        parameters = {
            key: value
            for key, source in given.get("parameters", {}).items()
            if (value := self._parameter(source)) is not None
        }
        artifacts = {
            key: self._artifact(source["taskOutputArtifact"])
            for key, source in given.get("artifacts", {}).items()
        }
        if "dag" in spec:
            assert not artifacts, f"{name}: artifacts of a pipeline within a pipeline"
            _Dag(self.kubeflow, self.of, self.compiled, parameters, self.done).run(spec["dag"])
        else:
            self.done[name] = self.kubeflow.task(
                self.of, name, component(self.compiled, spec), parameters, artifacts
            )

    def _parameter(self, source: Mapping[str, Any]) -> Any:
        if "componentInputParameter" in source:
            return self.parameters.get(source["componentInputParameter"])
        if "taskOutputParameter" in source:
            wanted = source["taskOutputParameter"]
            return self.done[wanted["producerTask"]].parameters[wanted["outputParameterKey"]]
        said = source["runtimeValue"]["constant"]
        return self.of.id if said == RUN_ID else said

    def _artifact(self, wanted: Mapping[str, str]) -> dict[str, Any]:
        return self.done[wanted["producerTask"]].artifacts[wanted["outputArtifactKey"]]
