"""The folder of a run: all that there is of it besides the ledger.

    run.json        what was run, with which arguments, on which ledger, and how it ended
    pipeline.yaml   the compiled pipeline
    ledger.db       the ledger, where no other is named
    logs/           a log for each task, and kfp.log, what kfp itself has to say
    artifacts/      a folder for each execution of a task
    done/           what each completed task returned
    published/      what was let out, where no other place is named
    lock            held by whoever runs it

`run.json` is written before the first task starts and is replaced as a whole, so a crash leaves a
folder that is either not begun or can be gone on with.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from privatekube_kfp.local.errors import PipelineError

DEFAULT_PARENT = "privatekube-runs"
_RUN_ID = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_LONGEST_NAME = 120
# A worker whose command was killed needs a moment to see it, and to end its tasks.
_PATIENCE = 3.0


class State(StrEnum):
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    INTERRUPTED = "Interrupted"


@dataclass(frozen=True)
class Record:
    """What a run is, and how far it got."""

    run: str
    pipeline: str
    digest: str
    arguments: dict[str, Any]
    ledger: str
    state: State
    started: str
    ended: str | None = None


def check_run_id(run: str) -> str:
    """A run's id is a part of the names of its claims."""
    if not _RUN_ID.fullmatch(run):
        raise PipelineError(
            "InvalidRunId",
            f"run id {run!r} must be 1 to 63 lower-case letters, digits or dashes, and begin and"
            " end with a letter or digit",
            malformed=True,
        )
    return run


def new_run_id(pipeline: str) -> str:
    """A run id that says what runs since when: product-lstm-20261116-084512-4f2a."""
    words = re.sub(r"[^a-z0-9]+", "-", pipeline.lower()).strip("-")[:40].strip("-") or "run"
    return f"{words}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def file_name(task: str) -> str:
    """A task's path as the name of a file; what is too long for one ends in a fingerprint."""
    name = re.sub(r"[^-_.A-Za-z0-9]", "_", task.replace("/", "."))
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}-{hashlib.sha256(task.encode()).hexdigest()[:12]}"


class RunFolder:
    """Where the files of one run are."""

    def __init__(self, parent: Path, run: str) -> None:
        self.run = run
        self.path = (parent / run).absolute()
        self.logs = self.path / "logs"
        self.artifacts = self.path / "artifacts"
        self.done = self.path / "done"
        self.published = self.path / "published"
        self.pipeline = self.path / "pipeline.yaml"
        self.ledger = self.path / "ledger.db"
        self.kfp_log = self.logs / "kfp.log"
        self._record = self.path / "run.json"

    def make(self) -> None:
        """Only its owner can read it: tasks may leave private data there."""
        with self._writing():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self.logs, self.artifacts, self.done):
                folder.mkdir(exist_ok=True)

    def log(self, task: str) -> Path:
        return self.logs / f"{file_name(task)}.log"

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Keeps every other process off this run; yields the lock's descriptor.

        Whoever inherits the descriptor holds the lock too, until the last one is gone.
        """
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            give_up = time.monotonic() + _PATIENCE
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= give_up:
                        raise PipelineError(
                            "StillRunning", f"run {self.run} is still running in {self.path}"
                        ) from None
                    time.sleep(0.05)
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self) -> Record | None:
        """What is known of the run; None if it never began."""
        try:
            said = json.loads(self._record.read_text())
            return Record(**{**said, "state": State(said["state"])})
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise PipelineError(
                "UnreadableRun", f"{self._record} cannot be understood: {error}"
            ) from None

    def begin(self, record: Record, pipeline: str) -> None:
        with self._writing():
            self.pipeline.write_text(pipeline)
        self.write(record)

    def write(self, record: Record) -> None:
        text = json.dumps(asdict(record), indent=2) + "\n"
        beside = self._record.with_suffix(".new")
        with self._writing():
            beside.write_text(text)
            beside.replace(self._record)

    def ended(self, record: Record, state: State) -> Record:
        """Note how the run ended. Done before its budget is given back, so that a run that is
        gone on with can tell a released claim from one that was released in its course."""
        record = replace(record, state=state, ended=now())
        self.write(record)
        return record

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error)
            raise PipelineError(
                "FolderUnwritable", f"the run's folder {self.path} cannot be written: {why}"
            ) from None
