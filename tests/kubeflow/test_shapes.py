"""The imitation hands tasks just what a real Kubeflow handed them."""

import json
import re

import pytest

from tests.kubeflow.imitation import Component, Run
from tests.kubeflow.recordings import RUNS, STORE, as_made, recorded

ATTEMPT = re.compile(r"(/[^/]+)/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/(?=[^/]+$)")
OWN = {"average"}
"""Tasks that the pipeline's author wrote."""


def as_recorded(task):
    """The component of a task as it was then: its outputs are in what it was handed."""
    outputs = task.executor_input["outputs"]
    artifacts = {
        key: {"artifactType": said["artifacts"][0]["type"]}
        for key, said in outputs["artifacts"].items()
        if key != "executor-logs"
    }
    parameters = {"parameters": outputs["parameters"]} if "parameters" in outputs else {}
    return Component(task.name, {}, {"artifacts": artifacts, **parameters}, "", (), ())


def without_chance(executor_input):
    """Without the numbers of artifacts and of attempts."""
    given = json.loads(json.dumps(executor_input))
    for said in given["inputs"].get("artifacts", {}).values():
        for artifact in said["artifacts"]:
            assert re.fullmatch("[0-9]+", artifact["name"])
            artifact["name"] = "number"
    for said in given["outputs"]["artifacts"].values():
        for artifact in said["artifacts"]:
            artifact["uri"], found = ATTEMPT.subn(r"\1/attempt/", artifact["uri"])
            assert found == 1
    file, found = ATTEMPT.subn(r"\1/attempt/", given["outputs"]["outputFile"])
    assert found == 1
    return given | {"outputs": given["outputs"] | {"outputFile": file}}


@pytest.mark.parametrize("name", RUNS)
def test_inputs_are_those_that_a_real_kubeflow_made(name):
    for task in recorded(name):
        pipeline, run_id, folder, _ = task.folder
        run = Run(pipeline, STORE, run_id)
        handed = {
            key: run.hand_on(
                artifact["metadata"]["display_name"],
                {"uri": artifact["uri"], "metadata": as_made(artifact["metadata"])},
            )
            for key, artifact in task.artifacts.items()
        }
        made = run.executor_input(folder, as_recorded(task), task.parameters, handed)
        assert without_chance(made) == without_chance(task.executor_input), task.name


@pytest.mark.parametrize("name", RUNS)
def test_components_still_take_what_was_recorded(name):
    """Or it is time to record anew."""
    for task in recorded(name):
        if task.name in OWN:
            continue
        component = Component.shipped(task.name)
        assert task.parameters.keys() <= component.inputs["parameters"].keys()
        assert task.artifacts.keys() == component.inputs.get("artifacts", {}).keys()


@pytest.mark.parametrize("name", RUNS)
def test_recordings_hold_no_credentials(name):
    """Of variables the names, of the object store's credentials where they are."""
    for task in recorded(name):
        assert all(isinstance(variable, str) for variable in task.pod["environment"])
        assert not [variable for variable in task.pod["environment"] if "=" in variable]
        for artifact in task.artifacts.values():
            said = json.loads(artifact["metadata"]["store_session_info"])["Params"]
            assert said["fromEnv"] == "false"
            assert {said["accessKeyKey"], said["secretKeyKey"]} == {"accesskey", "secretkey"}
