"""The paper's experiments: which workloads, under which policies, and what the paper says of them.

A `Run` is everything that decides one result, so that results can be kept and found again. An
experiment is a grid of runs: lines of a figure, points along it, seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from privatekube_kfp.accounting import conversion_from_name
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.policy import POLICIES
from privatekube_kfp.core.unlocking import AtOnce, ByPipelines, ByTime, Unlocking
from privatekube_kfp.simulator.limit import upper_bound
from privatekube_kfp.simulator.replaying import replay
from privatekube_kfp.simulator.round_robin import ROUND_ROBIN
from privatekube_kfp.simulator.workload import Workload
from privatekube_kfp.simulator.workloads import (
    BASIC_GAP,
    DAY,
    RENYI_GAP,
    SECOND,
    macro,
    mixed,
    multi_block,
    read_pipelines,
    single_block,
)

FIRST_COME = "fcfs"
LIMIT = "limit"
"""No policy: the most that any could grant."""
_BY_PIPELINES, _BY_TIME = "-n", "-t"
_UNLOCKED_GRADUALLY = (*(name for name in POLICIES if name != FIRST_COME), ROUND_ROBIN)
POLICY_NAMES = (
    FIRST_COME,
    LIMIT,
    *(name + suffix for name in _UNLOCKED_GRADUALLY for suffix in (_BY_PIPELINES, _BY_TIME)),
)
"""A policy and how budget unlocks: per pipeline (-n), or over time (-t)."""

_SPOKEN = {
    "dpf": "DPF",
    FIRST_COME: "FCFS",
    "weighted-dpf": "weighted DPF",
    "dpack": "DPack",
    "fair-first": "fair-first",
    ROUND_ROBIN: "RR",
    LIMIT: "limit",
}
_ELEPHANTS_WEIGH = 10
"""Under weighted policies, where a workload itself says nothing of weights."""


@dataclass(frozen=True)
class Run:
    """One workload under one policy."""

    workload: str
    policy: str
    seed: int
    pipelines: int | None = None
    mice: float = 0.75
    accounting: str = "basic"
    """basic, or the conversion of Renyi: classic or weighted"""
    gap: float | None = None
    duration: float | None = None
    """Seconds, or days of the macrobenchmark; the paper's unless told."""
    demands: str | None = None
    period: int | None = None
    """Seconds between passes; after each arrival unless told."""

    @property
    def with_renyi(self) -> bool:
        return self.accounting != "basic"

    def unlocking(self) -> Unlocking:
        """With N pipelines, or over the time in which as many come."""
        if self.pipelines is None:
            return AtOnce()
        if self.policy.endswith(_BY_PIPELINES):
            return ByPipelines(self.pipelines)
        gap = round(self._gap_seconds() * SECOND)
        return ByTime(self.pipelines * gap, gap)

    def _gap_seconds(self) -> float:
        if self.gap is not None:
            return self.gap
        if self.workload == "macro":
            return DAY / SECOND / 300
        if self.workload == "mixed":
            return BASIC_GAP
        if self.workload == "single-block":
            return 1.0
        return RENYI_GAP if self.with_renyi else BASIC_GAP

    def result(self) -> dict[str, object]:
        """What came of it; the same each time."""
        workload = _workload(replace(self, policy="", pipelines=None, period=None))
        if self.policy == LIMIT:
            return _limit(workload)
        policy = self.policy.removesuffix(_BY_PIPELINES).removesuffix(_BY_TIME)
        if policy == "weighted-dpf":
            workload = _weighted(workload)
        unlocking = self.unlocking()
        period = None if self.period is None else self.period * SECOND
        played = replay(workload, policy, unlocking, period=period)
        fair = int(workload.is_fair(unlocking.shares).sum())
        return played.to_json() | {
            "fair": fair,
            "fair_granted": played.granted_fair(unlocking.shares),
        }

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@lru_cache(maxsize=2)
def _workload(run: Run) -> Workload:
    """The last ones are kept: runs of one seed come one after the other."""
    match run.workload:
        case "single-block":
            return single_block(
                run.seed, mice=run.mice, with_renyi=run.with_renyi, seconds=run.duration
            )
        case "multi-block":
            return multi_block(
                run.seed,
                mice=run.mice,
                with_renyi=run.with_renyi,
                gap=run.gap,
                seconds=run.duration or 300,
            )
        case "mixed":
            return mixed(run.seed, seconds=run.duration or 300)
        case "macro":
            conversion = conversion_from_name(run.accounting) if run.with_renyi else None
            pipelines = read_pipelines(Path(run.demands or ""))
            days = round(run.duration or 50)
            return macro(run.seed, pipelines, conversion=conversion, days=days)
    raise ValueError(f"unknown workload {run.workload}")


