"""What is protected is what is sampled and clipped: the unit.

Under Event DP a unit is a row, under User DP all rows of a user, under User-Time DP all rows of a
user in one block. A unit is bounded as ingest bounds it (docs/data.md): by day, and in all, the
first rows. So a row more or less of somebody changes nobody else's unit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.bounds import Ints, Mask, within_bounds
from privatekube_kfp.data.settings import DEFAULT_PER_USER, DEFAULT_PER_USER_PER_DAY
from privatekube_kfp.ledger.streams import Semantic


@dataclass(frozen=True)
class Units:
    """Rows in the order of their units, and where each unit's rows begin and the last one's end."""

    rows: Ints
    offsets: Ints

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    def rows_of(self, chosen: Ints) -> tuple[Ints, Ints]:
        """The rows of these units, and for each row which of the chosen units it is of."""
        sizes = self.offsets[chosen + 1] - self.offsets[chosen]
        unit = np.repeat(np.arange(len(chosen)), sizes)
        before = np.cumsum(sizes) - sizes
        places = np.arange(len(unit)) - before[unit] + self.offsets[chosen][unit]
        return self.rows[places], unit


def units_of(
    semantic: Semantic,
    users: Ints,
    times: Ints,
    periods: Ints | None = None,
    *,
    per_day: int = DEFAULT_PER_USER_PER_DAY,
    per_user: int = DEFAULT_PER_USER,
) -> Units:
    """The units of these rows.

    Args:
        semantic: The stream's.
        users: A number for each row, the same for the same user (`numbered`).
        times: In microseconds since 1970.
        periods: Under User-Time DP, a number for the block that each row is in. The time of a row
            does not always tell: what comes late is in its group's first block.
        per_day: How many rows of a day in UTC count in a unit.
        per_user: How many rows count in a unit.
    """
    rows = np.arange(len(users))
    match semantic:
        case Semantic.EVENT:
            return Units(rows, np.arange(len(rows) + 1))
        case Semantic.USER:
            whose = users
        case Semantic.USER_TIME:
            if periods is None:
                raise Invalid(
                    Reason.INVALID_REQUEST,
                    "under user-time DP a unit is what a user did in one block, so it must be"
                    " known which block each row is in",
                )
            _, whose = np.unique(np.stack([users, periods]), axis=1, return_inverse=True)
    rows = rows[within_bounds([whose], times, per_day=per_day, in_all=per_user)]
    rows = rows[np.argsort(whose[rows], kind="stable")]
    (starts,) = np.nonzero(np.diff(whose[rows], prepend=-1))
    return Units(rows, np.append(starts, len(rows)))


def numbered(users: Sequence[str] | pa.ChunkedArray | pa.Array) -> tuple[Ints, list[str]]:
    """A number for each row's user, and the users by number."""
    array = users if isinstance(users, pa.Array | pa.ChunkedArray) else pa.array(users, pa.string())
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.null_count:
        raise Invalid(Reason.WRONG_COLUMNS, "there are rows without a user")
    encoded = array.dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def held_out(users: Ints, names: Sequence[str], percent: int) -> Mask:
    """The rows that are kept from training, to evaluate on: those of so many in a hundred users.

    Who is held out depends on their own name alone, so that every step of a pipeline holds out the
    same, and nobody's presence moves anybody else.
    """
    if not 0 <= percent <= 100:
        raise Invalid(Reason.INVALID_REQUEST, f"{percent} percent cannot be held out")
    digests = (hashlib.blake2b(str(name).encode(), digest_size=8).digest() for name in names)
    out = np.fromiter((int.from_bytes(d) % 100 < percent for d in digests), bool, len(names))
    return out[users] if len(names) else np.zeros(0, bool)
