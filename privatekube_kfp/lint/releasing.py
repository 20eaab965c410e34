"""Which Release gives back which claim, and when."""

from __future__ import annotations

from collections.abc import Iterator

from privatekube_kfp.lint.flow import Constant, Flow, loops_around
from privatekube_kfp.lint.reading import Task
from privatekube_kfp.roles import Role

CLAIM_NAME = "claim_name"


def guards(flow: Flow, allocate: Task) -> Iterator[Task]:
    """The Releases that give back an Allocate's claim, however the tasks around it end."""
    for enclosing in allocate.lineage[1:-1]:
        assert enclosing.parent is not None
        for exit_task in enclosing.parent.subtasks.values():
            if enclosing in exit_task.after and exit_task.even_after_failure:
                for release in exit_task.leaves():
                    if release.role is Role.RELEASE and _runs_surely(release, exit_task):
                        yield from [release] if gives_back(flow, release, allocate) else []


def gives_back(flow: Flow, release: Task, allocate: Task) -> bool:
    """Whether a Release is of an Allocate's claim: of all claims, or of the same name for sure."""
    if gives_back_all(flow, release):
        return True
    named = flow.parameter(release, CLAIM_NAME).source
    return CLAIM_NAME in allocate.parameters and (
        named == flow.parameter(allocate, CLAIM_NAME).source
    )


def gives_back_all(flow: Flow, release: Task) -> bool:
    if CLAIM_NAME not in release.parameters:
        return True
    named = flow.parameter(release, CLAIM_NAME).source
    return isinstance(named, Constant) and named.empty


def runs_after_failure(release: Task) -> bool:
    """Whether a Release runs however the tasks before it end."""
    return any(task.even_after_failure and _runs_surely(release, task) for task in release.lineage)


def may_take_away(flow: Flow, release: Task, allocate: Task) -> bool:
    """Whether a Release of all claims may run while somebody still works with this one."""
    if flow.ends_before(release, allocate) or flow.never_both(release, allocate):
        return False
    others_at_once = any(
        loop in allocate.lineage and loop.iteration and not loop.iteration.one_at_a_time
        for loop in loops_around(release)
    )
    return others_at_once or not all(
        flow.ends_before(task, release) for task in (allocate, *flow.users(allocate))
    )


def _runs_surely(task: Task, enclosing: Task) -> bool:
    """Whether a task runs whenever the exit task does that encloses it, or that it is."""
    below = task.lineage[task.lineage.index(enclosing) :]
    return not any(each.condition or each.iteration for each in below) and not any(
        each.after and not each.even_after_failure for each in below[1:]
    )
