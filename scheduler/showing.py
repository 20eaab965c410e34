"""Where the budgets are, for people: on the blocks' own status, and for Prometheus."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from privatekube_kfp.core.stream import BlockPhase
from privatekube_kfp.ledger.kubernetes.api import BLOCKS, Object
from privatekube_kfp.ledger.kubernetes.objects import share_of
from scheduler.events import Recorder
from scheduler.metrics import Metrics, StreamSnapshot
from scheduler.register import Register
from scheduler.world import World
from scheduler.writing import Writer

_AT_A_TIME = 8
_PATIENCE = 0.1
"""Seconds that a block lets a busy leader go first."""
_SNAPSHOT_EVERY = 1.0
_SNAPSHOT_SHARE = 20
"""Where many claims wait, looking at all of them may take one part in so many of the time."""
_NEARLY = 0.9
_ENDED = {
    BlockPhase.EXHAUSTED.value: "all that it may spend is consumed",
    BlockPhase.RETIRED.value: "it was taken out of use",
}


@dataclass(frozen=True)
class _Write:
    """What a block is to show, on its way to the cluster."""

    register: Register
    name: str
    phase_before: str | None
    answer: Future[Object | None]


class Showing:
    """Writes what blocks show, every so many seconds at most; sets the streams' gauges.

    Writing goes on in a thread of its own, a few blocks at a time, so that nobody who waits for
    the leader waits for it; `wake` has the leader begin the next few. What is written was true
    when it was begun, and is conditional on the block's version, as all writes are.
    """

    def __init__(
        self,
        world: World,
        writer: Writer,
        metrics: Metrics,
        recorder: Recorder,
        every: float,
        wake: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = world
        self._writer = writer
        self._metrics = metrics
        self._recorder = recorder
        self._every = every
        self._wake = wake
        self._monotonic = monotonic
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="showing")
        self._leader_rests = threading.Event()
        self._begun_at = 0.0
        self._under_way: list[_Write] = []
        self._going_on = False
        self._snapshot_due = 0.0
        self._streams: set[str] = set()
        self._shares: dict[tuple[str, str], tuple[dict[str, float], BlockPhase]] = {}

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def until_due(self) -> float:
        """Seconds until the next blocks may be written; none are while some are under way."""
        if self._under_way:
            return math.inf
        return 0.0 if self._going_on else self._begun_at + self._every - self._monotonic()

    @contextmanager
    def while_leader_rests(self) -> Iterator[None]:
        """The best time to write blocks: nobody waits for the leader then."""
        self._leader_rests.set()
        try:
            yield
        finally:
            self._leader_rests.clear()

    @property
    def is_behind(self) -> bool:
        """Whether some block that is due shows something else than what is known."""
        registers = self._world.registers.values()
        dirty = any(r.book.dirty_blocks for r in registers)
        return bool(self._under_way) or (dirty and self.until_due() <= 0)

    def show(self, now: int) -> None:
        """Show what has changed, if it is time for it."""
        self._hear(now)
        if not self._under_way and self.until_due() <= 0:
            self._begin()
        if self._monotonic() >= self._snapshot_due:
            self.show_metrics(now)

    def show_all(self, now: int) -> None:
        """Show all that has changed, however long it takes."""
        self._leader_rests.set()
        while True:
            wait(write.answer for write in self._under_way)
            self._hear(now)
            self._begin()
            if not self._under_way:
                break
        self.show_metrics(now)

    def show_new_streams(self, now: int) -> None:
        """A counter that begins with its first count looks to Prometheus as if it had not moved."""
        if self._world.registers.keys() != self._streams:
            self.show_metrics(now)

    def _begin(self) -> None:
        """Send the next few blocks on their way."""
        if not self._going_on:
            self._begun_at = self._monotonic()
        self._going_on = False
        room = _AT_A_TIME
        for register in self._world.registers.values():
            dirty = register.book.dirty_blocks
            dirty.intersection_update(register.blocks)
            while dirty and room:
                names = list(islice(dirty, room))
                dirty.difference_update(names)
                for name in names:
                    self._note_shares(register, name)
                    room -= self._send(register, name)
            self._going_on |= bool(dirty)
        for write in self._under_way:
            write.answer.add_done_callback(self._answered)

    def _send(self, register: Register, name: str) -> bool:
        """Whether the block has anything new to show."""
        known = register.blocks[name]
        status = register.block_status(name, known.folded)
        if status == known.shown:
            return False
        answer = self._thread.submit(self._write, known.metadata, status)
        self._under_way.append(_Write(register, name, known.phase_shown, answer))
        return True

    def _write(self, metadata: Object, status: Object) -> Object | None:
        self._leader_rests.wait(_PATIENCE)
        return self._writer.show_block(metadata, status)

    def _answered(self, _: Future[Object | None]) -> None:
        if all(write.answer.done() for write in self._under_way):
            self._wake()

    def _hear(self, now: int) -> None:
        """Take note of what has been written, once the last few all are."""
        if not all(write.answer.done() for write in self._under_way):
            return
        written, self._under_way = self._under_way, []
        for write in written:
            register, name, error = write.register, write.name, write.answer.exception()
            if isinstance(error, Exception):
                self._world.failed(BLOCKS, {"metadata": {"name": name}}, error)
                continue
            obj = write.answer.result()
            if obj is not None and name in register.blocks:
                register.see_block(obj, register.time(now))
                # As it was shown: what is true by now, the next write shows and tells of.
                phase = obj.get("status", {}).get("phase")
                if phase in _ENDED and phase != write.phase_before:
                    known = register.blocks[name]
                    self._recorder.say(BLOCKS, known.metadata, phase, _ENDED[phase])

    def _note_shares(self, register: Register, name: str) -> None:
        budget = register.book.budget(name)
        shares = {
            state: share_of(getattr(budget, state), budget.capacity)
            for state in ("locked", "allocated", "consumed")
        }
        shares["unlocked"] = max(0.0, 1.0 - sum(shares.values()))
        self._shares[register.name, name] = (shares, register.book.block_phase(name))

    def show_metrics(self, now: int) -> None:
        """The gauges of all streams, and counters at nought for new ones."""
        began = self._monotonic()
        self._streams = set(self._world.registers)
        self._metrics.bad_objects(self._world.bad_objects())
        self._metrics.show(self._snapshot(r, now) for r in self._world.registers.values())
        took = self._monotonic() - began
        self._snapshot_due = began + max(_SNAPSHOT_EVERY, _SNAPSHOT_SHARE * took)

    def _snapshot(self, register: Register, now: int) -> StreamSnapshot:
        for name in register.blocks:
            if (register.name, name) not in self._shares:
                self._note_shares(register, name)
        shown = [self._shares[register.name, name] for name in register.blocks]
        blocks = dict.fromkeys((phase.value for phase in BlockPhase), 0)
        sums = dict.fromkeys(("locked", "unlocked", "allocated", "consumed"), 0.0)
        active: list[float] = []
        for shares, phase in shown:
            blocks[phase.value] += 1
            for state, share in shares.items():
                sums[state] += share
            if phase is BlockPhase.ACTIVE:
                active.append(shares["consumed"])
        waiting: dict[str, int] = {}
        oldest = 0.0
        for uid in list(register.book.claims):
            known = register.claims.get(uid)
            if known is None or known.claim is None:
                continue
            turn = known.claim.unanswered()
            why = register.why_waiting(known)
            if turn is not None and why is not None:
                waiting[why.reason.value] = waiting.get(why.reason.value, 0) + 1
                oldest = max(oldest, (register.time(now) - turn.submitted) / 1e6)
        return StreamSnapshot(
            stream=register.name,
            shares={state: total / max(1, len(shown)) for state, total in sums.items()},
            blocks=blocks,
            nearly_exhausted=sum(share >= _NEARLY for share in active),
            most_consumed=max(active, default=0.0),
            claims={phase: count for phase, count in register.phases.items() if phase},
            waiting=waiting,
            oldest_waiting=oldest,
        )
