"""How many rows of one protected unit count: of each day, and in all, those that came first.

Ingest, statistics and training bound contributions with this one piece, so that what is bounded in
one is bounded the same way in the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from privatekube_kfp.data.settings import DAY

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def within_bounds(whose: Sequence[Ints], times: Ints, *, per_day: int, in_all: int) -> Mask:
    """Which rows count: of those with the same keys the first of each day (UTC), of these the
    first in all."""
    keep = ranks(*whose, times // DAY) < per_day
    (left,) = np.nonzero(keep)
    keep[left[ranks(*(key[left] for key in whose)) >= in_all]] = False
    return keep


def ranks(*keys: Ints) -> Ints:
    """How many rows before each have the same keys."""
    count = len(keys[0])
    order = np.lexsort(keys)
    new = np.ones(count, bool)
    new[1:] = False
    for key in keys:
        new[1:] |= key[order[1:]] != key[order[:-1]]
    starts = np.maximum.accumulate(np.where(new, np.arange(count), 0))
    found = np.empty(count, np.int64)
    found[order] = np.arange(count) - starts
    return found
