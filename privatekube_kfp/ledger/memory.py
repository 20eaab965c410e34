"""The memory ledger: the reference model, for tests and for trying things out.

Nothing outlives the object, so nothing a crash leaves behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from privatekube_kfp.core.book import Book
from privatekube_kfp.core.claim import Claim
from privatekube_kfp.ledger.ledger import PublishedCount
from privatekube_kfp.ledger.shelf import Shelf, ShelfLedger
from privatekube_kfp.ledger.streams import StreamSpec
from privatekube_kfp.ledger.times import system_clock


class _MemoryShelf(Shelf):
    def __init__(self) -> None:
        self.specs = {}
        self.counts = {}
        self.now = 0
        self._books: dict[str, Book] = {}

    def book(self, stream: str) -> Book:
        return self._books[stream]

    def add(self, spec: StreamSpec) -> None:
        self.specs[spec.name] = spec
        self._books[spec.name] = Book(spec.stream(spec.capacity()))

    def remove(self, stream: str) -> None:
        del self.specs[stream], self._books[stream]
        self.counts.pop(stream, None)

    def publish(self, stream: str, count: PublishedCount) -> None:
        self.counts[stream] = count

    def stream_of_block(self, block: str) -> str | None:
        return next((name for name, book in self._books.items() if block in book.blocks), None)

    def claim(self, name: str) -> Claim | None:
        return next(
            (book.claims[name] for book in self._books.values() if name in book.claims), None
        )

    def claims(self, stream: str | None) -> Iterable[Claim]:
        books = self._books.values() if stream is None else [self._books[stream]]
        return [claim for book in books for claim in book.claims.values()]

    def due(self) -> Iterable[str]:
        for name, book in self._books.items():
            due = book.next_due()
            if due is not None and due <= self.now:
                yield name


class MemoryLedger(ShelfLedger):
    """Books in memory, one caller at a time."""

    def __init__(self, clock: Callable[[], int] = system_clock) -> None:
        super().__init__(clock)
        self._shelf = _MemoryShelf()
        self._lock = threading.RLock()
        self._latest = 0

    @contextmanager
    def _reading(self) -> Iterator[Shelf]:
        with self._lock:
            self._shelf.now = max(self._clock(), self._latest)
            yield self._shelf

    @contextmanager
    def _writing(self) -> Iterator[Shelf]:
        with self._lock:
            self._shelf.now = self._latest = self._now(self._latest)
            yield self._shelf

    def close(self) -> None:
        """Nothing to close."""
