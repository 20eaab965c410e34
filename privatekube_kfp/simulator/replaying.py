"""Plays a workload against a policy, one event after the other, and notes who got what when."""

from __future__ import annotations

import dataclasses
import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.errors import Reason
from privatekube_kfp.core.exact_sums import Ints
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.core.policy import policy_named
from privatekube_kfp.core.pool import Outcome, Pool
from privatekube_kfp.core.unlocking import Unlocking
from privatekube_kfp.simulator.round_robin import ROUND_ROBIN, RoundRobin
from privatekube_kfp.simulator.workload import Workload

NEVER = -1
_SECOND = 1_000_000


class Scheduler(Protocol):
    """What a replay drives: the core's pool, or a baseline that is no policy of ours."""

    def add_block(self, name: str, capacity: Budget, created: int) -> None: ...

    def arrive(
        self, claim: str, demand: PerBlock, *, arrival: int, deadline: int | None, weight: int
    ) -> None: ...

    def plan(self, now: int) -> Outcome: ...

    def next_due(self) -> int | None: ...

    def consume(self, amounts: PerBlock) -> None: ...


@dataclass(frozen=True)
class Replay:
    """What became of each pipeline: when it was granted (or `NEVER`), and why who was refused."""

    workload: Workload
    granted_at: Ints
    refused: Counter[Reason]

    @property
    def granted(self) -> int:
        return int((self.granted_at != NEVER).sum())

    @property
    def waiting(self) -> int:
        """Who had no answer when it ended."""
        return len(self.workload) - self.granted - self.refused.total()

    def delays(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Seconds from arrival to grant, of those that were granted."""
        lucky = self.granted_at != NEVER
        waited: np.ndarray[tuple[int], np.dtype[np.float64]]
        waited = (self.granted_at[lucky] - self.workload.at[lucky]) / _SECOND
        return waited

    def granted_fair(self, shares: int) -> int:
        """How many of those that were granted asked for at most their fair share."""
        return int(((self.granted_at != NEVER) & self.workload.is_fair(shares)).sum())

    def to_json(self) -> dict[str, object]:
        delays = self.delays()
        median, most = np.percentile(delays, (50, 99)).tolist() if len(delays) else (None, None)
        return {
            "arrivals": len(self.workload),
            "granted": self.granted,
            "refused": {reason.value: count for reason, count in sorted(self.refused.items())},
            "waiting": self.waiting,
            "delay_mean": float(delays.mean()) if len(delays) else None,
            "delay_median": median,
            "delay_p99": most,
        }


def scheduler_for(workload: Workload, policy: str, unlocking: Unlocking) -> Scheduler:
    if policy == ROUND_ROBIN:
        return RoundRobin(workload.accounting, unlocking)
    return Pool(workload.accounting, unlocking, policy_named(policy))


def replay(
    workload: Workload,
    policy: str,
    unlocking: Unlocking,
    *,
    period: int | None = None,
    consume_after: int | None = None,
    advanced: Callable[[int], None] = lambda pipelines: None,
) -> Replay:
    """Let all of it happen.

    A pass is made after each arrival and whenever the scheduler says that one is due, or else
    once a `period`. What is granted stays allocated, unless it is consumed some time after.
    Weights count where the policy knows them.
    """
    if policy == ROUND_ROBIN or not policy_named(policy).weighs:
        workload = dataclasses.replace(workload, weight=None)
    return _Playing(
        workload, scheduler_for(workload, policy, unlocking), period, consume_after
    ).run(advanced)


class _Playing:
    def __init__(
        self,
        workload: Workload,
        scheduler: Scheduler,
        period: int | None,
        consume_after: int | None,
    ) -> None:
        self._workload = workload
        self._scheduler = scheduler
        self._period = period
        self._consume_after = consume_after
        self._names = [f"block-{number}" for number in range(len(workload.blocks))]
        self._there = 0
        self._now = 0
        self._consumptions: list[tuple[int, int]] = []
        self._granted_at = np.full(len(workload), NEVER, dtype=np.int64)
        self._refused: Counter[Reason] = Counter()

    def run(self, advanced: Callable[[int], None]) -> Replay:
        workload, timeout = self._workload, self._workload.timeout
        weights = (
            np.ones(len(workload), dtype=np.int64) if workload.weight is None else workload.weight
        )
        for index, (now, weight) in enumerate(
            zip(workload.at.tolist(), weights.tolist(), strict=True)
        ):
            self._let_pass(now)
            self._scheduler.arrive(
                str(index),
                self._demand(index),
                arrival=index,
                deadline=None if timeout is None else now + timeout,
                weight=weight,
            )
            if self._period is None:
                self._decide(now)
            if index % 1000 == 999:
                advanced(1000)
        advanced(len(workload) % 1000)
        self._let_pass(workload.end)
        return Replay(workload, self._granted_at, self._refused)

    def _demand(self, index: int) -> PerBlock:
        workload = self._workload
        first = int(workload.first[index])
        names = self._names[first : first + int(workload.count[index])]
        return PerBlock.uniform(workload.demands[int(workload.demand[index])], names)

    def _let_pass(self, until: int | None) -> None:
        """All that happens on its own until then; until nothing more can, if no time is given."""
        while (due := self._next_event()) is not None and (until is None or due <= until):
            self._appear(due)
            if self._consumptions and self._consumptions[0][0] <= due:
                self._scheduler.consume(self._demand(heapq.heappop(self._consumptions)[1]))
            else:
                self._decide(due)
        if until is not None:
            self._appear(until)

    def _next_event(self) -> int | None:
        """When the next pass is due, or the next of those that were granted consumes."""
        due = self._scheduler.next_due()
        if due is not None:
            due = max(due, self._now)
            if self._period is not None:
                due = (max(due - 1, self._now) // self._period + 1) * self._period
        consumption = self._consumptions[0][0] if self._consumptions else None
        return min((time for time in (due, consumption) if time is not None), default=None)

    def _appear(self, now: int) -> None:
        blocks, capacity = self._workload.blocks, self._workload.capacity
        while self._there < len(blocks) and blocks[self._there] <= now:
            self._scheduler.add_block(self._names[self._there], capacity, blocks[self._there])
            self._there += 1

    def _decide(self, now: int) -> None:
        self._now = now
        outcome = self._scheduler.plan(now)
        for claim in outcome.grants:
            self._granted_at[int(claim)] = now
            if self._consume_after is not None:
                heapq.heappush(self._consumptions, (now + self._consume_after, int(claim)))
        self._refused.update(refusal.reason for refusal in outcome.refusals)
