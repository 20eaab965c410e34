"""The scheduler to compare with: go through all waiting claims in DPF's order and try each.

Written to be as good as that can be in Python with numpy. The order is kept sorted between
passes (a new claim is put in its place), so a pass does not sort. What a claim asks is a column
that numpy compares with the claim's blocks in one go. All claims of one curve share that column.
It counts in plain 64-bit integers, exact for these sizes.

`VectorScan` first finds, for all claims at once, who could run at the start of the pass. That
works because claims here ask for consecutive blocks and share few curves.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable

import numpy as np

from benchmarks.workload import BLOCKS, PIPELINES, Stream
from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.policy import POLICIES, Asked, exact_share
from privatekube_kfp.core.unlocking import unlocked_amount

Entry = tuple[tuple[int, ...], int]
"""Rank and number of a claim."""


class SortAndScan:
    def __init__(self, stream: Stream, waiting: Iterable[int]) -> None:
        self._stream = stream
        views = [stream.pool.view(name) for name in stream.names]
        self._capacity = views[0].capacity.amounts
        self._usable = np.array(self._capacity) > 0
        self._opened = np.array([view.opened for view in views])
        opened = np.arange(self._opened.max() + 10_000)
        self._shares_worth = np.array(
            [[unlocked_amount(c, int(k), PIPELINES) for k in opened] for c in self._capacity]
        )[self._usable]
        self._spent = np.array([(v.allocated + v.consumed).amounts for v in views]).T[self._usable]
        self._room = self._shares_worth[:, self._opened] - self._spent
        self._columns: dict[Budget, np.ndarray] = {}
        self._share: dict[Budget, int] = {}
        self._claims: dict[int, tuple[np.ndarray, slice]] = {}
        self._order: list[Entry] = []
        for claim in waiting:
            self._line_up(claim)

    def _line_up(self, claim: int) -> slice:
        budget, first, last = self._stream.asked(claim)
        if budget not in self._columns:
            self._columns[budget] = np.array(budget.amounts)[self._usable][:, None]
            self._share[budget] = exact_share(budget.amounts, self._capacity)
        blocks = slice(first, last)
        self._claims[claim] = self._columns[budget], blocks
        asked = Asked({self._share[budget]: last - first})
        insort(self._order, (POLICIES["dpf"].rank(asked), claim))
        return blocks

    def arrive(self, claim: int) -> list[int]:
        """A claim arrives and unlocks a share of its blocks; then a pass over all that wait."""
        blocks = self._line_up(claim)
        self._opened[blocks] += 1
        self._room[:, blocks] = self._shares_worth[:, self._opened[blocks]] - self._spent[:, blocks]
        return self._pass(self._order)

    def _pass(self, order: Iterable[Entry]) -> list[int]:
        granted = []
        for entry in order:
            column, blocks = self._claims[entry[1]]
            if (self._room[:, blocks] >= column).any(axis=0).all():
                self._room[:, blocks] -= column
                self._spent[:, blocks] += column
                granted.append(entry)
        for entry in granted:
            self._order.remove(entry)
            del self._claims[entry[1]]
        return [claim for _, claim in granted]


class VectorScan(SortAndScan):
    def _pass(self, order: Iterable[Entry]) -> list[int]:
        claims = [entry[1] for entry in self._order]
        blocks = [self._claims[claim][1] for claim in claims]
        numbers = {id(column): number for number, column in enumerate(self._columns.values())}
        curve = np.array([numbers[id(self._claims[claim][0])] for claim in claims])
        short = np.zeros((len(numbers), BLOCKS + 1), dtype=np.int64)
        for number, column in enumerate(self._columns.values()):
            np.cumsum(~(self._room >= column).any(axis=0), out=short[number, 1:])
        first = np.array([where.start for where in blocks])
        last = np.array([where.stop for where in blocks])
        may_run = np.flatnonzero(short[curve, last] == short[curve, first])
        return super()._pass([self._order[index] for index in may_run.tolist()])


Scan = Callable[[Stream, Iterable[int]], SortAndScan]
