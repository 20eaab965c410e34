"""The scheduler as a reader of the paper would write it: sort everybody, try each, exactly.

Slow and plain on purpose: the incremental pool must grant what this grants.
"""

from dataclasses import dataclass, field
from fractions import Fraction


@dataclass
class Oracle:
    any_order: bool  # Renyi: one order suffices; Basic: all components must fit
    fcfs: bool
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
    waiting: dict = field(default_factory=dict)  # claim -> (rank, demand by block, deadline)
    refused: list = field(default_factory=list)  # (claim, reason) since the last pass

    def add_block(self, block, capacity, created):
        self.capacity[block], self.created[block] = capacity, created
        self.arrivals[block], self.opened[block] = 0, int(self.at_once)
        self.allocated[block] = self.consumed[block] = (0,) * len(capacity)

    def retire(self, block):
        self.retired.add(block)
        self.refuse("BlockRetired", lambda demand, _: block in demand)

    def arrive(self, claim, demand, arrival, deadline, unlocks):
        if self.retired & set(demand):
            self.refused.append((claim, "NoMatchingBlocks"))
        elif self.is_hopeless(demand):
            self.refused.append((claim, "ExceedsCapacity"))
        else:
            self.waiting[claim] = (self.rank(demand, arrival), demand, deadline)
            for block in unlocks:
                self.arrivals[block] += 1
                if self.interval is None and not self.at_once:
                    self.opened[block] = min(self.opened[block] + 1, self.shares)

    def rank(self, demand, arrival):
        """The sorted share vector, without the zeros at its end; then who came first."""
        if self.fcfs:
            return ([], arrival)
        shares = [self.share(ds, self.capacity[block]) for block, ds in demand.items()]
        return (sorted(filter(None, shares), reverse=True), arrival)

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
        granted = []
        for claim in sorted(self.waiting, key=lambda claim: self.waiting[claim][0]):
            demand = self.waiting[claim][1]
            if self.can_run(demand):
                del self.waiting[claim]
                self.move(self.allocated, demand, 1)
                granted.append(claim)
        self.refuse("TimedOut", lambda _, deadline: deadline is not None and deadline <= now)
        refused, self.refused = self.refused, []
        return granted, refused

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
        for claim, (_, demand, deadline) in list(self.waiting.items()):
            if applies(demand, deadline):
                del self.waiting[claim]
                self.refused.append((claim, reason))
