"""Running pipelines here: what does `privatekube run` add to bare `kfp.local`?"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.report import Result, at_most

Say = Callable[[str], None]
TASKS = 5

_PIPELINE = f"""
from kfp import dsl

@dsl.component(base_image="python:3.11", install_kfp_package=False)
def step(number: int) -> int:
    return number + 1

@dsl.pipeline(name="chain")
def chain(number: int = 0):
    for _ in range({TASKS}):
        number = step(number=number).output
"""

_BARE = """
import warnings
warnings.simplefilter("ignore")
from kfp import local
local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root="bare")
import pipeline
pipeline.chain()
"""


def measure(quick: bool, say: Say) -> list[Result]:
    turns = 1 if quick else 7
    say(f"Local runs: a chain of {TASKS} empty tasks from its Python file, {turns} times each ...")
    bare = [sys.executable, "-c", _BARE]
    ours = [sys.executable, "-m", "privatekube_kfp.cli", "run", "pipeline.py"]
    took: dict[str, list[float]] = {"bare": [], "ours": []}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pipeline.py").write_text(_PIPELINE)
        # In turn, so that whatever else the machine does falls on both.
        for _ in range(turns):
            took["bare"].append(_seconds(bare, folder))
            took["ours"].append(_seconds(ours, folder))
    without, with_budget = (median(took[name]) / TASKS for name in ("bare", "ours"))
    added = median(
        (ours - bare) / TASKS for ours, bare in zip(took["ours"], took["bare"], strict=True)
    )
    return [
        Result("a task of a local run, bare kfp.local", without, "s"),
        Result("a task of a local run, privatekube run", with_budget, "s"),
        at_most("added to a task by privatekube run", added, "s", 1, not quick),
    ]


def _seconds(command: list[str], folder: str) -> float:
    """How long a command takes from its start to its end, the interpreter's start included."""
    started = perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    took = perf_counter() - started
    if done.returncode != 0:
        raise RuntimeError(f"{command[:3]} failed: {done.stderr[-2000:]}")
    return took
