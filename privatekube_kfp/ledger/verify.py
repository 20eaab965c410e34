"""An audit: every number of a book, derived again from the claims' responses.

It trusts only the declaration of the stream and the responses, and adds everything up afresh
with plain integers, sharing no code with the scheduling core's running totals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from privatekube_kfp.core.book import Book
from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.claim import Claim, Kind
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.streams import StreamSpec


def verify_book(
    spec: StreamSpec,
    book: Book,
    claims: Sequence[Claim],
    left_behind: Mapping[str, tuple[Budget, int]] | None = None,
) -> str | None:
    """The first difference between what the book says and what its claims add up to.

    `left_behind`: what claims that are gone consumed of each block, and how many had arrived.
    """
    return next(_differences(spec, book, claims, left_behind or {}), None)


def _differences(
    spec: StreamSpec,
    book: Book,
    claims: Sequence[Claim],
    left_behind: Mapping[str, tuple[Budget, int]],
) -> Iterator[str]:
    capacity = spec.capacity()
    if capacity != book.stream.capacity:
        stored = book.stream.capacity
        yield f"stream {spec.name}: capacity {stored}, its declaration gives {capacity}"
    zero = spec.accounting.zero()
    allocated = dict.fromkeys(book.blocks, zero)
    consumed = dict.fromkeys(book.blocks, zero)
    arrivals = dict.fromkeys(book.blocks, 0)
    for block, (spent, arrived) in left_behind.items():
        consumed[block] += spent
        arrivals[block] += arrived
    for claim in claims:
        yield from _claim_differences(claim, book)
        for block in claim.arrived():
            arrivals[block] += 1
        for block, held in claim.held().items():
            allocated[block] += held
        for block, amount in claim.total(Kind.CONSUME).items():
            consumed[block] += amount
    for name in book.blocks:
        budget = book.budget(name)
        derived: list[tuple[str, object, object]] = [
            ("arrivals", budget.arrivals, arrivals[name]),
            ("allocated", budget.allocated, allocated[name]),
            ("consumed", budget.consumed, consumed[name]),
        ]
        if isinstance(spec.unlocking, ByPipelines):
            opened = min(arrivals[name], spec.unlocking.shares)
            derived.append(("unlocked shares", budget.opened, opened))
        for what, recorded, expected in derived:
            if recorded != expected:
                yield f"block {name}: {what} {recorded}, its claims add up to {expected}"
        spent, unlocked = allocated[name] + consumed[name], capacity - budget.locked
        if not spent.is_zero and not spent.fits(capacity, capacity):
            yield f"block {name}: {spent} granted, more than its capacity of {capacity}"
        if not spent.is_zero and not spent.fits(unlocked, capacity):
            yield f"block {name}: {spent} granted, more than the {unlocked} unlocked so far"


def _claim_differences(claim: Claim, book: Book) -> Iterator[str]:
    """A claim's own responses must be possible, one after the other."""
    ids = [request.id for request in claim.requests]
    if len(set(ids)) < len(ids):
        yield f"claim {claim.name}: two requests with one id"
    if unasked := claim.responses.keys() - set(ids):
        yield f"claim {claim.name}: a response to {min(unasked)!r}, which was never asked"
    if unknown := set(claim.bound()) - book.blocks.keys():
        yield f"claim {claim.name}: names block {min(unknown)}, which is not in the ledger"
    replayed = Claim(claim.name, claim.stream, claim.owner, claim.created)
    for request in claim.requests:
        response = claim.responses.get(request.id)
        if response is None:
            continue
        if response.denied:
            if response.amounts.groups:
                yield f"claim {claim.name}: request {request.id!r} was denied but moved budget"
            continue
        if request.kind is Kind.ALLOCATE:
            if dict(response.amounts.items()) != dict(request.demand().items()):
                yield f"claim {claim.name}: request {request.id!r} was granted something else"
        elif replayed.held().first_not_covering(response.amounts):
            yield f"claim {claim.name}: request {request.id!r} moved more than the claim held"
        replayed.requests.append(request)
        replayed.responses[request.id] = response
    if not replayed.held().is_zero and replayed.is_done(Kind.RELEASE):
        yield f"claim {claim.name}: released, yet still holding budget"