def _limit(workload: Workload) -> dict[str, object]:
    found = upper_bound(workload)
    arrivals = len(workload)
    return {
        "arrivals": arrivals,
        "granted": found.pipelines,
        "exact": found.exact,
        "delay_mean": None,
        "fair": arrivals,
        "fair_granted": found.pipelines,
    }


def _weighted(workload: Workload) -> Workload:
    sizes = np.array([budget.amounts[-1] for budget in workload.demands])[workload.demand]
    heavy = sizes > np.median(sizes) * 2
    return replace(workload, weight=np.where(heavy, _ELEPHANTS_WEIGH, 1))


@dataclass(frozen=True)
class Line:
    """One line of a figure: a policy under an accounting. Without points of its own it is level."""

    policy: str
    accounting: str = "basic"
    gap: float | None = None
    points: tuple[int, ...] | None = None
    """Those of the figure where this line is drawn; all, unless told."""

    @property
    def is_level(self) -> bool:
        return self.policy in (FIRST_COME, LIMIT)

    @property
    def spoken(self) -> str:
        name, dash, suffix = self.policy.rpartition("-")
        if dash and name in _SPOKEN:
            return f"{_SPOKEN[name]}-{suffix.upper()}"
        return _SPOKEN[self.policy]


@dataclass(frozen=True)
class Experiment:
    """A figure of the paper's evaluation."""

    name: str
    title: str
    workload: str
    along: str
    points: tuple[int, ...]
    lines: tuple[Line, ...]
    says: str
    """What the paper says of it, in our words."""
    help: str
    logarithmic: bool = False
    along_mice: bool = False
    period: int | None = None
    fixed_pipelines: int | None = None

    def run(
        self,
        line: Line,
        point: int | None,
        seed: int,
        *,
        duration: float | None = None,
        demands: str | None = None,
    ) -> Run:
        pipelines = self.fixed_pipelines if self.along_mice else point
        return Run(
            workload=self.workload,
            policy=line.policy,
            seed=seed,
            pipelines=None if line.is_level else pipelines,
            mice=(point or 0) / 100 if self.along_mice else 0.75,
            accounting=line.accounting,
            gap=line.gap,
            duration=duration,
            demands=demands if self.workload == "macro" else None,
            period=self.period,
        )

    def label(self, line: Line) -> str:
        """What a line is called: its policy, and the accounting where that is not always one."""
        if len({other.accounting for other in self.lines}) == 1:
            return line.spoken
        return f"{line.spoken}, {'' if line.accounting == 'basic' else 'Renyi '}{line.accounting}"

    def points_of(self, line: Line) -> Sequence[int | None]:
        if line.is_level and not self.along_mice:
            return (None,)
        return [point for point in self.points if line.points is None or point in line.points]

    @property
    def needs_demands(self) -> bool:
        return self.workload == "macro"


