"""A compiled pipeline: its parameters, and the arguments of a run. Nothing here needs kfp."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from privatekube_kfp.local.errors import PipelineError
from privatekube_kfp.local.yaml_text import NotYaml, read_documents
from privatekube_kfp.roles import Role, roles_in_source

_KINDS = {
    "STRING": "text",
    "NUMBER_INTEGER": "a whole number",
    "NUMBER_DOUBLE": "a number",
    "BOOLEAN": "true or false",
    "LIST": "a JSON list",
    "STRUCT": "a JSON object",
}


@dataclass(frozen=True)
class Parameter:
    """An input of a pipeline."""

    name: str
    type: str
    required: bool
    default: Any = None

    def read(self, text: str) -> Any:
        """The value that a text means for this parameter."""
        try:
            value = _READERS[self.type](text) if self.type in _READERS else json.loads(text)
        except ValueError:
            kind = _KINDS.get(self.type, self.type)
            raise PipelineError(
                "InvalidArgument", f"argument {self.name}={text} is not {kind}", malformed=True
            ) from None
        return value

    def __str__(self) -> str:
        kind = _KINDS.get(self.type, self.type)
        if self.required:
            return f"{self.name} ({kind})"
        return f"{self.name} ({kind}, {json.dumps(self.default)} unless given)"


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _of_kind(kind: type) -> Any:
    def read(text: str) -> Any:
        value = json.loads(text)
        if not isinstance(value, kind):
            raise ValueError(text)
        return value

    return read


_READERS: Mapping[str, Any] = {
    "STRING": str,
    "NUMBER_INTEGER": int,
    "NUMBER_DOUBLE": _number,
    "BOOLEAN": _boolean,
    "LIST": _of_kind(list),
    "STRUCT": _of_kind(dict),
}


@dataclass(frozen=True)
class CompiledPipeline:
    """A pipeline as Kubeflow's compiler writes it: the text, and the documents in it."""

    source: str
    text: str
    documents: tuple[Mapping[str, Any], ...]

    @property
    def spec(self) -> Mapping[str, Any]:
        return self.documents[0]

    @property
    def name(self) -> str:
        return str(self.spec["pipelineInfo"]["name"])

    @property
    def digest(self) -> str:
        """A fingerprint of all that the pipeline says, however it is laid out."""
        said = json.dumps(self.documents, sort_keys=True, default=str)
        return hashlib.sha256(said.encode()).hexdigest()

    @property
    def asks_for_budget(self) -> bool:
        """Whether a task of it is an Allocate of ours."""
        commands = (container.get("command", ()) for container in self.containers.values())
        return any(Role.ALLOCATE in roles_in_source(command) for command in commands)

    @property
    def containers(self) -> dict[str, Mapping[str, Any]]:
        """What each of its executors runs, by its label."""
        executors = self.spec["deploymentSpec"].get("executors", {})
        return {label: each.get("container", {}) for label, each in executors.items()}

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        inputs = self.spec["root"].get("inputDefinitions", {})
        wanted = [
            name
            for name, said in inputs.get("artifacts", {}).items()
            if not said.get("isOptional", False)
        ]
        if wanted:
            raise PipelineError(
                "NotRunnable",
                f"pipeline {self.name} takes the artifact {wanted[0]!r} as input: only parameters"
                " can be given to a run",
            )
        return {name: _parameter(name, said) for name, said in inputs.get("parameters", {}).items()}

    def arguments(self, said: Iterable[str]) -> dict[str, Any]:
        """What `name=value` texts mean for this pipeline, with its own defaults filled in.

        A parameter that may be left out and has no default stays out.
        """
        given: dict[str, Any] = {}
        for word in said:
            name, equals, text = word.partition("=")
            if not equals or not name:
                raise self._misused(f"{word!r} is not an argument: write it like name=value")
            if name not in self.parameters:
                raise self._misused(f"pipeline {self.name} has no parameter {name!r}")
            if name in given:
                raise self._misused(f"argument {name!r} is given twice")
            given[name] = self.parameters[name].read(text)
        missing = [p.name for p in self.parameters.values() if p.required and p.name not in given]
        if missing:
            raise self._misused(f"pipeline {self.name} needs a value for {', '.join(missing)}")
        defaults = {p.name: p.default for p in self.parameters.values() if p.default is not None}
        return defaults | given

    def _misused(self, problem: str) -> PipelineError:
        known = "; ".join(map(str, self.parameters.values()))
        rest = f"its parameters are: {known}" if known else "it has no parameters"
        return PipelineError("InvalidArgument", f"{problem}; {rest}", malformed=True)


def _parameter(name: str, said: Mapping[str, Any]) -> Parameter:
    kind = str(said.get("parameterType", "STRING"))
    default = said.get("defaultValue")
    if kind == "NUMBER_INTEGER" and isinstance(default, float):
        default = int(default)
    required = default is None and not said.get("isOptional", False)
    return Parameter(name, kind, required, default)


def read_compiled(path: Path) -> CompiledPipeline:
    """The compiled pipeline in a YAML (or JSON) file."""
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        raise _no_pipeline(path, "it is not text") from None
    return compiled_from_text(text, str(path))


def compiled_from_text(text: str, source: str) -> CompiledPipeline:
    try:
        documents = read_documents(text)
    except NotYaml as error:
        raise _no_pipeline(source, str(error)) from None
    if not documents:
        raise _no_pipeline(source, "it is empty")
    spec = documents[0]
    if not isinstance(spec, dict):
        raise _no_pipeline(source, "it is not a mapping")
    for key in ("pipelineInfo", "root", "deploymentSpec"):
        if not isinstance(spec.get(key), dict):
            raise _no_pipeline(source, f"it has no {key}")
    if not isinstance(spec["pipelineInfo"].get("name"), str):
        raise _no_pipeline(source, "its pipelineInfo has no name")
    if not isinstance(spec["root"].get("dag"), dict):
        raise _no_pipeline(source, "its root has no tasks")
    return CompiledPipeline(source, text, tuple(documents))


def _no_pipeline(source: object, why: str) -> PipelineError:
    return PipelineError("NotAPipeline", f"{source} is not a compiled pipeline: {why}")
