"""Who has appeared, and when: the users of a stream in the order of their first appearance.

As private as the data themselves, and kept with them. It has to be asked once for every user in
every batch, and to remember very many: so it is a hash table in arrays, about 36 bytes for a user,
which is asked for a whole batch at once; names are on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
_AT_A_TIME = 64 * 1024
_FEWEST_SLOTS = 1024
_NOBODY = -1


class Users:
    """Numbers users from 0 on, as they appear.

    A user is known by two words of 64 bits, which are hashes with this process's own secret.
    """

    SCHEMA: ClassVar[pa.Schema] = pa.schema([("user", pa.string()), ("period", pa.int32())])

    def __init__(self) -> None:
        self.count = 0
        self._words = np.empty((0, 2), np.int64)
        self._periods = np.empty(0, np.int32)
        self._slots = np.full(_FEWEST_SLOTS, _NOBODY, np.int32)
        """Numbers: a user's is in the slot that their first word says, or soon after it."""
        self._new: list[str] = []

    @property
    def periods(self) -> npt.NDArray[np.int32]:
        """The period in which each user first appeared, by their number."""
        return self._periods[: self.count]

    def number(self, names: Sequence[str], periods: npt.NDArray[np.integer]) -> Ints:
        """The numbers of these users, all different; whoever is new appears in their period."""
        words = np.column_stack((_hashes(names), _hashes(names, "\0")))
        self._make_room(len(names))
        numbers = self._find(words)
        (new,) = np.nonzero(numbers == _NOBODY)
        first, self.count = self.count, self.count + new.size
        numbers[new] = np.arange(first, self.count)
        self._words[first : self.count] = words[new]
        self._periods[first : self.count] = periods[new]
        self._put(numbers[new])
        self._new += [names[i] for i in new.tolist()]
        return numbers

    def _find(self, words: Ints) -> Ints:
        """The number of each, or nobody's."""
        numbers = np.full(len(words), _NOBODY, np.int64)
        looking = np.arange(len(words))
        at = words[:, 0] & (len(self._slots) - 1)
        while looking.size:
            there = self._slots[at].astype(np.int64)
            mine = (there != _NOBODY) & (self._words[there] == words[looking]).all(axis=1)
            numbers[looking[mine]] = there[mine]
            on = (there != _NOBODY) & ~mine
            looking, at = looking[on], (at[on] + 1) & (len(self._slots) - 1)
        return numbers

    def _put(self, numbers: Ints) -> None:
        """Give users slots. Of those who want the same one gets it, the others the next."""
        at = self._words[numbers, 0] & (len(self._slots) - 1)
        while numbers.size:
            free = self._slots[at] == _NOBODY
            self._slots[at[free]] = numbers[free]
            on = self._slots[at] != numbers
            numbers, at = numbers[on], (at[on] + 1) & (len(self._slots) - 1)

    def _make_room(self, more: int) -> None:
        """So that at least half of the slots are nobody's."""
        if 2 * (self.count + more) > len(self._slots):
            size = 1 << (4 * (self.count + more) - 1).bit_length()
            self._slots = np.full(size, _NOBODY, np.int32)
            self._put(np.arange(self.count))
        if self.count + more > len(self._words):
            size = max(_FEWEST_SLOTS, (self.count + more) * 5 // 4)
            self._words = _grown(self._words, size)
            self._periods = _grown(self._periods, size)

    # Kept with the data

    def new(self) -> pa.Table:
        """Those who are new since this was last asked, in their order."""
        names, self._new = self._new, []
        periods = pa.array(self.periods[self.count - len(names) :])
        return pa.Table.from_arrays([pa.array(names, pa.string()), periods], schema=self.SCHEMA)

    def add_kept(self, kept: Iterable[pa.RecordBatch]) -> None:
        """Those who were new once, in the same order, after those who are there."""
        for batch in kept:
            for start in range(0, batch.num_rows, _AT_A_TIME):
                some = batch.slice(start, _AT_A_TIME)
                self.number(some.column("user").to_pylist(), some.column("period").to_numpy())
                self._new.clear()


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Another array: Arrow may still look at the old one, from another thread."""
    grown = np.empty((size, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _hashes(names: Sequence[str], mark: str = "") -> Ints:
    marked = map(mark.__add__, names) if mark else names
    return np.fromiter(map(hash, marked), np.int64, len(names))
