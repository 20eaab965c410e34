"""What the cluster benchmark puts into the cluster: a stream, daily blocks, and claims on them.

Claims are numbered, and what each asks for follows from its number, so that every run asks for the
same. `Offline` works out the very statuses that a scheduler would write, without one: as the load
of the raw updates that the scheduler is compared with, and as the past of a cluster in which
pipelines have come and gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from privatekube_kfp.accounting import DEFAULT_ORDERS, Gaussian, Plan, conversion_from_name
from privatekube_kfp.core.book import Book
from privatekube_kfp.core.budget import renyi
from privatekube_kfp.core.claim import Claim
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.stream import Block
from privatekube_kfp.core.unlocking import MICROSECONDS, AtOnce, ByPipelines, Unlocking
from privatekube_kfp.ledger.checks import received
from privatekube_kfp.ledger.kubernetes.api import Object
from privatekube_kfp.ledger.kubernetes.objects import (
    claim_object,
    claim_status,
    digest,
    request_item,
)
from privatekube_kfp.ledger.requests import (
    AllocateRequest,
    ClaimRequest,
    ConsumeRequest,
    ReleaseRequest,
)
from privatekube_kfp.ledger.streams import StreamSpec
from privatekube_kfp.ledger.times import system_clock

NAMESPACE = "pipelines"
DAYS = 30
LONGEST = 10
_DAY = MICROSECONDS["d"]
_FIRST_DAY = 20_000 * _DAY

T = TypeVar("T")
R = TypeVar("R")


def stream(name: str, unlocking: Unlocking | None = None) -> StreamSpec:
    return StreamSpec(
        name,
        "10",
        "0.0000001",
        unlocking or AtOnce(),
        accounting=renyi(DEFAULT_ORDERS),
        conversion=conversion_from_name("weighted"),
    )


def daily_blocks(spec: StreamSpec, count: int) -> list[Block]:
    return [
        Block(
            f"{spec.name}-{day:04}",
            spec.name,
            0,
            start=_FIRST_DAY + day * _DAY,
            end=_FIRST_DAY + (day + 1) * _DAY,
        )
        for day in range(count)
    ]


def allocate(spec: StreamSpec, number: int, days: int = DAYS) -> AllocateRequest:
    """A little of each of 1 to 10 consecutive days, with one of six amounts of noise."""
    length = min(1 + number % LONGEST, days)
    return over_days(
        spec, (7 * number) % (days - length + 1), length, sigma=200 + 50 * (number % 6)
    )


def over_days(spec: StreamSpec, first: int, length: int, sigma: int) -> AllocateRequest:
    start = _FIRST_DAY + first * _DAY
    selection = Selection(start=start, end=start + length * _DAY)
    return AllocateRequest(
        "allocate", spec.name, selection, Plan.of({"train": Gaussian(str(sigma))}), owner="bench"
    )


def named(number: int) -> str:
    return f"run-{number:06}"


class Offline:
    """A stream's book without a cluster: what a scheduler would tell each claim."""

    def __init__(self, spec: StreamSpec, blocks: Iterable[Block]) -> None:
        self._spec = spec
        self._book = Book(spec.stream(spec.capacity()))
        for block in blocks:
            self._book.add_block(block)

    def claim(self, name: str, *requests: ClaimRequest) -> Object:
        """A claim's object with all of these requests, and the status that it ends up with."""
        first = requests[0]
        assert isinstance(first, AllocateRequest)
        obj = claim_object(name, NAMESPACE, first)
        items = [request_item(request) for request in requests]
        obj["spec"]["requests"] = items
        now = system_clock()
        claim = Claim(name, self._spec.name, first.owner, now)
        for request in requests:
            self._book.submit(claim, received(self._book, request, now))
            self._book.settle(now)
        turn = claim.unanswered()
        waiting = self._book.why_waiting(name, turn.id) if turn is not None else None
        obj["status"] = claim_status(
            claim, {item["id"]: digest(item) for item in items}, waiting=waiting
        )
        self._book.forget_answered()
        return obj


def past_stream() -> StreamSpec:
    return stream("past", ByPipelines(10_000))


def past_claims(count: int) -> Iterator[Object]:
    """Of a hundred claims 90 have consumed, 5 were released, 4 hold and 1 waits.

    Those that wait ask for much of the last day, of which only they have unlocked anything.
    """
    spec = past_stream()
    offline = Offline(spec, daily_blocks(spec, DAYS))
    for number in range(count):
        name, which = named(number), number % 100
        if which == 99:
            yield offline.claim(name, over_days(spec, DAYS - 1, 1, sigma=1))
            continue
        request = allocate(spec, number, DAYS - 1)
        if which < 90:
            yield offline.claim(name, request, ConsumeRequest("consume"))
        elif which < 95:
            yield offline.claim(name, request, ReleaseRequest("release"))
        else:
            yield offline.claim(name, request)


def side_by_side(threads: int, do: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Do it for all items, over so many threads of which each takes the next; in any order.

    Whatever one of them raises, Ctrl-C included, ends all after the item they are at.
    """
    left, taking, stop = iter(items), threading.Lock(), threading.Event()
    results: list[R] = []

    def work() -> None:
        try:
            while not stop.is_set():
                with taking:
                    try:
                        item = next(left)
                    except StopIteration:
                        return
                results.append(do(item))
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(threads) as pool:
        workers = [pool.submit(work) for _ in range(threads)]
        try:
            for worker in workers:
                worker.result()
        except BaseException:
            stop.set()
            raise
    return results
