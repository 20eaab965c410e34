"""Randomness that nobody can foretell, for noise and for who is sampled.

Numpy's and torch's generators can be told from enough of their output, and the noise of a released
model with them. Here all bytes come from the operating system, or in tests from a seed; both go the
same way from there. Noise is drawn in double precision and rounded to single only once it has been
added, which hides the gaps between its values; it is not exact as the noise of counts is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import torch

_WHOLE = 1 << 64


class Randomness:
    """Coins and Gaussian noise, made of bytes of which each is as likely as any other."""

    def __init__(self, bytes_of: Callable[[int], bytes] = os.urandom) -> None:
        self._bytes_of = bytes_of

    def sampled(self, count: int, rate: str) -> npt.NDArray[np.int64]:
        """Of so many, those that a coin of their own chose; never likelier than the rate."""
        below = int(Fraction(Decimal(rate)) * _WHOLE)
        if below >= _WHOLE:
            return np.arange(count)
        return np.flatnonzero(self._words(count) < np.uint64(below))

    def normal(self, count: int) -> torch.Tensor:
        """Gaussian noise of standard deviation 1, after Box and Muller."""
        pairs = (count + 1) // 2
        words = self._words(2 * pairs)
        # From above 0 to 1, and its logarithm is finite. Torch is quicker than numpy here.
        whole = ((words >> np.uint64(11)) + np.uint64(1)).astype(np.float64)
        radius, angle = torch.from_numpy(whole).mul_(2.0**-53).view(2, pairs)
        radius = radius.log().mul_(-2).sqrt_()
        angle = angle * (2 * math.pi)
        return torch.cat([radius * angle.cos(), radius * angle.sin()])[:count]

    def below(self, limit: int) -> int:
        """A whole number from 0 to below the limit, each as likely."""
        size = (limit - 1).bit_length()
        while True:
            drawn = int.from_bytes(self._bytes_of((size + 7) // 8)) >> -size % 8
            if drawn < limit:
                return drawn

    def _words(self, count: int) -> npt.NDArray[np.uint64]:
        return np.frombuffer(self._bytes_of(8 * count), np.uint64)


def seeded(seed: int) -> Randomness:
    """The same every time: for tests, and never for data of people."""
    return Randomness(np.random.default_rng(seed).bytes)
