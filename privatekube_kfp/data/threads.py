"""Work for a second core: what Arrow does goes on while Python does something else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
_THREADS = 2


def in_order(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """What `work` makes of each item, in their order, a few at a time.

    What it raises is raised in its turn; no other is begun after that.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        rest = iter(items)
        begun: list[Future[R]] = [pool.submit(work, item) for item in islice(rest, _THREADS)]
        try:
            while begun:
                done = begun.pop(0).result()
                begun += [pool.submit(work, item) for item in islice(rest, 1)]
                yield done
        finally:
            for future in begun:
                future.cancel()


class Later:
    """Does one thing at a time while its owner goes on; what it raises, the next call raises."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def do(self, work: Callable[[], None]) -> None:
        if self._last is not None:
            self._last.result()
        self._last = self._pool.submit(work)

    def __enter__(self) -> Later:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown()
        if kind is None and self._last is not None:
            self._last.result()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, the next of which is fetched while the last is worked on."""
    with ThreadPoolExecutor(1) as pool:
        nothing = object()
        fetched = pool.submit(next, items, nothing)
        try:
            while (item := fetched.result()) is not nothing:
                fetched = pool.submit(next, items, nothing)
                yield item  # type: ignore[misc]
        finally:
            with suppress(Exception):
                fetched.result()
