"""What the scheduler shows of itself: the Prometheus metrics, under their names and labels.

The scheduler tells a `Metrics` what it did and what it sees; the status server asks it for the
text of a scrape. Nothing here decides anything, and nothing survives the process: counters start
at zero again after a crash, which Prometheus knows how to read.

What streams hold (budget, blocks, claims) is shown by whoever leads, and by nobody else, so
that sums over several schedulers count nothing twice. Counters of what a scheduler itself did
stay until it ends: a counter that vanished early would take its last increments with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from privatekube_kfp.core.claim import Kind, Phase
from privatekube_kfp.core.errors import Reason
from privatekube_kfp.core.stream import BlockPhase

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STATES = ("locked", "unlocked", "allocated", "consumed")
_WAITS = (Reason.WAITING_FOR_UNLOCK, Reason.WAITING_FOR_RELEASE, Reason.WAITING_FOR_ALLOCATE)
_OUTCOMES = ("done", "conflict", "fenced")
_WATCHED = ("streams", "blocks", "claims")
_CALLED = (*_WATCHED, "leases", "events", "workflows")
_CAUSES = ("expired", "closed", "failed")

# What is usually answered. Others (a plan that cannot be read, say) are shown once they occur.
_ANSWERS = {
    Kind.ALLOCATE: (
        Reason.ALLOCATED,
        Reason.EXCEEDS_CAPACITY,
        Reason.EXHAUSTED,
        Reason.TIMED_OUT,
        Reason.BLOCK_RETIRED,
        Reason.NO_MATCHING_BLOCKS,
        Reason.WITHDRAWN,
        Reason.ALREADY_RELEASED,
    ),
    Kind.CONSUME: (
        Reason.CONSUMED,
        Reason.NOT_ALLOCATED,
        Reason.EXCEEDS_ALLOCATION,
        Reason.NOTHING_LEFT,
        Reason.ALREADY_CONSUMED,
        Reason.ALREADY_RELEASED,
        Reason.UNKNOWN_STEP,
    ),
    Kind.RELEASE: (Reason.RELEASED,),
}

_MINUTE, _HOUR = 60, 3600
# A claim that fits is granted in milliseconds; one that waits for data to unlock, in days.
_DELAYS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    *(_MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, 12 * _HOUR, 24 * _HOUR),
)
_PASSES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


@dataclass(frozen=True)
class StreamSnapshot:
    """What one stream holds at one moment. Its maps must not change after it was shown."""

    stream: str
    shares: Mapping[str, float]
    """By state (locked, unlocked, allocated, consumed): the mean over the stream's blocks."""
    blocks: Mapping[str, int]
    """By phase."""
    nearly_exhausted: int
    """How many active blocks have at least 90% of their capacity consumed."""
    most_consumed: float
    """The highest consumed share of any active block."""
    claims: Mapping[str, int]
    """By phase."""
    waiting: Mapping[str, int]
    """Waiting claims by reason."""
    oldest_waiting: float
    """For how many seconds the claim has waited that has waited longest; 0 if none waits."""


