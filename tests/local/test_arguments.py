"""What `--arg` texts mean for the parameters of a compiled pipeline."""

from __future__ import annotations

import re
from typing import Any

import pytest

from privatekube_kfp.local.errors import PipelineError
from privatekube_kfp.local.pipeline import CompiledPipeline


def pipeline(**parameters: dict[str, Any]) -> CompiledPipeline:
    root = {"dag": {}, "inputDefinitions": {"parameters": parameters}}
    document = {"pipelineInfo": {"name": "p"}, "root": root, "deploymentSpec": {}}
    return CompiledPipeline("p.yaml", "", (document,))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("STRING", "1", "1"),
        ("STRING", "", ""),
        ("STRING", "a=b", "a=b"),
        ("NUMBER_INTEGER", "-3", -3),
        ("NUMBER_DOUBLE", "1e-3", 0.001),
        ("NUMBER_DOUBLE", "2", 2.0),
        ("BOOLEAN", "True", True),
        ("BOOLEAN", "false", False),
        ("LIST", '["a", 1]', ["a", 1]),
        ("STRUCT", '{"a": [1]}', {"a": [1]}),
    ],
)
def test_a_text_becomes_a_value_of_its_type(kind: str, text: str, value: object) -> None:
    read = pipeline(x={"parameterType": kind}).arguments([f"x={text}"])["x"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("NUMBER_INTEGER", "1.5"),
        ("NUMBER_INTEGER", ""),
        ("NUMBER_DOUBLE", "nan"),
        ("NUMBER_DOUBLE", "much"),
        ("BOOLEAN", "yes"),
        ("LIST", '{"a": 1}'),
        ("LIST", "a,b"),
        ("STRUCT", "[1]"),
    ],
)
def test_a_text_of_another_kind_is_refused(kind: str, text: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(f"x={text} is not")) as caught:
        pipeline(x={"parameterType": kind}).arguments([f"x={text}"])
    assert caught.value.malformed


def test_defaults_are_filled_in_and_what_is_optional_stays_out() -> None:
    made = pipeline(
        whole={"parameterType": "NUMBER_INTEGER", "defaultValue": 3.0, "isOptional": True},
        none={"parameterType": "STRING", "isOptional": True},
        needed={"parameterType": "STRING"},
    )
    assert made.arguments(["needed=x"]) == {"whole": 3, "needed": "x"}
    with pytest.raises(PipelineError, match="needs a value for needed"):
        made.arguments([])


def test_a_pipeline_that_takes_an_artifact_cannot_run() -> None:
    made = pipeline()
    root: Any = made.spec["root"]
    root["inputDefinitions"]["artifacts"] = {"data": {}}
    with pytest.raises(PipelineError, match="takes the artifact 'data'"):
        made.arguments([])


def test_layout_does_not_change_the_fingerprint_and_meaning_does() -> None:
    from privatekube_kfp.local.pipeline import compiled_from_text

    plain = "pipelineInfo: {name: p}\nroot: {dag: {}}\ndeploymentSpec: {}\n"
    other = "# said\nroot:\n  dag: {}\ndeploymentSpec: {}\npipelineInfo:\n  name: p\n"
    changed = plain.replace("name: p", "name: q")
    digests = [compiled_from_text(text, "x").digest for text in (plain, other, changed)]
    assert digests[0] == digests[1] != digests[2]
