"""Pipelines in a folder, their runs, and what these leave in the ledger."""

from __future__ import annotations

import subprocess
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privatekube_kfp.core.claim import Claim
from privatekube_kfp.ledger.sqlite import SqliteLedger
from tests.cli.running import Result, Run, command_line, environment

DATA = """
apiVersion: privatekube.io/v1alpha1
kind: PrivateDataStream
metadata: {name: reviews}
spec:
  semantic: Event
  epsilon: "1"
  delta: "0.0000001"
  accounting: {type: Basic}
  unlocking: {pipelines: 1}
---
apiVersion: privatekube.io/v1alpha1
kind: PrivateDataBlock
metadata: {name: monday}
spec: {stream: reviews, start: 2026-11-16T00:00:00Z, end: 2026-11-17T00:00:00Z}
"""

HEAD = """
import time
from typing import *
from kfp import dsl
from kfp.dsl import Artifact, Dataset, Input, Metrics, Model, Output
from privatekube_kfp.components import *

component = dsl.component(base_image="python:3.11", install_kfp_package=False)
ASK = {"stream": "reviews", "last_blocks": 1, "timeout": "0s"}

@component
def tick(file: str) -> int:
    with open(file, "a") as out:
        out.write("tick\\n")
    return 7

@component
def fail(why: str):
    print("about to fail")
    raise ValueError(why)
"""

WAITS = """
@component
def work(began: str, go: str):
    import os, time
    with open(began, "a") as out:
        out.write(f"{os.getpid()}\\n")
    while not os.path.exists(go):
        time.sleep(0.05)

@dsl.pipeline(name="waits")
def pipeline(epsilon: str = "0.25"):
    with privacy_budget(**ASK, epsilon=epsilon) as budget:
        first = tick(file="ticks").after(budget.allocated)
        working = work(began="began", go="go").after(first)
        budget.consume(after=[working])
"""
"""Works, with budget held, until there is a file `go`."""


@dataclass
class World:
    folder: Path
    cli: Run
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def write(self, text: str, name: str = "pipeline.py") -> str:
        (self.folder / name).write_text(HEAD + textwrap.dedent(text))
        return name

    def run(self, text: str, *args: str) -> Result:
        """Runs a pipeline in this process; its tasks have theirs."""
        return self.cli("run", self.write(text), "--run-id", "r", *args)

    def start(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        """Starts a run in a process of its own, which the end of the test ends."""
        started = subprocess.Popen(
            command_line("run", *args),
            cwd=self.folder,
            env=environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )
        self.started.append(started)
        return started

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    @property
    def home(self) -> Path:
        return self.folder / "privatekube-runs" / "r"

    def claims(self) -> list[Claim]:
        """The claims in the run's own ledger, if it has got as far as to have one."""
        if not (self.home / "run.json").exists():
            return []
        with SqliteLedger(self.home / "ledger.db") as ledger:
            assert ledger.verify().ok
            return list(ledger.claims())

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def wait_for_worker(self) -> int:
        """The process of the task `work`, once it works."""
        wait_until(lambda: self.lines("began"))
        return int(self.lines("began")[-1])


def wait_until(done: Callable[[], object], seconds: float = 180) -> None:
    give_up = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.02)


def runs(process: int) -> bool:
    """Whether a process runs: one that waits to be reaped does not."""
    try:
        said = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return said.rpartition(")")[2].split()[0] != "Z"


def children(process: int) -> list[int]:
    return [
        int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]
