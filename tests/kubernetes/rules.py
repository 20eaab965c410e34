"""The CEL rules of our definitions: what they are, an edit that each refuses, and a cluster
without them.

A server before 1.25 ignores such rules, so there the scheduler alone keeps what must not change.
Tests of that run on `without_rules()`.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.kubernetes.objects import BLOCKS, CLAIMS, DEFINITIONS, REMOVED, STREAMS, schema

_RULES = "x-kubernetes-validations"


@dataclass(frozen=True)
class Rule:
    """A rule and where it is: `spec.requests[].allocate.select`."""

    plural: str
    path: str
    rule: str
    message: str


@dataclass(frozen=True)
class Case:
    """An edit that one rule refuses and that nothing else is wrong with.

    It is made in two steps: an example that is created with the changes `before`, then edited with
    the changes `edit`; or, where `edit` is empty, an example that cannot be created at all.
    """

    plural: str
    path: str
    message: str
    edit: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        what = self.edit or self.before
        done = "less" if REMOVED in what.values() else "more" if self.before else "other"
        return f"{self.plural}.{self.path}: {self.message} ({done})"


def rules() -> list[Rule]:
    """Every rule in crds/*.yaml."""
    return [rule for plural in DEFINITIONS for rule in _rules(plural, schema(plural), "")]


def without_rules() -> list[dict[str, Any]]:
    """Our definitions as a server before 1.25 understands them."""
    return [_stripped(copy.deepcopy(definition)) for definition in DEFINITIONS.values()]


def _rules(plural: str, node: dict[str, Any], path: str) -> Iterator[Rule]:
    for each in node.get(_RULES, ()):
        yield Rule(plural, path, each["rule"], each["message"])
    for name, child in node.get("properties", {}).items():
        yield from _rules(plural, child, f"{path}.{name}".removeprefix("."))
    for part in ("items", "additionalProperties"):
        if isinstance(node.get(part), dict):
            yield from _rules(plural, node[part], f"{path}[]")


def _stripped(node: Any) -> Any:
    if isinstance(node, dict):
        node.pop(_RULES, None)
        for child in node.values():
            _stripped(child)
    elif isinstance(node, list):
        for child in node:
            _stripped(child)
    return node


_SELECT = "spec.requests.0.allocate.select"
_NEXT_YEAR = "2027-11-17T00:00:00Z"
_WORKFLOW = {"spec.workflow": {"name": "train-x7k2p", "uid": "8d3f"}}
_BARE = {"spec": {"stream": "reviews"}}
_CAPACITY = {"epsilon": "1", "delta": "0"}

CASES = [
    # Streams
    *(
        Case(
            STREAMS,
            "spec",
            "a stream's guarantee, and how it is enforced, never change; declare another stream",
            edit,
            before,
        )
        for edit, before in [
            ({"spec.epsilon": "20"}, {}),
            ({"spec.delta": "1e-6"}, {}),
            ({"spec.accounting.orders": ["3", "4", "8"]}, {}),
            ({"spec.accounting.conversion": "Classic"}, {}),
            ({"spec.unlocking": {"atOnce": True}}, {}),
            ({"spec.policy": "FCFS"}, {}),
            ({"spec.policy": REMOVED}, {"spec.policy": "FCFS"}),
        ]
    ),
    # Blocks
    Case(
        BLOCKS,
        "spec",
        "start must be before end",
        before={"spec.start": "2026-11-17T00:00:00Z", "spec.end": "2026-11-17T00:00:00Z"},
    ),
    Case(
        BLOCKS,
        "spec",
        "start must be before end",
        # Later, though the text sorts before.
        before={"spec.start": "2026-11-16T10:00:00-08:00", "spec.end": "2026-11-16T12:00:00Z"},
    ),
    Case(
        BLOCKS,
        "spec.users",
        "the first user must not come after the last",
        before={"spec.users": [5, 4]},
    ),
    Case(BLOCKS, "spec.stream", "the stream of a block never changes", {"spec.stream": "other"}),
    Case(
        BLOCKS,
        "spec.start",
        "the start of a block never changes",
        {"spec.start": "2026-11-16T00:00:00.000001Z"},
    ),
    Case(BLOCKS, "spec.end", "the end of a block never changes", {"spec.end": _NEXT_YEAR}),
    Case(
        BLOCKS,
        "spec.users",
        "the users of a block never change",
        {"spec.users": [0, 100]},
        {"spec.users": [0, 99]},
    ),
    Case(
        BLOCKS,
        "spec.dataSource",
        "the data source of a block never changes",
        {"spec.dataSource": "s3://elsewhere/2026-11-16.parquet"},
    ),
    Case(
        BLOCKS,
        "spec.retired",
        "a retired block stays retired",
        {"spec.retired": False},
        {"spec.retired": True},
    ),
    Case(
        BLOCKS,
        "spec.retired",
        "a retired block stays retired",
        {"spec.retired": REMOVED},
        {"spec.retired": True},
    ),
    *(
        Case(
            BLOCKS,
            "spec",
            "start and end cannot be added or removed once the block exists",
            edit,
            before,
        )
        for edit, before in [
            ({"spec.start": REMOVED, "spec.end": REMOVED}, {}),
            ({"spec.start": "2026-11-16T00:00:00Z", "spec.end": _NEXT_YEAR}, _BARE),
        ]
    ),
    *(
        Case(
            BLOCKS, "spec", f"{name} cannot be added or removed once the block exists", edit, before
        )
        for name, value in [("users", [0, 99]), ("dataSource", "s3://a/b.parquet")]
        for edit, before in [
            ({f"spec.{name}": REMOVED}, {f"spec.{name}": value}),
            ({f"spec.{name}": value}, _BARE),
        ]
    ),
    Case(
        BLOCKS,
        "status.capacity",
        "the capacity of a block never changes",
        {"status.capacity": {"epsilon": "2", "delta": "0"}},
        {"status": {"capacity": _CAPACITY}},
    ),
    # Claims
    Case(CLAIMS, "spec.stream", "the stream of a claim never changes", {"spec.stream": "other"}),
    Case(CLAIMS, "spec.owner", "the owner of a claim never changes", {"spec.owner": "run-0000"}),
    Case(
        CLAIMS,
        "spec.workflow",
        "the workflow of a claim never changes",
        {"spec.workflow.uid": "another"},
        _WORKFLOW,
    ),
    *(
        Case(
            CLAIMS, "spec", f"{name} cannot be added or removed once the claim exists", edit, before
        )
        for name, value in [("owner", "run-4f1c"), ("workflow", _WORKFLOW["spec.workflow"])]
        for edit, before in [
            ({f"spec.{name}": REMOVED}, {f"spec.{name}": value}),
            ({f"spec.{name}": value}, {} if name == "workflow" else {f"spec.{name}": REMOVED}),
        ]
    ),
    Case(
        CLAIMS,
        "spec.requests",
        "requests are append-only: none may be removed",
        {"spec.requests.2": REMOVED},
    ),
    Case(
        CLAIMS,
        "spec.requests",
        "requests are append-only: none may be removed",
        {"spec.requests.1": {"id": "another", "consume": {"step": "statistics"}}},
    ),
    Case(
        CLAIMS,
        "spec.requests[]",
        "a request never changes once it is written; append another",
        {"spec.requests.0.allocate.plan.steps.0.epsilon": "0.01"},
    ),
    Case(
        CLAIMS,
        "spec.requests[]",
        "a request never changes once it is written; append another",
        {"spec.requests.1.consume": {}},
    ),
    Case(
        CLAIMS,
        "spec.requests[].allocate.select",
        "start must be before end",
        before={_SELECT: {"start": "2026-11-17T00:00:00Z", "end": "2026-11-16T00:00:00Z"}},
    ),
    Case(
        CLAIMS,
        "spec.requests[].allocate.select.users",
        "the first user must not come after the last",
        before={_SELECT: {"users": [9, 0]}},
    ),
]
