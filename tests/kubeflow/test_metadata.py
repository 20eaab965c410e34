"""Metadata on their way from task to task: as Kubeflow gave them back, and as its store does."""

import pytest

from tests.kubeflow.metadata import TaskFails, given_back
from tests.kubeflow.mlmd import given_back_by_store
from tests.kubeflow.recordings import RUNS, as_made, recorded

ALL_SORTS = {
    "text": "epsilon 0.5, delta 0",
    "empty": "",
    "whole": 2,
    "part": 0.25,
    "large": 10**15,
    "yes": True,
    "no": False,
    "list": ["monday", 1, True, None, [2.5], {"a": 1}],
    "nothing": [],
    "object": {"b": [1, 2], "a": {"c": False}},
}


@pytest.mark.parametrize("run", RUNS)
def test_as_a_real_kubeflow_gave_them_back(run):
    compared = 0
    for task in recorded(run):
        for artifact in task.artifacts.values():
            metadata = artifact["metadata"]
            assert given_back(as_made(metadata), metadata["display_name"]) == metadata
            compared += 1
    assert compared >= 5


def test_all_sorts():
    back = given_back(ALL_SORTS, "claim")
    assert (back["yes"], back["no"]) == (1, 0)
    assert back["list"] == {"list": ["monday", 1, True, None, [2.5], {"a": 1}]}
    assert back["nothing"] == {"list": []}
    assert back["object"] == {"struct": {"a": {"c": False}, "b": [1, 2]}}
    assert (back["whole"], back["part"], back["large"]) == (2, 0.25, 10**15)
    assert back["display_name"] == "claim"


def test_null_fails_the_task():
    with pytest.raises(TaskFails, match="'delta' is null"):
        given_back({"delta": None}, "claim")


@pytest.mark.slow
def test_as_the_real_store_gives_them_back():
    made = given_back(ALL_SORTS, "claim")
    added = {key: made.pop(key) for key in ("display_name", "store_session_info")}
    assert given_back_by_store(ALL_SORTS) == made
    assert given_back_by_store(added) == added
