"""Who has appeared, and when: the users of a stream in the order of their first appearance.

As private as the data themselves, and kept with them. It has to be asked once for every user in
every batch, and to remember very many: so it keeps digests in sorted arrays, 28 bytes for a user.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]


class Users:
    """Numbers users from 0 on, as they appear.

    A user is known by a digest of two words. The first says where to look, the second whether it
    is them; if it is not, one looks again with another first word.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Ints, Ints]] = []
        """Sorted first words with their users' numbers, each run twice as long as the next."""
        self._words = np.empty((0, 2), np.int64)
        self._periods = np.empty(0, np.int32)
        self.count = 0

    @property
    def periods(self) -> npt.NDArray[np.int32]:
        """The period in which each user first appeared, by their number."""
        return self._periods[: self.count]

    def number(self, names: Sequence[str], periods: Ints) -> Ints:
        """The numbers of these users, all different; whoever is new appears in their period."""
        words = _digests(names)
        numbers, firsts = self._find(names, words)
        (new,) = np.nonzero(numbers < 0)
        if new.size:
            numbers[new] = np.arange(self.count, self.count + new.size)
            self._add(np.column_stack((firsts[new], words[new, 1])), periods[new])
        return numbers

    def _find(self, names: Sequence[str], words: Ints) -> tuple[Ints, Ints]:
        """The number of each, -1 for who is new, and the first word that they go under."""
        numbers = np.full(len(words), -1, np.int64)
        firsts = words[:, 0].copy()
        open_ = np.arange(len(words))
        claimed = np.empty(0, np.int64)
        tries = 0
        while open_.size:
            there = self._look_up(firsts[open_])
            known = there >= 0
            mine = known.copy()
            mine[known] = self._words[there[known], 1] == words[open_[known], 1]
            numbers[open_[mine]] = there[mine]
            # A word is free if nobody goes under it; of those who find it free, for the first.
            (free,) = np.nonzero(~known & ~np.isin(firsts[open_], claimed))
            won, winners = np.unique(firsts[open_[free]], return_index=True)
            claimed = np.concatenate((claimed, won))
            taken = ~mine
            taken[free[winners]] = False
            tries += 1
            open_ = open_[taken]
            if open_.size:
                firsts[open_] = _digests([names[i] for i in open_.tolist()], tries)[:, 0]
        return numbers, firsts

    def _look_up(self, firsts: Ints) -> Ints:
        found = np.full(len(firsts), -1, np.int64)
        for known, numbers in self._runs:
            at = np.minimum(np.searchsorted(known, firsts), len(known) - 1)
            hit = known[at] == firsts
            found[hit] = numbers[at[hit]]
        return found

    def _add(self, words: Ints, periods: npt.NDArray[np.integer]) -> None:
        """Users after those who are there, in this order."""
        total = self.count + len(words)
        if total > len(self._words):
            room = max(1024, 2 * len(self._words), total)
            self._words = np.resize(self._words, (room, 2))
            self._periods = np.resize(self._periods, room)
        self._words[self.count : total] = words
        self._periods[self.count : total] = periods
        self._runs.append(_in_order(words[:, 0], np.arange(self.count, total)))
        self.count = total
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            (more, of_more), (less, of_less) = self._runs[-2:]
            merged = _in_order(np.concatenate((more, less)), np.concatenate((of_more, of_less)))
            self._runs[-2:] = [merged]

    # Kept with the data, a piece for each ingest

    def since(self, count: int) -> pa.Table:
        """Those who came after the first `count`, in their order."""
        words = self._words[count : self.count]
        return pa.table(
            {"first": words[:, 0], "second": words[:, 1], "period": self.periods[count:]}
        )

    def add_kept(self, piece: pa.Table) -> None:
        """Those of a piece, after those who are there already."""
        if piece.num_rows:
            words = [piece[name].to_numpy() for name in ("first", "second")]
            self._add(np.column_stack(words), piece["period"].to_numpy())


def _digests(names: Sequence[str], tries: int = 0) -> Ints:
    """Two words for each name, others at every further try."""
    again = bytes(tries)
    digests = [blake2b(name.encode() + again, digest_size=16).digest() for name in names]
    return np.frombuffer(b"".join(digests), np.int64).reshape(-1, 2)


def _in_order(words: Ints, numbers: Ints) -> tuple[Ints, Ints]:
    order = np.argsort(words, kind="stable")
    return words[order], numbers[order]
