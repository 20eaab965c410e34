"""What a stream, a block and a claim look like as JSON, and how their amounts look in a table.

Keys are in camelCase, as in plans; amounts are exact decimal strings; times are ISO 8601 in UTC.
What is not there is null, so that every key is always present.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from privatekube_kfp.cli.output import short
from privatekube_kfp.core.budget import Accounting, Budget
from privatekube_kfp.core.claim import Claim, Kind, Request
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.ledger.times import format_time

if TYPE_CHECKING:
    from privatekube_kfp.core.pool import BlockBudget, Refusal
    from privatekube_kfp.ledger.ledger import BlockRecord, PublishedCount, StreamRecord


def stream_json(record: StreamRecord) -> dict[str, object]:
    missing = {"orders": None, "conversion": None, "weights": None, "counter": None}
    return (
        missing
        | record.spec.to_json()
        | {
            "capacity": record.capacity.to_json(),
            "blocks": record.blocks,
            "count": record.count.to_json() if record.count else None,
        }
    )


def users_told(count: PublishedCount) -> str:
    return (
        f"about {count.estimate}; at least {count.lower} and at most {count.upper} with"
        f" confidence {count.confidence}; up to {format_time(count.time)}"
    )


def block_json(record: BlockRecord) -> dict[str, object]:
    block, budget = record.block, record.budget
    return {
        "name": block.name,
        "stream": block.stream,
        "phase": str(record.phase),
        "created": format_time(block.created),
        "start": _time(block.start),
        "end": _time(block.end),
        "users": None if block.users is None else list(block.users),
        "dataSource": block.data_source,
        "arrivals": budget.arrivals,
        "capacity": budget.capacity.to_json(),
        "locked": budget.locked.to_json(),
        "unlocked": budget.unlocked.to_json(),
        "allocated": budget.allocated.to_json(),
        "consumed": budget.consumed.to_json(),
    }


def claim_json(claim: Claim, waiting: Mapping[str, Refusal]) -> dict[str, object]:
    """`waiting` says of each request without an answer what it waits for."""
    return {
        "name": claim.name,
        "stream": claim.stream,
        "owner": claim.owner,
        "phase": str(claim.phase),
        "created": format_time(claim.created),
        "blocks": list(claim.bound()),
        "allocated": _amounts(claim.total(Kind.ALLOCATE)),
        "consumed": _amounts(claim.total(Kind.CONSUME)),
        "released": _amounts(claim.total(Kind.RELEASE)),
        "held": _amounts(claim.held()),
        "requests": [_request_json(claim, request, waiting) for request in claim.requests],
    }


def _amounts(amounts: PerBlock) -> list[dict[str, object]]:
    return [] if amounts.is_zero else amounts.to_json()


def _request_json(
    claim: Claim, request: Request, waiting: Mapping[str, Refusal]
) -> dict[str, object]:
    response = claim.responses.get(request.id)
    answer = response or waiting.get(request.id)
    said: dict[str, object] = {
        "id": request.id,
        "kind": str(request.kind),
        "state": request_state(claim, request),
        "reason": str(answer.reason) if answer else None,
        "message": answer.message if answer else None,
        "submitted": format_time(request.submitted),
        "at": format_time(response.at) if response else None,
        "amounts": _amounts(response.amounts) if response else [],
        "asked": dict(request.body),
    }
    if request.kind is Kind.ALLOCATE:
        said["deadline"] = _time(request.deadline)
        said["blocks"] = list(request.blocks)
        # In a cluster, a request that no scheduler has read has no price yet.
        said["price"] = request.price().to_json() if request.steps else None
        said["weight"] = request.weight
        said["steps"] = {step: price.to_json() for step, price in request.steps}
    return said


def request_state(claim: Claim, request: Request) -> str:
    response = claim.responses.get(request.id)
    if response is None:
        return "Waiting"
    return "Done" if response.done else "Denied"


def _time(moment: int | None) -> str | None:
    return None if moment is None else format_time(moment)


# Tables


def amount_rows(
    accounting: Accounting, columns: Sequence[tuple[str, Budget]]
) -> tuple[list[str], list[list[str]]]:
    """Budgets side by side, a line per order (Renyi) or for epsilon and delta (Basic)."""
    amounts = [budget.to_json() for _, budget in columns]
    titles = [">ORDER" if accounting.is_renyi else "", *(f">{title}" for title, _ in columns)]
    rows = [[label, *(short(column[label]) for column in amounts)] for label in accounting.labels]
    return titles, rows


def list_amounts(budget: BlockBudget) -> list[str]:
    """A block's epsilons for a line of a list: under Renyi accounting those at `list_order`."""
    label = list_order(budget) or "epsilon"
    columns = (budget.capacity, budget.locked, budget.unlocked, budget.allocated, budget.consumed)
    return [short(column.to_json()[label]) for column in columns]


def list_order(budget: BlockBudget) -> str:
    """The order at which the largest part is left; none under Basic accounting."""
    accounting = budget.capacity.accounting
    if not accounting.is_renyi:
        return ""
    spent = budget.allocated + budget.consumed
    used = {
        order: (spent_here / capacity, -capacity)
        for order, capacity, spent_here in zip(
            accounting.orders, budget.capacity.amounts, spent.amounts, strict=True
        )
        if capacity > 0
    }
    return min(used, key=lambda order: used[order], default=accounting.orders[-1])
