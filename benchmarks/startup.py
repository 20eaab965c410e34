"""Tasks in pods: how long does one take before it does anything?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

from benchmarks.report import Result, at_most

Say = Callable[[str], None]

_BARE = "import kfp.dsl.executor_main"
_OURS = f"""{_BARE}
from privatekube_kfp.components.artifacts import PrivacyClaim
from privatekube_kfp.steps import {{step}}
from privatekube_kfp.ledger.kubernetes import connecting, ledger
"""
STEPS = {"Allocate, Consume and Release": "claims", "Download and Upload": "data"}


def measure(quick: bool, say: Say) -> list[Result]:
    turns = 1 if quick else 9
    say(f"Start-up: what a task of the protocol imports in a pod, {turns} times each ...")
    scripts = {"bare": _BARE, **{step: _OURS.format(step=step) for step in STEPS.values()}}
    took: dict[str, list[float]] = {name: [] for name in scripts}
    # In turn, so that whatever else the machine does falls on all.
    for _ in range(turns):
        for name, script in scripts.items():
            took[name].append(_seconds(script))
    bare = median(took["bare"])
    results = [Result("start-up of kfp's executor alone", bare, "s")]
    for tasks, step in STEPS.items():
        ours = median(took[step])
        results += [
            at_most(f"start-up of {tasks}", ours, "s", 1, not quick),
            Result(f"start-up of {tasks} over kfp's executor", ours / bare, "times"),
        ]
    return results


def _seconds(script: str) -> float:
    """From the interpreter's start to its end, with kfp as a component's command starts it."""
    environment = {**os.environ, "_KFP_RUNTIME": "true"}
    started = perf_counter()
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    return perf_counter() - started
