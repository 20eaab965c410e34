"""The budget of a run: what its claims got and spent, and that nothing of it stays held."""

from __future__ import annotations

from collections.abc import Sequence

from privatekube_kfp.core.claim import Claim, Kind, Phase
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.unlocking import MICROSECONDS
from privatekube_kfp.ledger.client import ClaimClient, StillWaiting
from privatekube_kfp.ledger.ledger import Ledger
from privatekube_kfp.ledger.requests import ReleaseRequest
from privatekube_kfp.steps.claims import claims_of_run

_PATIENCE = 30 * MICROSECONDS["s"]


def give_back(ledger: Ledger, run: str) -> tuple[list[Claim], list[str]]:
    """Release what the run's claims still hold or wait for; safe in every state.

    Returns the claims as they are then, and the names of those whose release has been asked for
    and not been answered: where a scheduler answers, it may be away. It will find the request.
    """
    late = []
    for claim in claims_of_run(ledger, run):
        if not claim.is_live:
            continue
        try:
            if ledger.submit(claim.name, ReleaseRequest("release")) is None:
                ClaimClient(ledger).wait(claim.name, "release", patience=_PATIENCE)
        except StillWaiting:
            late.append(claim.name)
        except Invalid as error:
            if error.reason is not Reason.UNKNOWN_CLAIM:  # deleted meanwhile, which releases it
                raise
    return claims_of_run(ledger, run), late


def is_hopeless(claims: Sequence[Claim]) -> bool:
    """Whether nothing can come of a run any more: it gave back all it had, and spent nothing.

    A claim that was released is never allocated again.
    """
    return bool(claims) and all(
        claim.is_done(Kind.RELEASE)
        and claim.total(Kind.CONSUME).is_zero
        and claim.phase in (Phase.RELEASED, Phase.DENIED)
        for claim in claims
    )
