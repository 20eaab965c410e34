"""Runs a grid of simulations, some at a time, and keeps each result as soon as it is there.

Results go to a file of one JSON object a line, beside what decided them, so whatever was run before
is not run again: a run that was interrupted goes on where it was. A crash leaves whole lines, and
perhaps a piece of one at the end, which is passed over.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from privatekube_kfp import __version__
from privatekube_kfp.simulator.experiments import Run

Result = dict[str, Any]
RESULTS = "results.jsonl"


class Results:
    """The results in a folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS
        self.known: dict[str, Result] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                try:
                    said = json.loads(line)
                    self.known[said["key"]] = said["result"]
                except (ValueError, KeyError, TypeError):
                    continue

    def __contains__(self, run: Run) -> bool:
        return _key(run) in self.known

    def __getitem__(self, run: Run) -> Result:
        return self.known[_key(run)]

    def add(self, run: Run, result: Result) -> None:
        key = _key(run)
        self.known[key] = result
        line = json.dumps({"key": key, "result": result}) + "\n"
        with self._path.open("a+b") as file:
            if file.tell() and not _ends_whole(file):
                line = "\n" + line
            file.write(line.encode())


def _ends_whole(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


def _key(run: Run) -> str:
    """All that decides a result: of a file, what is in it."""
    said = run.to_json() | {"version": __version__}
    if run.demands is not None:
        said["demands"] = _digest(run.demands)
    return json.dumps(said, sort_keys=True)


@lru_cache(maxsize=8)
def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def run_all(runs: Iterable[Run], results: Results, jobs: int, done: Callable[[int], None]) -> None:
    """Bring in what is missing; `done` hears of each that is there."""
    wanted = dict.fromkeys(runs)
    missing = [run for run in wanted if run not in results]
    done(len(wanted) - len(missing))
    for run, result in _computed(missing, jobs):
        results.add(run, result)
        done(1)


def _computed(runs: list[Run], jobs: int) -> Iterator[tuple[Run, Result]]:
    if jobs == 1 or len(runs) <= 1:
        for run in runs:
            yield run, run.result()
        return
    with _workers(min(jobs, len(runs))) as workers:
        running: dict[Future[dict[str, object]], Run] = {
            workers.submit(run.result): run for run in runs
        }
        for future in as_completed(running):
            yield running[future], future.result()


@contextmanager
def _workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that leave Ctrl-C to us, and end with us however that comes."""
    workers = ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
    )
    try:
        yield workers
    except BaseException:
        for process in list(workers._processes.values()):
            process.terminate()
        raise
    finally:
        workers.shutdown(cancel_futures=True)


def _begin(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
