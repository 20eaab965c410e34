"""Schedulers that die at a chosen write: real processes, killed by SIGKILL before or after it.

Or that freeze there, by SIGSTOP.

`python -m tests.scheduler.dying KUBECONFIG NAMESPACE` reads one JSON object a line: at which write
to die (null: at none), whether before or after it, and a file to list the writes in. It forks a
scheduler for each, prints its pid, then how it ended. Forking saves importing everything anew.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading

from privatekube_kfp import __version__
from privatekube_kfp.ledger.kubernetes.api import Api
from privatekube_kfp.ledger.kubernetes.connecting import connecting
from scheduler.election import Election
from scheduler.leader import Habits
from scheduler.metrics import Metrics
from scheduler.scheduling import Scheduler
from tests.scheduler.running import TOP

_UNCOUNTED = ("leases", "events")


class DyingApi(Api):
    """Counts its writes, and kills its own process at one of them."""

    die_at = None
    freeze_at = None
    when = "before"
    lines = None
    count = itertools.count(1)
    lock = threading.Lock()

    def _send(self, verb, kind, method, path, **more):
        if method == "GET" or kind.label in _UNCOUNTED:
            return super()._send(verb, kind, method, path, **more)
        with self.lock:
            number = next(self.count)
            self.lines.write(f"{verb} {path}\n")
            self.lines.flush()
        if number == self.freeze_at:
            os.kill(os.getpid(), signal.SIGSTOP)
        if number == self.die_at and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = super()._send(verb, kind, method, path, **more)
        if number == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


def schedule(kubeconfig, namespace, order, ready):
    DyingApi.die_at, DyingApi.when = order["die_at"], order["when"]
    DyingApi.freeze_at = order.get("freeze_at")
    connect = connecting(kubeconfig, connections=16)
    # One name for all of them: the next need not wait for the lease of the dead one to run out.
    election = Election(
        Api(connect, patience=1.0),
        namespace,
        "privatekube-scheduler",
        order.get("identity", "scheduler"),
        duration=2.0,
        renew_deadline=1.5,
        retry=0.2,
    )
    habits = Habits(connections=order.get("connections", 1), block_status_every=0.0)
    scheduler = Scheduler(connect, election, habits, Metrics(__version__), make_api=DyingApi)
    signal.signal(signal.SIGTERM, lambda *_: scheduler.stop())
    os.close(ready)
    with open(order["writes"], "a") as DyingApi.lines:
        scheduler.run()


def main(kubeconfig, namespace):
    for line in sys.stdin:
        waiting, ready = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                schedule(kubeconfig, namespace, json.loads(line), ready)
                code = 0
            finally:
                os._exit(code)
        os.close(ready)
        os.read(waiting, 1)  # ends when the child can be told to stop
        os.close(waiting)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


class Nursery:
    """Starts schedulers that die; for tests."""

    def __init__(self, kubeconfig, namespace):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.scheduler.dying", str(kubeconfig), namespace],
            cwd=TOP,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, writes, *, die_at=None, when="before", **more):
        """A scheduler's pid; `ended` waits for it."""
        order = {"die_at": die_at, "when": when, "writes": str(writes), **more}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def ended(self):
        return int(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=180)
        self._process.stdout.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
