"""`privatekube simulate`: what a policy would do with a workload."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privatekube_kfp.cli.bars import bar
from privatekube_kfp.cli.errors import INTERRUPTED, Failure, needing, reading_the_command_line
from privatekube_kfp.cli.guarantee import Guarantee, guarantee_options
from privatekube_kfp.cli.options import InOrder, json_option, ledger_option
from privatekube_kfp.cli.output import print_facts, print_table, say
from privatekube_kfp.cli.session import Session
from privatekube_kfp.cli.values import DURATION, STREAM_NAME, WHOLE
from privatekube_kfp.core.budget import BASIC
from privatekube_kfp.core.policy import POLICIES
from privatekube_kfp.core.unlocking import AtOnce, ByPipelines, ByTime, Unlocking, format_duration
from privatekube_kfp.simulator.experiments import (
    EXPERIMENTS,
    POLICY_NAMES,
    Experiment,
    with_points,
    with_policies,
    without_limit,
)
from privatekube_kfp.simulator.grid import Grid, Row
from privatekube_kfp.simulator.replaying import replay as play
from privatekube_kfp.simulator.round_robin import ROUND_ROBIN
from privatekube_kfp.simulator.running import Results, run_all
from privatekube_kfp.simulator.traces import read_trace

if TYPE_CHECKING:
    from privatekube_kfp.simulator.replaying import Replay
    from privatekube_kfp.simulator.what_if import Fate

_FOLDER = Path("privatekube-simulations")
_MOST_SEEDS, _MOST_JOBS = 1_000, 256


@click.group(cls=InOrder)
def simulate() -> None:
    """What a policy would do: the scheduler's own core under a virtual clock.

    \b
    The paper's experiments, and one of our own (packing), each over several seeds:
      single-block mice multi-block time-unlock renyi packing macro
    \b
    Your own question:
      replay    a trace of who came when and asked for what
      what-if   the claims that wait in a ledger, under another policy
      figures   all experiments as pictures, beside what the paper says
    """


# A trace


@simulate.command(short_help="Replay a trace of arrivals.")
@click.option(
    "--trace",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="CSV: arrival (seconds), start_block, num_blocks, epsilon; see the docs for more.",
)
@click.option(
    "--policy",
    type=click.Choice([*POLICIES, ROUND_ROBIN]),
    default="dpf",
    help="Who goes first.",
)
@click.option("--pipelines", type=WHOLE, help="Unlock 1/N of a block per new pipeline.")
@click.option("--lifetime", type=DURATION, help="Unlock a block over this time, ...")
@click.option("--interval", type=DURATION, help="... one equal share per interval.")
@click.option("--timeout", type=DURATION, help="How long a pipeline waits; for ever unless given.")
@click.option("--blocks", type=WHOLE, help="How many there are; as many as the trace asks for.")
@click.option("--period", type=DURATION, help="A pass once a period, not after each arrival.")
@click.option(
    "--consume-after", type=DURATION, help="When what is granted is consumed; never unless given."
)
@guarantee_options
@json_option
@click.pass_obj
def replay(
    session: Session,
    trace: Path,
    policy: str,
    pipelines: int | None,
    lifetime: int | None,
    interval: int | None,
    timeout: int | None,
    blocks: int | None,
    period: int | None,
    consume_after: int | None,
    guarantee: Guarantee | None,
) -> None:
    """Replay a trace, and tell how many pipelines are granted and how long they wait.

    Every block exists from the start, with the capacity of --epsilon and --delta (1 and 0, basic
    accounting, unless told otherwise). With Renyi accounting the trace has a demand at each order,
    in columns like rdp_2. What is granted stays allocated.

    \b
    Examples:
      privatekube simulate replay --trace arrivals.csv --policy dpf --pipelines 175
      privatekube simulate replay --trace arrivals.csv --policy fcfs --timeout 300s --json
    """
    unlocking = unlocking_of(policy, pipelines, lifetime, interval)
    accounting = BASIC if guarantee is None else guarantee.accounting
    capacity = BASIC.budget((10**12, 0)) if guarantee is None else guarantee.capacity()
    if period == 0:
        raise click.UsageError("--period must be above zero")
    with reading_the_command_line():
        workload = read_trace(trace, accounting, capacity, blocks=blocks, timeout=timeout)
    with bar("pipelines", len(workload)) as advanced:
        played = play(
            workload,
            policy,
            unlocking,
            period=period,
            consume_after=consume_after,
            advanced=advanced,
        )
    document: dict[str, object] = {
        "trace": str(trace),
        "policy": policy,
        "unlocking": unlocking.to_json(),
    }
    session.answer(document | played.to_json(), lambda: _tell_replay(played, policy, unlocking))


def unlocking_of(
    policy: str, pipelines: int | None, lifetime: int | None, interval: int | None
) -> Unlocking:
    by_time = lifetime is not None or interval is not None
    if pipelines is not None and by_time:
        raise click.UsageError("Give --pipelines, or --lifetime with --interval, not both.")
    with reading_the_command_line():
        if pipelines is not None:
            return ByPipelines(pipelines)
        if lifetime is not None and interval is not None:
            return ByTime(lifetime, interval)
    if by_time:
        raise click.UsageError("--lifetime and --interval go together, such as 30d and 1d.")
    if policy != "fcfs":
        raise click.UsageError(
            f"How does budget unlock? Policy {policy} needs --pipelines N (a share per new"
            " pipeline), or --lifetime and --interval (a share per interval)."
        )
    return AtOnce()


def _tell_replay(played: Replay, policy: str, unlocking: Unlocking) -> None:
    said = played.to_json()
    refused = ", ".join(f"{count} {reason}" for reason, count in _refused(said))
    print_facts(
        [
            ("policy", f"{policy}, unlocked {unlocking}"),
            ("arrivals", str(said["arrivals"])),
            ("granted", str(said["granted"])),
            ("refused", refused or "nobody"),
            ("waiting", f"{said['waiting']} at the end"),
            ("delay", _tell_delay(said)),
        ]
    )


def _refused(said: Row) -> list[tuple[str, int]]:
    return list(said["refused"].items())


def _tell_delay(said: Row) -> str:
    if said["delay_mean"] is None:
        return ""
    return (
        f"{said['delay_mean']:.2f} s on average, {said['delay_median']:.2f} s in the median,"
        f" {said['delay_p99']:.2f} s for the last of a hundred"
    )


# Experiments


def _run_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(
        (
            click.option("--seeds", type=WHOLE, default="5", help="How many, from 0 on."),
            click.option(
                "--jobs",
                type=WHOLE,
                help="How many at a time; as many as there are cores, unless given.",
            ),
            click.option(
                "--out",
                type=click.Path(file_okay=False, path_type=Path),
                default=_FOLDER,
                help="Where results are kept; what is there already is not run again.",
            ),
            click.option(
                "--demands",
                type=click.Path(dir_okay=False, path_type=Path),
                help="The macrobenchmark's kinds of pipelines, a CSV file.",
            ),
            click.option("--quick", is_flag=True, help="Shorter runs, for a first look."),
        )
    ):
        command = option(command)
    return command


def _experiment_command(experiment: Experiment) -> click.Command:
    @click.option(
        "--policy",
        "policies",
        multiple=True,
        type=click.Choice(POLICY_NAMES),
        help="Instead of those of the figure; may be repeated.",
    )
    @click.option(
        "--mice" if experiment.along_mice else "--pipelines",
        "points",
        multiple=True,
        type=WHOLE,
        help=f"A {'percentage of mice' if experiment.along_mice else 'value of N'}, instead of the"
        " figure's; may be repeated.",
    )
    @_run_options
    @json_option
    @click.pass_obj
    def command(
        session: Session,
        policies: tuple[str, ...],
        points: tuple[int, ...],
        seeds: int,
        jobs: int | None,
        out: Path,
        demands: Path | None,
        quick: bool,
    ) -> None:
        _check(experiment, seeds, points)
        with reading_the_command_line():
            chosen = with_points(with_policies(experiment, policies), points)
        if not policies and not find_spec("scipy"):
            chosen = without_limit(chosen)
            click.echo("without the limit: scipy is not installed (extra simulator)", err=True)
        with reading_the_command_line():
            grid = Grid([chosen], seeds, demands=demands, quick=quick)
        rows = grid.rows(chosen, _run(grid, out, jobs))
        session.answer(
            {"experiment": experiment.name, "seeds": seeds, "results": rows},
            lambda: _tell_rows(chosen, rows),
        )

    demands = " --demands demands.csv" if experiment.needs_demands else ""
    command.__doc__ = f"""{experiment.help}

    Means over the seeds, and how far single runs deviate. -n unlocks a share per pipeline, -t one
    per interval. Results are kept, so that a run that was interrupted goes on.

    \b
    Example:
      privatekube simulate {experiment.name}{demands} --policy dpf-n --policy fcfs --seeds 3
    """
    return click.command(experiment.name, short_help=experiment.help)(command)


def _check(experiment: Experiment, seeds: int, points: Sequence[int]) -> None:
    if not 1 <= seeds <= _MOST_SEEDS:
        raise click.UsageError(f"--seeds must be from 1 to {_MOST_SEEDS}")
    least, most = (0, 100) if experiment.along_mice else (1, 10**9)
    for point in points:
        if not least <= point <= most:
            name = "--mice" if experiment.along_mice else "--pipelines"
            raise click.UsageError(f"{name} must be from {least} to {most}")


def _run(grid: Grid, folder: Path, jobs: int | None) -> Results:
    """All of the grid's simulations; what was interrupted says how to go on."""
    jobs = os.cpu_count() or 1 if jobs is None else jobs
    if not 1 <= jobs <= _MOST_JOBS:
        raise click.UsageError(f"--jobs must be from 1 to {_MOST_JOBS}")
    results, runs = Results(folder), grid.runs()
    try:
        with needing("simulator", "scipy"), bar("simulations", len(runs)) as advanced:
            run_all(runs, results, jobs, advanced)
    except KeyboardInterrupt:
        done = sum(run in results for run in runs)
        raise Failure(
            "Interrupted",
            f"interrupted; {done} of {len(runs)} simulations are done and kept in {folder}:"
            " the same command goes on from there",
            code=INTERRUPTED,
        ) from None
    return results