class _Seen(Collector):
    """What was seen last. A scrape reads the one tuple, so it never sees half of a change."""

    def __init__(self) -> None:
        self.snapshots: tuple[StreamSnapshot, ...] = ()
        self.bad_objects: Mapping[str, int] = {}
        self.clock_skew: float | None = None

    def collect(self) -> Iterator[Metric]:
        share, blocks, nearly, most, claims, waiting, oldest = families = (
            GaugeMetricFamily(
                "privatekube_budget_share",
                "Share of capacity that is locked, unlocked, allocated or consumed: "
                "the mean over the stream's blocks.",
                labels=("stream", "state"),
            ),
            GaugeMetricFamily("privatekube_blocks", "Blocks by phase.", labels=("stream", "phase")),
            GaugeMetricFamily(
                "privatekube_blocks_nearly_exhausted",
                "Active blocks with at least 90% of their capacity consumed.",
                labels=("stream",),
            ),
            GaugeMetricFamily(
                "privatekube_block_most_consumed_share",
                "The highest consumed share of capacity of any active block.",
                labels=("stream",),
            ),
            GaugeMetricFamily("privatekube_claims", "Claims by phase.", labels=("stream", "phase")),
            GaugeMetricFamily(
                "privatekube_claims_waiting",
                "Claims that wait, by what they wait for.",
                labels=("stream", "reason"),
            ),
            GaugeMetricFamily(
                "privatekube_oldest_waiting_seconds",
                "How long the claim has waited that has waited longest; 0 if none waits.",
                labels=("stream",),
            ),
        )
        for each in self.snapshots:
            _add(share, each.stream, _STATES, each.shares)
            _add(blocks, each.stream, BlockPhase, each.blocks)
            nearly.add_metric((each.stream,), each.nearly_exhausted)
            most.add_metric((each.stream,), each.most_consumed)
            _add(claims, each.stream, Phase, each.claims)
            _add(waiting, each.stream, _WAITS, each.waiting)
            oldest.add_metric((each.stream,), each.oldest_waiting)
        yield from families

        bad = GaugeMetricFamily(
            "privatekube_bad_objects",
            "Objects that are set aside now because they cannot be understood.",
            labels=("kind",),
        )
        for kind, count in (dict.fromkeys(_WATCHED, 0) | dict(self.bad_objects)).items():
            bad.add_metric((kind,), count)
        yield bad

        # Not 0 before it was measured: that would say that the clocks agree.
        skew = GaugeMetricFamily(
            "privatekube_clock_skew_seconds",
            "The scheduler's clock minus the API server's, once measured.",
        )
        if self.clock_skew is not None:
            skew.add_metric((), self.clock_skew)
        yield skew


def _add(
    family: GaugeMetricFamily, stream: str, known: Iterable[str], values: Mapping[str, float]
) -> None:
    """Known labels are always there, at 0 if need be: a line that ends looks like an outage."""
    for label, value in ({str(name): 0.0 for name in known} | dict(values)).items():
        family.add_metric((stream, label), value)


