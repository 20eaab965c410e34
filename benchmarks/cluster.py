"""The scheduler in a cluster: how much does it add to what the API server costs anyway?

A kube-apiserver and an etcd are started for this, and schedulers as processes of their own. All
that is judged are ratios of times that were taken in turns in one run, so that a slow machine
slows down both sides. Everything is stopped at the end, also on Ctrl-C.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import kubernetes.client

from benchmarks.cluster_claims import (
    DAYS,
    LONGEST,
    NAMESPACE,
    Offline,
    allocate,
    daily_blocks,
    named,
    over_days,
    past_claims,
    past_stream,
    side_by_side,
    stream,
)
from benchmarks.cluster_etcd import Etcd, write_claims
from benchmarks.cluster_process import SchedulerProcess, cpu_seconds, without_proxies
from benchmarks.cluster_raw import TWIN, RawClaims, twin_definition
from benchmarks.report import Result, at_least, at_most
from privatekube_kfp.core.claim import Phase
from privatekube_kfp.ledger.kubernetes.api import (
    BLOCKS,
    CLAIMS,
    GROUP,
    STREAMS,
    Api,
    Change,
    NotFound,
    Object,
    Resource,
    Unreachable,
)
from privatekube_kfp.ledger.kubernetes.objects import block_object, is_adopted, stream_object
from privatekube_kfp.ledger.streams import StreamSpec
from tests.kubernetes.control_plane import Binaries, ControlPlane, find_or_build

Say = Callable[[str], None]

CONNECTIONS = 8
_TOP = Path(__file__).parents[1]
_DEFINITIONS = sorted((_TOP / "crds").glob("p*.yaml"))
_CLAIMS_DEFINITION = _TOP / "crds/privacyclaims.yaml"
_LEASE_NAMESPACE = "default"
_WATCH_SECONDS = 240
_PATIENCE = 600.0
_SETTLED_AFTER = 0.3


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    claims: int
    """How many claims wait for the scheduler in a round of throughput."""
    rounds: int
    one_by_one: int
    """How many claims are granted one after the other for the latency."""
    counted: int
    """How many claims of each width have their writes counted."""
    wide: int
    """How many blocks a wide claim asks for."""
    past: int
    """How many claims there are when a scheduler starts."""
    restarts: int


FULL = Sizes(2_000, 5, 300, 10, 500, 50_000, 3)
QUICK = Sizes(200, 2, 40, 3, 500, 5_000, 1)


def measure(quick: bool, say: Say) -> list[Result]:
    return measure_with(find_or_build(say), QUICK if quick else FULL, not quick, say)


def measure_with(binaries: Binaries, sizes: Sizes, judged: bool, say: Say) -> list[Result]:
    say("Cluster: starting a Kubernetes API server and etcd ...")
    results: list[Result] = []
    with Bench(binaries, say) as bench:
        for part in (throughput, writes_per_claim, latency, restart):
            results += part(bench, sizes, judged)
            if part is not restart:
                bench.clean()
    return results


class Bench:
    """A cluster with our kinds, a twin of our claims, and nothing else; until it is left."""

    def __init__(self, binaries: Binaries, say: Say) -> None:
        self.say = say
        self._plane = ControlPlane(binaries)
        self._clients: list[kubernetes.client.ApiClient] = []

    def __enter__(self) -> Bench:
        self._plane.start()
        try:
            for definition in _DEFINITIONS:
                self._plane.apply(definition)
            self._plane.apply(twin_definition(_CLAIMS_DEFINITION))
            core = kubernetes.client.CoreV1Api(self._plane.admin)
            core.create_namespace({"metadata": {"name": NAMESPACE}})
            self.api = Api(lambda: self._connect(CONNECTIONS + 2))
            self.raw = RawClaims(self._connect(CONNECTIONS), CONNECTIONS)
            self.raw_alone = RawClaims(self._connect(1), 1)
            for kind in (STREAMS, BLOCKS, CLAIMS, TWIN):
                _until(lambda kind=kind: self._serves(kind))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        while self._clients:
            client = self._clients.pop()
            client.rest_client.pool_manager.clear()
            client.close()
        self._plane.stop()

    def _connect(self, connections: int) -> kubernetes.client.ApiClient:
        settings = self._plane.client().configuration
        settings.connection_pool_maxsize = connections
        client = kubernetes.client.ApiClient(settings)
        self._clients.append(client)
        return client

    def _serves(self, kind: Resource) -> bool:
        """Whether the server knows a kind yet, which takes it a moment after it was defined."""
        try:
            self.api.list_all(kind)
        except NotFound:
            return False
        return True

    def scheduler(self) -> SchedulerProcess:
        return SchedulerProcess(self._plane.kubeconfig, _LEASE_NAMESPACE)

    def open(self, spec: StreamSpec, days: int) -> None:
        """Make a stream and its blocks."""
        self.api.create(STREAMS, stream_object(spec))
        self.create(BLOCKS, map(block_object, daily_blocks(spec, days)))

    def create(self, kind: Resource, objects: Iterable[Object]) -> None:
        side_by_side(CONNECTIONS, lambda obj: self.api.create(kind, obj), objects)

    def await_adoption(self, days: int) -> None:
        """Wait until a scheduler has fixed the capacity of every block."""
        _until(lambda: sum(map(is_adopted, self.api.list_all(BLOCKS)[0])) == days)

    def clean(self) -> None:
        """Remove every object, whatever holds it back; no scheduler may be running."""
        for kind in (CLAIMS, BLOCKS, STREAMS):
            objects, _ = self.api.list_all(kind)

            def remove(obj: Object, kind: Resource = kind) -> None:
                self.api.delete(kind, self.api.patch(kind, obj, {"metadata": {"finalizers": []}}))

            side_by_side(CONNECTIONS, remove, objects)

    @contextmanager
    def watching(self) -> Iterator[Iterator[Change]]:
        """What happens to claims from here on."""
        _, version = self.api.list_all(CLAIMS, NAMESPACE)
        changes = self._changes(version)
        try:
            yield changes
        finally:
            changes.close()

    def _changes(self, version: str) -> Generator[Change, None, None]:
        """A server that is busy ends watches that cannot keep up: each is taken up where it was."""
        while True:
            came = False
            watch = self.api.watch(CLAIMS, version, NAMESPACE, seconds=_WATCH_SECONDS)
            try:
                for change in watch:
                    version = change.version
                    if change.type != "BOOKMARK":
                        came = True
                        yield change
            except Unreachable:
                came = True  # Cut off in the middle of a line.
            finally:
                watch.close()
            if not came:
                raise TimeoutError(f"nothing has happened to any claim for {_WATCH_SECONDS} s")

    def writes(self) -> int:
        """How many writes of claims and streams there were so far, but for creations.

        The API server counts a write a moment after everybody can see what was written.
        """
        count, again = -1, self._writes_now()
        while count != again:
            time.sleep(_SETTLED_AFTER)
            count, again = again, self._writes_now()
        return count

    def _writes_now(self) -> int:
        client = self._plane.admin
        text = client.rest_client.pool_manager.request(
            "GET", f"{client.configuration.host}/metrics"
        ).data.decode()
        total = 0
        for labels, count in re.findall(r"^apiserver_request_total\{(.*)\} (\S+)$", text, re.M):
            said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if (
                said["group"] == GROUP
                and said["resource"] in (CLAIMS.plural, STREAMS.plural)
                and said["verb"] in ("PUT", "PATCH", "APPLY", "DELETE")
            ):
                total += int(float(count))
        return total

    @contextmanager
    def counting_cpu(self, client: int, spent: list[float]) -> Iterator[None]:
        """Note the CPU time of API server, etcd and a client: a busy machine distorts it less."""
        pids = [client, self._plane.pids["kube-apiserver"], self._plane.pids["etcd"]]
        before = cpu_seconds(pids)
        yield
        after = cpu_seconds(pids)
        if before is not None and after is not None:
            spent.append(after - before)

    def list_raw(self) -> tuple[int, float]:
        """How many claims a fresh process lists, and in how many seconds."""
        command = [sys.executable, "-m", "benchmarks.cluster_raw"]
        done = subprocess.run(
            [*command, str(self._plane.kubeconfig), NAMESPACE],
            cwd=_TOP,
            env=without_proxies(),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found, took = done.stdout.split()
        return int(found), float(took)

    def write_past(self, claims: Iterable[Object]) -> None:
        """Have claims with these statuses, whatever it takes; nobody measures how long."""
        write_claims(Etcd(self._plane.pids["etcd"]), self.api, claims)


def _until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > give_up:
            raise TimeoutError("the cluster is not as it should be, and does not become so")
        time.sleep(0.1)


def _await_allocated(changes: Iterator[Change], names: Iterable[str]) -> None:
    """Returns at once when the last of them is seen to be allocated."""
    missing = set(names)
    while missing:
        change = next(changes)
        if change.object.get("status", {}).get("phase") == Phase.ALLOCATED:
            missing.discard(change.object["metadata"]["name"])


def _without_status(claim: Object) -> Object:
    return {key: value for key, value in claim.items() if key != "status"}


# Throughput


def throughput(bench: Bench, sizes: Sizes, judged: bool) -> list[Result]:
    """Claims that wait for a scheduler, against as many raw status updates."""
    count = sizes.claims
    bench.say(
        f"Throughput: {count:,} claims over 1 to {LONGEST} of {DAYS} blocks, 12 Renyi orders,"
        f" against raw status updates over {CONNECTIONS} connections, in {sizes.rounds} turns ..."
    )
    raw_rates, rates, rates_from_start = [], [], []
    raw_costs: list[float] = []
    costs: list[float] = []
    for turn in range(sizes.rounds):
        spec = stream(f"round-{turn}")
        offline = Offline(spec, daily_blocks(spec, DAYS))
        names = [f"{spec.name}-{named(number)}" for number in range(count)]
        claims = [offline.claim(name, allocate(spec, number)) for number, name in enumerate(names)]
        updates = bench.raw.create(claims)
        with bench.counting_cpu(os.getpid(), raw_costs):
            raw_rates.append(count / bench.raw.write_all(updates))
        bench.open(spec, DAYS)
        bench.create(CLAIMS, map(_without_status, claims))
        with bench.watching() as changes, bench.scheduler() as scheduler:
            leading = scheduler.said("leading")
            with bench.counting_cpu(scheduler.pid, costs):
                _await_allocated(changes, names)
            end = time.time()
            rates.append(count / (end - leading))
            rates_from_start.append(count / (end - scheduler.started))
        bench.say(
            f"  turn {turn + 1}: {raw_rates[-1]:,.0f} raw updates per second,"
            f" {rates[-1]:,.0f} claims: {rates[-1] / raw_rates[-1]:.2f}"
        )
        if turn < sizes.rounds - 1:
            bench.clean()
    ratios = [rate / raw for rate, raw in zip(rates, raw_rates, strict=True)]
    name = "claims granted per second over raw status updates"
    cpu = [
        Result(f"CPU time per {what}, server and client", median(spent) / count * 1e3, "ms")
        for what, spent in (("raw status update", raw_costs), ("claim granted", costs))
        if spent
    ]
    return [
        Result(f"raw status updates, {CONNECTIONS} connections", median(raw_rates), "1/s"),
        Result("claims granted, from the begin of a term", median(rates), "1/s"),
        Result("claims granted, from the process's start", median(rates_from_start), "1/s"),
        at_least(name, median(ratios), "times", 0.5, judged),
        Result(f"{name}, lowest turn", min(ratios), "times"),
        Result(f"{name}, highest turn", max(ratios), "times"),
        *cpu,
    ]


# Writes


def writes_per_claim(bench: Bench, sizes: Sizes, judged: bool) -> list[Result]:
    """What the API server counts while claims over one block and over many are granted."""
    wide = sizes.wide
    bench.say(f"Writes: claims over 1 block and over {wide}, {sizes.counted} each, in turns ...")
    spec = stream("writes")
    bench.open(spec, wide)
    counts: dict[int, list[int]] = {1: [], wide: []}
    with bench.scheduler(), bench.watching() as changes:
        bench.await_adoption(wide)
        offline = Offline(spec, daily_blocks(spec, wide))
        for turn in range(sizes.counted):
            for width, counted in counts.items():
                request = over_days(spec, 0, width, sigma=200)
                claim = offline.claim(f"over-{width}-{turn}", request)
                before = bench.writes()
                bench.api.create(CLAIMS, _without_status(claim))
                _await_allocated(changes, [claim["metadata"]["name"]])
                counted.append(bench.writes() - before)
    mean = {width: sum(counted) / len(counted) for width, counted in counts.items()}
    return [
        Result("writes of claim and stream, a claim over 1 block", mean[1], "writes"),
        Result(f"writes of claim and stream, a claim over {wide} blocks", mean[wide], "writes"),
        at_most(
            f"writes for a claim over {wide} blocks over those for 1 block, block status aside",
            mean[wide] / mean[1],
            "times",
            1,
            judged,
        ),
    ]


# Latency


def latency(bench: Bench, sizes: Sizes, judged: bool) -> list[Result]:
    """One claim at a time, from before it is created until it is seen to be allocated."""
    count = sizes.one_by_one
    bench.say(f"Latency: {count} claims, one at a time, each followed by a raw status update ...")
    spec = stream("latency")
    offline = Offline(spec, daily_blocks(spec, DAYS))
    claims = [offline.claim(named(number), allocate(spec, number)) for number in range(count)]
    updates = bench.raw_alone.create(claims)
    bench.open(spec, DAYS)
    waits, raw = [], []
    with bench.scheduler(), bench.watching() as changes:
        bench.await_adoption(DAYS)
        for claim, update in zip(claims, updates, strict=True):
            began = perf_counter()
            bench.api.create(CLAIMS, _without_status(claim))
            _await_allocated(changes, [claim["metadata"]["name"]])
            waits.append((perf_counter() - began) * 1e3)
            began = perf_counter()
            bench.raw_alone.write(update)
            raw.append((perf_counter() - began) * 1e3)
    typical = median(raw)
    slowest = _percentile(waits, 0.99)
    return [
        Result("raw status update, one connection, median", typical, "ms"),
        Result("raw status update, one connection, 99th percentile", _percentile(raw, 0.99), "ms"),
        Result("from create to Allocated, uncontended, median", median(waits), "ms"),
        Result("from create to Allocated, uncontended, 99th percentile", slowest, "ms"),
        at_most(
            "99th percentile of create to Allocated over the median raw status update",
            slowest / typical,
            "times",
            6,
            judged,
        ),
        Result(
            "99th percentile of create to Allocated over that of raw status updates",
            slowest / _percentile(raw, 0.99),
            "times",
        ),
        Result(
            "median of create to Allocated over the median raw status update",
            median(waits) / typical,
            "times",
        ),
    ]


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


# Restart


def restart(bench: Bench, sizes: Sizes, judged: bool) -> list[Result]:
    """A scheduler that starts among many claims, against a raw list of the same claims."""
    count = sizes.past
    bench.say(f"Restart: writing {count:,} claims, mostly finished: minutes at full size ...")
    spec = past_stream()
    bench.open(spec, DAYS)
    with bench.scheduler():
        bench.await_adoption(DAYS)
    began = perf_counter()
    bench.write_past(_with_progress(past_claims(count), count, bench.say))
    bench.say(f"  written in {perf_counter() - began:.0f} s")
    lists, begins = [], []
    for turn in range(sizes.restarts):
        found, took = bench.list_raw()
        if found != count:
            raise AssertionError(f"{count:,} claims were written, {found:,} are there")
        lists.append(took)
        with bench.scheduler() as scheduler:
            leading = scheduler.said("leading")
            begins.append(scheduler.said("the term has begun", _PATIENCE) - leading)
        if scheduler.complaints:
            raise AssertionError(f"the scheduler complains: {scheduler.complaints[:5]}")
        bench.say(f"  turn {turn + 1}: listed in {lists[-1]:.2f} s, begun in {begins[-1]:.2f} s")
    ratio = median(begin / listed for begin, listed in zip(begins, lists, strict=True))
    return [
        Result(f"raw list of {count:,} claims by pages", median(lists), "s"),
        Result(f"a term's begin with {count:,} claims", median(begins), "s"),
        at_most("a term's begin over the raw list of the claims", ratio, "times", 2, judged),
    ]


def _with_progress(claims: Iterable[Object], count: int, say: Say) -> Iterator[Object]:
    for number, claim in enumerate(claims, start=1):
        yield claim
        if number % max(1, count // 10) == 0 and number < count:
            say(f"  {number:,} claims")
