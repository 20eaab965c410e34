"""Drives the pool and the oracle through the same events and compares them after each pass.

A walk is read from bytes, one small choice each: quick to draw, and what fails shrinks well.
"""

from privatekube_kfp.core.budget import INFINITE
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.core.policy import POLICIES
from privatekube_kfp.core.pool import Pool
from privatekube_kfp.core.unlocking import AtOnce, ByPipelines, ByTime
from tests.core.oracle import Oracle

UNLOCKINGS = [ByPipelines(7), ByPipelines(25), ByPipelines(1), ByTime(20, 5), AtOnce()]
EVENTS = "aaaaaaAAbcrrrptw" * 3 + "aaaaaaAAbcrrrptX" + "aaaaaaAAbcrrrptR"


class Choices:
    def __init__(self, choices: bytes):
        self._choices = iter(choices)
        self.over = False

    def below(self, bound):
        choice = next(self._choices, None)
        if choice is None:
            self.over = True
            return 0
        return choice % bound

    def of(self, options):
        return options[self.below(len(options))]

    def between(self, low, high):
        return low + self.below(high - low + 1)


class Walk:
    def __init__(self, accounting, policy, choices: bytes):
        self.choose = Choices(choices)
        self.accounting, self.policy = accounting, POLICIES[policy]
        self.unlocking = self.choose.of(UNLOCKINGS)
        self.pool = self.new_pool()
        self.oracle = Oracle(
            any_order=accounting.is_renyi,
            policy=policy,
            shares=self.unlocking.shares,
            interval=self.unlocking.interval if isinstance(self.unlocking, ByTime) else None,
            at_once=isinstance(self.unlocking, AtOnce),
        )
        self.now, self.arrivals = 0, 0
        self.records = {}  # claim -> demand, arrival, deadline, weight
        self.held = {}  # granted claim -> what it still holds
        self.sizes = [self.capacity() for _ in range(self.choose.of((1, 1, 2, 3)))]
        self.few = [self.amounts() for _ in range(self.choose.between(0, 3))]
        self.longest = self.choose.of((4, 4, 12))
        for _ in range(self.choose.between(1, self.longest)):
            self.add_block()

    def new_pool(self):
        return Pool(self.accounting, self.unlocking, self.policy)

    def run(self):
        while not self.choose.over:
            event = self.choose.of(EVENTS)
            {
                "a": self.arrive,
                "A": self.arrive_in_numbers,
                "b": self.add_block,
                "c": self.consume,
                "r": self.release,
                "t": self.wait,
                "p": lambda: None,
                "w": self.withdraw,
                "R": self.restart,
                "X": self.retire,
            }[event]()
            if event in "pt" or self.choose.below(3):
                self.check()
        self.check()
        self.leave_nothing_behind()

    # What to draw

    def capacity(self):
        between = self.choose.between
        if self.accounting.is_renyi:
            return tuple(between(low, 90) if self.choose.below(6) else 0 for low in (-30, -10, 1))
        return between(20, 90), between(0, 40)

    def amounts(self):
        """Mostly small beside a capacity; under Renyi now and then zero or infinite."""
        high = self.choose.of((6, 20, 20, 20, 60))
        if self.accounting.is_renyi:
            return tuple(
                self.choose.between(1, high)
                if self.choose.below(8)
                else self.choose.of((0, INFINITE))
                for _ in range(3)
            )
        return self.choose.between(1, high), self.choose.of((0, 0, 1, 7))

    def budgets(self, demand):
        return PerBlock.of({b: self.accounting.budget(d) for b, d in demand.items()})

    def demand(self):
        blocks = sorted(self.oracle.capacity)
        first = self.choose.below(len(blocks))
        asked = blocks[first : first + self.choose.between(1, self.longest)]
        if len(asked) > 2 and not self.choose.below(4):
            del asked[1]
        if self.few and self.choose.below(4):
            amounts = self.choose.of(self.few)
            demand = dict.fromkeys(asked, amounts)
            if not self.choose.below(4):
                demand[asked[0]] = self.choose.of(self.few)
            return demand
        return {block: self.amounts() for block in asked}

    # Events

    def add_block(self):
        name = f"b{len(self.oracle.capacity):02}"
        capacity = self.choose.of(self.sizes)
        self.pool.add_block(name, self.accounting.budget(capacity), self.now)
        self.oracle.add_block(name, capacity, self.now)

    def arrive(self, demand=None):
        demand = demand or self.demand()
        claim = f"c{len(self.records)}"
        deadline = None if self.choose.below(4) else self.now + self.choose.below(30)
        unlocks = list(demand) if self.choose.below(6) else list(demand)[1:]
        weight = self.choose.of((1, 1, 2, 3, 1000)) if self.policy.weighs else 1
        self.arrivals += 1
        self.records[claim] = demand, self.arrivals, deadline, weight
        self.pool.arrive(
            claim,
            self.budgets(demand),
            arrival=self.arrivals,
            deadline=deadline,
            unlocks=None if len(unlocks) == len(demand) else unlocks,
            weight=weight,
        )
        self.oracle.arrive(claim, demand, self.arrivals, deadline, unlocks, weight)

    def arrive_in_numbers(self):
        demand = self.demand()
        for _ in range(self.choose.between(2, 9)):
            self.arrive(demand)

    def withdraw(self):
        """Everybody with a like number leaves, and one comes back in its old turn."""
        remainder = self.choose.below(3)
        leaving = [claim for claim in self.oracle.waiting if int(claim[1:]) % 3 == remainder]
        for claim in leaving:
            self.pool.withdraw(claim)
            del self.oracle.waiting[claim]
        for claim in leaving[-1:]:
            self.come_back(claim)
            demand, arrival, deadline, weight = self.records[claim]
            self.oracle.arrive(claim, demand, arrival, deadline, (), weight)

    def come_back(self, claim):
        demand, arrival, deadline, weight = self.records[claim]
        self.pool.arrive(
            claim,
            self.budgets(demand),
            arrival=arrival,
            deadline=deadline,
            unlocks=(),
            weight=weight,
        )

    def spend(self, verb):
        """All of what one granted claim holds, or half."""
        if not self.held:
            return
        claim = self.choose.of(list(self.held))
        amounts = self.held.pop(claim)
        if not self.choose.below(3):
            half = {b: tuple(d // 2 for d in ds) for b, ds in amounts.items()}
            rest = {
                b: tuple(d - h for d, h in zip(ds, half[b], strict=True))
                for b, ds in amounts.items()
            }
            self.held[claim], amounts = rest, half
        getattr(self.pool, verb)(self.budgets(amounts))
        getattr(self.oracle, verb)(amounts)

    def consume(self):
        self.spend("consume")

    def release(self):
        self.spend("release")

    def retire(self):
        block = self.choose.of(list(self.oracle.capacity))
        if not self.choose.below(3):
            self.pool.retire(block)
            self.oracle.retire(block)

    def wait(self):
        """Time passes. If no pass is due, nothing may come of one."""
        due = self.pool.next_due()
        self.now += self.choose.between(1, 12)
        if due is None or self.now < due:
            assert self.check() == ([], [])

    def restart(self):
        """The host lost its pool, and builds it again from its records."""
        self.check()
        self.pool = self.new_pool()
        budget, oracle = self.accounting.budget, self.oracle
        for block, capacity in oracle.capacity.items():
            self.pool.add_block(
                block,
                budget(capacity),
                oracle.created[block],
                arrivals=oracle.arrivals[block],
                opened=oracle.opened[block],
                allocated=budget(oracle.allocated[block]),
                consumed=budget(oracle.consumed[block]),
                retired=block in oracle.retired,
            )
        for claim in oracle.waiting:
            self.come_back(claim)

    def leave_nothing_behind(self):
        """When nobody waits, nothing is kept of those who did."""
        for claim in list(self.oracle.waiting):
            self.pool.withdraw(claim)
        watch = self.pool._watch
        for kept in (watch._buckets, watch._pegs, self.pool._asking._askers):
            assert not kept
        assert not self.pool._curves._known
        assert self.pool.next_due() is None

    # What must be the same

    def check(self):
        outcome = self.pool.plan(self.now)
        granted, refused = self.oracle.plan(self.now)
        assert list(outcome.grants) == granted
        assert {(r.claim, str(r.reason)) for r in outcome.refusals} == set(refused)
        assert len(outcome.refusals) == len(refused)
        assert self.pool.waiting == len(self.oracle.waiting)
        due = self.pool.next_due()
        assert due is None or due > self.now
        self.held |= {claim: self.records[claim][0] for claim in granted}
        for block in self.oracle.capacity:
            view = self.pool.view(block)
            assert view.unlocked.amounts == tuple(self.oracle.unlocked(block))
            assert view.allocated.amounts == self.oracle.allocated[block]
            assert view.consumed.amounts == self.oracle.consumed[block]
            assert view.arrivals == self.oracle.arrivals[block]
            total = view.locked + view.unlocked + view.allocated + view.consumed
            assert total == view.capacity
        return granted, refused
