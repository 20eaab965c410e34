"""A leader's term: from winning the election to losing it, one cycle after the other.

All decisions are made by one thread, here. Followers (see `following`) put what happens in the
cluster into the inbox; `writing` carries out what was decided. A term begins by listing everything
and ends by forgetting everything: a crash at any instant leaves what a clean end leaves.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from privatekube_kfp.core.claim import Kind
from privatekube_kfp.core.errors import Reason
from privatekube_kfp.ledger.kubernetes.api import (
    BLOCKS,
    CLAIMS,
    STREAMS,
    WORKFLOWS,
    Api,
    Object,
    Refused,
    Resource,
)
from scheduler.commit import Record
from scheduler.events import Recorder
from scheduler.following import Follower, Relisted, Seen
from scheduler.leaving import Leaving
from scheduler.metrics import Metrics
from scheduler.register import KnownClaim, Register
from scheduler.showing import Showing
from scheduler.world import World
from scheduler.writing import Deposed, Writer

log = logging.getLogger(__name__)

_LONGEST_WAIT = 1.0
_MOST_AT_ONCE = 1_000


@dataclass(frozen=True)
class Habits:
    """What a platform engineer can set about how a leader works."""

    connections: int = 8
    block_status_every: float = 1.0
    """Seconds between two writes of what blocks show."""
    keep_finished: int | None = None
    """Microseconds after which a finished claim is deleted; None keeps all."""


class Term:
    """One term of one leader."""

    def __init__(
        self,
        api: Api,
        identity: str,
        habits: Habits,
        metrics: Metrics,
        recorder: Recorder,
        *,
        clock: Callable[[], int],
        leads: Callable[[], bool],
        aside: dict[tuple[str, str], str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._metrics = metrics
        self._recorder = recorder
        self._clock = clock
        self._leads = leads
        self._monotonic = monotonic
        self._writer = Writer(api, identity, habits.connections)
        self._world = World(api, self._writer, metrics, recorder, clock, aside)
        self._leaving = Leaving(self._writer, habits.keep_finished)
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._showing = Showing(
            self._world,
            self._writer,
            metrics,
            recorder,
            habits.block_status_every,
            self.wake,
        )
        self._followers: list[Follower] = []

    @property
    def registers(self) -> dict[str, Register]:
        return self._world.registers

    @property
    def is_behind(self) -> bool:
        """Whether people are still shown less than what is known here."""
        return self._showing.is_behind

    # The term

    def begin(self) -> None:
        """Take over every stream, finish what was begun, and read everything there is."""
        versions: dict[Resource, str] = {}

        def listed(kind: Resource) -> list[Object]:
            objects, versions[kind] = self._api.list_all(kind)
            return objects

        self._world.begin(listed(STREAMS), lambda: (listed(BLOCKS), listed(CLAIMS)))
        for kind, version in versions.items():
            self._follow(kind, version)
        self._follow(WORKFLOWS, None, if_missing=30.0)
        self._showing.show_metrics(self._clock())
        log.info(
            "the term has begun",
            extra={
                "streams": len(self.registers),
                "blocks": sum(len(register.blocks) for register in self.registers.values()),
                "claims": sum(len(register.claims) for register in self.registers.values()),
            },
        )

    def _follow(self, kind: Resource, version: str | None, **more: Any) -> None:
        follower = Follower(
            self._api,
            kind,
            self._inbox,
            version,
            restarted=self._metrics.watch_restarted,
            **more,
        )
        self._followers.append(follower)
        follower.start()

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._make_sure_to_lead()
            with self._showing.while_leader_rests():
                happened = self._wait()
            self.cycle(happened)
        self._showing.show_all(self._clock())

    def _make_sure_to_lead(self) -> None:
        if not self._leads():
            raise Deposed("the lease is lost")

    def end(self) -> None:
        for follower in self._followers:
            follower.stop()
        self._showing.close()
        self._writer.close()
        self._metrics.show(())
        self._metrics.bad_objects({})

    def wake(self, done: threading.Event | None = None) -> None:
        """Have a cycle run now; `done` is set when one that began after this call has ended."""
        self._inbox.put(done)

    def cycle(self, happened: list[Any]) -> None:
        """From what happened in the cluster to what everybody is told about it."""
        now = self._clock()
        # 1. Take in what happened in the cluster.
        self._world.take_in([item for item in happened if isinstance(item, Seen | Relisted)], now)
        self._showing.show_new_streams(now)
        # 2. Take back what abandoned claims hold or wait for.
        for register in self.registers.values():
            self._take_back(register, register.time(now))
        # 3. Decide what can be decided now; write the decisions down, then tell the claims.
        for register in self.registers.values():
            self._decide(register, register.time(now))
        # 4. Keep what deleted claims have spent in their blocks, and let them go.
        for register in self.registers.values():
            self._leaving.fold(register, register.time(now))
        self._leaving.delete_finished(self.registers.values(), now)
        # 5. Show people where the budgets are.
        self._showing.show(now)
        for item in happened:
            if isinstance(item, threading.Event):
                item.set()

    def _wait(self) -> list[Any]:
        """What has happened, waiting for something if nothing has, and until something is due."""
        happened: list[Any] = []
        try:
            happened.append(self._inbox.get(timeout=self._until_due()))
            while len(happened) < _MOST_AT_ONCE:
                happened.append(self._inbox.get_nowait())
        except queue.Empty:
            pass
        return happened

    def _until_due(self) -> float:
        now = self._clock()
        wait = _LONGEST_WAIT
        for register in self.registers.values():
            due = register.book.next_due()
            if due is not None:
                wait = min(wait, (due - register.time(now)) / 1e6)
            if register.book.dirty_claims or register.unadopted or register.unguarded:
                wait = 0.0
            if register.book.dirty_blocks:
                wait = min(wait, self._showing.until_due())
        return max(wait, 0.0)

    # What is done in each cycle

    def _take_back(self, register: Register, now: int) -> None:
        for uid in list(register.abandonable):
            known = register.claims[uid]
            why = self._world.runs.why_abandoned(known, now)
            if why is not None and register.release(known, why, now):
                self._recorder.say(CLAIMS, known.metadata, "Abandoned", why, warning=True)

    def _decide(self, register: Register, now: int) -> None:
        """Settle the stream's book, and tell everybody who is concerned, batch by batch.

        Whoever is told something may have asked for more meanwhile: until nobody has.
        """
        if register.spec_changed:
            register.spec_changed = False
            self._commit(register, [])
        while True:
            began = self._monotonic()
            register.book.settle(now)
            batches = register.batches()
            if batches:
                self._metrics.passed(register.name, self._monotonic() - began)
            for batch in batches:
                self._make_sure_to_lead()
                self._commit(register, batch)
                self._tell(register, batch, now)
            if register.noted and not batches:
                self._tell(register, [register.claims[uid] for uid in register.noted], now)
            if not register.book.dirty_claims:
                return

    def _commit(self, register: Register, batch: list[KnownClaim]) -> None:
        record = Record(
            epoch=register.record.epoch,
            sequence=register.record.sequence + 1,
            holder=register.record.holder,
            time=register.latest,
            arrivals=register.book.arrivals,
            batch=tuple(register.telling(known) for known in batch),
        )
        try:
            register.obj = self._writer.commit(
                register, record, lambda: self._metrics.committed(register.name, "conflict")
            )
        except Deposed:
            self._metrics.committed(register.name, "fenced")
            raise
        register.record = record
        self._metrics.committed(register.name, "done")

    def _tell(self, register: Register, batch: list[KnownClaim], now: int) -> None:
        results = self._writer.all(
            self._writer.tell,
            [(register, known, register.status_of(known)) for known in batch],
        )
        for known, result in zip(batch, results, strict=True):
            if isinstance(result, Refused):
                self._untellable(register, known, result)
                return
            if isinstance(result, Exception):
                raise result
            if result is None:
                self._world.claim_gone(register, known, {"metadata": {"uid": known.uid}}, now)
                continue
            self._report(register, known)
            register.told(known, result)
            register.follow(known, result, now)

    def _untellable(self, register: Register, known: KnownClaim, refused: Refused) -> None:
        """The server will not take what a claim is to be told: set it aside, and begin anew.

        The claim's own status is the truth, and it does not say that anything was granted. The
        register that thinks so is thrown away.
        """
        obj = self._api.find(CLAIMS, known.name, known.namespace)
        if obj is not None:
            self._world.set_aside(CLAIMS, obj, Reason.CLUSTER_REFUSED, refused.message)
        raise Deposed(f"claim {known.full_name} cannot be told: {refused.message}")

    def _report(self, register: Register, known: KnownClaim) -> None:
        """Count and announce what a claim has just been told."""
        claim = known.claim
        assert claim is not None
        for request in claim.requests:
            response = claim.responses.get(request.id)
            if response is None or request.id in known.told:
                continue
            delay = None
            if request.kind is Kind.ALLOCATE and response.done:
                delay = (response.at - request.submitted) / 1e6
            self._metrics.answered(register.name, request.kind.value, response.reason.value, delay)
            self._recorder.say(
                CLAIMS,
                known.metadata,
                response.reason.value,
                response.message,
                warning=response.denied,
            )
