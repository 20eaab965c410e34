"""A compiled pipeline as a tree of tasks.

A compiled pipeline names components, and a component that is itself a pipeline (or a loop, a
condition, an exit handler) names further tasks. Here each use of a component becomes a task of
its own, so that a path such as `exit-handler-1/for-loop-2/train` says exactly one thing. What
cannot be understood is refused: a pipeline half read would be a proof of nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Any

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.roles import ROLE_LABEL, ROLE_VARIABLE, Role, roles_in_source

MOST_TASKS = 20_000
DEEPEST = 60
_EVEN_AFTER_FAILURE = "ALL_UPSTREAM_TASKS_COMPLETED"
_STRATEGIES = ("", "TRIGGER_STRATEGY_UNSPECIFIED", "ALL_UPSTREAM_TASKS_SUCCEEDED")

Document = Mapping[str, Any]


class Unreadable(Invalid):
    """This is no pipeline that could be checked."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.UNREADABLE, message)


class Kind(StrEnum):
    """What passes between tasks."""

    ARTIFACT = "artifacts"
    PARAMETER = "parameters"


@dataclass(frozen=True)
class Iteration:
    """What a loop runs over: the input of its body that holds the item, and where items are."""

    kind: Kind
    item: str
    items: str | None
    one_at_a_time: bool


@dataclass(frozen=True)
class Selector:
    """Outputs of tasks inside a pipeline that become one of its own: one of them will exist."""

    producers: tuple[tuple[str, str], ...]


@dataclass(eq=False)
class Task:
    """One use of a component. The pipeline itself is the root task, with an empty name.

    Attributes:
        inputs: Where each input comes from, as the compiled pipeline says it.
        input_types: The declared types of the component's input artifacts.
        output_types: The same of its outputs.
        output_parameters: The names of the component's output parameters.
        defaults: Of the component's parameters, those that have a default value.
        parameters: The names of the component's parameters.
        subtasks: The tasks inside, in an order in which each follows those it depends on.
        after: The tasks beside it that it depends on.
        even_after_failure: Runs also if those have failed.
        condition: Runs only if this holds.
        said_roles: The roles it is said to have; the first decides.
    """

    name: str
    parent: Task | None
    component: str
    inputs: Mapping[Kind, Mapping[str, Document]]
    input_types: Mapping[str, str] = field(default_factory=dict)
    output_types: Mapping[str, str] = field(default_factory=dict)
    output_parameters: frozenset[str] = frozenset()
    defaults: Mapping[str, object] = field(default_factory=dict)
    parameters: frozenset[str] = frozenset()
    subtasks: dict[str, Task] = field(default_factory=dict)
    is_dag: bool = False
    outputs: Mapping[Kind, Mapping[str, Selector]] = field(default_factory=dict)
    after: tuple[Task, ...] = ()
    even_after_failure: bool = False
    condition: str = ""
    iteration: Iteration | None = None
    cached: bool = False
    importer: bool = False
    said_roles: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return "/".join(task.name for task in self.lineage if task.name)

    @property
    def lineage(self) -> tuple[Task, ...]:
        """From the pipeline itself down to this task."""
        return (*self.parent.lineage, self) if self.parent else (self,)

    @property
    def role(self) -> Role | None:
        """The part it plays; None where nothing says so, or nothing known."""
        said = self.said_roles[0] if self.said_roles else None
        return Role(said) if said in set(Role) else None

    def leaves(self) -> Iterator[Task]:
        """The tasks that run a container, in the order in which they can run."""
        if not self.is_dag:
            yield self
        for task in self.subtasks.values():
            yield from task.leaves()

    def all_tasks(self) -> Iterator[Task]:
        """This task and all inside it; each after what encloses it and what it depends on."""
        yield self
        for task in self.subtasks.values():
            yield from task.all_tasks()


def read_pipeline(document: Document, platform: Document | None = None) -> Task:
    """The tasks of a compiled pipeline; `platform` is its second document, if it has one."""
    return _Reader(document, platform or {}).root()


