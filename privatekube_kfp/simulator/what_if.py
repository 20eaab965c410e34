"""What would become of the claims that wait in a ledger, under another policy or unlocking.

Reads a ledger and writes nothing. The blocks are as they are now; what is unlocked of them is what
the other way of unlocking would have unlocked by now.
"""

from __future__ import annotations

from dataclasses import dataclass

from privatekube_kfp.core.claim import Claim, Kind, Request
from privatekube_kfp.core.errors import Reason
from privatekube_kfp.core.policy import policy_named
from privatekube_kfp.core.pool import Pool
from privatekube_kfp.core.stream import BlockPhase
from privatekube_kfp.core.unlocking import ByPipelines, Unlocking
from privatekube_kfp.ledger.ledger import Ledger


@dataclass(frozen=True)
class Fate:
    """What would become of one claim: granted after so long, refused, or still waiting."""

    claim: str
    granted_after: int | None
    reason: Reason
    message: str

    def to_json(self) -> dict[str, object]:
        return {
            "claim": self.claim,
            "granted": self.granted_after is not None,
            "after": None if self.granted_after is None else self.granted_after / 1e6,
            "reason": self.reason.value,
            "message": self.message,
        }


def what_if(
    ledger: Ledger, stream: str, policy: str, unlocking: Unlocking, now: int, until: int
) -> list[Fate]:
    """The fates of a stream's waiting claims up to a time, if nobody else came."""
    record = ledger.stream(stream)
    pool = Pool(record.spec.accounting, unlocking, policy_named(policy))
    for block in ledger.blocks(stream):
        budget = block.budget
        opened = min(budget.arrivals, unlocking.shares) if isinstance(unlocking, ByPipelines) else 0
        pool.add_block(
            block.block.name,
            budget.capacity,
            block.block.created,
            arrivals=budget.arrivals,
            opened=opened,
            allocated=budget.allocated,
            consumed=budget.consumed,
            retired=block.phase is BlockPhase.RETIRED,
        )
    waiting = _waiting(ledger, stream)
    for claim, request in waiting:
        pool.arrive(
            claim.name,
            request.demand(),
            arrival=request.arrival,
            deadline=request.deadline,
            unlocks=(),
            weight=request.weight,
        )
    fates: dict[str, Fate] = {}
    due: int | None = now
    while due is not None and due <= until:
        outcome = pool.plan(due)
        for name in outcome.grants:
            fates[name] = Fate(name, due - now, Reason.ALLOCATED, "granted")
        for refusal in outcome.refusals:
            fates[refusal.claim] = Fate(refusal.claim, None, refusal.reason, refusal.message)
        coming = pool.next_due()
        due = None if coming is None else max(coming, due)
    for claim, _ in waiting:
        if claim.name not in fates:
            why = pool.why_waiting(claim.name)
            fates[claim.name] = Fate(claim.name, None, why.reason, why.message)
    return [fates[claim.name] for claim, _ in waiting]


def _waiting(ledger: Ledger, stream: str) -> list[tuple[Claim, Request]]:
    """Claims whose turn is an allocate, in the order in which they came."""
    turns = [(claim, claim.unanswered()) for claim in ledger.claims(stream)]
    found = [(c, turn) for c, turn in turns if turn is not None and turn.kind is Kind.ALLOCATE]
    return sorted(found, key=lambda pair: pair[1].arrival)
