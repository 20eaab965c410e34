"""A day of two streams: the real ledger on a clock of its own, and the metrics of two schedulers.

Budgets, grants, denials and waits are what the memory ledger does with a workload of made-up
pipelines. What a ledger in memory does not have (an API server, a second scheduler) is made up
too: at noon the leader dies and the other takes over.
"""

import random
from collections import Counter
from collections.abc import Iterator

from privatekube_kfp.accounting import Laplace, Plan
from privatekube_kfp.core.claim import Claim, Kind, Phase
from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.stream import BlockPhase
from privatekube_kfp.core.unlocking import ByPipelines, ByTime
from privatekube_kfp.ledger.memory import MemoryLedger
from privatekube_kfp.ledger.requests import AllocateRequest, ConsumeRequest, ReleaseRequest
from privatekube_kfp.ledger.streams import StreamSpec
from scheduler.metrics import Metrics, StreamSnapshot

START = 1_767_571_200  # Some midnight.
STEP = 120
STREAMS = ("ads", "clicks")

_SECOND = 10**6
_MINUTE, _HOUR = 60, 3600
_STATES = ("locked", "unlocked", "allocated", "consumed")


def samples() -> Iterator[str]:
    """Lines of OpenMetrics: what a scrape of each scheduler reads, every two minutes."""
    day = _Day()
    for now in range(START, START + 24 * _HOUR + 1, STEP):
        day.passes(now)
        for instance, metrics in day.schedulers.items():
            for family in metrics.registry.collect():
                for sample in family.samples:
                    if sample.name.startswith("privatekube_") and not sample.name.endswith(
                        "_created"
                    ):
                        labels = sample.labels | {"instance": instance}
                        text = ",".join(f'{name}="{value}"' for name, value in labels.items())
                        yield f"{sample.name}{{{text}}} {sample.value} {now}\n"
    yield "# EOF\n"


class _Day:
    def __init__(self) -> None:
        self.random = random.Random(8)
        self.now = START
        self.arrived = 0
        self.answered: set[tuple[str, str]] = set()
        self.ledger = MemoryLedger(lambda: self.now * _SECOND)
        hour = _HOUR * _SECOND
        self.ledger.create_stream(StreamSpec("ads", "1", "0", ByPipelines(20)))
        self.ledger.create_stream(StreamSpec("clicks", "1", "0", ByTime(8 * hour, hour)))
        self.schedulers = {"scheduler-a": Metrics("1"), "scheduler-b": Metrics("1")}
        self.leader = self.schedulers["scheduler-a"]
        self.leader.leading(True)

    def passes(self, now: int) -> None:
        """The next two minutes: data and pipelines come, claims end, the ledger does its part."""
        self.now, since = now, now - START
        for stream in STREAMS:
            if since % (2 * _HOUR) == 0:
                self.ledger.create_block(f"{stream}-{since // _HOUR}", stream)
            # More in the day than at night.
            if self.random.random() < 0.04 + 0.26 * (6 * _HOUR < since < 20 * _HOUR):
                self.arrives(stream)
        self.ledger.tend()
        for claim in self.ledger.claims():
            self.may_end(claim)
        if since == 12 * _HOUR:
            self.changes_leader()
        self.tells(since)

    def arrives(self, stream: str) -> None:
        self.arrived += 1
        small = self.random.random() < 0.8
        epsilon = self.random.randint(10, 60) if small else self.random.randint(150, 600)
        request = AllocateRequest(
            "allocate",
            stream,
            Selection(last=self.random.randint(1, 3)),
            Plan.of(Laplace(f"{epsilon / 1000:.3f}")),
            timeout=3 * _HOUR * _SECOND,
        )
        try:
            self.ledger.submit(f"pipeline-{self.arrived}", request)
        except Invalid:  # No block has anything left.
            self.leader.answered(stream, "allocate", "NoMatchingBlocks")

    def may_end(self, claim: Claim) -> None:
        """A pipeline runs for half an hour or so; a few fail and give everything back."""
        if claim.phase is Phase.ALLOCATED and self.random.random() < 0.07:
            if self.random.random() < 0.9:
                self.ledger.submit(claim.name, ConsumeRequest("consume"))
            else:
                self.ledger.submit(claim.name, ReleaseRequest("release"))

    def changes_leader(self) -> None:
        old, self.leader = self.leader, self.schedulers["scheduler-b"]
        old.leading(False)
        old.show(())
        old.committed("ads", "fenced")
        self.leader.leading(True)
        for kind in ("streams", "blocks", "claims"):
            old.watch_restarted(kind, "failed")

    def tells(self, since: int) -> None:
        self.leader.show(self.snapshot(each) for each in STREAMS)
        for stream in STREAMS:
            fresh = [
                (claim, request)
                for claim in self.ledger.claims(stream)
                for request in claim.requests
                if request.id in claim.responses and (claim.name, request.id) not in self.answered
            ]
            for claim, request in fresh:
                response = claim.responses[request.id]
                granted = response.done and request.kind is Kind.ALLOCATE
                waited = (response.at - request.submitted) / _SECOND
                # A grant is written some milliseconds after its request was read.
                delay = waited + self.random.uniform(0.008, 0.04) if granted else None
                self.leader.answered(stream, request.kind, response.reason, delay)
                self.leader.requested("patch", "claims", "200")
                self.answered.add((claim.name, request.id))
            if fresh:
                self.leader.committed(stream, "done")
                self.leader.requested("update", "streams", "200")
            for _ in range(STEP // 10):
                self.leader.passed(stream, self.random.lognormvariate(-6.2, 0.5))
            if self.random.random() < 0.02:
                self.leader.committed(stream, "conflict")
                self.leader.requested("update", "streams", "409")
        for name, metrics in self.schedulers.items():
            for _ in range(STEP // 5):
                metrics.requested("update", "leases", "200")
            metrics.clock_skew(self.random.gauss(0.1 if name == "scheduler-a" else -0.2, 0.02))
            if since % (30 * _MINUTE) == 0:
                metrics.watch_restarted(self.random.choice(("blocks", "claims")), "closed")
            metrics.bad_objects({"claims": 1} if 15 * _HOUR <= since < 16 * _HOUR else {})

    def snapshot(self, stream: str) -> StreamSnapshot:
        records = self.ledger.blocks(stream)
        claims = self.ledger.claims(stream)
        waiting = [claim for claim in claims if claim.unanswered()]
        reasons = [
            self.ledger.why_waiting(claim.name, request.id)
            for claim in waiting
            if (request := claim.unanswered())
        ]
        shares = [
            {
                state: getattr(each.budget, state).amounts[0] / each.budget.capacity.amounts[0]
                for state in _STATES
            }
            for each in records
        ]
        consumed = [
            share["consumed"]
            for share, each in zip(shares, records, strict=True)
            if each.phase is BlockPhase.ACTIVE
        ]
        return StreamSnapshot(
            stream=stream,
            shares={
                state: sum(share[state] for share in shares) / len(shares) for state in _STATES
            },
            blocks=Counter(str(each.phase) for each in records),
            nearly_exhausted=sum(share >= 0.9 for share in consumed),
            most_consumed=max(consumed, default=0),
            claims=Counter(str(claim.phase) for claim in claims),
            waiting=Counter(str(each.reason) for each in reasons if each),
            oldest_waiting=max(
                (self.now - claim.created / _SECOND for claim in waiting), default=0
            ),
        )
