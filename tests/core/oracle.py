"""The scheduler as a reader of the paper would write it: sort everybody, try each, exactly.

Where a policy packs: sort all who can run, grant a few, sort again. Slow and plain on purpose: the
incremental pool must grant what this grants.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from math import inf
from typing import NamedTuple

from privatekube_kfp.core import packing
from privatekube_kfp.core.budget import INFINITE


class Waiting(NamedTuple):
    demand: dict  # by block
    arrival: int
    deadline: int | None
    weight: int


@dataclass
class Oracle:
    any_order: bool  # Renyi: one order suffices; Basic: all components must fit
    policy: str
    shares: int
    interval: int | None = None  # unlock by time instead of by arrival
    at_once: bool = False
    capacity: dict = field(default_factory=dict)
    created: dict = field(default_factory=dict)
    arrivals: dict = field(default_factory=dict)
    opened: dict = field(default_factory=dict)
    allocated: dict = field(default_factory=dict)
    consumed: dict = field(default_factory=dict)
    retired: set = field(default_factory=set)
    waiting: dict = field(default_factory=dict)  # claim -> Waiting
    refused: list = field(default_factory=list)  # (claim, reason) since the last pass

    def add_block(self, block, capacity, created):
        self.capacity[block], self.created[block] = capacity, created
        self.arrivals[block], self.opened[block] = 0, int(self.at_once)
        self.allocated[block] = self.consumed[block] = (0,) * len(capacity)

    def retire(self, block):
        self.retired.add(block)
        self.refuse("BlockRetired", lambda demand, _: block in demand)

    def arrive(self, claim, demand, arrival, deadline, unlocks, weight=1):
        if self.retired & set(demand):
            self.refused.append((claim, "NoMatchingBlocks"))
        elif self.is_hopeless(demand):
            self.refused.append((claim, "ExceedsCapacity"))
        else:
            self.waiting[claim] = Waiting(demand, arrival, deadline, weight)
            for block in unlocks:
                self.arrivals[block] += 1
                if self.interval is None and not self.at_once:
                    self.opened[block] = min(self.opened[block] + 1, self.shares)

    def rank(self, claim):
        """The sorted share vector, without the zeros at its end; then who came first."""
        if self.policy == "fcfs":
            return [], claim.arrival
        shares = [self.share(ds, self.capacity[block]) for block, ds in claim.demand.items()]
        if self.policy == "weighted-dpf":
            shares = [share / claim.weight for share in shares]
        return sorted(filter(None, shares), reverse=True), claim.arrival

    def is_packed(self, claim):
        if self.policy == "fair-first":
            return not self.is_fair(claim.demand)
        return self.policy == "dpack"

    def is_fair(self, demand):
        return all(
            d <= c // self.shares
            for block, ds in demand.items()
            for d, c in zip(ds, self.capacity[block], strict=True)
            if c > 0 or not self.any_order
        )

    @staticmethod
    def share(demand, capacity):
        of_orders = (Fraction(d, c) for d, c in zip(demand, capacity, strict=True) if c > 0)
        return max(of_orders, default=Fraction(0))

    def left(self, block):
        return [
            c - gone for c, gone in zip(self.capacity[block], self.consumed[block], strict=True)
        ]

    def unlocked(self, block):
        k, n = self.opened[block], self.shares
        return [
            (c // n * k + min(k, c % n) if c > 0 else 0) - a - gone
            for c, a, gone in zip(
                self.capacity[block], self.allocated[block], self.consumed[block], strict=True
            )
        ]

    def fits(self, demand, room, block):
        ok = [d <= r for d, r in zip(demand, room, strict=True)]
        if not self.any_order:
            return all(ok)
        return any(o for o, c in zip(ok, self.capacity[block], strict=True) if c > 0)

    def can_run(self, demand):
        return all(self.fits(d, self.unlocked(b), b) for b, d in demand.items())

    def is_hopeless(self, demand):
        return any(not self.fits(d, self.left(b), b) for b, d in demand.items())

    def plan(self, now):
        if self.interval:
            for block, k in self.opened.items():
                ticks = (now - self.created[block]) // self.interval
                self.opened[block] = max(k, min(ticks, self.shares))
        self.refuse("TimedOut", lambda _, deadline: deadline is not None and deadline < now)
        packed = {claim for claim, waiting in self.waiting.items() if self.is_packed(waiting)}
        granted = []
        for claim in sorted(self.waiting.keys() - packed, key=self.turn):
            granted += self.try_to_grant(claim)
        while runnable := [
            c for c in packed - set(granted) if self.can_run(self.waiting[c].demand)
        ]:
            few = len(granted) + packing.GRANTS_PER_RANKING
            for claim in self.packing_order(runnable):
                granted += self.try_to_grant(claim)
                if len(granted) == few:
                    break
        self.refuse("TimedOut", lambda _, deadline: deadline is not None and deadline <= now)
        refused, self.refused = self.refused, []
        return granted, refused

    def turn(self, claim):
        return self.rank(self.waiting[claim])

    def try_to_grant(self, claim):
        demand = self.waiting[claim].demand
        if not self.can_run(demand):
            return []
        del self.waiting[claim]
        self.move(self.allocated, demand, 1)
        return [claim]

    # Packing

    def packing_order(self, runnable):
        claims = [self.waiting[claim] for claim in runnable]
        picked = {block: self.pick(block, claims) for claim in claims for block in claim.demand}
        return sorted(
            runnable, key=lambda claim: (self.cost(self.waiting[claim], picked), self.turn(claim))
        )

    def pick(self, block, claims):
        """The lines of a block that count: its order of most weight, or all."""
        room = self.room(block)
        if not self.any_order:
            return range(len(room))
        here = [(claim.demand[block], claim.weight) for claim in claims if block in claim.demand]
        weights = [self.packed(r, [(ds[n], w) for ds, w in here]) for n, r in enumerate(room)]
        return [weights.index(max(weights))]

    @staticmethod
    def packed(room, claims):
        total = 0
        for demand, weight in sorted(claims, key=lambda claim: (claim[0] / claim[1], claim[0])):
            if demand <= room:
                room -= demand
                total += weight
        return total

    def room(self, block):
        """What is unlocked; nothing, not even for a demand of zero, at an unusable order."""
        usable = [c > 0 or not self.any_order for c in self.capacity[block]]
        return [u if ok else -1 for u, ok in zip(self.unlocked(block), usable, strict=True)]

    def cost(self, claim, picked):
        of_blocks = [
            max(self.relative(demand[line], self.room(block)[line]) for line in picked[block])
            for block, demand in claim.demand.items()
        ]
        if inf in of_blocks:
            return inf
        parts = (int(min(cost, packing.MAX_COST) * packing.COST_SCALE) for cost in of_blocks)
        return sum(parts) / claim.weight

    @staticmethod
    def relative(demand, room):
        if demand == INFINITE or demand > 0 >= room or room < 0:
            return inf
        return demand / room if demand else 0.0

    # Afterwards

    def consume(self, demand):
        self.move(self.allocated, demand, -1)
        self.move(self.consumed, demand, 1)
        self.refuse("Exhausted", lambda asked, _: self.is_hopeless(asked))

    def release(self, demand):
        self.move(self.allocated, demand, -1)

    def move(self, account, demand, sign):
        for block, amounts in demand.items():
            account[block] = tuple(
                a + sign * d for a, d in zip(account[block], amounts, strict=True)
            )

    def refuse(self, reason, applies):
        for claim, waiting in list(self.waiting.items()):
            if applies(waiting.demand, waiting.deadline):
                del self.waiting[claim]
                self.refused.append((claim, reason))
