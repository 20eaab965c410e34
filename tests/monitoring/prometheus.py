"""A real Prometheus: its programs without installing them, one that runs, and what it is asked.

`prometheus(targets)` is for any test that has something to scrape: the exporter of the tests
here, or a scheduler. What a killed test run leaves behind: no process (the kernel kills it with
the run), and at most a folder in the cache that the next fetch removes.
"""

import fcntl
import json
import os
import platform
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.control_plane import binaries, die_with_parent
from tests.monitoring import debian

JOB = "privatekube-scheduler"
"""The job's name, which the alerts know too."""

_NAMES = ("prometheus", "promtool")
_HOW = (
    "Put prometheus and promtool on the PATH, or run on Debian 12, where they are taken from "
    "Debian's package, without root and without installing it."
)
_READY_SECONDS = 180
_GRACE_SECONDS = 5

Result = list[tuple[dict[str, str], float]]


class PrometheusMissing(RuntimeError):
    """There is no Prometheus to run and none can be fetched; says how to provide one."""


class PrometheusFailed(RuntimeError):
    """Prometheus did not start, died, or refused a query."""


@dataclass(frozen=True)
class Programs:
    prometheus: Path
    promtool: Path


def cache_entry() -> Path:
    """The folder that keeps the programs."""
    return binaries.cache().parent / "prometheus" / f"{debian.CODENAME}-{platform.machine()}"


def find_or_fetch() -> Programs:
    """The programs, from the first place that has them: the PATH, the cache, Debian's package.

    Raises:
        PrometheusMissing: they are nowhere and cannot be fetched here.
    """
    found = [shutil.which(name) for name in _NAMES]
    if all(found):
        return Programs(*(Path(str(path)) for path in found))
    entry = cache_entry()
    if not entry.is_dir():
        _fetch(entry)
    return Programs(*(entry / name for name in _NAMES))


def _fetch(entry: Path) -> None:
    if why := debian.why_not():
        raise PrometheusMissing(
            f"There is no Prometheus here, and none can be fetched: {why}. {_HOW}"
        )
    entry.parent.mkdir(parents=True, exist_ok=True)
    # The kernel gives the lock back when its holder dies, however it dies.
    with (entry.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if entry.is_dir():  # Another process made it.
            return
        for left in entry.parent.glob(".fetching-*"):
            shutil.rmtree(left)
        work = Path(tempfile.mkdtemp(prefix=".fetching-", dir=entry.parent))
        try:
            apt = debian.Apt(work / "apt", _run)
            apt.update()
            apt.unpack(["prometheus"], work / "package")
            out = work / "out"
            out.mkdir()
            for name in _NAMES:
                program = shutil.copy(work / "package/usr/bin" / name, out)
                _run([str(program), "--version"])
            out.rename(entry)
        except (OSError, RuntimeError, ValueError) as error:
            raise PrometheusMissing(
                f"Fetching Prometheus failed: {str(error).rstrip('.')}. {_HOW}"
            ) from error
        finally:
            shutil.rmtree(work)


def _run(command: list[str], *, cwd: Path | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-5:])
        raise RuntimeError(f"{Path(command[0]).name} ended with {done.returncode}: {last}")
    return done.stdout


