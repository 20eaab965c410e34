"""A heap from which items may leave at any time: what waits is ordered, but may be withdrawn."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

SLACK = 16
"""How many that left may stay before a sweep is worth it, however few are left."""

K = TypeVar("K")
T = TypeVar("T")


class LazyHeap(ABC, Generic[K, T]):
    """Items by key, then by tie; the departed are skipped, and swept when they outnumber the rest.

    Whoever makes an item leave says so with `left`. An item that left does not come back.
    """

    __slots__ = ("_entries", "live")

    def __init__(self) -> None:
        self._entries: list[tuple[K, int, T]] = []
        self.live = 0

    @abstractmethod
    def _is_live(self, item: T) -> bool: ...

    def push(self, key: K, tie: int, item: T) -> None:
        heapq.heappush(self._entries, (key, tie, item))
        self.live += 1

    def left(self) -> None:
        """One of the items here is live no more."""
        self.live -= 1
        if len(self._entries) > 2 * self.live + SLACK:
            self._entries = [entry for entry in self._entries if self._is_live(entry[2])]
            heapq.heapify(self._entries)

    def head(self) -> tuple[K, int, T] | None:
        while self._entries and not self._is_live(self._entries[0][2]):
            heapq.heappop(self._entries)
        return self._entries[0] if self._entries else None

    def pop(self) -> T:
        """Take off the head, which `head` has just shown to be live."""
        self.live -= 1
        return heapq.heappop(self._entries)[2]

    def empty(self) -> list[T]:
        """Take all live items out, in no order."""
        items = [item for _, _, item in self._entries if self._is_live(item)]
        self._entries, self.live = [], 0
        return items