def _tell_rows(experiment: Experiment, rows: Sequence[Row]) -> None:
    """How many each policy grants: a line for each point, a column for each policy."""
    lines = list(dict.fromkeys(row["line"] for row in rows))
    cells = {(row["line"], row["at"]): row for row in rows}
    say(f"{experiment.title}: pipelines granted, by {experiment.along}\n")
    print_table(
        [">AT", *(f">{line}" for line in lines)],
        [
            [str(point), *(_tell_granted(cells, line, point) for line in lines)]
            for point in experiment.points
        ],
    )
    say(f"\nThe paper: {experiment.says}")


def _tell_granted(cells: Mapping[tuple[str, int | None], Row], line: str, point: int) -> str:
    row = cells.get((line, point)) or cells.get((line, None))
    if row is None:
        return ""
    return f"{row['granted']:.0f} ± {row['granted_deviation']:.0f}"


for _experiment in EXPERIMENTS.values():
    simulate.add_command(_experiment_command(_experiment))


@simulate.command(short_help="Draw all experiments, beside what the paper says.")
@click.option(
    "--only", "only", multiple=True, type=click.Choice(list(EXPERIMENTS)), help="May be repeated."
)
@_run_options
@json_option
@click.pass_obj
def figures(
    session: Session,
    only: tuple[str, ...],
    seeds: int,
    jobs: int | None,
    out: Path,
    demands: Path | None,
    quick: bool,
) -> None:
    """Draw the paper's experiments as PNG and SVG, with a page that shows each beside the paper's
    words about it.

    The macrobenchmark is left out unless --demands says where its pipelines are.

    \b
    Examples:
      privatekube simulate figures --out evaluation
      privatekube simulate figures --only single-block --seeds 20
    """
    with needing("simulator", "matplotlib", "scipy"):
        import scipy  # noqa: F401

        from privatekube_kfp.simulator.figures import draw, page

    _check(EXPERIMENTS["single-block"], seeds, ())
    names = only or [n for n, e in EXPERIMENTS.items() if demands or not e.needs_demands]
    chosen = [EXPERIMENTS[name] for name in dict.fromkeys(names)]
    with reading_the_command_line():
        grid = Grid(chosen, seeds, demands=demands, quick=quick)
    results = _run(grid, out, jobs)
    drawn = [(experiment, grid.rows(experiment, results)) for experiment in chosen]
    files = [path for experiment, rows in drawn for path in draw(experiment, rows, out, seeds)]
    index = out / "index.html"
    index.write_text(page(drawn, seeds), encoding="utf-8")
    session.answer(
        {"page": str(index), "figures": [str(path) for path in files]},
        lambda: say(f"{index}: {len(chosen)} experiments, {len(files)} pictures beside it"),
    )


