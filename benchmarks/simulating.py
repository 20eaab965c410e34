"""The simulator: the paper's largest experiment, a million arrivals, and all of its figures."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from benchmarks.report import Result, at_most
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.simulator.replaying import replay
from privatekube_kfp.simulator.workloads import multi_block

_DEMANDS = Path(__file__).parents[2] / "shared" / "data" / "macro_event_demands.csv"
_SECONDS = 9_890
"""In which a thousand blocks appear."""


def measure(quick: bool, say: Callable[[str], None]) -> list[Result]:
    judged = not quick
    return [
        *_renyi(quick, say, judged),
        *_arrivals(quick, say, judged),
        *_figures(quick, say, judged),
    ]


def _renyi(quick: bool, say: Callable[[str], None], judged: bool) -> list[Result]:
    say("Simulator: the Renyi multi-block run, N = 10,885 ...")
    workload = multi_block(0, with_renyi=True, seconds=30 if quick else 300)
    started = perf_counter()
    played = replay(workload, "dpf", ByPipelines(10_885))
    took = perf_counter() - started
    name = f"Renyi multi-block run, {len(workload):,} arrivals, {played.granted:,} granted"
    return [at_most(name, took, "s", 15, judged)]


def _arrivals(quick: bool, say: Callable[[str], None], judged: bool) -> list[Result]:
    few, many = (10_000, 30_000) if quick else (100_000, 1_000_000)
    costs = {}
    for number in (few, many):
        say(f"Simulator: {number:,} arrivals over 1,000 blocks ...")
        workload = multi_block(0, seconds=_SECONDS, gap=_SECONDS / number)
        started = perf_counter()
        replay(workload, "dpf", ByPipelines(175))
        costs[number] = (perf_counter() - started) / len(workload) * 1e6
    return [
        Result(f"cost of an arrival, {few:,} over 1,000 blocks", costs[few], "us"),
        at_most(f"cost of one of {many:,} over that", costs[many] / costs[few], "", 1.5, judged),
    ]


def _figures(quick: bool, say: Callable[[str], None], judged: bool) -> list[Result]:
    """All of the paper's figures; without the macrobenchmark where its demands are not there."""
    seeds = 1 if quick else 5
    say(f"Simulator: all figures, {seeds} seeds ...")
    with tempfile.TemporaryDirectory(prefix="privatekube-figures-") as folder:
        words = ["simulate", "figures", "--out", folder, "--seeds", str(seeds)]
        words += ["--demands", str(_DEMANDS)] if _DEMANDS.exists() else []
        words += ["--quick"] if quick else []
        started = perf_counter()
        subprocess.run(
            [sys.executable, "-m", "privatekube_kfp.cli", *words],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        took = perf_counter() - started
    what = "all figures" if _DEMANDS.exists() else "all figures but the macrobenchmark"
    return [at_most(f"{what}, {seeds} seeds, {os.cpu_count()} cores", took / 60, "min", 10, judged)]
