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
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
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
        # Here, since TensorFlow's environment has no torch. Torch is quicker than numpy.
        import torch

        radius, angle = torch.from_numpy(self._uniform_pairs(count))
        radius = radius.log().mul_(-2).sqrt_()
        angle = angle * (2 * math.pi)
        return torch.cat([radius * angle.cos(), radius * angle.sin()])[:count]

    def normal_array(self, count: int) -> npt.NDArray[np.float64]:
        """The same noise, where there is no torch."""
        radius, angle = self._uniform_pairs(count)
        radius = np.sqrt(-2 * np.log(radius))
        angle = angle * (2 * math.pi)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]

    def below(self, limit: int) -> int:
        """A whole number from 0 to below the limit, each as likely."""
        size = (limit - 1).bit_length()
        while True:
            drawn = int.from_bytes(self._bytes_of((size + 7) // 8)) >> -size % 8
            if drawn < limit:
                return drawn

    def _uniform_pairs(self, count: int) -> npt.NDArray[np.float64]:
        """For so many draws after Box and Muller: above 0 to 1, so that a logarithm is finite."""
        pairs = (count + 1) // 2
        words = self._words(2 * pairs)
        whole = ((words >> np.uint64(11)) + np.uint64(1)).astype(np.float64)
        whole *= 2.0**-53
        return whole.reshape(2, pairs)

    def _words(self, count: int) -> npt.NDArray[np.uint64]:
        return np.frombuffer(self._bytes_of(8 * count), np.uint64)


def seeded(seed: int) -> Randomness:
    """The same every time: for tests, and never for data of people."""
    return Randomness(np.random.default_rng(seed).bytes)