# A ledger


@simulate.command("what-if", short_help="Waiting claims of a ledger, under another policy.")
@click.argument("stream", type=STREAM_NAME)
@click.option("--policy", type=click.Choice(list(POLICIES)), help="The stream's unless given.")
@click.option("--pipelines", type=WHOLE, help="Unlock 1/N of a block per new pipeline.")
@click.option("--lifetime", type=DURATION, help="Unlock a block over this time, ...")
@click.option("--interval", type=DURATION, help="... one equal share per interval.")
@click.option("--at-once", is_flag=True, help="Unlock all of a block at once.")
@click.option("--within", type=DURATION, default="0s", help="Look so far ahead; nobody else comes.")
@ledger_option
@json_option
@click.pass_obj
def what_if(
    session: Session,
    stream: str,
    policy: str | None,
    pipelines: int | None,
    lifetime: int | None,
    interval: int | None,
    at_once: bool,
    within: int,
) -> None:
    """What would become of the claims that wait on STREAM under another policy, N or T.

    Reads the ledger and changes nothing in it. Blocks are as they are; of each is unlocked what the
    other way of unlocking would have unlocked by now.

    \b
    Examples:
      privatekube simulate what-if clicks --policy fair-first
      privatekube simulate what-if clicks --pipelines 50
      privatekube simulate what-if clicks --lifetime 30d --interval 1d --within 7d
    """
    from privatekube_kfp.ledger.times import system_clock
    from privatekube_kfp.simulator.what_if import what_if as fates_under

    if at_once and (pipelines, lifetime, interval) != (None, None, None):
        raise click.UsageError("Give one way to unlock: --at-once, --pipelines, or --lifetime.")
    with session.ledger(tend=True) as ledger:
        spec = ledger.stream(stream).spec
        chosen = policy or spec.policy
        said = (pipelines, lifetime, interval) != (None, None, None)
        unlocking = (
            AtOnce()
            if at_once
            else unlocking_of(chosen, pipelines, lifetime, interval)
            if said
            else spec.unlocking
        )
        now = system_clock()
        fates = fates_under(ledger, stream, chosen, unlocking, now, now + within)
    granted = sum(fate.granted_after is not None for fate in fates)
    document = {
        "stream": stream,
        "policy": chosen,
        "unlocking": unlocking.to_json(),
        "waiting": len(fates),
        "granted": granted,
        "claims": [fate.to_json() for fate in fates],
    }
    session.answer(document, lambda: _tell_fates(stream, chosen, unlocking, granted, fates))


def _tell_fates(
    stream: str, policy: str, unlocking: Unlocking, granted: int, fates: Sequence[Fate]
) -> None:
    say(
        f"stream {stream} with policy {policy}, unlocked {unlocking}:"
        f" {granted} of {len(fates)} waiting claims would be granted"
    )
    if fates:
        say("")
        print_table(
            ["CLAIM", "WOULD BE", "~WHY"],
            [[fate.claim, _fate(fate), fate.message] for fate in fates],
        )


def _fate(fate: Fate) -> str:
    if fate.granted_after is None:
        return "Waiting" if fate.reason.startswith("Waiting") else "Denied"
    return (
        "Allocated"
        if not fate.granted_after
        else f"Allocated in {format_duration(fate.granted_after)}"
    )
