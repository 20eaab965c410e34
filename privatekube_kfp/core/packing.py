"""Who goes first where as much weight as possible should fit: a ranking of all who could run.

Under Renyi a block runs out of budget only when its last order does. So each block first picks
the order at which most weight packs into its room, the claims with the smallest demand for their
weight first. What a claim costs is what it takes of the room at those orders, summed over its
blocks, for its weight; whoever costs least goes first. Under Basic every component must fit: a
claim takes of a block what it takes of its scarcest component.

This only ranks, so floats will do where they round alike everywhere; whether a claim fits is
compared exactly. The pool calls it in a pass, with the claims that the pass looks at, and again
after every few grants. Whatever depends on the demand and the weight alone is worked out once
per kind of claim, over all blocks at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from privatekube_kfp.core.block_table import BlockTable, Bools
from privatekube_kfp.core.budget import INFINITE
from privatekube_kfp.core.exact_sums import Ints, Places
from privatekube_kfp.core.waiter import Curve, Waiter

GRANTS_PER_RANKING = 50
"""After so many grants the ranking is worked out anew: each changes what packs best."""

COST_SCALE = 1 << 40
"""Costs are summed in whole parts of this, so that their sums do not depend on an order."""
MAX_COST = 1 << 8
"""A finite demand above so many times the room costs no more: sums over thousands of blocks fit
into 64 bits."""

Floats = npt.NDArray[np.float64]


class Packing:
    """Some claims by number, in order of rank and arrival, and what they ask for, in tables.

    A kind of claims is one demand and one weight. Tables have a line per kind and a column per
    block that somebody asks for. What a claim asks for is one or more stretches: a kind and
    consecutive columns.
    """

    def __init__(self, blocks: BlockTable, waiters: Sequence[Waiter]) -> None:
        self._blocks = blocks
        self.waiters = sorted(waiters, key=lambda waiter: (waiter.rank, waiter.arrival))
        parts = [
            (number, (curve, waiter.weight), places)
            for number, waiter in enumerate(self.waiters)
            for curve, places in waiter.parts
        ]
        self._places, column = _columns([places for _, _, places in parts])
        lines: dict[tuple[Curve, int], int] = {}
        stretches = [
            (number, lines.setdefault(kind, len(lines)), first, end)
            for number, kind, places in parts
            for first, end in _stretches(places, column)
        ]
        self._claim, self._line, self._first, self._end = np.array(stretches, dtype=np.int64).T
        self._demands: Ints = np.concatenate([curve.column for curve, _ in lines], axis=1)
        self._weights = np.array([weight for _, weight in lines], dtype=np.int64)
        self._claims_weights = np.array([waiter.weight for waiter in self.waiters], dtype=np.int64)

    def in_turn(self, numbers: Sequence[int]) -> list[int]:
        """These claims in the order in which to try them.

        Those that cannot run any more count for nothing; they come first, for the pool to be rid
        of them.
        """
        asked = np.sort(numbers)
        room = self._blocks.room(self._places)
        can_run = self._summed(~self._fits(room)) == 0
        runnable = asked[can_run[asked]]
        relative = self._relative(room, runnable)
        endless = self._summed(np.isinf(relative))
        parts = self._summed((np.minimum(relative, MAX_COST) * COST_SCALE).astype(np.int64))
        costs = np.where(endless > 0, np.inf, parts / self._claims_weights)[runnable]
        turns = runnable[np.argsort(costs, kind="stable")]
        return [*asked[~can_run[asked]].tolist(), *turns.tolist()]

    def _summed(self, table: Ints | Bools) -> Ints:
        """A table, summed over the blocks of each claim."""
        until = np.zeros((table.shape[0], table.shape[1] + 1), dtype=np.int64)
        np.cumsum(table, axis=1, out=until[:, 1:])
        sums = np.zeros(len(self.waiters), dtype=np.int64)
        np.add.at(sums, self._claim, until[self._line, self._end] - until[self._line, self._first])
        return sums

    def _fits(self, room: Ints) -> Bools:
        """Whether each block has room for one claim of each kind."""
        combine = np.logical_or if self._blocks.any_order else np.logical_and
        at_order = [
            demand[:, None] <= left for demand, left in zip(self._demands, room, strict=True)
        ]
        return np.asarray(combine.reduce(at_order))

    def _relative(self, room: Ints, runnable: Ints) -> Floats:
        """What a claim of each kind takes of each block's room."""
        if self._blocks.any_order:
            picked = self._packed_weight(room, runnable).argmax(axis=0)
            return _parts_of(self._demands[picked].T, room[picked, np.arange(len(picked))])
        of_components = [
            _parts_of(demand[:, None], left)
            for demand, left in zip(self._demands, room, strict=True)
        ]
        return np.asarray(np.maximum.reduce(of_components))

    def _packed_weight(self, room: Ints, runnable: Ints) -> Ints:
        """How much weight packs into each block at each order, least demand per weight first."""
        counts = self._count(runnable)
        present = counts.any(axis=1)
        counts, demands, weights = (
            counts[present],
            self._demands[:, present],
            self._weights[present],
        )
        turns = np.lexsort((demands, demands / weights), axis=1)
        demands = np.take_along_axis(demands, turns, axis=1)
        weights = weights[turns]
        packed, left = np.zeros_like(room), np.maximum(room, 0)
        one_each = counts.max(initial=0) <= 1  # a comparison is much quicker than a division
        for nth, kinds in enumerate(turns.T):
            demand, asking = demands[:, nth, None], counts[kinds]
            fitting = demand <= left if one_each else left // np.maximum(demand, 1)
            number = np.where(demand > 0, np.minimum(asking, fitting), asking)
            left -= number * demand
            packed += number * weights[:, nth, None]
        return np.where(room >= 0, packed, 0)

    def _count(self, runnable: Ints) -> Ints:
        """How many of these claims are of each kind, by block."""
        change = np.zeros((len(self._weights), len(self._places) + 1), dtype=np.int64)
        counted = np.zeros(len(self.waiters), dtype=np.int64)
        counted[runnable] = 1
        np.add.at(change, (self._line, self._first), counted[self._claim])
        np.add.at(change, (self._line, self._end), -counted[self._claim])
        return np.asarray(change.cumsum(axis=1)[:, :-1])


def _columns(asked: Sequence[Places]) -> tuple[npt.NDArray[np.int32], Ints]:
    """The blocks that somebody asks for, and the column of each of them, by place."""
    last = max(places.stop - 1 if isinstance(places, slice) else places[-1] for places in asked)
    is_asked = np.zeros(last + 1, dtype=np.bool_)
    for places in asked:
        is_asked[places] = True
    return np.flatnonzero(is_asked).astype(np.int32), np.cumsum(is_asked) - 1


def _stretches(places: Places, column: Ints) -> list[tuple[int, int]]:
    """Consecutive columns, from the first to before the end."""
    if isinstance(places, slice):
        first = int(column[places.start])
        return [(first, first + places.stop - places.start)]
    columns = column[places]
    breaks = np.flatnonzero(np.diff(columns) != 1)
    firsts, lasts = columns[[0, *(breaks + 1)]], columns[[*breaks, -1]]
    return list(zip(firsts.tolist(), (lasts + 1).tolist(), strict=True))


def _parts_of(demand: Ints, room: Ints) -> Floats:
    """Demands as parts of the room; infinite where there is none for them."""
    parts = demand / np.maximum(room, 1)
    nothing = (room < 0) | ((room == 0) & (demand > 0))
    return np.where(nothing | (demand >= INFINITE), np.inf, parts)
