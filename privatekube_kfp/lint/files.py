"""Compiled pipelines as files: their documents, and the lines of their tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from privatekube_kfp.lint.reading import Document, Task, Unreadable

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # a PyYAML without libyaml: ten times slower, the same result
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

_DEEPEST = 200
_TASKS_OF = tuple[str, str]


@dataclass(frozen=True)
class Compiled:
    """A compiled pipeline: what it does, what its platform adds, and where its tasks are."""

    pipeline: Document
    platform: Document = field(default_factory=dict)
    lines: Mapping[_TASKS_OF, int] = field(default_factory=dict)

    def line_of(self, task: Task) -> int | None:
        return self.lines.get((task.parent.component, task.name)) if task.parent else None


def read_file(path: str | Path) -> Compiled:
    try:
        content = Path(path).read_bytes()
    except IsADirectoryError:
        raise Unreadable("it is a folder: name the files in it") from None
    except OSError as error:
        raise Unreadable(f"cannot read it: {error.strerror or error}") from error
    except ValueError as error:  # a null byte in the name
        raise Unreadable(f"cannot read it: {error}") from error
    if str(path).endswith(".py"):
        raise Unreadable("it is Python: `privatekube compile` compiles and checks it")
    try:
        return read_text(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise Unreadable("it is not a text file") from None


def read_text(text: str) -> Compiled:
    pipelines: list[tuple[Document, yaml.Node]] = []
    platform: Document = {}
    for document, node in _documents(text):
        if not isinstance(document, Mapping):
            kind = "a list" if isinstance(document, list) else "a single value"
            raise Unreadable(f"it holds {kind}, not a compiled pipeline")
        if "platforms" in document and "root" not in document:
            platform = document
            continue
        found, where, beside = _pipeline_in(document, node)
        if found is not None:
            pipelines.append((found, where))
            platform = beside or platform
    if not pipelines:
        raise Unreadable("it holds no compiled pipeline")
    if len(pipelines) > 1:
        raise Unreadable(f"it holds {len(pipelines)} pipelines; put each in a file of its own")
    [(pipeline, node)] = pipelines
    return Compiled(pipeline, platform, dict(_lines(node)))


def _documents(text: str) -> Iterator[tuple[Any, yaml.Node]]:
    """The documents, each with its node, which knows the lines."""
    try:
        _refuse_what_is_hostile(text)
        loader = _Loader(text)
        try:
            found: list[tuple[Any, yaml.Node]] = []
            while loader.check_node():
                node = loader.get_node()
                assert node is not None
                found.append((loader.construct_document(node), node))
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise Unreadable(f"it is not YAML: {_first_line(error)}") from error
    except (ValueError, TypeError, RecursionError) as error:
        # Dates that do not exist, keys that are lists, and the like.
        raise Unreadable(f"it is not YAML that a pipeline is made of: {error}") from error
    if not any(document is not None for document, _ in found):
        raise Unreadable("it is empty")
    return (each for each in found if each[0] is not None)


def _refuse_what_is_hostile(text: str) -> None:
    """What can exhaust whoever reads it: deep nesting, and anchors, which can repeat themselves.

    Kubeflow writes neither.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise Unreadable("it uses YAML anchors, as no compiled pipeline does")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise Unreadable(f"it is nested more than {_DEEPEST} deep")


def _first_line(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    return f"{problem}, line {mark.line + 1}" if mark else str(problem)


def _pipeline_in(
    document: Document, node: yaml.Node
) -> tuple[Document | None, yaml.Node, Document | None]:
    """The pipeline in a document, its node, and its platform's part if that is there too."""
    if str(document.get("apiVersion", "")).startswith(("argoproj.io/", "tekton.dev/")):
        raise Unreadable(
            "it is a workflow as KFP v1 compiled pipelines; compile the pipeline with kfp 2"
        )
    if document.get("kind") == "Pipeline":
        return None, node, None
    spec = document.get("spec")
    if document.get("kind") == "PipelineVersion" and isinstance(spec, Mapping):
        return (
            _a_pipeline(spec.get("pipelineSpec")),
            _child(_child(node, "spec"), "pipelineSpec"),
            spec.get("platformSpec"),
        )
    if "pipelineSpec" in document:
        return _a_pipeline(document["pipelineSpec"]), _child(node, "pipelineSpec"), None
    if "implementation" in document:
        raise Unreadable("it is a component, not a compiled pipeline")
    return _a_pipeline(document), node, None


def _a_pipeline(document: object) -> Document:
    if not isinstance(document, Mapping) or "root" not in document:
        raise Unreadable("it is not a compiled pipeline: it has no `root`")
    version = str(document.get("schemaVersion", ""))
    if not version.startswith("2."):
        raise Unreadable(f"its schema version is {version or 'missing'}; 2.x is what can be read")
    return document


def _lines(pipeline: yaml.Node) -> Iterator[tuple[_TASKS_OF, int]]:
    """The line of each task, by the component that it is a task of and its own name."""
    components = {"root": _child(pipeline, "root"), **_children(_child(pipeline, "components"))}
    for component, node in components.items():
        tasks = _child(_child(node, "dag"), "tasks")
        for key in _keys(tasks):
            yield (component, str(key.value)), key.start_mark.line + 1


def _keys(node: yaml.Node) -> list[yaml.Node]:
    return [key for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []


def _children(node: yaml.Node) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {str(key.value): value for key, value in node.value}


def _child(node: yaml.Node, key: str) -> yaml.Node:
    return _children(node).get(key, _NOTHING)


_NOTHING = yaml.ScalarNode("tag:yaml.org,2002:null", "")
