"""Claims and private data on their way through a pipeline.

Every input and output of every task is followed back to where it comes from: which claims it may
be, data of which claims it may hold, which loops' items it depends on. What a task does is not
known, so whatever it gives out holds all that it takes in, and what decides whether or how often
it runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from privatekube_kfp.lint.conditions import contradict
from privatekube_kfp.lint.reading import Document, Kind, Task, Unreadable
from privatekube_kfp.roles import CLAIM_TYPE, Role

_REFERENCE = re.compile(r"\{\{\$\.inputs\.(parameters|artifacts)\[['\"]([^'\"]+)['\"]\][^}]*\}\}")
_CONDITION_INPUT = re.compile(r"inputs\.parameter_values\[['\"]([^'\"]+)['\"]\]")

Tasks = frozenset[Task]
_NONE: Tasks = frozenset()


@dataclass(frozen=True)
class Constant:
    """A value that is known when the pipeline is compiled."""

    json: str

    @property
    def value(self) -> Any:
        return json.loads(self.json)

    @property
    def empty(self) -> bool:
        return self.value in ("", None, [], {})


@dataclass(frozen=True)
class Origin:
    """Where a value comes from that is known only when the pipeline runs.

    Two values of the same origin are the same, whatever they are.
    """

    what: str
    parts: tuple[object, ...] = ()


Source = Constant | Origin
ABSENT = "absent"
"""What the origin of an input is that is not given and has no default."""


@dataclass(frozen=True)
class Token:
    """A claim as an artifact: who allocated it, and who consumed it last.

    A token of no Allocate is an artifact that only says it were a claim.
    """

    allocated_by: Task | None
    consumed_by: Task | None = None

    @property
    def made_by(self) -> Task | None:
        return self.consumed_by or self.allocated_by


_FORGED = Token(None)


@dataclass(frozen=True)
class Value:
    """What may be in an artifact or a parameter.

    Attributes:
        source: Where it comes from.
        data: The Allocates of the claims whose data it may hold.
        loops: The loops on whose item it depends.
        claims: The claims that it may be; of several it is one.
    """

    source: Source
    data: Tasks = _NONE
    loops: Tasks = _NONE
    claims: frozenset[Token] = frozenset()


class Flow:
    """What reaches each task of a pipeline."""

    def __init__(self, root: Task) -> None:
        self.root = root
        self.leaves = tuple(root.leaves())
        self._inputs: dict[tuple[Task, Kind, str], Value] = {}
        self._outputs: dict[tuple[Task, Kind, str], Value] = {}
        self._given_out: dict[Task, Value] = {}
        self._claims: dict[Task, dict[str, frozenset[Token]]] = {}
        # In the order in which they can run, so that no chain of tasks is followed twice.
        for task in self.leaves:
            self._given_out[task] = self._what_comes_out(task)

    def playing(self, *roles: Role | None) -> Iterator[Task]:
        return (task for task in self.leaves if task.role in roles)

    def parameter(self, task: Task, name: str) -> Value:
        return self.input(task, Kind.PARAMETER, name)

    def input(self, task: Task, kind: Kind, name: str) -> Value:
        """What a task gets as an input: given, by default, or nothing."""
        key = (task, kind, name)
        if key not in self._inputs:
            # Met again while it is worked out, it refers to itself.
            self._inputs[key] = Value(Origin("unknown", key))
            self._inputs[key] = self._find_input(task, kind, name)
        return self._inputs[key]

    def output(self, task: Task, kind: Kind, name: str) -> Value:
        key = (task, kind, name)
        if key not in self._outputs:
            self._outputs[key] = self._find_output(task, kind, name)
        return self._outputs[key]

    def claims(self, task: Task) -> dict[str, frozenset[Token]]:
        """The claims that a task takes, by input."""
        if task in self._claims:
            return self._claims[task]
        found = self._claims[task] = {}
        for name in task.inputs[Kind.ARTIFACT]:
            tokens = self.input(task, Kind.ARTIFACT, name).claims
            if not tokens and task.input_types.get(name) == CLAIM_TYPE:
                tokens = frozenset([_FORGED])
            if tokens:
                found[name] = tokens
        return found

    def tokens(self, task: Task) -> frozenset[Token]:
        return frozenset().union(*self.claims(task).values())

    def users(self, allocate: Task) -> list[Task]:
        """The tasks that take an Allocate's claim, consumed or not."""
        return [
            task
            for task in self.leaves
            if any(token.allocated_by is allocate for token in self.tokens(task))
        ]

    def data_taken(self, task: Task) -> Tasks:
        """The Allocates of the claims whose data reach a task through its inputs."""
        return _all(value.data for value in self._all_inputs(task))

    def data_told(self, task: Task) -> Tasks:
        """The same, with what its running at all, or how often, tells of the data."""
        return self.data_taken(task) | _all(map(self._data_deciding, task.lineage))

    def data_given_out(self, task: Task) -> Tasks:
        """The Allocates of the claims whose data may be in what a task gives out."""
        return self._given_out[task].data

    def runs_after_success_of(self, task: Task, needed: Task) -> bool:
        """Whether a task starts only if another, from which it takes something, has succeeded."""
        waiting = [*task.lineage]
        seen: set[Task] = set()
        while waiting:
            one = waiting.pop()
            if one in seen or one.even_after_failure:
                continue
            seen.add(one)
            for earlier in one.after:
                if earlier in needed.lineage and _failure_shows(needed, earlier):
                    return True
                waiting.append(earlier)
        return False

    def ends_before(self, earlier: Task, later: Task) -> bool:
        """Whether a task has always ended, well or not, when another starts."""
        first, second = _where_they_part(earlier, later)
        if first is second:
            return False
        waiting = [second]
        seen: set[Task] = set()
        while waiting:
            one = waiting.pop()
            if first in one.after:
                return True
            waiting += [task for task in one.after if task not in seen]
            seen.update(one.after)
        return False

    def never_both(self, one: Task, other: Task) -> bool:
        """Whether two tasks lie in branches of which a run takes one only."""
        first, second = _where_they_part(one, other)
        if first is second:
            return False
        known: dict[Source, str] = {}

        def conditions(task: Task, start: Task) -> list[str]:
            below = task.lineage[task.lineage.index(start) :]
            return [self._named_by_source(each, known) for each in below if each.condition]

        return contradict(conditions(one, first), conditions(other, second))

    def surely(self, tokens: frozenset[Token]) -> Tasks:
        """The Allocates whose claims are consumed for sure, if one of these tokens is at hand."""
        if any(token.consumed_by is None or token.allocated_by is None for token in tokens):
            return _NONE
        allocates = frozenset(token.allocated_by for token in tokens if token.allocated_by)
        one_at_most = all(self.never_both(*pair) for pair in combinations(allocates, 2))
        return allocates if one_at_most else _NONE

    def _named_by_source(self, task: Task, known: dict[Source, str]) -> str:
        """A condition in which equal inputs have equal names, whatever task it is of."""

        def name(match: re.Match[str]) -> str:
            source = self.parameter(task, match[1]).source
            return known.setdefault(source, f"<{len(known)}>")

        return _CONDITION_INPUT.sub(name, task.condition)

    def _data_deciding(self, task: Task) -> Tasks:
        """Data that decide whether a task runs, or how often."""
        found = [
            self.parameter(task, name).data
            for name in task.inputs[Kind.PARAMETER]
            if f"'{name}'" in task.condition or f'"{name}"' in task.condition
        ]
        if task.iteration and task.iteration.items:
            found.append(self.input(task, task.iteration.kind, task.iteration.items).data)
        return _all(found)

    def _all_inputs(self, task: Task) -> Iterator[Value]:
        for kind in Kind:
            for name in task.inputs[kind]:
                yield self.input(task, kind, name)

    def _find_input(self, task: Task, kind: Kind, name: str) -> Value:
        given = task.inputs[kind].get(name)
        if given is None:
            if kind is Kind.PARAMETER and name in task.defaults:
                return Value(_constant(task.defaults[name]))
            return Value(Origin(ABSENT, (task, kind, name)))
        assert task.parent is not None
        match given:
            case {"runtimeValue": {"constant": constant}}:
                value = self._constant(task, constant)
            case {"runtimeValue": {"constantValue": {**typed}}}:
                value = self._constant(task, next(iter(typed.values()), None))
            case {"runtimeValue": {"runtimeParameter": str(parameter)}}:
                value = self._pipeline_input(Kind.PARAMETER, parameter)
            case {"componentInputParameter": str(outer)} | {"componentInputArtifact": str(outer)}:
                value = self._seen_inside(task.parent, kind, outer)
            case {"taskOutputParameter": produced} | {"taskOutputArtifact": produced}:
                producer = task.parent.subtasks[produced["producerTask"]]
                key = produced.get("outputParameterKey") or produced.get("outputArtifactKey")
                value = self.output(producer, kind, str(key))
            case {"taskFinalStatus": _}:
                value = Value(Origin("status", (task, name)))
            case _:
                ways = ", ".join(map(str, given)) or "nothing"
                raise Unreadable(f"{task.path} gets {name} in an unknown way: {ways}")
        return _selected(value, given)

    def _constant(self, task: Task, constant: object) -> Value:
        """A constant, or a text with other inputs of the task filled in."""
        references = _REFERENCE.findall(constant) if isinstance(constant, str) else []
        if not references:
            return Value(_constant(constant))
        filled = [self.input(task, Kind(kind), name) for kind, name in references]
        text = _REFERENCE.sub("{{}}", str(constant))
        return Value(
            Origin("text", (text, *(value.source for value in filled))),
            _all(value.data for value in filled),
            _all(value.loops for value in filled),
        )

    def _seen_inside(self, dag: Task, kind: Kind, name: str) -> Value:
        """What a task inside sees of an input of the pipeline or loop around it."""
        if dag.iteration and dag.iteration.item == name:
            value = Value(Origin("item", (dag,)), loops=frozenset([dag]))
            if dag.iteration.items:
                items = self.input(dag, dag.iteration.kind, dag.iteration.items)
                value = replace(items, source=value.source, loops=items.loops | {dag})
            return value
        if dag.parent is None:
            return self._pipeline_input(kind, name)
        return self.input(dag, kind, name)

    def _pipeline_input(self, kind: Kind, name: str) -> Value:
        is_claim = kind is Kind.ARTIFACT and self.root.input_types.get(name) == CLAIM_TYPE
        tokens = frozenset([_FORGED]) if is_claim else frozenset()
        return Value(Origin("input", (kind, name)), claims=tokens)

    def _find_output(self, task: Task, kind: Kind, name: str) -> Value:
        if not task.is_dag:
            return self._leaf_output(task, kind, name)
        selector = task.outputs[kind].get(name)
        if selector is None:
            return Value(Origin("unknown", (task, kind, name)))
        choices = [
            self.output(task.subtasks[producer], kind, key) for producer, key in selector.producers
        ]
        if len(choices) == 1 and task.iteration is None:
            return choices[0]
        return Value(
            Origin("output", (task, kind, name)),
            _all(value.data for value in choices),
            _all(value.loops for value in choices),
            frozenset(
                _after_loop(token, task) if task.iteration else token
                for value in choices
                for token in value.claims
            ),
        )

    def _leaf_output(self, task: Task, kind: Kind, name: str) -> Value:
        value = replace(self._given_out[task], source=Origin("output", (task, kind, name)))
        if kind is not Kind.ARTIFACT or task.output_types.get(name) != CLAIM_TYPE:
            return value
        match task.role:
            case Role.ALLOCATE:
                tokens = frozenset([Token(task)])
            case Role.CONSUME:
                tokens = frozenset(Token(each.allocated_by, task) for each in self.tokens(task))
            case _:
                tokens = frozenset([_FORGED])
        return replace(value, claims=tokens)

    def _what_comes_out(self, task: Task) -> Value:
        """What all outputs of a task have in common."""
        data = self.data_told(task)
        if task.role is Role.ALLOCATE:
            data = _NONE
        if task.role is Role.SOURCE:
            read = (token.allocated_by for token in self.tokens(task))
            data |= frozenset(each for each in read if each is not None)
        loops = _all(value.loops for value in self._all_inputs(task))
        return Value(Origin("outputs", (task,)), data, loops)