class _Reader:
    def __init__(self, document: Document, platform: Document) -> None:
        self._document = document
        self._components = _mapping(document.get("components"), "components")
        deployment = _mapping(document.get("deploymentSpec"), "deploymentSpec")
        self._executors = _mapping(deployment.get("executors"), "deploymentSpec.executors")
        self._platform = _platform_executors(platform)
        self._count = 0

    def root(self) -> Task:
        spec = _mapping(self._document.get("root"), "root")
        if "dag" not in spec:
            raise Unreadable("this is no pipeline: its root has no tasks (root.dag)")
        root = Task("", None, "root", {kind: {} for kind in Kind}, **_signature(spec, "root"))
        self._fill(root, spec, enclosing=("root",))
        return root

    def _fill(self, task: Task, component: Document, enclosing: tuple[str, ...]) -> None:
        """Adds what a task is made of: its subtasks, or its container."""
        if "dag" not in component:
            self._add_executor(task, component)
            return
        if len(enclosing) > DEEPEST:
            raise Unreadable(f"pipelines are nested more than {DEEPEST} deep, at {task.path}")
        where = f"the tasks of {task.component}"
        dag = _mapping(component["dag"], where)
        specs = {
            str(name): _mapping(spec, f"task {name}")
            for name, spec in _mapping(dag.get("tasks"), where).items()
        }
        task.is_dag = True
        depends = {name: _dependencies(spec, f"task {name}") for name, spec in specs.items()}
        for name in _in_order(depends, where):
            task.subtasks[name] = self._task(name, specs[name], task, depends[name], enclosing)
        task.outputs = _dag_outputs(dag, task)

    def _task(
        self,
        name: str,
        spec: Document,
        parent: Task,
        depends: tuple[str, ...],
        enclosing: tuple[str, ...],
    ) -> Task:
        self._count += 1
        if self._count > MOST_TASKS:
            raise Unreadable(f"the pipeline has more than {MOST_TASKS} tasks")
        where = f"task {name}"
        reference = _text(_mapping(spec.get("componentRef"), where).get("name"), where)
        if reference in enclosing:
            raise Unreadable(f"{reference} contains itself: such a pipeline never ends")
        if reference not in self._components:
            raise Unreadable(f"{where} is of {reference}, which is not among the components")
        component = _mapping(self._components[reference], reference)
        trigger = _mapping(spec.get("triggerPolicy"), f"triggerPolicy of {where}")
        strategy = str(trigger.get("strategy") or "")
        if strategy != _EVEN_AFTER_FAILURE and strategy not in _STRATEGIES:
            raise Unreadable(f"{where} has the unknown trigger strategy {strategy}")
        given = _mapping(spec.get("inputs"), f"inputs of {where}")
        caching = _mapping(spec.get("cachingOptions"), f"cachingOptions of {where}")
        task = Task(
            name,
            parent,
            reference,
            {kind: _mappings(given.get(kind.value), f"inputs of {where}") for kind in Kind},
            **_signature(component, reference),
            after=tuple(parent.subtasks[other] for other in depends),
            even_after_failure=strategy == _EVEN_AFTER_FAILURE,
            condition=str(trigger.get("condition") or ""),
            iteration=_iteration(spec, where),
            cached=bool(caching.get("enableCache")),
        )
        self._fill(task, component, (*enclosing, reference))
        return task

    def _add_executor(self, task: Task, component: Document) -> None:
        label = _text(component.get("executorLabel"), f"the executor of {task.component}")
        if label not in self._executors:
            raise Unreadable(f"{task.component} runs {label}, which is not among the executors")
        executor = _mapping(self._executors[label], label)
        task.importer = "importer" in executor
        task.said_roles = tuple(_said_roles(executor, _mapping(self._platform.get(label), label)))


def _said_roles(executor: Document, platform: Document) -> Iterator[str]:
    """The roles that an executor is given: by its environment, by its pod's label, by its source.

    The order is that of who speaks last: whoever uses a component knows more than who wrote it.
    """
    container = _mapping(executor.get("container"), "container")
    for variable in _list(container.get("env"), "env"):
        if _mapping(variable, "env").get("name") == ROLE_VARIABLE:
            yield str(variable.get("value", "")).strip()
    metadata = _mapping(platform.get("podMetadata"), "podMetadata")
    labels = _mapping(metadata.get("labels"), "labels of podMetadata")
    if ROLE_LABEL in labels:
        yield str(labels[ROLE_LABEL]).strip()
    for part in ("command", "args"):
        yield from roles_in_source(_list(container.get(part), part))


def _platform_executors(platform: Document) -> Document:
    found: Any = platform
    for key in ("platforms", "kubernetes", "deploymentSpec", "executors"):
        found = _mapping(_mapping(found, "the platform specification").get(key), key)
    return _mapping(found, "executors")


def _signature(component: Document, where: str) -> dict[str, Any]:
    """What a component takes and gives."""
    inputs = _mapping(component.get("inputDefinitions"), f"inputs of {where}")
    outputs = _mapping(component.get("outputDefinitions"), f"outputs of {where}")
    parameters = _mappings(inputs.get("parameters"), f"parameters of {where}")
    return {
        "input_types": _types(inputs, where),
        "output_types": _types(outputs, where),
        "output_parameters": frozenset(
            _mappings(outputs.get("parameters"), f"output parameters of {where}")
        ),
        "parameters": frozenset(parameters),
        "defaults": {
            name: spec["defaultValue"]
            for name, spec in parameters.items()
            if "defaultValue" in spec
        },
    }


