"""Where the budget of each of a stream's blocks is, in tables that numpy runs along.

The exact truth per block is `view`. Beside it the tables keep, up to date, the one thing that a
pass asks for all the time: the room, which is what is unlocked and not spent. An order that
nobody may be granted from (its capacity is not positive) shows a ceiling and a room of -1, below
every demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privatekube_kfp.core.budget import INFINITE, Accounting, Budget
from privatekube_kfp.core.exact_sums import BEYOND, ExactSums, Ints, Places, columns_at, grown
from privatekube_kfp.core.unlocking import AtOnce, ByPipelines, Unlocking, unlocked_amount

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class BlockBudget:
    """Where a block's capacity is: `capacity = locked + unlocked + allocated + consumed`."""

    capacity: Budget
    locked: Budget
    unlocked: Budget
    allocated: Budget
    consumed: Budget
    arrivals: int
    opened: int

    @property
    def left(self) -> Budget:
        """What could still be granted if everything allocated came back."""
        return self.capacity - self.consumed


class BlockTable:
    """The blocks of a stream, by place: the order in which they were added."""

    def __init__(self, accounting: Accounting, unlocking: Unlocking) -> None:
        width = self.width = len(accounting.labels)
        self._accounting = accounting
        self._unlocking = unlocking
        self.shares = unlocking.shares
        self.any_order = accounting.is_renyi
        self.names: list[str] = []
        self.capacities: list[tuple[int, ...]] = []
        self._place_of: dict[str, int] = {}
        self._kinds: dict[tuple[int, ...], int] = {}
        self._kind = np.zeros(0, dtype=np.int64)
        self.created = np.zeros(0, dtype=np.int64)
        self._arrivals = np.zeros(0, dtype=np.int64)
        self.opened = np.zeros(0, dtype=np.int64)
        self._ceiling = np.zeros((width, 0), dtype=np.int64)
        # The unlocked amount of `k` opened shares is `share * k + min(k, larger)`.
        self._share = np.zeros((width, 0), dtype=np.int64)
        self._larger = np.zeros((width, 0), dtype=np.int64)
        self._unlocked = np.zeros((width, 0), dtype=np.int64)
        self._room = np.zeros((width, 0), dtype=np.int64)
        self._spent = ExactSums(width)  # allocated or consumed
        self._consumed = ExactSums(width)

    # Which blocks there are

    def add(
        self,
        name: str,
        capacity: Budget,
        created: int,
        *,
        arrivals: int,
        opened: int,
        allocated: Budget | None,
        consumed: Budget | None,
    ) -> int:
        """A block, new or as a host's records have it; returns its place."""
        if name in self._place_of:
            raise ValueError(f"block {name} is already here")
        if max(capacity.amounts) >= INFINITE:
            raise ValueError(f"block {name}: a capacity must be finite, not {capacity}")
        place = len(self.names)
        if place == len(self.opened):
            self._grow(max(16, 2 * place))
        amounts = capacity.amounts
        self.names.append(name)
        self.capacities.append(amounts)
        self._place_of[name] = place
        self._kind[place] = self._kinds.setdefault(amounts, len(self._kinds))
        self.created[place] = created
        self._arrivals[place] = arrivals
        self.opened[place] = 1 if isinstance(self._unlocking, AtOnce) else opened
        for line, amount in enumerate(amounts):
            usable = amount > 0 or (amount == 0 and not self.any_order)
            self._ceiling[line, place] = amount if usable else -1
            share, larger = divmod(amount, self.shares) if usable else (0, -1)
            self._share[line, place], self._larger[line, place] = share, larger
        zero = self._accounting.zero()
        consumed = consumed or zero
        self._consumed.set(place, consumed.amounts)
        self._spent.set(place, ((allocated or zero) + consumed).amounts)
        self._reckon_unlocked(slice(place, place + 1))
        return place

    def place(self, name: str) -> int:
        return self._place_of[name]

    def places(self, names: Sequence[str]) -> Places:
        """Where these blocks are; each may be named once."""
        if not names:
            return slice(0, 0)
        first, count = self._place_of[names[0]], len(names)
        if self.names[first : first + count] == list(names):
            return slice(first, first + count)
        found = sorted(self._place_of[name] for name in names)
        if len(set(found)) != count:
            raise ValueError(f"a block is named twice in {', '.join(names)}")
        if found[-1] - found[0] == count - 1:
            return slice(found[0], found[-1] + 1)
        return np.array(found, dtype=np.int32)

    def capacities_at(self, places: Places) -> list[tuple[tuple[int, ...], int]]:
        """The distinct capacities of these blocks, each with how many blocks have it."""
        kinds = self._kind[places]
        if len(kinds) and (kinds == kinds[0]).all():  # the normal case, in a stream
            return [(self._capacity_at(places, 0), len(kinds))]
        _, first, counts = np.unique(kinds, return_index=True, return_counts=True)
        return [
            (self._capacity_at(places, index), count)
            for index, count in zip(first.tolist(), counts.tolist(), strict=True)
        ]

    def _capacity_at(self, places: Places, index: int) -> tuple[int, ...]:
        first = places.start if isinstance(places, slice) else 0
        return self.capacities[first + index if isinstance(places, slice) else int(places[index])]

    # Where their budget is

    def view(self, place: int) -> BlockBudget:
        """Where the block's budget is, exactly."""
        budget = self._accounting.budget
        opened = int(self.opened[place])
        capacity = budget(self.capacities[place])
        unlocked = budget(unlocked_amount(c, opened, self.shares) for c in capacity.amounts)
        spent, consumed = budget(self._spent.get(place)), budget(self._consumed.get(place))
        return BlockBudget(
            capacity=capacity,
            locked=capacity - unlocked,
            unlocked=unlocked - spent,
            allocated=spent - consumed,
            consumed=consumed,
            arrivals=int(self._arrivals[place]),
            opened=opened,
        )

    def room(self, places: Places) -> Ints:
        """What is unlocked and not spent, per component and block, to read."""
        return columns_at(self._room, places)

    def have_room(self, places: Places, demands: Ints) -> Bools:
        """Whether each of these blocks has room for its demand."""
        return self._enough(columns_at(self._room, places) >= demands)

    def has_room(self, place: int, demands: Ints) -> Bools:
        """Whether one block has room for each of these demands."""
        return self._enough(self._room[:, place : place + 1] >= demands)

    def _enough(self, at_order: Bools) -> Bools:
        return np.asarray(at_order.any(axis=0) if self.any_order else at_order.all(axis=0))

    def shares_for(self, places: Places, demands: Ints) -> Ints:
        """How many shares of each block must be open, at least, before its demand can fit."""
        wanted = columns_at(self._spent.shown, places) + demands
        shares = -(-wanted // (columns_at(self._share, places) + 1))
        usable = columns_at(self._ceiling, places) > 0
        if self.any_order:
            return np.asarray(np.where(usable, shares, BEYOND).min(axis=0))
        return np.asarray(np.where(usable, shares, 0).max(axis=0))

    def tightest(self, places: Places, demand: Ints) -> tuple[int, bool]:
        """The block that is shortest of room for this demand, and whether even it has enough."""
        spare = columns_at(self._room, places) - demand
        of_block = spare.max(axis=0) if self.any_order else spare.min(axis=0)
        index = int(of_block.argmin())
        place = places.start + index if isinstance(places, slice) else int(places[index])
        return place, bool(of_block[index] >= 0)

    def tightest_for(self, places: slice, demands: Ints) -> tuple[Ints, Bools]:
        """The same for each of several demands on the same blocks."""
        spare = self._room[:, places, None] - demands[:, None, :]
        of_block = spare.max(axis=0) if self.any_order else spare.min(axis=0)
        index = of_block.argmin(axis=0)
        return places.start + index, of_block.min(axis=0) >= 0

    def left(self, places: Places) -> Ints:
        """What is not consumed, per component and block; -1 or less where nobody may be granted."""
        return columns_at(self._ceiling, places) - columns_at(self._consumed.shown, places)

    # What changes it

    def count_arrival(self, places: Places) -> bool:
        """A pipeline asks for these blocks for the first time; whether that unlocks anything."""
        self._arrivals[places] += 1
        if not isinstance(self._unlocking, ByPipelines):
            return False
        self.opened[places] = np.minimum(self.opened[places] + 1, self.shares)
        self._reckon_unlocked(places)
        return True

    def open_until(self, now: int, interval: int) -> Places:
        """Unlock a share per interval since each block's creation; returns who gained."""
        used = slice(0, len(self.names))
        due = np.clip((now - self.created[used]) // interval, self.opened[used], self.shares)
        places = np.flatnonzero(due > self.opened[used]).astype(np.int32)
        if len(places):
            self.opened[places] = due[places]
            self._reckon_unlocked(places)
        return places

    def allocate(self, places: Places, demand: Ints) -> None:
        self._spent.add(places, demand)
        self._reckon_room(places)

    def consume(self, places: Places, amounts: Ints) -> None:
        self._consumed.add(places, amounts)

    def release(self, places: Places, amounts: Ints) -> None:
        self._spent.add(places, -amounts)
        self._reckon_room(places)

    def _reckon_unlocked(self, places: Places) -> None:
        opened = self.opened[places]
        unlocked = columns_at(self._share, places) * opened
        unlocked += np.minimum(opened, columns_at(self._larger, places))
        self._unlocked[:, places] = unlocked
        self._reckon_room(places)

    def _reckon_room(self, places: Places) -> None:
        """Far below zero shows as just as far as `BEYOND`: nothing fits there either way."""
        spent = columns_at(self._spent.shown, places)
        self._room[:, places] = columns_at(self._unlocked, places) - spent

    def _grow(self, columns: int) -> None:
        self._spent.grow(columns)
        self._consumed.grow(columns)
        for name in (
            "_kind",
            "created",
            "_arrivals",
            "opened",
            "_ceiling",
            "_share",
            "_larger",
            "_unlocked",
            "_room",
        ):
            setattr(self, name, grown(getattr(self, name), columns))
