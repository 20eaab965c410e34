"""The most that any policy could grant of a workload, found by HiGHS.

Whoever knew all that will come, and had all budget from the start, would have to solve a knapsack:
choose pipelines such that each block can serve those that are chosen (under Renyi accounting, at
one order of its own). No policy grants more. Pipelines that ask the same of the same blocks are one
variable, so that days of a few kinds of pipelines are small. A search that takes too long is broken
off: what it has proven by then is still a bound.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from privatekube_kfp.simulator.workload import Workload

_TOLERANCE = 1e-6
"""HiGHS takes a constraint for met that is missed by less; bounds are enlarged by it."""
_BEYOND = 2.0
"""A demand of more than a block's capacity, whatever it is, as a multiple of that."""


@dataclass(frozen=True)
class Limit:
    """At most `pipelines` can be granted; `exact` if so many really can."""

    pipelines: int
    exact: bool


def upper_bound(workload: Workload, seconds: float = 5.0) -> Limit:
    """The most pipelines that the blocks could serve."""
    # Here, since only this needs scipy.
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_matrix

    if not len(workload):
        return Limit(0, True)
    kinds, many = _kinds(workload)
    usable = [line for line, c in enumerate(workload.capacity.amounts) if c > 0]
    capacity = np.array([workload.capacity.amounts[line] for line in usable], dtype=float)
    demands = np.array(
        [[budget.amounts[line] for line in usable] for budget in workload.demands], dtype=float
    )
    relative = np.minimum(demands / capacity, _BEYOND)
    orders, blocks = len(usable), len(workload.blocks)
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    total = np.zeros((blocks, orders))
    for column, (first, count, demand) in enumerate(kinds.tolist()):
        total[first : first + count] += relative[demand] * many[column]
        for block in range(first, first + count):
            rows += range(block * orders, (block + 1) * orders)
            columns += [column] * orders
            values += relative[demand].tolist()
    limits = np.ones(blocks * orders)
    choices = 0
    if workload.accounting.is_renyi and orders > 1:
        # Each block has a surviving order; the others may be overdrawn by as much as they can be.
        choices = blocks * orders
        slack = np.maximum(total - 1, 0).ravel()
        rows += range(choices)
        columns += range(len(kinds), len(kinds) + choices)
        values += slack.tolist()
        limits += slack
    matrix = coo_matrix((values, (rows, columns)), shape=(blocks * orders, len(kinds) + choices))
    constraints = [LinearConstraint(matrix.tocsr(), ub=limits)]
    if choices:
        survivor = coo_matrix(
            (
                np.ones(choices),
                (np.repeat(np.arange(blocks), orders), len(kinds) + np.arange(choices)),
            ),
            shape=(blocks, len(kinds) + choices),
        )
        constraints.append(LinearConstraint(survivor.tocsr(), lb=1))
    with _silent():
        found = milp(
            -np.concatenate((np.ones(len(kinds)), np.zeros(choices))),
            integrality=np.ones(len(kinds) + choices),
            bounds=Bounds(0, np.concatenate((many, np.ones(choices)))),
            constraints=constraints,
            options={"time_limit": seconds, "mip_rel_gap": 0.0},
        )
    bound = len(workload) if found.mip_dual_bound is None else -found.mip_dual_bound
    bound = math.floor(min(bound * (1 + _TOLERANCE) + _TOLERANCE, len(workload)))
    return Limit(bound, found.x is not None and round(-found.fun) == bound)


@contextmanager
def _silent() -> Iterator[None]:
    """HiGHS writes a line of its own to standard output now and then, which is not for people."""
    sys.stdout.flush()
    output, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(output, 1)
        os.close(output)
        os.close(nowhere)


def _kinds(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """The distinct (first block, number of blocks, demand), and how many ask for each."""
    asked = np.stack((workload.first, workload.count, workload.demand), axis=1)
    return np.unique(asked, axis=0, return_counts=True)