class Prometheus:
    """A Prometheus that runs, as its HTTP API answers."""

    def __init__(self, url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.url = url
        self._process = process
        self._log = log
        # No proxy of the environment has a part in what is asked of this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def query(self, promql: str, at: float | None = None) -> Result:
        """What the query returns now, or at a time: labels and value of each series."""
        asked = {"query": promql} | ({} if at is None else {"time": repr(at)})
        data = self.get("query", asked)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(each["metric"], float(each["value"][1])) for each in data["result"]]

    def query_range(
        self, promql: str, start: float, end: float, step: float
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """What a graph of the query shows: labels, and times with values, of each series."""
        asked = {"query": promql, "start": repr(start), "end": repr(end), "step": repr(step)}
        return [
            (each["metric"], [(float(when), float(value)) for when, value in each["values"]])
            for each in self.get("query_range", asked)["result"]
        ]

    def query_until(
        self, promql: str, predicate: Callable[[Result], bool], timeout: float = 180
    ) -> Result:
        """Ask again and again until the predicate holds of the result, and return it.

        Raises:
            TimeoutError: it did not hold in time; says what the last result was.
        """
        until = time.monotonic() + timeout
        while not predicate(result := self.query(promql)):
            if time.monotonic() > until:
                raise TimeoutError(f"{promql} was still {result} after {timeout} s")
            time.sleep(0.1)
        return result

    def next_scrape(self, target: str, timeout: float = 180) -> float:
        """The time of a scrape of `target` that began after this call and got an answer.

        Ask for ranges at that time: they end with a sample then, and nothing beyond is guessed.
        """
        # Prometheus may shift the time of a scrape by a few milliseconds.
        now = time.time() + 0.01
        up = f'up{{job="{JOB}",instance="{target}"}}'
        [(_, when)] = self.query_until(
            f"timestamp({up}) and {up} == 1",
            lambda found: bool(found) and found[0][1] > now,
            timeout,
        )
        return when

    def get(self, what: str, asked: dict[str, str] | None = None) -> Any:
        """The data of any answer of the HTTP API.

        Raises:
            PrometheusFailed: the query was refused, or Prometheus is gone.
        """
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(asked or {})}"
        try:
            with self._opener.open(url, timeout=180) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            raise PrometheusFailed(f"{asked or what}: {text}") from None
        except OSError as error:
            raise PrometheusFailed(f"{what}: {error}; {self._end_of_log()}") from error

    def wait_until_ready(self) -> None:
        until = time.monotonic() + _READY_SECONDS
        while True:
            if self._process.poll() is not None or time.monotonic() > until:
                raise PrometheusFailed(f"Prometheus did not start; {self._end_of_log()}")
            try:
                with self._opener.open(f"{self.url}/-/ready", timeout=5):
                    return
            except urllib.error.HTTPError as error:
                error.close()
            except OSError:
                pass
            time.sleep(0.05)

    def _end_of_log(self) -> str:
        return "its log ends: " + "\n".join(self._log.read_text().splitlines()[-10:])


@contextmanager
def prometheus(
    targets: Sequence[str],
    *,
    rules: Path | None = None,
    data: Path | None = None,
    folder: Path | None = None,
    arguments: Sequence[str] = (),
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes `host:port` targets every second, until the end of the `with`.

    `rules` is a file of rules that it evaluates every second; `data` a folder of blocks that it
    serves and adds to; `folder` is where it keeps its files, else a temporary one. The arguments
    add to our own.

    Raises:
        PrometheusMissing: there is none to run.
        PrometheusFailed: it did not start.
    """
    program = find_or_fetch().prometheus
    with tempfile.TemporaryDirectory(prefix="privatekube-prometheus-") as temporary:
        home = folder or Path(temporary)
        config = home / "prometheus.yml"
        config.write_text(yaml.safe_dump(_config(targets, rules)))
        for attempt in range(3):
            log = home / "prometheus.log"
            port = _free_port()
            with log.open("wb") as output:
                process = subprocess.Popen(
                    die_with_parent.wrapped(
                        [
                            str(program),
                            f"--config.file={config}",
                            f"--storage.tsdb.path={data or home / 'data'}",
                            "--storage.tsdb.retention.time=100y",
                            f"--web.listen-address=127.0.0.1:{port}",
                            "--log.level=warn",
                            *arguments,
                        ]
                    ),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=os.environ | {"GOMAXPROCS": "1"},
                )
            running = Prometheus(f"http://127.0.0.1:{port}", process, log)
            try:
                try:
                    running.wait_until_ready()
                except PrometheusFailed as error:
                    # Between our choice of a port and its use, another process may take it.
                    if attempt == 2 or "address already in use" not in str(error):
                        raise
                    continue
                yield running
                return
            finally:
                _stop(process)


def _config(targets: Sequence[str], rules: Path | None) -> dict[str, Any]:
    return {
        "global": {
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "evaluation_interval": "1s",
        },
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": list(targets)}]}],
    }


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
