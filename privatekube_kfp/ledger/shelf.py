"""Ledgers that keep their own books: what the memory and the SQLite ledger have in common.

A ledger's books stand on a shelf, one per stream. Each call opens the shelf, for reading or for
writing, and works on the books; how a shelf is filled and what is kept of a change is all that
the two ledgers differ in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from privatekube_kfp.core.book import Book
from privatekube_kfp.core.claim import Claim, Response
from privatekube_kfp.core.errors import LedgerError, Reason
from privatekube_kfp.core.pool import Refusal
from privatekube_kfp.core.stream import Block
from privatekube_kfp.core.unlocking import MICROSECONDS
from privatekube_kfp.ledger.checks import (
    check_portion,
    check_requested,
    check_same_portion,
    check_same_stream,
    check_semantic,
    check_stream_of_claim,
    check_unused,
    is_news,
    received,
    unknown_block,
    unknown_claim,
    unknown_stream,
)
from privatekube_kfp.ledger.ledger import (
    BlockRecord,
    Ledger,
    PublishedCount,
    StreamRecord,
    Verdict,
)
from privatekube_kfp.ledger.names import check_name
from privatekube_kfp.ledger.requests import AllocateRequest, ClaimRequest, ConsumeRequest
from privatekube_kfp.ledger.streams import StreamSpec
from privatekube_kfp.ledger.times import format_time
from privatekube_kfp.ledger.verify import verify_book

CLOCK_TOLERANCE = MICROSECONDS["m"]
"""How far a clock may step back (a time server's correction, a neighbour's reading) unrefused."""


class Shelf(ABC):
    """The books of one ledger, open for one call."""

    specs: dict[str, StreamSpec]
    counts: dict[str, PublishedCount]
    now: int

    @abstractmethod
    def book(self, stream: str) -> Book: ...

    @abstractmethod
    def add(self, spec: StreamSpec) -> None: ...

    @abstractmethod
    def remove(self, stream: str) -> None: ...

    @abstractmethod
    def publish(self, stream: str, count: PublishedCount) -> None: ...

    @abstractmethod
    def stream_of_block(self, block: str) -> str | None: ...

    @abstractmethod
    def claim(self, name: str) -> Claim | None:
        """The claim, brought into its book."""

    @abstractmethod
    def claims(self, stream: str | None) -> Iterable[Claim]: ...

    @abstractmethod
    def due(self) -> Iterable[str]:
        """The streams in which something may be decided by now."""

    def book_of(self, stream: str) -> Book:
        if stream not in self.specs:
            raise unknown_stream(stream)
        return self.book(stream)

    def book_with(self, block: str) -> Book:
        stream = self.stream_of_block(block)
        if stream is None:
            raise unknown_block(block)
        return self.book(stream)

    def stream_record(self, name: str) -> StreamRecord:
        book = self.book_of(name)
        return StreamRecord(
            self.specs[name], book.stream.capacity, len(book.blocks), self.counts.get(name)
        )

    def block_record(self, name: str) -> BlockRecord:
        """The block as of now: time may have unlocked some of it since it was last stored."""
        book = self.book_with(name)
        book.unlock_until(self.now)
        return BlockRecord(book.blocks[name], book.budget(name), book.block_phase(name))

    def claim_named(self, name: str) -> Claim:
        claim = self.claim(name)
        if claim is None:
            raise unknown_claim(name)
        return claim


class ShelfLedger(Ledger):
    """A ledger that runs the scheduling pass itself, in whichever process calls it."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Shelf]: ...

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Shelf]:
        """The shelf, to change; everything done within is kept together or not at all."""

    def _now(self, latest: int) -> int:
        """The time, never before the latest the ledger has seen: what was unlocked stays so."""
        now = self._clock()
        if now < latest - CLOCK_TOLERANCE:
            raise LedgerError(
                Reason.CLOCK_WENT_BACK,
                f"the clock says {format_time(now)}, but this ledger was last written at"
                f" {format_time(latest)}; correct the clock, or, if it was the ledger's last writer"
                " whose clock was wrong, run `privatekube ledger reset-clock`",
            )
        return max(now, latest)

    # Streams and blocks

    def create_stream(self, spec: StreamSpec) -> StreamRecord:
        with self._writing() as shelf:
            known = shelf.specs.get(spec.name)
            if known is None:
                shelf.add(spec)
            else:
                check_same_stream(known, spec)
            return shelf.stream_record(spec.name)

    def streams(self) -> Sequence[StreamRecord]:
        with self._reading() as shelf:
            return [shelf.stream_record(name) for name in sorted(shelf.specs)]

    def stream(self, name: str) -> StreamRecord:
        with self._reading() as shelf:
            return shelf.stream_record(name)

    def delete_stream(self, name: str) -> None:
        with self._writing() as shelf:
            check_unused(name, len(shelf.book_of(name).blocks))
            shelf.remove(name)

    def publish_count(self, stream: str, count: PublishedCount) -> StreamRecord:
        with self._writing() as shelf:
            shelf.book_of(stream)
            if is_news(shelf.specs[stream], shelf.counts.get(stream), count):
                shelf.publish(stream, count)
            return shelf.stream_record(stream)

    def create_block(
        self,
        name: str,
        stream: str,
        *,
        start: int | None = None,
        end: int | None = None,
        users: tuple[int, int] | None = None,
        data_source: str | None = None,
    ) -> BlockRecord:
        new = Block(name, stream, 0, start, end, users, data_source)
        check_portion(new)
        with self._writing() as shelf:
            book = shelf.book_of(stream)
            check_semantic(shelf.specs[stream], new)
            home = shelf.stream_of_block(name)
            if home is None:
                book.add_block(replace(new, created=shelf.now))
            else:
                check_same_portion(shelf.book(home).blocks[name], new)
            return shelf.block_record(name)

    def blocks(self, stream: str | None = None) -> Sequence[BlockRecord]:
        with self._reading() as shelf:
            names = sorted(shelf.specs) if stream is None else [stream]
            return [
                shelf.block_record(block.name)
                for book in map(shelf.book_of, names)
                for block in sorted(book.blocks.values(), key=lambda block: block.newest_last)
            ]

    def block(self, name: str) -> BlockRecord:
        with self._reading() as shelf:
            return shelf.block_record(name)

    def retire_block(self, name: str) -> BlockRecord:
        with self._writing() as shelf:
            book = shelf.book_with(name)
            book.retire_block(name)
            book.settle(shelf.now)
            return shelf.block_record(name)

    # Claims

    def submit(self, claim: str, request: ClaimRequest) -> Response | None:
        check_name("claim", claim)
        self._price_ahead(claim, request)
        with self._writing() as shelf:
            record = shelf.claim(claim)
            stream = check_stream_of_claim(claim, record.stream if record else None, request)
            if record is None:
                assert isinstance(request, AllocateRequest)
                record = Claim(claim, stream, request.owner, shelf.now)
            book = shelf.book_of(record.stream)
            if not book.knows(claim, request.id, request.body()):
                book.submit(record, received(book, request, shelf.now))
                book.settle(shelf.now)
            return record.responses.get(request.id)

    def _price_ahead(self, claim: str, request: ClaimRequest) -> None:
        """Work out what a plan costs before others have to wait for it; prices are remembered."""
        if isinstance(request, AllocateRequest):
            plan, stream = request.plan, request.stream
        elif isinstance(request, ConsumeRequest) and request.amount is not None:
            plan, stream = request.amount, None
        else:
            return
        with self._reading() as shelf:
            if stream is None and (known := shelf.claim(claim)) is not None:
                stream = known.stream
            spec = shelf.specs.get(stream) if stream is not None else None
        if spec is not None:
            plan.price(spec.accounting)

    def response(self, claim: str, request: str) -> Response | None:
        with self._reading() as shelf:
            record = shelf.claim_named(claim)
            check_requested(record, request)
            return record.responses.get(request)

    def why_waiting(self, claim: str, request: str) -> Refusal | None:
        with self._reading() as shelf:
            record = shelf.claim_named(claim)
            check_requested(record, request)
            if request in record.responses:
                return None
            book = shelf.book(record.stream)
            book.unlock_until(shelf.now)
            return book.why_waiting(claim, request)

    def claim(self, name: str) -> Claim:
        with self._reading() as shelf:
            return shelf.claim_named(name).copy()

    def claims(self, stream: str | None = None) -> Sequence[Claim]:
        with self._reading() as shelf:
            if stream is not None:
                shelf.book_of(stream)
            claims = sorted(shelf.claims(stream), key=lambda claim: (claim.created, claim.name))
            return [claim.copy() for claim in claims]

    def tend(self) -> None:
        with self._reading() as shelf:
            if not any(shelf.due()):
                return
        with self._writing() as shelf:
            for stream in list(shelf.due()):
                shelf.book(stream).settle(shelf.now)

    def verify(self) -> Verdict:
        with self._reading() as shelf:
            blocks = claims = 0
            difference = None
            for name in sorted(shelf.specs):
                book = shelf.book(name)
                of_stream = list(shelf.claims(name))
                blocks += len(book.blocks)
                claims += len(of_stream)
                difference = difference or verify_book(shelf.specs[name], book, of_stream)
            return Verdict(len(shelf.specs), blocks, claims, difference)
