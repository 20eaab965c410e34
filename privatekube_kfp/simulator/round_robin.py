"""Round robin, to compare with: unlocked budget is split evenly among those who are present.

Each waiting pipeline keeps what it was given of a block, up to what it asks, and is granted once it
has all of it on every block. What is given to pipelines that never get the rest is wasted on them
until they give up: that is why no ledger offers this policy, and it lives here and not in the core.
"""

from __future__ import annotations

import numpy as np

from privatekube_kfp.core.budget import Accounting, Budget
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.exact_sums import Ints
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.core.pool import Outcome, Refusal
from privatekube_kfp.core.unlocking import AtOnce, ByPipelines, ByTime, Unlocking, unlocked_amount

ROUND_ROBIN = "rr"


def even_level(lacking: Ints, free: int) -> int:
    """The most that each may get, up to what it lacks, so that all of it is at most `free`."""
    ordered = np.sort(lacking)
    before = np.concatenate(([0], np.cumsum(ordered)[:-1]))
    levels = (free - before) // np.arange(len(ordered), 0, -1)
    short = np.flatnonzero(levels < ordered)
    return int(levels[short[0]]) if len(short) else int(ordered[-1])


class _Block:
    """What of a block is unlocked and given to nobody, and what each of those present lacks."""

    def __init__(self, capacity: Budget, created: int) -> None:
        self.capacity = capacity.amounts
        self.created = created
        self.opened = 0
        self.free = [0] * len(self.capacity)
        self.claims: list[str] = []
        self.lacking = np.zeros((len(self.capacity), 0), dtype=np.int64)

    def open(self, opened: int, shares: int) -> None:
        for line, amount in enumerate(self.capacity):
            gained = unlocked_amount(amount, opened, shares) - unlocked_amount(
                amount, self.opened, shares
            )
            self.free[line] += gained
        self.opened = opened

    def join(self, claim: str, demand: Budget) -> None:
        self.claims.append(claim)
        self.lacking = np.column_stack((self.lacking, demand.amounts))

    def leave(self, claim: str) -> list[int]:
        """Take the claim off the list; returns what it still lacked."""
        index = self.claims.index(claim)
        lacked: list[int] = self.lacking[:, index].tolist()
        del self.claims[index]
        self.lacking = np.delete(self.lacking, index, axis=1)
        return lacked

    def split(self) -> list[str]:
        """Give what is free evenly to those who lack; returns who has all of it now."""
        if not self.claims:
            return []
        for line, free in enumerate(self.free):
            lacking = self.lacking[line]
            given = np.minimum(lacking, even_level(lacking, free))
            self.lacking[line] -= given
            self.free[line] -= int(given.sum())
        return [self.claims[index] for index in np.flatnonzero(~self.lacking.any(axis=0))]


class RoundRobin:
    """Stands where the pool stands in a replay."""

    def __init__(self, accounting: Accounting, unlocking: Unlocking) -> None:
        if accounting.is_renyi:
            raise Invalid(
                Reason.INVALID_STREAM,
                "round robin splits one epsilon, so it knows basic accounting only",
            )
        self._unlocking = unlocking
        self._blocks: dict[str, _Block] = {}
        self._changed: set[str] = set()
        self._demands: dict[str, PerBlock] = {}
        self._missing: dict[str, set[str]] = {}
        self._deadlines: dict[str, int] = {}
        """In order: pipelines come in order of time, and all wait equally long."""

    def add_block(self, name: str, capacity: Budget, created: int) -> None:
        block = self._blocks[name] = _Block(capacity, created)
        if isinstance(self._unlocking, AtOnce):
            block.open(1, 1)

    def arrive(
        self, claim: str, demand: PerBlock, *, arrival: int, deadline: int | None, weight: int
    ) -> None:
        self._demands[claim] = demand
        self._missing[claim] = set(demand.blocks)
        if deadline is not None:
            self._deadlines[claim] = deadline
        for name, budget in demand.items():
            block = self._blocks[name]
            block.join(claim, budget)
            if isinstance(self._unlocking, ByPipelines):
                shares = self._unlocking.shares
                block.open(min(block.opened + 1, shares), shares)
            self._changed.add(name)

    def plan(self, now: int) -> Outcome:
        # 1. Unlock what time unlocks.
        if isinstance(self._unlocking, ByTime):
            for name, block in self._blocks.items():
                due = (now - block.created) // self._unlocking.interval
                if min(due, self._unlocking.shares) > block.opened:
                    block.open(min(due, self._unlocking.shares), self._unlocking.shares)
                    self._changed.add(name)
        # 2. Split what is free; whoever has all of it on every block is granted.
        # 3. Whoever's time is up gives back what it had, which is split again.
        grants = self._split()
        refusals: list[Refusal] = []
        while (first := next(iter(self._deadlines), None)) and self._deadlines[first] <= now:
            self._give_up(first)
            refusals.append(Refusal(first, Reason.TIMED_OUT, "timed out waiting for budget"))
            grants += self._split()
        return Outcome(tuple(grants), tuple(refusals))

    def next_due(self) -> int | None:
        if self._changed:
            return 0
        due = [next(iter(self._deadlines.values()))] if self._deadlines else []
        if isinstance(self._unlocking, ByTime):
            interval, shares = self._unlocking.interval, self._unlocking.shares
            due += [
                block.created + (block.opened + 1) * interval
                for block in self._blocks.values()
                if block.claims and block.opened < shares
            ]
        return min(due, default=None)

    def consume(self, amounts: PerBlock) -> None:
        """What a pipeline was given is its own from then on; that it is spent changes nothing."""

    def _split(self) -> list[str]:
        grants = []
        for name in sorted(self._changed):
            for claim in self._blocks[name].split():
                self._blocks[name].leave(claim)
                missing = self._missing[claim]
                missing.remove(name)
                if not missing:
                    grants.append(claim)
                    self._forget(claim)
        self._changed.clear()
        return sorted(grants, key=int)

    def _give_up(self, claim: str) -> None:
        for name, demand in self._demands[claim].items():
            block = self._blocks[name]
            lacked = block.leave(claim) if name in self._missing[claim] else [0] * len(block.free)
            for line, (asked, lack) in enumerate(zip(demand.amounts, lacked, strict=True)):
                block.free[line] += asked - lack
            self._changed.add(name)
        self._forget(claim)

    def _forget(self, claim: str) -> None:
        del self._demands[claim], self._missing[claim]
        self._deadlines.pop(claim, None)
