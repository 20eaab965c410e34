"""A workload: blocks that appear, and pipelines that ask for them, in order of time.

Kept as columns, so that a million pipelines are a few arrays. Times are microseconds from the
start; blocks are numbered in the order in which they appear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from privatekube_kfp.core.budget import Accounting, Budget
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.exact_sums import Ints
from privatekube_kfp.core.policy import within_fair_share


@dataclass(frozen=True)
class Workload:
    """Pipeline `i` comes at `at[i]` and asks `demands[demand[i]]` of `count[i]` blocks from
    `first[i]` on, which must be there by then. After `timeout` it gives up."""

    accounting: Accounting
    capacity: Budget
    blocks: Sequence[int]
    at: Ints
    first: Ints
    count: Ints
    demand: Ints
    demands: Sequence[Budget]
    timeout: int | None = None
    end: int | None = None
    """When to stop looking; until nothing more can happen, unless told."""
    weight: Ints | None = None

    def __post_init__(self) -> None:
        if any(later < earlier for earlier, later in pairwise(self.blocks)):
            raise ValueError("blocks are numbered in the order in which they appear")
        if len(self.at) and (np.diff(self.at) < 0).any():
            raise ValueError("pipelines come in order of time")
        there = np.searchsorted(np.array(self.blocks, dtype=np.int64), self.at, side="right")
        unknown = (self.first < 0) | (self.count < 1) | (self.first + self.count > there)
        if unknown.any():
            index = int(unknown.argmax())
            raise Invalid(
                Reason.UNKNOWN_BLOCK,
                f"pipeline {index + 1} asks for {int(self.count[index])} blocks from number"
                f" {int(self.first[index])} on; {int(there[index])} are there when it comes",
            )

    def __len__(self) -> int:
        return len(self.at)

    def is_fair(self, shares: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which pipelines ask for at most their fair share of each block."""
        capacity, renyi = self.capacity.amounts, self.accounting.is_renyi
        fair = [within_fair_share(b.amounts, capacity, shares, renyi) for b in self.demands]
        return np.array(fair, dtype=bool)[self.demand]
