"""A stream under load: many pipelines that ask for more than its blocks will ever have.

A thousand blocks, twelve Renyi orders, claims over 1 to 500 consecutive blocks. Demands are three
dozen curves shaped as those of Gaussian, Laplace and DP-SGD steps, from 2,000 fair shares to a
fifth of a block. Small ones get their turn, the rest pile up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from privatekube_kfp.core.budget import Budget, renyi
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.core.policy import POLICIES
from privatekube_kfp.core.pool import Pool
from privatekube_kfp.core.unlocking import ByPipelines

ORDERS = (1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8, 16, 32, 64)
EPSILON, DELTA = 10.0, 1e-7
PIPELINES = 2_000_000
BLOCKS = 1_000
LONGEST = 500


def gaussian(order: float, sigma: float) -> float:
    return order / (2 * sigma**2)


def laplace(order: float, scale: float) -> float:
    weight = order / (2 * order - 1)
    grown = weight * math.exp((order - 1) / scale) + (1 - weight) * math.exp(-order / scale)
    return math.log(grown) / (order - 1)


def dp_sgd(order: float, sigma: float, sampled: float = 0.01) -> float:
    """One step of the sampled Gaussian mechanism; a fractional order counts as the next whole."""
    alpha = math.ceil(order)
    total = sum(
        math.comb(alpha, k)
        * (1 - sampled) ** (alpha - k)
        * sampled**k
        * math.exp((k * k - k) / (2 * sigma**2))
        for k in range(alpha + 1)
    )
    return math.log(total) / (alpha - 1)


def capacity() -> Budget:
    curve = [EPSILON - math.log(1 / DELTA) / (order - 1) for order in ORDERS]
    accounting = renyi([f"{order:g}" for order in ORDERS])
    return accounting.budget(math.floor(value * 1e12) for value in curve)


SHAPES = (
    [gaussian(order, 5.0) for order in ORDERS],
    [laplace(order, 4.0) for order in ORDERS],
    [dp_sgd(order, 2.7) for order in ORDERS],
)
CAPACITY = capacity()


@lru_cache(maxsize=64)
def demand_curve(number: int, count: int) -> Budget:
    """One of `count` curves; dominant shares go from 2,000 fair shares to a fifth of a block."""
    shape = SHAPES[number % len(SHAPES)]
    largest, smallest = 1 / 5, 2_000 / PIPELINES
    share = smallest * (largest / smallest) ** (number / max(count - 1, 1))
    usable = [(d, c / 1e12) for d, c in zip(shape, CAPACITY.amounts, strict=True) if c > 0]
    factor = share / max(d / c for d, c in usable)
    return CAPACITY.accounting.budget(math.ceil(d * factor * 1e12) for d in shape)


class Stream:
    """A pool, and the claims that come to it one after the other, the same in every run.

    Claims are numbered; what each asks for is worked out from its number, so that no memory but
    the pool's own grows with those that wait.
    """

    def __init__(self, arrivals: int, curves: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self._curves = curves
        self._curve = random.permutation(np.arange(arrivals, dtype=np.int32) % curves)
        lengths = random.integers(1, LONGEST + 1, arrivals)
        self._first = (random.random(arrivals) * (BLOCKS - lengths + 1)).astype(np.int32)
        self._last = (self._first + lengths).astype(np.int32)
        self.names = [f"block-{number:04}" for number in range(BLOCKS)]
        self.pool = Pool(CAPACITY.accounting, ByPipelines(PIPELINES), POLICIES["dpf"])
        for name in self.names:
            self.pool.add_block(name, CAPACITY, created=0)
        self.arrived = 0
        self.granted = 0

    def asked(self, claim: int) -> tuple[Budget, int, int]:
        """What a claim asks of each of its blocks, and from where to where they are."""
        budget = demand_curve(int(self._curve[claim]), self._curves)
        return budget, int(self._first[claim]), int(self._last[claim])

    def demand(self, claim: int) -> PerBlock:
        budget, first, last = self.asked(claim)
        return PerBlock.uniform(budget, self.names[first:last])

    def next_arrivals(self, count: int) -> Iterator[tuple[int, PerBlock]]:
        for claim in range(self.arrived, self.arrived + count):
            self.arrived += 1
            yield claim, self.demand(claim)

    def arrive(self, claim: int, demand: PerBlock) -> tuple[str, ...]:
        """What is measured: a claim arrives, and a pass is made."""
        self.pool.arrive(str(claim), demand, arrival=claim)
        return self.pool.plan(0).grants

    def finish(self, granted: tuple[str, ...]) -> None:
        """Most of what is granted is consumed, some of it released."""
        self.granted += len(granted)
        for claim in map(int, granted):
            spend = self.pool.release if claim % 8 == 0 else self.pool.consume
            spend(self.demand(claim))

    def fill(self, waiting: int) -> None:
        """Let claims arrive, with a pass now and then, until so many wait."""
        while (missing := waiting - self.pool.waiting) > 0:
            for claim, demand in self.next_arrivals(min(500, missing)):
                self.pool.arrive(str(claim), demand, arrival=claim)
            self.finish(self.pool.plan(0).grants)
