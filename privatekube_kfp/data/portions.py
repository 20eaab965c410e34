"""Which block a row belongs to, and which blocks there are.

Rows are told apart by a number for their block, computed for a whole batch at once. Which blocks
there are follows from the settings, from how far time has come, and from the published counts;
never from whether there are any data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privatekube_kfp.data.groups import Group, Groups
from privatekube_kfp.data.settings import Settings
from privatekube_kfp.ledger.streams import Semantic

Ints = npt.NDArray[np.int64]
_PERIODS = 2**32
"""More periods than there can be: group and period as one number."""


@dataclass(frozen=True)
class Portion:
    """A block, as the ledger is told of it."""

    name: str
    start: int | None = None
    end: int | None = None
    users: tuple[int, int] | None = None

    @property
    def file(self) -> str:
        return f"blocks/{self.name}.parquet"


class Portions:
    """The blocks of one stream."""

    def __init__(self, stream: str, settings: Settings, groups: Groups) -> None:
        self._stream = stream
        self._settings = settings
        self._groups = groups
        self._opened = np.array(groups.opened, np.int64)

    def groups_of(self, periods: npt.NDArray[np.integer]) -> Ints:
        """The group of users who first appeared in these periods."""
        return np.searchsorted(self._opened, periods, side="right") - 1

    def blocks_of(self, periods: Ints, groups: Ints | None) -> Ints:
        """The block of rows of these periods, by users of these groups."""
        if groups is None:
            return periods
        if self._settings.semantic is Semantic.USER:
            return groups
        # What is older than the group itself, since it came late, is in the group's first block.
        return groups * _PERIODS + np.maximum(periods, self._opened[groups])

    def portion(self, block: int) -> Portion:
        """The block of this number."""
        if self._settings.semantic is Semantic.EVENT:
            return self._of_period(f"{self._stream}-{self._settings.date(block)}", block)
        number, period = (
            divmod(block, _PERIODS) if self._settings.semantic is Semantic.USER_TIME else (block, 0)
        )
        closed = self._groups.closed
        group = closed[number] if number < len(closed) else None
        name = f"{self._stream}-u{number:05d}"
        if self._settings.semantic is Semantic.USER:
            return Portion(name, users=group.users if group else None)
        return self._of_period(f"{name}-{self._settings.date(period)}", period, group)

    def _of_period(self, name: str, period: int, group: Group | None = None) -> Portion:
        begins, ends = self._settings.begins(period), self._settings.begins(period + 1)
        return Portion(name, begins, ends, group.users if group else None)

    def requestable(self, until: int) -> Iterator[int]:
        """The blocks that can be asked for once all data are there from before this period.

        Event: every period. User: every closed group, all of whose users are surely below the
        count's lower bound. User-Time: every period of a closed group from its first one on.
        """
        if self._settings.semantic is Semantic.EVENT:
            yield from range(until)
            return
        for number, group in enumerate(self._groups.closed):
            if group.closed is None or group.closed >= until:
                break
            if self._settings.semantic is Semantic.USER:
                yield number
            else:
                yield from (number * _PERIODS + p for p in range(group.opened, until))