def _types(definitions: Document, where: str) -> dict[str, str]:
    artifacts = _mappings(definitions.get("artifacts"), f"artifacts of {where}")
    return {
        name: str(_mapping(spec.get("artifactType"), name).get("schemaTitle", ""))
        for name, spec in artifacts.items()
    }


def _dependencies(spec: Document, where: str) -> tuple[str, ...]:
    """The tasks beside it that a task waits for: those it names, and those it takes from."""
    found = [_text(name, where) for name in _list(spec.get("dependentTasks"), where)]
    given = _mapping(spec.get("inputs"), f"inputs of {where}")
    for kind in Kind:
        for source in _mappings(given.get(kind.value), f"inputs of {where}").values():
            found += [
                _text(_mapping(source[way], where).get("producerTask"), where)
                for way in ("taskOutputArtifact", "taskOutputParameter", "taskFinalStatus")
                if way in source
            ]
    return tuple(dict.fromkeys(found))


def _in_order(depends: Mapping[str, tuple[str, ...]], where: str) -> list[str]:
    """The names such that each follows those it depends on."""
    for name, others in depends.items():
        for other in others:
            if other not in depends:
                raise Unreadable(f"task {name} depends on {other}, which is not beside it")
    try:
        return list(TopologicalSorter(depends).static_order())
    except CycleError as error:
        circle = " and ".join(dict.fromkeys(error.args[1]))
        raise Unreadable(f"{where} depend on each other in a circle: {circle}") from None


def _iteration(spec: Document, where: str) -> Iteration | None:
    policy = _mapping(spec.get("iteratorPolicy"), f"iteratorPolicy of {where}")
    for kind, key, ways in (
        (Kind.PARAMETER, "parameterIterator", "inputParameter"),
        (Kind.ARTIFACT, "artifactIterator", "inputArtifact"),
    ):
        if key in spec:
            iterator = _mapping(spec[key], f"{key} of {where}")
            items = _mapping(iterator.get("items"), f"items of {where}")
            return Iteration(
                kind,
                _text(iterator.get("itemInput"), f"the loop item of {where}"),
                str(items[ways]) if ways in items else None,
                policy.get("parallelismLimit") in (1, "1"),
            )
    return None


def _dag_outputs(dag: Document, task: Task) -> dict[Kind, dict[str, Selector]]:
    where = f"outputs of {task.component}"
    outputs = _mapping(dag.get("outputs"), where)
    found: dict[Kind, dict[str, Selector]] = {}
    for kind, key in ((Kind.ARTIFACT, "outputArtifactKey"), (Kind.PARAMETER, "outputParameterKey")):
        found[kind] = {
            name: Selector(
                tuple(
                    (
                        _text(choice.get("producerSubtask"), where),
                        _text(choice.get(key), where),
                    )
                    for choice in _choices(_mapping(spec, where), where)
                )
            )
            for name, spec in _mapping(outputs.get(kind.value), where).items()
        }
        for name, selector in found[kind].items():
            for producer, _ in selector.producers:
                if producer not in task.subtasks:
                    raise Unreadable(f"{where}: {name} is of {producer}, which is not inside")
    return found


def _choices(spec: Document, where: str) -> list[Document]:
    if "artifactSelectors" in spec:
        chosen = _list(spec["artifactSelectors"], where)
    elif "valueFromParameter" in spec:
        chosen = [spec["valueFromParameter"]]
    elif "valueFromOneof" in spec:
        either = _mapping(spec["valueFromOneof"], where)
        chosen = _list(either.get("parameterSelectors"), where)
    else:
        raise Unreadable(f"{where} are given in an unknown way: {', '.join(map(str, spec))}")
    return [_mapping(choice, where) for choice in chosen]


def _mapping(value: object, where: str) -> Document:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Unreadable(f"{where}: expected a mapping, found {_shown(value)}")
    return value


def _mappings(value: object, where: str) -> dict[str, Document]:
    return {str(name): _mapping(spec, where) for name, spec in _mapping(value, where).items()}


def _list(value: object, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise Unreadable(f"{where}: expected a list, found {_shown(value)}")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise Unreadable(f"{where}: expected a name, found {_shown(value)}")
    return value


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    return type(value).__name__ if isinstance(value, list | Mapping) else repr(value)[:40]
