"""`privatekube run`: a pipeline of Kubeflow on this machine, with its budget."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privatekube_kfp.cli.describe import claim_json
from privatekube_kfp.cli.errors import DONE, REFUSED
from privatekube_kfp.cli.options import json_option, ledger_option
from privatekube_kfp.cli.output import print_facts, print_table, say
from privatekube_kfp.cli.pipelines import (
    arguments_option,
    function_option,
    in_a_sentence,
    no_lint_option,
    pipeline_argument,
    read_pipeline,
    refuse_findings,
    settings_option,
)
from privatekube_kfp.cli.progress import Progress
from privatekube_kfp.cli.session import Session
from privatekube_kfp.core.claim import Kind
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.ledger.opening import LEDGER_VARIABLE
from privatekube_kfp.local.folder import (
    DEFAULT_PARENT,
    RunFolder,
    State,
    check_run_id,
    new_run_id,
)
from privatekube_kfp.local.logs import last_lines
from privatekube_kfp.local.running import Ending, Order, Task, run_pipeline
from privatekube_kfp.settings import RESULTS_VARIABLE, Settings, find_settings
from privatekube_kfp.settings.applying import place_of_pipeline

if TYPE_CHECKING:
    from privatekube_kfp.local.manifests import Declarations


@click.command(short_help="Run a pipeline on this machine.")
@pipeline_argument
@arguments_option
@click.option(
    "--data",
    "data",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    multiple=True,
    help="Manifests of streams and blocks to declare in the ledger first. Repeatable.",
)
@click.option("--run-id", metavar="ID", help="Names the run; that of a run cut short goes on.")
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_PARENT,
    help="Where runs have their folders, each named by its id.",
)
@settings_option
@function_option
@no_lint_option
@click.option("-v", "--verbose", is_flag=True, help="Show what the tasks print.")
@ledger_option
@json_option
@click.pass_obj
def run(
    session: Session,
    pipeline: Path,
    arguments: tuple[str, ...],
    data: tuple[Path, ...],
    run_id: str | None,
    folder: Path,
    settings_address: str | None,
    function: str | None,
    no_lint: bool,
    verbose: bool,
) -> int:
    """Run the PIPELINE, a Python file or compiled YAML, on this machine with kfp.local.

    Budget comes from the ledger that is named, or else from one in the run's own folder, in which
    --data declares streams and blocks. However the run ends, no budget stays held. Results without
    a URI of their own go into the run's folder, unless site settings name a place under `local`.

    \b
    Examples:
      privatekube run pipelines/product_lstm.py --data reviews.yaml --arg epsilon=1
      privatekube run pipeline.yaml --ledger kubernetes --arg epsilon=1 --json
      privatekube run pipeline.py --data reviews.yaml --run-id nightly-17

    Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted, 143 terminated.
    """
    settings = find_settings(settings_address)
    compiled = read_pipeline(pipeline, function)
    with in_a_sentence():
        given = compiled.arguments(arguments)
        name = check_run_id(run_id) if run_id is not None else new_run_id(compiled.name)
        declarations = _declared(data)
    if not no_lint:
        refuse_findings(compiled)
    address, source = session.ledger_address, "--ledger"
    if address is None:
        address, source = os.environ.get(LEDGER_VARIABLE) or None, LEDGER_VARIABLE
    place = RunFolder(folder, name)
    if not (address or declarations or place.ledger.exists()) and compiled.asks_for_budget:
        raise click.UsageError(
            "The pipeline asks for budget, and the run's own ledger would have no stream: declare"
            " streams and blocks with --data, or name a ledger with --ledger."
        )
    order = Order(
        compiled,
        given,
        place,
        address,
        source,
        declarations,
        _environment(settings, compiled.name),
        settings.images,
    )
    with in_a_sentence(), Progress(verbose=verbose) as progress:
        ending = run_pipeline(order, progress)
    tell_why(ending)
    session.answer(_document(place, ending), lambda: _summarize(place, ending))
    conclude(place, ending)
    return _code(ending)


def _environment(settings: Settings, pipeline: str) -> dict[str, str]:
    """What site settings say for this machine. A relative path is one beside the settings file."""
    said, results = dict(settings.local.env), settings.local.results
    if results and "://" not in results:
        results = str(Path(settings.source).parent.absolute() / Path(results).expanduser())
    if results:
        said[RESULTS_VARIABLE] = place_of_pipeline(results, pipeline)
    return said


def _declared(data: tuple[Path, ...]) -> Declarations | None:
    if not data:
        return None
    # Here, since it loads the Kubernetes client.
    from privatekube_kfp.local.manifests import read_declarations

    return read_declarations(data)


def _code(ending: Ending) -> int:
    if ending.interrupted_by is not None:
        return 128 + ending.interrupted_by
    return DONE if ending.state is State.SUCCEEDED else REFUSED


# For programs


def _document(folder: RunFolder, ending: Ending) -> dict[str, object]:
    document: dict[str, object] = {
        "run": folder.run,
        "state": str(ending.state),
        "folder": str(folder.path),
        "claims": [_claim(claim_json(claim, {})) for claim in ending.claims],
        "metrics": {task.name: task.metrics for task in ending.tasks.values() if task.metrics},
        "artifacts": _artifacts(ending),
    }
    if ending.problem is not None:
        problem = ending.problem
        document["error"] = {
            "reason": problem.reason,
            "message": problem.message,
            "task": problem.task,
        }
    return document


def _claim(said: dict[str, object]) -> dict[str, object]:
    return {
        "name": said["name"],
        "stream": said["stream"],
        "phase": said["phase"],
        "granted": said["allocated"],
        "consumed": said["consumed"],
        "released": said["released"],
    }


def _artifacts(ending: Ending) -> list[dict[str, str]]:
    """Artifacts that are there: of some, such as metrics, there is nothing but what they say."""
    return [
        {"task": task.name, **artifact}
        for task in ending.tasks.values()
        for artifact in task.artifacts
        if "://" in artifact["path"] or os.path.exists(artifact["path"])
    ]


# For people


def tell_why(ending: Ending) -> None:
    """The last that a failed task had to say."""
    task = ending.tasks.get(ending.problem.task or "") if ending.problem else None
    if task is not None and ending.interrupted_by is None:
        _complain(f"\n{task.name}, the last of {task.log}:")
        for line in last_lines(task.log):
            _complain(f"    {line}")
        _complain("")


def _summarize(folder: RunFolder, ending: Ending) -> None:
    facts = [("run", folder.run), ("state", str(ending.state)), ("folder", _near(str(folder.path)))]
    if folder.published.exists():
        facts.append(("results", _near(str(folder.published))))
    print_facts(facts)
    if ending.claims:
        say("")
        rows = [
            (
                claim.name,
                str(claim.phase),
                str(len(claim.bound())),
                *(_brief(claim.total(kind)) for kind in Kind),
            )
            for claim in ending.claims
        ]
        print_table(["CLAIM", "PHASE", ">BLOCKS", "GRANTED", "CONSUMED", "RELEASED"], rows)
    metrics = [
        (task.name, name, f"{value}")
        for task in ending.tasks.values()
        if not _is_about_claims(task)
        for name, value in task.metrics.items()
    ]
    if metrics:
        say("")
        print_table(["TASK", "METRIC", ">VALUE"], metrics)
    artifacts = _artifacts(ending)
    if artifacts:
        say("")
        rows = [
            (one["task"], one["name"], one["type"].removeprefix("system."), _near(one["path"]))
            for one in artifacts
        ]
        print_table(["TASK", "ARTIFACT", "TYPE", "PATH"], rows)


def _is_about_claims(task: Task) -> bool:
    """Whether its numbers are those of Allocate or Release, which the table of claims has."""
    return any(
        artifact["name"] == "final_report" or artifact["type"] == "system.PrivacyClaim"
        for artifact in task.artifacts
    )


def _brief(amounts: PerBlock) -> str:
    """An amount on each block, where it is the same on all."""
    if amounts.is_zero:
        return "nothing"
    budgets = {budget for budget, _ in amounts.groups}
    return budgets.pop().brief() if len(budgets) == 1 else "differs by block"


def _near(path: str) -> str:
    with suppress(ValueError, OSError):
        return str(Path(path).relative_to(Path.cwd()))
    return path


def conclude(folder: RunFolder, ending: Ending) -> None:
    """The reason comes last, where people look."""
    for note in ending.notes:
        _complain(f"privatekube: run {folder.run}: {note}")
    problem = ending.problem
    if problem is None:
        return
    if ending.interrupted_by is not None:
        _complain(f"privatekube: run {folder.run} was {problem.message}")
    else:
        where = f" at {problem.task}" if problem.task else f" (see {folder.kfp_log})"
        _complain(f"privatekube: run {folder.run} failed{where}: {problem.message}")


def _complain(line: str) -> None:
    """On standard error, if anybody still reads it."""
    with suppress(OSError, ValueError, AttributeError):
        print(line, file=sys.stderr, flush=True)