_ROBIN_POINTS = (*range(0, 101, 25), 1, 175, 225, 325, 375, 1500)
_MICRO_LINES = (
    Line("dpf-n"),
    Line("fair-first-n"),
    Line("rr-n", points=_ROBIN_POINTS),
    Line(FIRST_COME),
    Line(LIMIT),
)

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="single-block",
            title="One block",
            workload="single-block",
            along="N, pipelines until all is unlocked",
            points=(1, 25, 50, 75, 100, 125, 150, 175, 225, 275, 325),
            lines=_MICRO_LINES,
            says="DPF behaves like FCFS at N = 1 (28 are granted there), grants up to the"
            " possible 100 at larger N; RR grants at most 38, and 20 at large N.",
            help="One block, mice and elephants, N varied.",
        ),
        Experiment(
            name="mice",
            title="One block, another mix",
            workload="single-block",
            along="mice, percent",
            points=(0, 10, 25, 40, 50, 60, 75, 90, 100),
            lines=_MICRO_LINES,
            says="With one kind of pipeline DPF and FCFS grant the same; with a mix, DPF grants"
            " more. RR is sometimes better than FCFS and sometimes worse.",
            help="One block, the percentage of mice varied, N = 125.",
            along_mice=True,
            fixed_pipelines=125,
        ),
        Experiment(
            name="multi-block",
            title="Blocks that keep appearing",
            workload="multi-block",
            along="N, pipelines until all of a block is unlocked",
            points=(1, 50, 75, 100, 125, 175, 275, 375, 750, 1500),
            lines=_MICRO_LINES,
            says="Like one block, but at very large N DPF falls: some blocks do not see enough"
            " pipelines to unlock all. RR collapses beyond N = 400, DPF grants twice FCFS.",
            help="A new block each ten seconds, N varied.",
        ),
        Experiment(
            name="time-unlock",
            title="Unlocking by pipelines or by time",
            workload="multi-block",
            along="N, or the time in which N pipelines come",
            points=(1, 50, 75, 100, 125, 175, 275, 375, 750, 1500),
            lines=(
                Line("dpf-n"),
                Line("dpf-t"),
                Line("rr-n", points=_ROBIN_POINTS),
                Line("rr-t", points=_ROBIN_POINTS),
                Line(FIRST_COME),
            ),
            says="At small N and T they behave almost alike. At large ones DPF-T does much better,"
            " as all is unlocked in the end, also of blocks that nobody new asks for.",
            help="DPF-N beside DPF-T.",
        ),
        Experiment(
            name="renyi",
            title="Basic or Renyi accounting",
            workload="multi-block",
            along="N, pipelines until all of a block is unlocked",
            points=(1, 300, 1000, 3000, 8875, 20000),
            lines=(
                Line("dpf-n", "classic", points=(1, 1000, 3000, 8875, 20000)),
                Line(FIRST_COME, "classic"),
                Line("dpf-n", "basic", RENYI_GAP, points=(1, 300, 1000, 3000)),
                Line(FIRST_COME, "basic", RENYI_GAP),
            ),
            says="Renyi DP lets DPF grant more than 17 times as many as traditional DP, at their"
            " peaks. Even FCFS under Renyi grants far more than DPF under traditional DP.",
            help="Both accountings under a load that saturates Renyi.",
            logarithmic=True,
        ),
        Experiment(
            name="packing",
            title="Pipelines unlike in blocks and orders",
            workload="mixed",
            along="N, pipelines until all of a block is unlocked",
            points=(100, 200, 400, 800),
            lines=(
                Line("dpf-n", "classic"),
                Line("fair-first-n", "classic"),
                Line("dpack-n", "classic"),
                Line(FIRST_COME, "classic"),
            ),
            says="Nothing: packing came later. DPF orders by the largest share of any block at any"
            " order; packing by what is taken of all blocks, at the order that serves most.",
            help="Gaussian, Laplace and DP-SGD on 1 to 30 blocks, a pass each 30 seconds.",
            period=30,
        ),
        Experiment(
            name="macro",
            title="Training and statistics pipelines, event DP",
            workload="macro",
            along="N, pipelines until all of a block is unlocked",
            points=(1, 100, 200, 300, 400, 500),
            lines=(
                Line("dpf-n", "classic"),
                Line("dpf-n", "weighted", points=(400, 500)),
                Line("fair-first-n", "classic", points=(100, 300, 400, 500)),
                Line("dpf-n", "basic"),
                Line(FIRST_COME, "classic"),
            ),
            says="Event DP grants 13.8 thousand, 67% more than at low N and FCFS. Renyi DP grants"
            " about 29% more than traditional DP, and some elephants, where that grants none.",
            help="The mix of training and statistics pipelines of the paper's macrobenchmark.",
        ),
    )
}


def with_policies(experiment: Experiment, policies: Sequence[str]) -> Experiment:
    """The same experiment for other policies, each under every accounting that it compares."""
    if not policies:
        return experiment
    settings = dict.fromkeys((line.accounting, line.gap) for line in experiment.lines)
    lines = tuple(
        Line(policy, accounting, gap)
        for accounting, gap in settings
        for policy in dict.fromkeys(policies)
        if not (policy.startswith(ROUND_ROBIN) and accounting != "basic")
    )
    if not lines:
        raise Invalid(
            Reason.INVALID_REQUEST, "round robin knows basic accounting only; name another policy"
        )
    return replace(experiment, lines=lines)


def without_limit(experiment: Experiment) -> Experiment:
    lines = tuple(line for line in experiment.lines if line.policy != LIMIT)
    return replace(experiment, lines=lines)


def with_points(experiment: Experiment, points: Sequence[int]) -> Experiment:
    """The same experiment at other points, for all of its lines."""
    if not points:
        return experiment
    lines = tuple(replace(line, points=None) for line in experiment.lines)
    return replace(experiment, points=tuple(sorted(set(points))), lines=lines)


QUICK = {"single-block": 236.0, "multi-block": 60.0, "mixed": 60.0, "macro": 8.0}
"""Shorter, for a first look."""
