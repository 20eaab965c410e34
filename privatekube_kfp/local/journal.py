"""What completed tasks returned, so that a run that goes on does not run them again.

kfp's own cache will not do. It takes two rounds of a loop for one when their inputs are the same,
and runs a task again when one of its artifacts is no file, as metrics are.

An entry is written after its task has succeeded, and as a whole. A crash between the two runs the
task again: every step of the protocol can be.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kfp import dsl
from kfp.dsl import executor

from privatekube_kfp.local.folder import file_name

Outputs = dict[str, Any]
_ARTIFACT = "$artifact"


class Journal:
    """The completed tasks of one run, by their place in the pipeline and what they were given."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, task: str, inputs: Mapping[str, Any]) -> Outputs | None:
        """What the task returned, if it completed with these inputs.

        Raises `OutputGone` if an artifact of it is not there any more. To run the task again could
        make another result, from the same data, for budget that is spent already.
        """
        try:
            entry = json.loads(self._entry(task).read_text())
        except FileNotFoundError:
            return None
        if entry["task"] != task or entry["inputs"] != _digest(inputs):
            return None
        return {name: _restored(value) for name, value in entry["outputs"].items()}

    def note(self, task: str, inputs: Mapping[str, Any], outputs: Outputs) -> None:
        entry = {
            "task": task,
            "inputs": _digest(inputs),
            "outputs": {name: _kept(value) for name, value in outputs.items()},
        }
        path = self._entry(task)
        beside = path.with_suffix(".new")
        with beside.open("w") as file:
            json.dump(entry, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    def _entry(self, task: str) -> Path:
        return self._folder / f"{file_name(task)}.json"


class OutputGone(Exception):
    """An artifact is not where a completed task left it."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"{uri} is gone, which this task made before in this run; what has completed does not"
            " run again: start a new run"
        )


def _digest(inputs: Mapping[str, Any]) -> str:
    said = {name: _kept(value) for name, value in inputs.items()}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _kept(value: Any) -> Any:
    if isinstance(value, dsl.Artifact):
        return {
            _ARTIFACT: {
                "name": value.name,
                "uri": value.uri,
                "metadata": value.metadata,
                "type": {"schemaTitle": value.schema_title},
            },
            "there": os.path.exists(value.uri),
        }
    if isinstance(value, list):
        return [_kept(one) for one in value]
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(one) for one in value]
    if isinstance(value, dict) and _ARTIFACT in value:
        uri = value[_ARTIFACT]["uri"]
        if value["there"] and not os.path.exists(uri):
            raise OutputGone(uri)
        return executor.create_artifact_instance(value[_ARTIFACT])
    return value
