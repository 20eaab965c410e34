"""The processes that a cluster of the tests consists of.

They die with the thread that starts them, so that a killed test run leaves none: one thread, which
stays, starts all. It is made at the first start, in the network that its maker is in then.
"""

import signal
import ssl
import subprocess
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kubernetes.control_plane import die_with_parent

_GRACE_SECONDS = 5


class Parts:
    """Processes by name, each with a log. Whatever goes wrong with one is raised as `failure`."""

    def __init__(self, home: Path, failure: type[Exception], ready_seconds: float) -> None:
        self._home = home
        self._failure = failure
        self._ready_seconds = ready_seconds
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="parts")

    @property
    def logs(self) -> Path:
        return self._home / "logs"

    @property
    def pids(self) -> dict[str, int]:
        """Of those that run."""
        return {name: each.pid for name, each in self._running.items() if each.poll() is None}

    def __getitem__(self, name: str) -> subprocess.Popen[bytes]:
        if name not in self._running:
            known = ", ".join(self._running)
            raise ValueError(f"no part of this cluster is called {name!r}; there are {known}")
        return self._running[name]

    def start(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        with (self.logs / f"{name}.log").open("ab") as log:
            self._running[name] = self._starter.submit(
                subprocess.Popen,
                die_with_parent.wrapped(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self._home,
                # A Ctrl-C at the terminal is for the tests, which then stop these in order.
                start_new_session=True,
            ).result()

    def end(self, name: str, how: signal.Signals) -> None:
        """Tell one to end, and kill it if it does not."""
        process = self[name]
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)  # Else one that is frozen never gets it.
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill_all(self) -> None:
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
        self._running.clear()

    def close(self) -> None:
        self.kill_all()
        self._starter.shutdown()

    def wait_until(self, done: Callable[[], bool], *needed: str) -> None:
        """Until something holds, as long as the parts live that it needs."""
        deadline = time.monotonic() + self._ready_seconds
        while not done():
            for name in needed:
                if (code := self._running[name].poll()) is not None:
                    raise self._failure(f"{name} ended with {code}: {self._end_of_log(name)}")
            if time.monotonic() > deadline:
                ends = "\n".join(f"{name}: {self._end_of_log(name)}" for name in needed)
                raise self._failure(f"not ready after {self._ready_seconds:g} s: {ends}")
            time.sleep(0.05)

    def _end_of_log(self, name: str) -> str:
        with (self.logs / f"{name}.log").open(errors="replace") as log:
            return "its log ends\n" + "".join(deque(log, 15))


def answers(url: str, tls: ssl.SSLContext) -> bool:
    """Whether an API server says yes there."""
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
    )
    try:
        with opener.open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
