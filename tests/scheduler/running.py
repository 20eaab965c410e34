"""A scheduler for tests: in this process, with a clock of the test's own, or as a process."""

import contextlib
import os
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import kubernetes.client

from privatekube_kfp import __version__
from privatekube_kfp.ledger.kubernetes.api import BLOCKS, CLAIMS, STREAMS, Api, Conflict
from privatekube_kfp.ledger.kubernetes.ledger import KubernetesLedger
from privatekube_kfp.ledger.times import system_clock
from scheduler.election import Election
from scheduler.leader import Habits
from scheduler.metrics import Metrics
from scheduler.scheduling import Scheduler

TOP = Path(__file__).parents[2]


def install(control_plane):
    """Our kinds, in the cluster, once it serves them."""
    api = Api(lambda: control_plane.admin)
    kinds = (STREAMS, BLOCKS, CLAIMS)
    if all(_is_served(api, kind) for kind in kinds):
        return
    for path in sorted((TOP / "crds").glob("p*.yaml")):
        control_plane.apply(path)
    for kind in kinds:
        until(lambda kind=kind: _is_served(api, kind))


def _is_served(api, kind):
    try:
        next(api.pages(kind, page=1))
        return True
    except Exception:
        return False


def clean(control_plane):
    """Remove every stream, block and claim, whatever holds them back."""
    api = Api(lambda: control_plane.client())
    for kind in (CLAIMS, BLOCKS, STREAMS):
        for _ in range(20):
            objects, _ = api.list_all(kind)
            for obj in objects:
                with contextlib.suppress(Conflict):
                    if obj["metadata"].get("finalizers"):
                        obj = api.patch(kind, obj, {"metadata": {"finalizers": []}})
                    api.delete(kind, obj)
            if not objects:
                break
    api.close()


def until(holds, timeout=180.0):
    """Wait for something to become true; what it became."""
    give_up = time.monotonic() + timeout
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > give_up:
            raise AssertionError("it did not become true in time")
        time.sleep(0.02)


def assert_verified(ledger, timeout=180.0):
    """The audit finds nothing, as soon as what blocks show has caught up with the claims.

    The audit itself waits for that, but not for schedulers that have yet to start, or to notice
    that the leader was killed.
    """
    give_up = time.monotonic() + timeout
    while not (verdict := ledger.verify()).ok:
        assert time.monotonic() < give_up, verdict.difference


@contextlib.contextmanager
def running(control_plane, namespace, clock=system_clock, *, token=None, make_api=Api, **habits):
    """A scheduler in a thread of this process, leading."""

    def connect():
        client = control_plane.client(token)
        client.configuration.connection_pool_maxsize = 16
        return kubernetes.client.ApiClient(client.configuration)

    # Its terms end when a test ends them, not when a slow machine lets the lease run out.
    election = Election(
        Api(connect, patience=1.0),
        namespace,
        "scheduler",
        f"test-{uuid.uuid4().hex[:8]}",
        duration=120.0,
        renew_deadline=90.0,
        retry=0.3,
    )
    scheduler = Scheduler(
        connect,
        election,
        Habits(**{"block_status_every": 0.0, **habits}),
        Metrics(__version__),
        clock=clock,
        clock_tolerance=None if clock is not system_clock else 60.0,
        make_api=make_api,
    )
    thread = threading.Thread(target=scheduler.run, daemon=True)
    thread.start()
    try:
        until(lambda: scheduler.term)
        yield scheduler
    finally:
        scheduler.stop()
        thread.join(timeout=180)
        assert not thread.is_alive(), "the scheduler did not stop"


def settle(scheduler):
    """Wait until the scheduler has done a cycle that began after this call, and shown all."""
    for _ in range(2):  # the first may begin with what the second has to show
        until(lambda: _has_cycled(scheduler))
    until(lambda: not until(lambda: scheduler.term).is_behind)


def _has_cycled(scheduler):
    """Whether a cycle has run to its end; not if the term ended meanwhile."""
    term, done = until(lambda: scheduler.term), threading.Event()
    term.wake(done)
    give_up = time.monotonic() + 180
    while not done.wait(0.1) and scheduler.term is term:
        assert time.monotonic() < give_up, "the scheduler is stuck"
    return done.is_set()


class SettledLedger(KubernetesLedger):
    """Looks only once the scheduler has come to rest: then all that it shows is up to date."""

    scheduler = None

    def __init__(self, *args, answer_within=180.0, **how):
        super().__init__(*args, answer_within=answer_within, **how)

    def _settle(self):
        settle(self.scheduler)


def _settling(name):
    inner = getattr(KubernetesLedger, name)

    def outer(self, *args, **kwargs):
        if name in ("submit", "create_block", "retire_block", "delete_stream", "publish_count"):
            made = inner(self, *args, **kwargs)
            self._settle()
            return made
        self._settle()
        return inner(self, *args, **kwargs)

    return outer


for _name in (
    "streams",
    "stream",
    "blocks",
    "block",
    "response",
    "why_waiting",
    "claim",
    "claims",
    "tend",
    "verify",
    "submit",
    "create_block",
    "retire_block",
    "delete_stream",
    "publish_count",
):
    setattr(SettledLedger, _name, _settling(_name))


@contextlib.contextmanager
def served(control_plane, namespace, *flags):
    """A ledger in the cluster, with a scheduler that is a process of its own."""
    install(control_plane)
    scheduler = start_process(control_plane.kubeconfig, namespace, *flags)
    try:
        with KubernetesLedger(Api(control_plane.client), namespace, answer_within=180) as ledger:
            yield ledger
    finally:
        scheduler.terminate()
        assert scheduler.wait(timeout=180) == 0
        clean(control_plane)


def is_stopped(pid):
    """Whether a process is frozen."""
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


def start_process(kubeconfig, namespace, *flags, module="scheduler", env=None, log=None):
    """A scheduler as a process of its own; the caller ends it."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            module,
            f"--kubeconfig={kubeconfig}",
            f"--namespace={namespace}",
            "--lease-duration=2s",
            "--renew-deadline=1s500ms",
            "--retry-period=200ms",
            "--block-status-every=50ms",
            "--listen=127.0.0.1:0",
            "--log-format=text",
            *flags,
        ],
        cwd=TOP,
        stderr=log if log is not None else None,
        env={**os.environ, **(env or {})},
    )
