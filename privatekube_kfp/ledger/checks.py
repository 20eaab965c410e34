"""What every ledger checks before it changes anything, and what it makes of a request.

The memory, SQLite and Kubernetes ledgers and the scheduler refuse the same things with the same
words, because the words are here.
"""

from __future__ import annotations

from dataclasses import replace

from privatekube_kfp.core.book import Book
from privatekube_kfp.core.claim import Claim, Request
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.selection import check_users
from privatekube_kfp.core.stream import Block
from privatekube_kfp.ledger.ledger import PublishedCount
from privatekube_kfp.ledger.names import check_name
from privatekube_kfp.ledger.requests import AllocateRequest, ClaimRequest, ConsumeRequest
from privatekube_kfp.ledger.streams import Semantic, StreamSpec
from privatekube_kfp.ledger.times import format_time


def unknown_stream(name: str) -> Invalid:
    return Invalid(Reason.UNKNOWN_STREAM, f"there is no stream {name!r}")


def unknown_block(name: str) -> Invalid:
    return Invalid(Reason.UNKNOWN_BLOCK, f"there is no block {name!r}")


def unknown_claim(name: str) -> Invalid:
    return Invalid(Reason.UNKNOWN_CLAIM, f"there is no claim {name!r}")


# Streams and blocks


def check_same_stream(known: StreamSpec, new: StreamSpec) -> None:
    if known != new:
        raise Invalid(
            Reason.ALREADY_EXISTS,
            f"stream {new.name} exists with another declaration; a stream's guarantee"
            " does not change once it is declared",
        )


def check_unused(stream: str, blocks: int) -> None:
    if blocks:
        raise Invalid(
            Reason.IN_USE,
            f"stream {stream} has {blocks} block{'s' if blocks > 1 else ''};"
            " deleting it would forget what was spent on them",
        )


def is_news(spec: StreamSpec, known: PublishedCount | None, new: PublishedCount) -> bool:
    """Whether a count of users takes the place of the known one; `Invalid` if it must not."""
    if spec.counter is None:
        raise _invalid(f"stream {spec.name} is of {spec.semantic} semantic and counts no users")
    if known is None:
        return True
    if new.time == known.time and new != known:
        raise Invalid(
            Reason.ALREADY_PUBLISHED,
            f"stream {spec.name} has another count of its users up to {format_time(new.time)};"
            " a second one would be a second look at the same people",
        )
    if new.time > known.time and new.lower < known.lower:
        raise _invalid(
            f"stream {spec.name} has at least {known.lower} users, and users do not become fewer:"
            f" a later count cannot say at least {new.lower}"
        )
    return new.time > known.time


def check_portion(block: Block) -> None:
    check_name("block", block.name)
    start, end = block.start, block.end
    if (start is None) != (end is None) or (start is not None and end is not None and start >= end):
        raise _invalid(f"block {block.name}: give a start before an end, or neither")
    if block.users is not None:
        check_users(block.users)


def check_semantic(spec: StreamSpec, block: Block) -> None:
    if spec.semantic is Semantic.EVENT and block.users is not None:
        raise _invalid(f"block {block.name}: a stream of event semantic has no user ranges")


def check_same_portion(known: Block, new: Block) -> None:
    def portion(block: Block) -> tuple[object, ...]:
        return block.start, block.end, block.users, block.data_source

    if known.stream != new.stream or portion(known) != portion(new):
        raise Invalid(
            Reason.ALREADY_EXISTS,
            f"block {new.name} exists in stream {known.stream}"
            + (" with another portion of the data" if known.stream == new.stream else ""),
        )


# Claims


def check_stream_of_claim(claim: str, stream: str | None, request: ClaimRequest) -> str:
    """The stream of the request: of the claim it is for (None if that is new), or its own."""
    if stream is None:
        if not isinstance(request, AllocateRequest):
            raise unknown_claim(claim)
        return request.stream
    if isinstance(request, AllocateRequest) and request.stream != stream:
        raise _invalid(
            f"claim {claim} is on stream {stream}; make another claim for stream {request.stream}"
        )
    return stream


def check_requested(claim: Claim, request: str) -> None:
    if claim.request(request) is None:
        raise unknown_request(claim.name, request)


def unknown_request(claim: str, request: str) -> Invalid:
    return Invalid(Reason.UNKNOWN_REQUEST, f"claim {claim} has no request {request!r}")


def received(book: Book, request: ClaimRequest, now: int) -> Request:
    """The request with what it means here and now: the blocks, the price, the deadline."""
    made = Request(request.id, request.kind, request.body(), submitted=now)
    accounting = book.stream.accounting
    if isinstance(request, AllocateRequest):
        return replace(
            made,
            blocks=book.choose(request.selection),
            steps=tuple(request.plan.parts(accounting).items()),
            deadline=None if request.timeout is None else now + request.timeout,
            weight=request.weight,
        )
    if isinstance(request, ConsumeRequest):
        return replace(
            made,
            step=request.step,
            amount=request.amount.price(accounting) if request.amount else None,
        )
    return made


def _invalid(message: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, message)
