"""Who asks for a block: to tell them at once when it can never serve them.

Looked up only when a block is retired, or has been consumed so far that somebody may ask for
more than it has left. To know when that is without looking at anybody, each demand on a block is
vouched for by its components (Basic: all of them; Renyi: one order, the one with most left), and
the block keeps the tallest demand that each component vouches for. While what is left covers
those, nobody is hopeless.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from privatekube_kfp.core.block_table import BlockTable
from privatekube_kfp.core.exact_sums import Ints, Places, columns_at, grown
from privatekube_kfp.core.lazy_heap import SLACK
from privatekube_kfp.core.waiter import Curve, Waiter

# A claim over 500 blocks is listed at its 4 or 5 stretches of blocks, not 500 times; a lookup
# passes over those in the stretch that do not ask for the very block.
_STRETCH_BITS = 7
_NOBODY = -(1 << 62)


def _stretches(places: Places) -> Iterable[int]:
    if isinstance(places, slice):
        return range(places.start >> _STRETCH_BITS, ((places.stop - 1) >> _STRETCH_BITS) + 1)
    return sorted(set((places >> _STRETCH_BITS).tolist()))


class _Askers:
    """The claims with one demand in one stretch; those that left are swept now and then."""

    __slots__ = ("claims", "live")

    def __init__(self) -> None:
        self.claims: list[Waiter] = []
        self.live = 0

    def left(self) -> None:
        self.live -= 1
        if len(self.claims) > 2 * self.live + SLACK:
            self.claims = [claim for claim in self.claims if claim.waiting]


class Asking:
    """All waiting claims, by stretch of blocks and demand."""

    def __init__(self, blocks: BlockTable) -> None:
        self._blocks = blocks
        self._askers: dict[int, dict[Curve, _Askers]] = {}
        self._tallest = np.zeros((blocks.width, 0), dtype=np.int64)

    def add_block(self, place: int) -> None:
        if place == self._tallest.shape[1]:
            self._tallest = grown(self._tallest, max(16, 2 * place))
        self._tallest[:, place] = _NOBODY

    def add(self, waiter: Waiter) -> None:
        for curve, places in waiter.parts:
            for stretch in _stretches(places):
                here = self._askers.setdefault(stretch, {})
                askers = here.get(curve)
                if askers is None:
                    askers = here[curve] = _Askers()
                askers.claims.append(waiter)
                askers.live += 1

    def remove(self, waiter: Waiter) -> None:
        """The claim, which must no longer be `waiting`, asks no more."""
        for curve, places in waiter.parts:
            for stretch in _stretches(places):
                here = self._askers[stretch]
                here[curve].left()
                if not here[curve].live:
                    del here[curve]
                    if not here:
                        del self._askers[stretch]

    def at(self, place: int) -> list[Waiter]:
        """Everybody who asks for this block, in order of arrival."""
        here = self._askers.get(place >> _STRETCH_BITS, {})
        return sorted(
            (waiter for curve in here for waiter in self._with(curve, place)),
            key=lambda waiter: waiter.arrival,
        )

    # Who can never be met

    def vouch(self, curve: Curve, places: Places) -> int | None:
        """Remember that somebody asks for this; returns the first block that can never give it."""
        demand = curve.column
        spare = self._blocks.left(places) - demand
        if self._blocks.any_order:
            # One order mostly vouches for all blocks.
            least = spare.min(axis=1)
            order = int(least.argmax())
            if least[order] >= 0:
                line = self._tallest[order]
                line[places] = np.maximum(line[places], demand[order])
                return None
            can = (spare >= 0).any(axis=0)
        else:
            can = (spare >= 0).all(axis=0)
        if not can.all():
            first = int(can.argmin())
            return places.start + first if isinstance(places, slice) else int(places[first])
        self._tallest[:, places] = np.maximum(
            columns_at(self._tallest, places), self._vouched(spare, demand)
        )
        return None

    def _vouched(self, spare: Ints, demand: Ints) -> Ints:
        """The demand at the components that vouch for it, `_NOBODY` at the others."""
        if not self._blocks.any_order:
            return demand
        return np.where(np.arange(len(spare))[:, None] == spare.argmax(axis=0), demand, _NOBODY)

    def hopeless(self, places: Places) -> Iterator[tuple[Waiter, int, Curve]]:
        """After a consumption: who asks for more than a block has left, of which block, and what.

        The caller refuses each before it asks for the next.
        """
        covered = (self._blocks.left(places) >= columns_at(self._tallest, places)).all(axis=0)
        if covered.all():
            return
        doubtful = np.flatnonzero(~covered)
        found = doubtful + places.start if isinstance(places, slice) else places[doubtful]
        for place in found.tolist():
            for curve in self._vouch_again(place):
                for waiter in self._with(curve, place):
                    yield waiter, place, curve

    def _vouch_again(self, place: int) -> list[Curve]:
        """Work out the tallest demands at this block anew; returns those that it cannot meet."""
        self._tallest[:, place] = _NOBODY
        curves = list(self._askers.get(place >> _STRETCH_BITS, ()))
        if not curves:
            return []
        demands = np.hstack([curve.column for curve in curves])
        spare = self._blocks.left(slice(place, place + 1)) - demands
        enough = spare >= 0
        can = enough.any(axis=0) if self._blocks.any_order else enough.all(axis=0)
        vouched = self._vouched(spare, demands)[:, can]
        self._tallest[:, place] = vouched.max(axis=1, initial=_NOBODY)
        return [curves[index] for index in np.flatnonzero(~can).tolist()]

    def _with(self, curve: Curve, place: int) -> list[Waiter]:
        askers = self._askers.get(place >> _STRETCH_BITS, {}).get(curve)
        if askers is None:
            return []
        return [
            waiter for waiter in askers.claims if waiter.waiting and waiter.asks(place) is curve
        ]
