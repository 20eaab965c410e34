"""How claims look in tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from privatekube_kfp.cli.describe import amount_rows, request_state
from privatekube_kfp.cli.output import moment, print_facts, print_table, say, short
from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.claim import Claim, Kind

if TYPE_CHECKING:
    from privatekube_kfp.core.pool import Refusal

CLAIM_TITLES = ("NAME", "STREAM", "PHASE", ">BLOCKS", "CONSUMED", "OWNER", "REASON")


def claim_row(record: Claim, waiting: Mapping[str, Refusal]) -> tuple[str, ...]:
    """A claim's line in a list."""
    return (
        record.name,
        record.stream,
        str(record.phase),
        str(len(record.bound())),
        _spent(record),
        record.owner or "",
        _latest_reason(record, waiting),
    )


def _spent(record: Claim) -> str:
    """How much of what it was allocated a claim has consumed, on each block."""
    allocated, consumed = record.total(Kind.ALLOCATE), record.total(Kind.CONSUME)
    if allocated.is_zero:
        return ""
    if len(allocated.groups) == 1 and len(consumed.groups) <= 1:
        budget = allocated.groups[0][0]
        if not budget.accounting.is_renyi:
            spent = consumed.groups[0][0] if consumed.groups else budget.accounting.zero()
            return f"{_epsilon(spent)} of {_epsilon(budget)}"
    if consumed.is_zero:
        return "nothing"
    return "all" if (allocated - consumed).is_zero else "a part"


def _epsilon(budget: Budget) -> str:
    return short(budget.to_json()["epsilon"])


def _latest_reason(record: Claim, waiting: Mapping[str, Refusal]) -> str:
    """What the claim waits for, else the reason of its last answer."""
    turn = record.unanswered()
    if turn is not None and turn.id in waiting:
        return str(waiting[turn.id].reason)
    answered = [request for request in record.requests if request.id in record.responses]
    return str(record.responses[answered[-1].id].reason) if answered else ""


def print_claim(record: Claim, waiting: Mapping[str, Refusal]) -> None:
    """A claim with its budget on each block and its requests."""
    print_facts(
        [
            ("claim", record.name),
            ("stream", record.stream),
            ("owner", record.owner or ""),
            ("phase", str(record.phase)),
            ("created", moment(record.created)),
        ]
    )
    for budgets, blocks in _alike(record).items():
        say(f"\non {'each of ' if len(blocks) > 1 else ''}{', '.join(blocks)}:")
        columns = zip(("ALLOCATED", "CONSUMED", "RELEASED", "HELD"), budgets, strict=True)
        print_table(*amount_rows(budgets[0].accounting, list(columns)))
    say("")
    rows = []
    for request in record.requests:
        answer = record.responses.get(request.id) or waiting.get(request.id)
        said = (str(answer.reason), answer.message) if answer else ("", "")
        rows.append((request.id, request_state(record, request), *said))
    print_table(["REQUEST", "STATE", "REASON", "~MESSAGE"], rows)


def _alike(record: Claim) -> dict[tuple[Budget, ...], list[str]]:
    """The claim's blocks, grouped by all that the claim has of them."""
    totals = [
        dict(amounts.items())
        for amounts in (
            record.total(Kind.ALLOCATE),
            record.total(Kind.CONSUME),
            record.total(Kind.RELEASE),
            record.held(),
        )
    ]
    groups: dict[tuple[Budget, ...], list[str]] = {}
    for block, budget in totals[0].items():
        zero = budget.accounting.zero()
        budgets = tuple(total.get(block, zero) for total in totals)
        groups.setdefault(budgets, []).append(block)
    return groups
