"""A claim that waits, and the demands that waiting claims share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.exact_sums import MAX_ADDEND, Ints, Places
from privatekube_kfp.core.policy import Rank, exact_share, within_fair_share

if TYPE_CHECKING:
    from privatekube_kfp.core.block_table import BlockTable
    from privatekube_kfp.core.watch import Bucket


def as_column(budget: Budget) -> Ints:
    """A budget as tables take it: one line per component."""
    return np.array(budget.amounts, dtype=np.int64)[:, None]


class Curve:
    """One distinct demand on a block, shared by all waiting claims that ask for it.

    Few distinct demands exist in practice, so whatever depends on the demand alone is worked
    out, kept and tested once per curve and not once per claim.
    """

    __slots__ = ("_fair", "_shares", "amounts", "column", "users")

    def __init__(self, budget: Budget) -> None:
        self.amounts = budget.amounts
        self.column = as_column(budget)
        self.users = 0
        self._shares: dict[tuple[int, ...], int] = {}
        self._fair: dict[tuple[int, ...], bool] = {}

    def share_of(self, capacity: tuple[int, ...]) -> int:
        share = self._shares.get(capacity)
        if share is None:
            share = self._shares[capacity] = exact_share(self.amounts, capacity)
        return share

    def is_fair(self, capacity: tuple[int, ...], blocks: BlockTable) -> bool:
        """Whether it asks of a block of this capacity for its fair share at most."""
        fair = self._fair.get(capacity)
        if fair is None:
            fair = self._fair[capacity] = within_fair_share(
                self.amounts, capacity, blocks.shares, blocks.any_order
            )
        return fair


class Curves:
    """The demands of all waiting claims, each kept once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], Curve] = {}

    def take(self, demand: Budget) -> Curve:
        curve = self._known.get(demand.amounts)
        if curve is None:
            if min(demand.amounts) < 0 or max(demand.amounts) > MAX_ADDEND:
                raise ValueError(f"no demand can be {demand}")
            curve = self._known[demand.amounts] = Curve(demand)
        curve.users += 1
        return curve

    def give_back(self, curve: Curve) -> None:
        curve.users -= 1
        if not curve.users:
            del self._known[curve.amounts]


Part = tuple[Curve, Places]


class Waiter:
    """A claim that waits: what it asks for, its turn, and the bucket it is watched in."""

    __slots__ = ("arrival", "bucket", "deadline", "id", "parts", "rank", "waiting", "weight")

    def __init__(
        self,
        id: str,
        parts: tuple[Part, ...],
        weight: int,
        rank: Rank,
        arrival: int,
        deadline: int | None,
    ) -> None:
        self.id = id
        self.parts = parts
        self.weight = weight
        self.rank = rank
        self.arrival = arrival
        self.deadline = deadline
        self.bucket: Bucket | None = None
        self.waiting = True

    def __lt__(self, other: Waiter) -> bool:
        """Asked only if one of both has left and the other took its turn: any order will do."""
        return False

    def asks(self, place: int) -> Curve | None:
        """What the claim asks of the block at this place, if anything."""
        for curve, places in self.parts:
            if isinstance(places, slice):
                if places.start <= place < places.stop:
                    return curve
            elif places[0] <= place <= places[-1] and places[places.searchsorted(place)] == place:
                return curve
        return None
