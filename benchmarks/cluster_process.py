"""A scheduler as the benchmark runs it: a process of its own, and what it says of itself.

It is started as in production, with its defaults. However the benchmark ends, the process ends
with it: by a signal where there is time for one, by the kernel where there is none.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Self

from tests.kubernetes.control_plane import die_with_parent

_TOP = Path(__file__).parents[1]
_STOP_WITHIN = 60.0


class SchedulerFailed(RuntimeError):
    """The scheduler ended, or did not do in time what it was waited for; with its last words."""


class SchedulerProcess:
    """Runs from the beginning of a `with` to its end. Start it in a thread that stays."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._command = [
            sys.executable,
            "-m",
            "scheduler",
            f"--kubeconfig={kubeconfig}",
            f"--namespace={namespace}",
            "--listen=127.0.0.1:0",
            "--log-format=json",
        ]
        self._said: dict[str, float] = {}
        self._last: deque[str] = deque(maxlen=20)
        self.complaints: list[str] = []
        """What it logged as a warning or worse."""
        self._heard = threading.Condition()
        self._ended = False

    def __enter__(self) -> Self:
        self.started = time.time()
        self._process = subprocess.Popen(
            die_with_parent.wrapped(self._command),
            cwd=_TOP,
            env=without_proxies(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # A Ctrl-C at the terminal is for the benchmark, which then stops this.
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_WITHIN)
        finally:  # Also when somebody will not wait for that.
            self._process.kill()
            self._process.wait()
        self._listener.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self, message: str, within: float = 120.0) -> float:
        """When it logged this first, in seconds; waits for it."""
        with self._heard:
            self._heard.wait_for(lambda: message in self._said or self._ended, within)
            if message not in self._said:
                last = "".join(self._last)
                raise SchedulerFailed(
                    f"the scheduler never said {message!r}; its last words:\n{last}"
                )
            return self._said[message]

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._heard:
                self._last.append(line)
                try:
                    record = json.loads(line)
                    at = datetime.fromisoformat(record["time"]).timestamp()
                    self._said.setdefault(record["message"], at)
                    if record["level"] != "info":
                        self.complaints.append(record["message"])
                except (ValueError, KeyError, TypeError):
                    pass
                self._heard.notify_all()
        with self._heard:
            self._ended = True
            self._heard.notify_all()


def cpu_seconds(pids: Iterable[int]) -> float | None:
    """What these processes have used of the processors so far; unknown where there is no /proc."""
    ticks = 0
    try:
        for pid in pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    except OSError:
        return None
    return ticks / os.sysconf("SC_CLK_TCK")


def without_proxies() -> dict[str, str]:
    """The environment of a process that talks to this machine only."""
    return {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