class _WithoutCreated(Collector):
    """A registry without the times at which counters were made: a third of all series, unused.

    The client library can leave them out only for all of the process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            created = f"{metric.name}_created"
            metric.samples = [each for each in metric.samples if each.name != created]
            yield metric


class Metrics:
    """All that one scheduler exposes, in a registry of its own.

    Calls are cheap and may come from any thread; `leading` and `show` from one thread each.
    """

    def __init__(self, version: str) -> None:
        self.registry = registry = CollectorRegistry()
        self._seen = _Seen()
        self._known: set[str] = set()
        self._leads = False
        registry.register(self._seen)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"privatekube_{name}", text, labels, registry=registry)

        self._answered = counter(
            "requests_answered_total",
            "Requests of claims that were answered for good, by kind and reason.",
            "stream",
            "kind",
            "reason",
        )
        self._grant_delay = Histogram(
            "privatekube_grant_delay_seconds",
            "Time from the arrival of an allocate request to its grant.",
            ("stream",),
            buckets=_DELAYS,
            registry=registry,
        )
        self._pass = Histogram(
            "privatekube_pass_seconds",
            "Time that one scheduling pass over a stream took.",
            ("stream",),
            buckets=_PASSES,
            registry=registry,
        )
        self._commits = counter(
            "commits_total",
            "Batches of answers that were committed, or that were not: another writer was first "
            "(conflict), or another scheduler has taken over (fenced).",
            "stream",
            "outcome",
        )
        self._leader = Gauge(
            "privatekube_leader", "1 if this scheduler leads, else 0.", registry=registry
        )
        self._leadership_changes = counter(
            "leadership_changes_total", "How often this scheduler began or ceased to lead."
        )
        self._api_requests = counter(
            "api_requests_total",
            "Calls of the Kubernetes API server; code is none where no answer came.",
            "verb",
            "kind",
            "code",
        )
        self._api_retries = counter(
            "api_retries_total", "Calls of the API server that were made again.", "kind"
        )
        self._watch_restarts = counter(
            "watch_restarts_total",
            "Watches begun again: the server had forgotten the place (expired), "
            "had ended the watch (closed), or could not be reached (failed).",
            "kind",
            "cause",
        )
        self._bad_objects_seen = counter(
            "bad_objects_seen_total",
            "Objects that were set aside because they could not be understood, by reason.",
            "kind",
            "reason",
        )
        self._events_dropped = counter(
            "events_dropped_total",
            "Kubernetes events for people that were not written because too many were due.",
        )
        build = Info("privatekube_build", "The version that runs.", registry=registry)
        build.info({"version": version})
        ProcessCollector(registry=registry)

        # Counters begin at 0 before anything is counted: Prometheus cannot see the increase that
        # makes a series appear.
        for kind in _WATCHED:
            for cause in _CAUSES:
                self._watch_restarts.labels(kind, cause)
        for kind in _CALLED:
            self._api_retries.labels(kind)

    # What is seen

    def show(self, snapshots: Iterable[StreamSnapshot]) -> None:
        """Replace all that is shown of streams; of none, when this scheduler does not lead.

        Raises:
            ValueError: a stream was given twice. Prometheus would refuse the whole scrape.
        """
        shown = tuple(snapshots)
        if len({each.stream for each in shown}) < len(shown):
            raise ValueError("a stream was given twice; each can be shown only once")
        for each in shown:
            if each.stream not in self._known:
                self._begin(each.stream)
        self._seen.snapshots = shown

    def bad_objects(self, counts: Mapping[str, int]) -> None:
        """How many objects are set aside now, by kind; none of the kinds that are not named."""
        self._seen.bad_objects = dict(counts)

    def clock_skew(self, seconds: float) -> None:
        """The scheduler's own clock minus the API server's."""
        self._seen.clock_skew = seconds

    # What was done

    def leading(self, leads: bool) -> None:
        """Whether this scheduler leads from now on; saying the same again changes nothing."""
        if leads != self._leads:
            self._leads = leads
            self._leadership_changes.inc()
            self._leader.set(leads)

    def answered(self, stream: str, kind: str, reason: str, delay: float | None = None) -> None:
        """A request was answered for good; `delay` is how long a granted allocate had waited."""
        self._answered.labels(stream, kind, reason).inc()
        if delay is not None:
            # Arrival is the API server's time: by our clock it can lie in the future, and a
            # histogram's sum that falls would look like a restart.
            self._grant_delay.labels(stream).observe(max(delay, 0.0))

    def passed(self, stream: str, seconds: float) -> None:
        """One scheduling pass over a stream was made."""
        self._pass.labels(stream).observe(seconds)

    def committed(self, stream: str, outcome: str) -> None:
        """A commit was tried: done, conflict or fenced."""
        self._commits.labels(stream, outcome).inc()

    def requested(self, verb: str, kind: str, code: str) -> None:
        """The API server was called; `code` is its status code, or none."""
        self._api_requests.labels(verb, kind, code).inc()

    def retried(self, kind: str) -> None:
        """A call of the API server is made again."""
        self._api_retries.labels(kind).inc()

    def watch_restarted(self, kind: str, cause: str) -> None:
        """A watch is begun again: it expired, was closed or failed."""
        self._watch_restarts.labels(kind, cause).inc()

    def bad_object(self, kind: str, reason: str) -> None:
        """An object was set aside because it cannot be understood."""
        self._bad_objects_seen.labels(kind, reason).inc()

    def event_dropped(self) -> None:
        """A Kubernetes event was not written."""
        self._events_dropped.inc()

    # What is scraped

    def exposition(self) -> tuple[str, bytes]:
        """The content type and the text of a scrape."""
        return CONTENT_TYPE, generate_latest(_WithoutCreated(self.registry))

    def _begin(self, stream: str) -> None:
        for kind, reasons in _ANSWERS.items():
            for reason in reasons:
                self._answered.labels(stream, kind, reason)
        for outcome in _OUTCOMES:
            self._commits.labels(stream, outcome)
        self._grant_delay.labels(stream)
        self._pass.labels(stream)
        self._known.add(stream)
