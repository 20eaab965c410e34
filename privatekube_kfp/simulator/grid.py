"""A grid of runs: some experiments over some seeds, and what the seeds say together."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.simulator.experiments import QUICK, Experiment, Line, Run
from privatekube_kfp.simulator.running import Results

Row = dict[str, Any]


class Grid:
    """All runs of some experiments."""

    def __init__(
        self,
        experiments: Sequence[Experiment],
        seeds: int,
        *,
        demands: Path | None = None,
        quick: bool = False,
    ) -> None:
        if demands is None and any(experiment.needs_demands for experiment in experiments):
            raise Invalid(
                Reason.INVALID_REQUEST,
                "the macrobenchmark needs --demands FILE: a CSV of its kinds of pipelines, with"
                " columns group, name, epsilon, delta, n_blocks_days, rdp_2, ...",
            )
        self._experiments = experiments
        self._seeds = range(seeds)
        self._demands = None if demands is None else str(demands.resolve())
        self._quick = quick

    def runs(self) -> list[Run]:
        """Each once, those of one workload and seed one after the other."""
        return list(dict.fromkeys(self._all()))

    def _all(self) -> Iterator[Run]:
        for experiment in self._experiments:
            for seed in self._seeds:
                for line in experiment.lines:
                    for point in experiment.points_of(line):
                        yield self._run(experiment, line, point, seed)

    def _run(self, experiment: Experiment, line: Line, point: int | None, seed: int) -> Run:
        duration = QUICK[experiment.workload] if self._quick else None
        return experiment.run(line, point, seed, duration=duration, demands=self._demands)

    def rows(self, experiment: Experiment, results: Results) -> list[Row]:
        """A row for each point of each line: means and deviations over the seeds."""
        return [
            self._row(experiment, line, point, results)
            for line in experiment.lines
            for point in experiment.points_of(line)
        ]

    def _row(self, experiment: Experiment, line: Line, point: int | None, results: Results) -> Row:
        found = [results[self._run(experiment, line, point, seed)] for seed in self._seeds]
        granted = [result["granted"] for result in found]
        delays = [r["delay_mean"] for r in found if r["delay_mean"] is not None]
        return {
            "line": experiment.label(line),
            "policy": line.policy,
            "accounting": line.accounting,
            "at": point,
            "arrivals": statistics.fmean(result["arrivals"] for result in found),
            "granted": statistics.fmean(granted),
            "granted_deviation": statistics.pstdev(granted),
            "granted_least": min(granted),
            "granted_most": max(granted),
            "fair_granted": statistics.fmean(result["fair_granted"] for result in found),
            "delay_mean": statistics.fmean(delays) if delays else None,
            "delay_deviation": statistics.pstdev(delays) if delays else None,
        }
