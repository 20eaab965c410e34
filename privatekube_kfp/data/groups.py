"""Users in groups: who shares a block.

A user belongs to the group that is open in the period in which they first appear. A group is closed
at the end of a period, once the published count says that it has enough users, and the next one
opens. So which group somebody is in depends on their own data and on published numbers alone: a
user more or less moves nobody else. Groups of consecutive indexes would not do: one user less, and
everybody after them moves up, across the edge of every later block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from privatekube_kfp.data.counter import Count


@dataclass(frozen=True)
class Group:
    """Users who first appeared from the period `opened` to the period `closed`.

    `first` is the upper bound of the count when it opened, `end` the lower bound when it closed:
    as sure as these are, the users counted from `first` up to before `end` are all in it.
    """

    opened: int
    first: int
    closed: int | None = None
    end: int | None = None

    @property
    def users(self) -> tuple[int, int] | None:
        """The users who are surely in it, both ends included; None while it is open."""
        return None if self.end is None else (self.first, self.end - 1)


class Groups:
    """The groups of one stream, the last of them open."""

    def __init__(self, size: int, known: Iterable[Group] = (Group(0, 0),)) -> None:
        self._size = size
        self._groups = list(known)

    def end_period(self, period: int, count: Count) -> None:
        """Close the open group if it surely has enough users by now."""
        last = self._groups[-1]
        if count.lower >= last.first + self._size:
            self._groups[-1] = replace(last, closed=period, end=count.lower)
            self._groups.append(Group(period + 1, count.upper))

    @property
    def closed(self) -> Sequence[Group]:
        return self._groups[:-1]

    @property
    def opened(self) -> list[int]:
        """The period in which each opened; a period belongs to the last that opened by then."""
        return [group.opened for group in self._groups]

    def to_json(self) -> list[dict[str, Any]]:
        return [vars(group) for group in self._groups]

    @staticmethod
    def from_json(size: int, value: Iterable[dict[str, Any]]) -> Groups:
        return Groups(size, (Group(**group) for group in value))
