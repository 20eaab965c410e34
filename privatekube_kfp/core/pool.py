"""The scheduling core: the budgets of one stream's blocks and the claims that wait for them.

Three hosts drive it: the embedded ledger, the in-cluster scheduler and the simulator. It knows
no clock, no storage and no names beyond those it is told; a host that fails to keep what `plan`
decided throws the pool away and builds it again from its records.

A pass costs what changed, not what waits. Each waiting claim is watched by one block that stops
it, together with all claims that ask the same of that block. Until the block has room for that
demand nobody there is looked at; when it has, they are, best rank first, until it has no more.
This grants what sorting all waiting claims and trying each would grant: within a pass grants only
lower what is unlocked, so a claim stopped by a block that gained nothing cannot run.

To read on: `block_table` holds where the budget is, `watch` whom to look at when a block gains,
`packing` who goes first where a policy packs, `asking` whom to refuse when a block can no longer
serve them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from privatekube_kfp.core import packing
from privatekube_kfp.core.asking import Asking
from privatekube_kfp.core.block_table import BlockBudget, BlockTable
from privatekube_kfp.core.budget import Accounting, Budget
from privatekube_kfp.core.errors import Reason
from privatekube_kfp.core.lazy_heap import LazyHeap
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.core.policy import Asked, Policy, Rank, check_weighs
from privatekube_kfp.core.unlocking import ByTime, Unlocking
from privatekube_kfp.core.waiter import Curve, Curves, Part, Waiter, as_column
from privatekube_kfp.core.watch import Bucket, Watch

__all__ = ["BlockBudget", "Outcome", "Pool", "Refusal"]


@dataclass(frozen=True)
class Refusal:
    """A claim that will not be granted, or not yet, and what would change that."""

    claim: str
    reason: Reason
    message: str


@dataclass(frozen=True)
class Outcome:
    """What one pass decided, in the order in which it decided."""

    grants: tuple[str, ...]
    refusals: tuple[Refusal, ...]


_Candidate = tuple[Rank, int, Bucket | Waiter]
"""A claim, or a bucket of claims, that may run in this pass, behind its rank and arrival."""


class _Deadlines(LazyHeap[int, Waiter]):
    """Waiting claims that will not wait forever."""

    __slots__ = ()

    def _is_live(self, item: Waiter) -> bool:
        return item.waiting


class Pool:
    """Budgets of a stream's blocks, waiting claims, and the pass that matches them."""

    def __init__(self, accounting: Accounting, unlocking: Unlocking, policy: Policy) -> None:
        self._accounting = accounting
        self._unlocking = unlocking
        self._policy = policy
        self._blocks = BlockTable(accounting, unlocking)
        self._retired: set[int] = set()
        self._curves = Curves()
        self._waiters: dict[str, Waiter] = {}
        self._newcomers: list[Waiter] = []
        self._deadlines = _Deadlines()
        self._watch = Watch(self._blocks)
        self._asking = Asking(self._blocks)
        self._refusals: list[Refusal] = []

    # Blocks

    def add_block(
        self,
        name: str,
        capacity: Budget,
        created: int,
        *,
        arrivals: int = 0,
        opened: int = 0,
        allocated: Budget | None = None,
        consumed: Budget | None = None,
        retired: bool = False,
    ) -> None:
        """A block, new or as a host's records have it."""
        place = self._blocks.add(
            name,
            capacity,
            created,
            arrivals=arrivals,
            opened=opened,
            allocated=allocated,
            consumed=consumed,
        )
        self._watch.add_block(place)
        self._asking.add_block(place)
        if retired:
            self._retired.add(place)

    def retire(self, name: str) -> None:
        """Grant nothing from this block any more, and refuse whoever waits for it."""
        place = self._blocks.place(name)
        self._retired.add(place)
        for waiter in self._asking.at(place):
            self._refuse(waiter, Reason.BLOCK_RETIRED, f"block {name} is retired")

    def unlock_until(self, now: int) -> None:
        """Unlock what time unlocks; for looking at blocks between passes."""
        if isinstance(self._unlocking, ByTime):
            self._watch.note_gain(self._blocks.open_until(now, self._unlocking.interval))

    def view(self, name: str) -> BlockBudget:
        """Where the block's budget is, exactly."""
        return self._blocks.view(self._blocks.place(name))

    def is_exhausted(self, name: str) -> bool:
        """Whether all that the block may spend is consumed."""
        place = self._blocks.place(name)
        left = self._blocks.left(slice(place, place + 1))
        return bool((left <= 0).all() if self._accounting.is_renyi else left[0, 0] <= 0)

    # Claims

    def arrive(
        self,
        claim: str,
        demand: PerBlock,
        *,
        arrival: int,
        deadline: int | None = None,
        unlocks: Iterable[str] | None = None,
        weight: int = 1,
    ) -> None:
        """A claim asks for budget. `unlocks`: the blocks it is new to (all, unless told).

        `arrival` orders claims of equal rank and must be unique among those waiting.
        """
        check_weighs(self._policy, weight)
        if claim in self._waiters:
            raise ValueError(f"claim {claim} is already waiting")
        if len(demand.groups) > 1 and len(set(demand.blocks)) != len(demand.blocks):
            raise ValueError(f"claim {claim} asks twice for a block")
        opens = None if unlocks is None else self._blocks.places(tuple(unlocks))
        asked = [(budget, self._blocks.places(names)) for budget, names in demand.groups]
        parts = tuple((self._curves.take(budget), places) for budget, places in asked)
        waiter = Waiter(claim, parts, weight, self._rank(parts, weight), arrival, deadline)
        self._waiters[claim] = waiter
        self._asking.add(waiter)
        if deadline is not None:
            self._deadlines.push(deadline, arrival, waiter)
        if self._refused_at_once(waiter):
            return
        self._newcomers.append(waiter)
        for unlocked in [places for _, places in parts] if opens is None else [opens]:
            if self._blocks.count_arrival(unlocked):
                self._watch.note_gain(unlocked)

    def withdraw(self, claim: str) -> None:
        """The claim no longer waits; nobody needs an answer."""
        self._remove(self._waiters[claim])

    def consume(self, amounts: PerBlock) -> None:
        """Allocated budget is spent for good. Whoever can now never be met is refused."""
        for budget, names in amounts.groups:
            places = self._blocks.places(names)
            self._blocks.consume(places, as_column(budget))
            for waiter, place, curve in self._asking.hopeless(places):
                self._refuse_as_hopeless(waiter, Reason.EXHAUSTED, place, curve)

    def release(self, amounts: PerBlock) -> None:
        """Allocated budget goes back to unlocked."""
        for budget, names in amounts.groups:
            places = self._blocks.places(names)
            self._blocks.release(places, as_column(budget))
            self._watch.note_gain(places)

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def is_waiting(self, claim: str) -> bool:
        return claim in self._waiters

    def why_waiting(self, claim: str) -> Refusal:
        """What a waiting claim is waiting for."""
        stopped_at = self._stopped_at(self._waiters[claim])
        if stopped_at is None:
            return Refusal(claim, Reason.WAITING_FOR_UNLOCK, "its turn has not come yet")
        place, (curve, _) = stopped_at
        budget = self._blocks.view(place)
        demand = self._accounting.budget(curve.amounts)
        asked = self._sentence(place, demand, budget.unlocked, "unlocked")
        if demand.fits(budget.unlocked + budget.locked, budget.capacity):
            return Refusal(claim, Reason.WAITING_FOR_UNLOCK, f"{asked}; more is still locked")
        return Refusal(
            claim, Reason.WAITING_FOR_RELEASE, f"{asked}; other claims hold what is missing"
        )

    def next_due(self) -> int | None:
        """When the next pass could decide something if nothing else happens before; 0 is now."""
        if self._newcomers or self._refusals or self._watch.has_news:
            return 0
        head = self._deadlines.head()
        due = [head[0]] if head else []
        if isinstance(self._unlocking, ByTime):
            tick = self._watch.next_tick(self._unlocking.interval)
            due += [] if tick is None else [tick]
        return min(due, default=None)

    # The pass

    def plan(self, now: int) -> Outcome:
        """Decide for all that wait, at time `now`: who is granted, in order, and who is refused."""
        # 1. Unlock what time unlocks.
        self.unlock_until(now)
        # 2. Refuse whoever's time was up before now.
        self._refuse_overdue(now - 1)
        # 3. Collect whom the changes since the last pass may let run.
        candidates = [_turn_of_one(waiter) for waiter in self._newcomers if waiter.waiting]
        candidates += [_turn_of(bucket) for bucket in self._watch.runnable()]
        self._newcomers.clear()
        # 4. Grant in the policy's order whatever fits; watch the rest at a block that stops it.
        grants = self._grant_by_rank(candidates)
        # 5. Those whom the policy packs come after them.
        grants += self._grant_by_packing(candidates)
        # 6. Refuse whoever's time is up now.
        self._refuse_overdue(now)
        refusals, self._refusals = tuple(self._refusals), []
        return Outcome(tuple(grants), refusals)

    def _grant_by_rank(self, candidates: list[_Candidate]) -> list[str]:
        """Try the candidates in order, up to those who are packed; these are left in the list."""
        packs_from = self._policy.packs_from
        grants: list[str] = []
        heapq.heapify(candidates)
        while candidates and (packs_from is None or candidates[0][0] < packs_from):
            item = heapq.heappop(candidates)[2]
            waiter = item if isinstance(item, Waiter) else self._watch.next_in(item)
            if waiter is None:
                continue
            if self._granted(waiter):
                grants.append(waiter.id)
            if isinstance(item, Bucket) and item.live:
                heapq.heappush(candidates, _turn_of(item))
        return grants

    def _grant_by_packing(self, candidates: list[_Candidate]) -> list[str]:
        """Try all candidates, ranked anew after every few grants: each changes what packs best.

        Whoever does not fit cannot run in this pass any more, since grants only lower the room.
        """
        waiting: list[Waiter] = []
        for _, _, item in candidates:
            waiting += [item] if isinstance(item, Waiter) else self._watch.all_in(item)
        if not waiting:
            return []
        table = packing.Packing(self._blocks, waiting)
        left, grants = list(range(len(waiting))), []
        while left:
            turns = iter(table.in_turn(left))
            granted = (number for number in turns if self._granted(table.waiters[number]))
            few = islice(granted, packing.GRANTS_PER_RANKING)
            grants += [table.waiters[number].id for number in few]
            left = list(turns)
        return grants

    def _stopped_at(self, waiter: Waiter) -> tuple[int, Part] | None:
        """A block without room for what the claim asks of it, if there is one."""
        for curve, places in waiter.parts:
            place, has_room = self._blocks.tightest(places, curve.column)
            if not has_room:
                return place, (curve, places)
        return None

    def _granted(self, waiter: Waiter) -> bool:
        """Grant the claim what it asks for if that fits; else watch it at a block that stops it."""
        stopped_at = self._stopped_at(waiter)
        if stopped_at is not None:
            self._watch.add(waiter, *stopped_at)
            return False
        for curve, places in waiter.parts:
            self._blocks.allocate(places, curve.column)
        self._remove(waiter)
        return True

    def _remove(self, waiter: Waiter) -> None:
        del self._waiters[waiter.id]
        waiter.waiting = False
        if waiter.deadline is not None:
            self._deadlines.left()
        self._watch.remove(waiter)
        self._asking.remove(waiter)
        for curve, _ in waiter.parts:
            self._curves.give_back(curve)

    def _rank(self, parts: tuple[Part, ...], weight: int) -> Rank:
        shares: dict[int, int] = {}
        fair = True
        for curve, places in parts:
            for capacity, blocks in self._blocks.capacities_at(places):
                share = curve.share_of(capacity)
                shares[share] = shares.get(share, 0) + blocks
                fair = fair and curve.is_fair(capacity, self._blocks)
        return self._policy.rank(Asked(shares, weight, fair))

    # Refusing

    def _refuse(self, waiter: Waiter, reason: Reason, message: str) -> None:
        self._remove(waiter)
        self._refusals.append(Refusal(waiter.id, reason, message))

    def _refuse_overdue(self, now: int) -> None:
        while (head := self._deadlines.head()) and head[0] <= now:
            waiter = head[2]
            waiting_for = self.why_waiting(waiter.id)
            self._refuse(
                waiter, Reason.TIMED_OUT, f"timed out waiting for budget: {waiting_for.message}"
            )

    def _refused_at_once(self, waiter: Waiter) -> bool:
        """Refuse a newcomer that its blocks can never serve."""
        if self._retired and (retired := self._first_retired(waiter)) is not None:
            name = self._blocks.names[retired]
            self._refuse(waiter, Reason.NO_MATCHING_BLOCKS, f"block {name} is retired")
            return True
        for curve, places in waiter.parts:
            cannot = self._asking.vouch(curve, places)
            if cannot is not None:
                self._refuse_as_hopeless(waiter, Reason.EXCEEDS_CAPACITY, cannot, curve)
                return True
        return False

    def _first_retired(self, waiter: Waiter) -> int | None:
        return min((place for place in self._retired if waiter.asks(place)), default=None)

    def _refuse_as_hopeless(self, waiter: Waiter, reason: Reason, place: int, curve: Curve) -> None:
        demand = self._accounting.budget(curve.amounts)
        message = self._sentence(place, demand, self._blocks.view(place).left, "left")
        self._refuse(waiter, reason, f"{message}, and no more will ever be")

    def _sentence(self, place: int, demand: Budget, available: Budget, what: str) -> str:
        """Both numbers, at the order where they are closest."""
        labels, renyi = self._accounting.labels, self._accounting.is_renyi
        short = {
            line: d - a
            for line, (d, a) in enumerate(zip(demand.amounts, available.amounts, strict=True))
        }
        if renyi:
            usable = [c > 0 for c in self._blocks.capacities[place]]
            short = {line: lack for line, lack in short.items() if usable[line]}
        else:
            short = {line: lack for line, lack in short.items() if lack > 0} or short
        name = self._blocks.names[place]
        if not short:
            return f"block {name}: no order of it has any capacity"
        closest = labels[min(short, key=lambda line: short[line])]
        label = f"epsilon at order {closest}" if renyi else closest
        asked, has = demand.to_json()[closest], available.to_json()[closest]
        return f"block {name}: {label} {asked} asked, {has} {what}"


def _turn_of_one(waiter: Waiter) -> _Candidate:
    return waiter.rank, waiter.arrival, waiter


def _turn_of(bucket: Bucket) -> _Candidate:
    """When a bucket is due: at its best claim's turn."""
    head = bucket.head()
    assert head is not None
    rank, arrival, _ = head
    return rank, arrival, bucket