def _failure_shows(task: Task, enclosing: Task) -> bool:
    """Whether what encloses a task, or is the task itself, has failed if the task has.

    A task that goes on after a failure ends a pipeline well in which another has failed.
    """
    below = task.lineage[task.lineage.index(enclosing) + 1 :]
    return not any(
        beside.even_after_failure and each in beside.after
        for each in below
        if each.parent
        for beside in each.parent.subtasks.values()
    )


def loops_around(task: Task) -> list[Task]:
    return [each for each in task.lineage if each.iteration]


def _where_they_part(one: Task, other: Task) -> tuple[Task, Task]:
    """Of each task, itself or what encloses it, in the innermost pipeline that encloses both."""
    first, second = one, other
    for first, second in zip(one.lineage, other.lineage, strict=False):
        if first is not second:
            break
    return first, second


def _after_loop(token: Token, loop: Task) -> Token:
    """A claim collected from a loop. One that the loop consumed may be as it was: no round ran."""
    allocated = token.allocated_by
    if allocated is None or token.consumed_by is None or loop in allocated.lineage:
        return token
    return Token(allocated)


def _constant(value: object) -> Constant:
    return Constant(json.dumps(value, sort_keys=True, default=str))


def _selected(value: Value, given: Document) -> Value:
    """A part of a value, where an input takes only that."""
    expression = given.get("parameterExpressionSelector")
    if expression is None:
        return value
    return replace(value, source=Origin("part", (value.source, str(expression))))


def _all(sets: Any) -> Tasks:
    return _NONE.union(*sets)
