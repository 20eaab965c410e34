"""Sums of demands per block and component: numpy speed, exact at any size.

A block may hold thousands of claims that are infinite at an order nobody grants from any more,
and a 64-bit sum of those would overflow. Each sum is therefore kept in two limbs of 53 bits.

Tables here and in `block_table` have a line per component and a column per block, so that numpy
runs along many blocks at a time. `Places` says which columns: a slice where blocks are
consecutive, as they mostly are, else their sorted numbers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Places = slice | npt.NDArray[np.int32]

_LIMB_BITS = 53
_LIMB_MASK = (1 << _LIMB_BITS) - 1
MAX_ADDEND = 1 << 60
BEYOND = 1 << 61
"""What a sum of more than one limb shows as in `shown`: above every capacity."""


def grown(table: Ints, columns: int) -> Ints:
    """A copy with room for that many columns, the new ones zero."""
    larger = np.zeros((*table.shape[:-1], columns), dtype=table.dtype)
    larger[..., : table.shape[-1]] = table
    return larger


def columns_at(table: Ints, places: Places) -> Ints:
    """These columns, to read: a view where they are consecutive."""
    return table[:, places] if isinstance(places, slice) else table.take(places, axis=1)


class ExactSums:
    """A growable table of non-negative exact sums."""

    def __init__(self, width: int) -> None:
        self._high = np.zeros((width, 0), dtype=np.int64)
        self._low = np.zeros((width, 0), dtype=np.int64)
        self.shown = np.zeros((width, 0), dtype=np.int64)
        """The sums to compare with: exact below 2**53, else `BEYOND`."""

    def grow(self, columns: int) -> None:
        self._high, self._low = grown(self._high, columns), grown(self._low, columns)
        self.shown = grown(self.shown, columns)

    def add(self, places: Places, amounts: Ints) -> None:
        """Add a column of `amounts` (each within `MAX_ADDEND`, negative to subtract) to these."""
        low = columns_at(self._low, places) + amounts
        high = columns_at(self._high, places) + (low >> _LIMB_BITS)
        low &= _LIMB_MASK
        self._high[:, places], self._low[:, places] = high, low
        self.shown[:, places] = np.where(high == 0, low, BEYOND)

    def set(self, place: int, amounts: tuple[int, ...]) -> None:
        for line, amount in enumerate(amounts):
            self._high[line, place] = amount >> _LIMB_BITS
            self._low[line, place] = amount & _LIMB_MASK
        self.shown[:, place] = np.where(self._high[:, place] == 0, self._low[:, place], BEYOND)

    def get(self, place: int) -> tuple[int, ...]:
        return tuple(
            (high << _LIMB_BITS) + low
            for high, low in zip(
                self._high[:, place].tolist(), self._low[:, place].tolist(), strict=True
            )
        )
