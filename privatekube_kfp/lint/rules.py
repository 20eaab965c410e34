"""The rules of the placement protocol, one function each.

A rule is told by its code. Each finds where a pipeline breaks it; what the pipeline is made of,
and what flows where, is worked out before (`reading`, `flow`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations

from privatekube_kfp.lint.findings import Problem, Rule, Severity
from privatekube_kfp.lint.flow import ABSENT, Constant, Flow, Source, Token, Value, loops_around
from privatekube_kfp.lint.reading import Kind, Task
from privatekube_kfp.lint.releasing import (
    CLAIM_NAME,
    gives_back,
    gives_back_all,
    guards,
    may_take_away,
    runs_after_failure,
)
from privatekube_kfp.roles import ROLE_LABEL, ROLE_VARIABLE, RUN_ID, Role

_WITH_ROLE_IN_PROTOCOL = tuple(role for role in Role if role is not Role.COMPUTE)
_PUBLIC_REPORT = "system.Markdown"
_PUBLIC_FACTS = frozenset(["until", "block_count", "blocks"])
"""What an Ingest gives out: its report, up to when data are there, and how many blocks are new.

Of older versions, which ones are new."""
_SHOWN_AT_ONCE = frozenset(
    [
        "system.Metrics",
        "system.ClassificationMetrics",
        "system.SlicedClassificationMetrics",
        "system.HTML",
        "system.Markdown",
    ]
)
"""What Kubeflow shows to people as soon as the task that gives it out has ended."""
_COMPUTING = (Role.COMPUTE, None)
_STEP = "step"
_Check = Callable[[Flow], Iterable[Problem]]

RULES: dict[str, Rule] = {}
"""All rules, by code."""


def _rule(
    code: str, title: str, mend: str, severity: Severity = Severity.ERROR
) -> Callable[[_Check], _Check]:
    def add(check: _Check) -> _Check:
        assert code not in RULES
        RULES[code] = Rule(code, title, mend, severity, check)
        return check

    return add


# Whoever reads private data.


@_rule(
    "PK101",
    "A source takes a claim",
    "Hand it the claim of Allocate: `claim=allocate(...).outputs['claim']`.",
)
def source_takes_a_claim(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(Role.SOURCE):
        if not flow.claims(task):
            yield Problem(task, "it reads private data and takes no claim on it.")


@_rule(
    "PK102",
    "A source's claim comes from an Allocate",
    "Take the claim from an Allocate of this pipeline, with nothing in between.",
)
def source_claim_is_allocated(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(Role.SOURCE):
        for name, tokens in flow.claims(task).items():
            if any(token.allocated_by is None for token in tokens):
                what = f"its claim, in the input {name}, comes from no Allocate."
                yield Problem(task, what)


@_rule(
    "PK103",
    "A source runs only after its Allocate has succeeded",
    "Let neither the source nor what encloses it ignore upstream failures or be an exit task.",
)
def source_follows_allocate(flow: Flow) -> Iterator[Problem]:
    yield from _run_without(flow, Role.SOURCE, flow.tokens, "it reads private data")


@_rule(
    "PK104",
    "An Ingest takes no artifacts and no private data",
    "Bring in what is at a URI, with the component `ingest`; it needs no budget, as nothing of the"
    " data leaves it.",
)
def ingest_takes_nothing_private(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(Role.INGEST):
        taken = {*task.input_types, *task.inputs[Kind.ARTIFACT]}
        data = flow.data_told(task)
        if taken:
            yield Problem(task, f"it takes the artifact {_listed(taken)}.")
        elif data:
            yield Problem(task, f"data of the claim of {_names(data)} reach it.")


@_rule(
    "PK105",
    "An Ingest gives out only what is public",
    "Let it give out its report and the parameters `until` and `blocks`, as the component `ingest`"
    " does; what gives out data is a source, and takes a claim.",
)
def ingest_gives_nothing_private(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(Role.INGEST):
        artifacts = {name for name, kind in task.output_types.items() if kind != _PUBLIC_REPORT}
        given = artifacts | (task.output_parameters - _PUBLIC_FACTS)
        if given:
            yield Problem(task, f"it reads data without a claim and gives out {_listed(given)}.")


# Whoever lets results out.


@_rule(
    "PK201",
    "A sink takes a consumed claim",
    "Hand it what Consume gives out: `claim=consume(...).outputs['consumed']`.",
)
def sink_takes_a_claim(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(Role.SINK):
        if not flow.claims(task):
            yield Problem(task, "it lets results out and takes no consumed claim.")


@_rule(
    "PK202",
    "A sink's claim is consumed",
    "Consume the claim first, and hand the sink `consumed` of that Consume.",
)
def sink_claim_is_consumed(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(Role.SINK):
        for name, tokens in flow.claims(task).items():
            for token in _sorted(tokens):
                if token.allocated_by and not token.consumed_by:
                    what = f"its claim, in the input {name}, comes from {token.allocated_by.path}"
                    yield Problem(task, f"{what} and is not consumed.")


@_rule(
    "PK203",
    "A sink's claim comes from a Consume",
    "Take the claim from a Consume of this pipeline, with nothing in between.",
)
def sink_claim_is_known(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(Role.SINK):
        for name, tokens in flow.claims(task).items():
            if any(token.made_by is None for token in tokens):
                yield Problem(task, f"its claim, in the input {name}, comes from no Consume.")


@_rule(
    "PK204",
    "All claims in a sink's data are consumed by the claims it takes",
    "Consume each claim whose data it gets, and hand it each `consumed`; or hand it other data.",
)
def sink_data_are_paid(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(Role.SINK):
        taken = flow.claims(task).values()
        if any(not token.consumed_by for each in taken for token in each):
            continue  # PK202 and PK203 tell of it
        paid = _paid(flow, task)
        unpaid = flow.data_told(task) - paid
        if taken and unpaid:
            with_claims = f"the claims it takes consume {_names(paid)}" if paid else ""
            known = with_claims or "no claim it takes is consumed for sure"
            yield Problem(task, f"its data hold the claim of {_names(unpaid)}, but {known}.")


@_rule(
    "PK205",
    "A sink runs only after its Consume has succeeded",
    "Let neither the sink nor what encloses it ignore upstream failures or be an exit task.",
)
def sink_follows_consume(flow: Flow) -> Iterator[Problem]:
    def consumed(task: Task) -> frozenset[Token]:
        return frozenset(token for token in flow.tokens(task) if token.consumed_by)

    yield from _run_without(flow, Role.SINK, consumed, "it lets results out")


@_rule(
    "PK206",
    "Nothing that people see is made of private data before they are paid for",
    "Keep results in an artifact that is not shown, such as Artifact or Model, until Consume; show"
    " them in a sink, which takes `consumed`.",
)
def nothing_is_shown_unpaid(flow: Flow) -> Iterator[Problem]:
    for task in flow.leaves:
        if task.role not in (*_COMPUTING, Role.SOURCE):
            continue  # of a sink the rules before this tell; what the others report is public
        shown = {name for name, kind in task.output_types.items() if kind in _SHOWN_AT_ONCE}
        unpaid = flow.data_given_out(task)
        if all(flow.runs_after_success_of(task, each) for each in _consumes(flow, task)):
            unpaid -= _paid(flow, task)
        if shown and unpaid:
            what = f"it holds data of the claim of {_names(unpaid)}, which is not consumed, and"
            yield Problem(task, f"{what} gives out {_listed(shown)}, which is shown at once.")


# Spending.


@_rule(
    "PK301",
    "A Consume takes a claim from an Allocate",
    "Hand it the claim of an Allocate, or of an earlier Consume, of this pipeline.",
)
def consume_takes_a_claim(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(Role.CONSUME):
        tokens = flow.tokens(task)
        if not tokens:
            yield Problem(task, "it takes no claim.")
        elif any(token.allocated_by is None for token in tokens):
            yield Problem(task, "its claim comes from no Allocate.")


@_rule(
    "PK302",
    "A Consume of amounts has a name",
    "Give it a `name`, one of its own within the claim.",
)
def consume_of_amounts_is_named(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(Role.CONSUME):
        if _given(flow, task, "amounts") and not _given(flow, task, "name"):
            yield Problem(task, "it spends amounts without a name: a retry would spend them twice.")


@_rule(
    "PK303",
    "A Consume in a loop has a name for each round",
    "Make its `name` (or `step`) depend on the loop's item: `name=f'train-{item}'`.",
)
def consume_in_a_loop_is_named_by_item(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(Role.CONSUME):
        if not _given(flow, task, "amounts") and not _given(flow, task, "step"):
            continue
        known_by = flow.parameter(task, "name").loops | flow.parameter(task, "step").loops
        for loop in loops_around(task):
            outside = [
                token.allocated_by.path
                for token in _sorted(flow.tokens(task))
                if token.allocated_by and loop not in token.allocated_by.lineage
            ]
            if outside and loop not in known_by:
                what = f"all rounds of {loop.path} spend of the claim of {outside[0]}"
                yield Problem(task, f"{what} under one name: it is spent once for all of them.")
                break


@_rule(
    "PK304",
    "A claim is read with",
    "Read with it, or do not ask for it; give the task that reads a role with `as_source`.",
    Severity.WARNING,
)
def claim_is_read_with(flow: Flow) -> Iterator[Problem]:
    yield from _unused(flow, Role.SOURCE, "no source reads with its claim.")


@_rule(
    "PK305",
    "A claim is consumed",
    "Consume it before results get out.",
    Severity.WARNING,
)
def claim_is_consumed(flow: Flow) -> Iterator[Problem]:
    yield from _unused(flow, Role.CONSUME, "no Consume spends of its claim.")


@_rule(
    "PK306",
    "A step of the plan pays for one result",
    "Give each its own step of the plan; in a loop, make its `step` depend on the loop's item.",
)
def step_pays_once(flow: Flow) -> Iterator[Problem]:
    before: list[tuple[Task, Task, Source]] = []
    for task in flow.playing(*_COMPUTING):
        if _STEP not in task.parameters or not _given(flow, task, _STEP):
            continue
        step = flow.parameter(task, _STEP)
        for allocate in sorted(_claimed_and_read(flow, task), key=lambda each: each.path):
            told = f"the step {_shown(step.source)} of the claim of {allocate.path} pays for"
            for loop in loops_around(task):
                if loop not in allocate.lineage and loop not in step.loops:
                    yield Problem(task, f"{told} all rounds of {loop.path}.")
                    break
            for other, same_claim, same_step in before:
                if (allocate, step.source) == (same_claim, same_step) and not (
                    flow.never_both(other, task)
                ):
                    yield Problem(task, f"{told} {other.path} already.")
                    break
            before.append((task, allocate, step.source))


# Giving back.


@_rule(
    "PK401",
    "A Release guards each Allocate",
    "Allocate inside `with privacy_budget(...)`, or in a dsl.ExitHandler that ends with Release.",
)
def allocate_is_guarded(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(Role.ALLOCATE):
        if next(guards(flow, task), None) is None:
            others = [each.path for each in flow.playing(Role.RELEASE)]
            why = f": {' and '.join(others)} does not guard it" if others else ""
            yield Problem(task, f"no Release gives its budget back if the pipeline fails{why}.")


@_rule(
    "PK402",
    "A Release runs also after failures",
    "Make it the exit task of a dsl.ExitHandler around the Allocate.",
)
def release_runs_after_failure(flow: Flow) -> Iterator[Problem]:
    allocates = list(flow.playing(Role.ALLOCATE))
    for task in flow.playing(Role.RELEASE):
        # Where an exit task gives the same back, this one only does so sooner.
        needed = not allocates or any(
            gives_back(flow, task, each) and next(guards(flow, each), None) is None
            for each in allocates
        )
        if needed and not runs_after_failure(task):
            yield Problem(task, "it does not run if a task before it fails.")


@_rule(
    "PK403",
    "Claims of a run have different names",
    "Give each Allocate a `claim_name` of its own.",
)
def claim_names_differ(flow: Flow) -> Iterator[Problem]:
    named = [
        (task, flow.parameter(task, CLAIM_NAME).source)
        for task in flow.playing(Role.ALLOCATE)
        if CLAIM_NAME in task.parameters
    ]
    for (first, name), (second, other) in combinations(named, 2):
        if name == other and not flow.never_both(first, second):
            told = f", {_shown(name)}" if isinstance(name, Constant) else ""
            yield Problem(second, f"its claim has the name of that of {first.path}{told}.")


@_rule(
    "PK404",
    "An Allocate in a loop names its claim by the loop's item",
    "Make its `claim_name` depend on the loop's item: `claim_name=f'claim-{item}'`.",
)
def claim_names_differ_between_rounds(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(Role.ALLOCATE):
        for loop in loops_around(task):
            if CLAIM_NAME in task.parameters and (
                loop not in flow.parameter(task, CLAIM_NAME).loops
            ):
                yield Problem(task, f"all rounds of {loop.path} have one and the same claim.")
                break


@_rule(
    "PK405",
    "A Release gives back no claim that others still use",
    "Give it the `claim_name` of its own Allocate, or let all tasks share one exit handler.",
)
def release_takes_nothing_away(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(Role.RELEASE):
        if not gives_back_all(flow, task):
            continue
        for allocate in flow.playing(Role.ALLOCATE):
            if may_take_away(flow, task, allocate):
                what = f"it gives back all claims of the run, also that of {allocate.path}"
                yield Problem(task, f"{what}, which may be in use then.")
                break


# One run, never another's results.


@_rule(
    "PK501",
    "A protocol task knows its run",
    "Pass `run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER`, alone; our components do so by themselves.",
)
def run_id_is_the_runs(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(*_WITH_ROLE_IN_PROTOCOL):
        if "run_id" in task.parameters and _as_written(task, "run_id") != RUN_ID:
            yield Problem(task, f"its run_id is {_shown(flow.parameter(task, 'run_id').source)}.")


@_rule(
    "PK502",
    "Protocol tasks, sources and sinks are not cached",
    "Call `.set_caching_options(False)` on the task.",
)
def protocol_is_not_cached(flow: Flow) -> Iterator[Problem]:
    for task in flow.playing(*_WITH_ROLE_IN_PROTOCOL):
        if task.cached:
            what = "it is cached: another run's result would stand in for it, and for its budget."
            yield Problem(task, what)


@_rule(
    "PK503",
    "Tasks that take private data are not cached",
    "Call `.set_caching_options(False)` on the task, inside the pipeline that it is in.",
)
def private_data_are_not_cached(flow: Flow) -> Iterator[Problem]:
    for task in flow.leaves:
        if task.cached and task.role not in _WITH_ROLE_IN_PROTOCOL and flow.data_taken(task):
            data = _names(flow.data_taken(task))
            yield Problem(task, f"it takes data of the claim of {data} and is cached.")


# Who plays which part.


@_rule(
    "PK601",
    "A role is one of those known",
    f"Use one of {', '.join(Role)}.",
)
def role_is_known(flow: Flow) -> Iterator[Problem]:
    for task in flow.leaves:
        for said in dict.fromkeys(task.said_roles):
            if said not in set(Role):
                yield Problem(task, f"its role is said to be {said!r}, which is none.")


@_rule(
    "PK602",
    "A task has one role",
    f"Say one role: by {ROLE_VARIABLE} (as_source, as_sink, as_compute) or the label {ROLE_LABEL}.",
)
def role_is_one(flow: Flow) -> Iterator[Problem]:
    for task in flow.leaves:
        known = [said for said in dict.fromkeys(task.said_roles) if said in set(Role)]
        # A component that only computes may be given more to do; none may be given less.
        if any(said != Role.COMPUTE for said in known[1:]):
            yield Problem(task, f"it is said to be {' and also '.join(known)}.")


@_rule(
    "PK603",
    "A task that takes private data says its role",
    "Say what it does: wrap its component in as_compute, or in as_sink if it lets results out.",
    Severity.WARNING,
)
def role_is_said(flow: Flow) -> Iterator[Problem]:
    for task in flow.leaves:
        if not task.said_roles and not task.importer and flow.data_taken(task):
            data = _names(flow.data_taken(task))
            yield Problem(task, f"it takes data of the claim of {data} and has no role.")


@_rule(
    "PK604",
    "Private data do not leave as outputs of the pipeline",
    "Let results out through a sink, and return nothing that holds private data.",
    Severity.WARNING,
)
def outputs_are_not_private(flow: Flow) -> Iterator[Problem]:
    for kind in Kind:
        for name in flow.root.outputs[kind]:
            data = flow.output(flow.root, kind, name).data
            if data:
                what = f"the pipeline's output {name} holds data of the claim of {_names(data)}."
                yield Problem(None, what, output=name)


def _run_without(
    flow: Flow, role: Role, needed: Callable[[Task], Iterable[Token]], what: str
) -> Iterator[Problem]:
    """Where a task runs although one that made its claim may have failed."""
    for task in flow.playing(role):
        for token in _sorted(needed(task)):
            made_by = token.made_by
            if made_by and not flow.runs_after_success_of(task, made_by):
                yield Problem(task, f"{what} even if {made_by.path} has failed.")
                break


def _paid(flow: Flow, task: Task) -> frozenset[Task]:
    """The Allocates whose claims are surely consumed, by the claims that a task takes."""
    return frozenset[Task]().union(*map(flow.surely, flow.claims(task).values()))


def _consumes(flow: Flow, task: Task) -> set[Task]:
    return {token.consumed_by for token in flow.tokens(task) if token.consumed_by}


def _claimed_and_read(flow: Flow, task: Task) -> set[Task]:
    """The Allocates of which a task takes both the claim and the data."""
    claimed = {token.allocated_by for token in flow.tokens(task)}
    return {each for each in flow.data_taken(task) if each in claimed}


def _unused(flow: Flow, role: Role, what: str) -> Iterator[Problem]:
    for task in flow.playing(Role.ALLOCATE):
        if not any(user.role is role for user in flow.users(task)):
            yield Problem(task, what)


def _given(flow: Flow, task: Task, name: str) -> bool:
    """Whether a parameter is given, and not known to be empty."""
    value: Value = flow.parameter(task, name)
    if isinstance(value.source, Constant):
        return not value.source.empty
    return value.source.what != ABSENT


def _as_written(task: Task, name: str) -> object:
    """A parameter's constant on the task itself: the run's id is filled in nowhere else."""
    match task.inputs[Kind.PARAMETER].get(name):
        case {"runtimeValue": {"constant": constant}}:
            return constant
    return None


def _shown(source: Source) -> str:
    if isinstance(source, Constant):
        return f"{source.value!r}"
    return "not given" if source.what == ABSENT else "not a constant"


def _names(tasks: Iterable[Task]) -> str:
    return _listed(task.path for task in tasks)


def _listed(names: Iterable[str]) -> str:
    return " and ".join(sorted(names))


def _sorted(tokens: Iterable[Token]) -> list[Token]:
    return sorted(tokens, key=lambda token: token.made_by.path if token.made_by else "")
