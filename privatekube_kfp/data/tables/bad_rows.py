"""Rows that cannot be read: why, how many, where the first is; and how many are too many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from privatekube_kfp.core.errors import PrivateKubeError, Reason

DEFAULT_LIMIT = 1_000


class BadRow(StrEnum):
    """Why a row is left out. A row has one reason, the first of these."""

    MALFORMED = "malformed"
    NO_USER = "no user"
    NO_TIME = "no time"
    BAD_TIME = "bad time"
    WRONG_TYPE = "wrong type"
    # For whoever knows which times make sense.
    ABSURD_TIME = "absurd time"


@dataclass
class BadRows:
    """Counts rows that are left out, and stops where they are too many.

    It knows where the first of each kind is, not what is in it. `limit` None is no limit.
    """

    limit: int | None = DEFAULT_LIMIT
    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, kind: str, count: int, where: str) -> None:
        if not count:
            return
        name = BadRow(kind).value
        self.first.setdefault(name, where)
        self.counts[name] = self.counts.get(name, 0) + count
        if self.limit is not None and self.total > self.limit:
            raise PrivateKubeError(
                Reason.TOO_MANY_BAD_ROWS, f"more than {self.limit} rows are bad: {self}"
            )

    def restore(self, counts: Mapping[str, int]) -> None:
        """Go on from earlier counts; those of anything but bad rows are passed over."""
        self.counts = {kind.value: counts[kind] for kind in BadRow if counts.get(kind)}

    def __str__(self) -> str:
        return "; ".join(
            f"{count} {kind}" + (f", first at {self.first[kind]}" if kind in self.first else "")
            for kind, count in self.counts.items()
        )


Note = Callable[[BadRow, int, int], None]
"""Is told of bad rows: why, how many, and the number of the first."""

Mask = npt.NDArray[np.bool_]
Faults = dict[BadRow, Mask]
"""Which rows of a piece are bad, and why. A row may be bad in several ways here."""


def fault(faults: Faults, kind: BadRow, rows: Mask) -> None:
    if rows.any():
        faults[kind] = faults[kind] | rows if kind in faults else rows
