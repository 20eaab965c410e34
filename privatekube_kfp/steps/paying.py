"""What every computation on private data asks first: which step of the plan pays for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from privatekube_kfp.accounting import Mechanism, plan_from_json
from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.claim import Claim
from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.ledger.ledger import Ledger
from privatekube_kfp.ledger.streams import StreamSpec
from privatekube_kfp.steps.data import make_sure_it_is_allocated
from privatekube_kfp.steps.run import Artifact, claim_of_artifact, where_it_failed


@dataclass(frozen=True)
class Payment:
    """A step of a claim's plan, and what was granted for it."""

    claim: Claim
    stream: StreamSpec
    step: str
    mechanism: Mechanism
    granted: Budget

    def covers(self, what: str, cost: Budget) -> None:
        """Refuse whatever would cost more than was granted."""
        if not self.granted.covers(cost):
            raise PrivateKubeError(
                Reason.EXCEEDS_ALLOCATION,
                f"{what} would cost {cost.brief()}; the step {self.step!r} of claim"
                f" {self.claim.name} was granted {self.granted.brief()}",
            )


def payment_for(ledger: Ledger, artifact: Artifact, run_id: str, step: str) -> Payment:
    """The step that is to pay for a computation, if it has not paid for another already."""
    claim = claim_of_artifact(ledger, artifact, run_id)
    make_sure_it_is_allocated(claim, "used")
    mechanism, granted = step_of(claim, step)
    if step in claim.consumed_steps():
        raise PrivateKubeError(
            Reason.ALREADY_CONSUMED,
            f"claim {claim.name} has consumed its step {step!r}: to compute on it once more would"
            " be a second result for one price",
        )
    for block, held in claim.held().items():
        if not held.covers(granted):
            raise PrivateKubeError(
                Reason.ALREADY_CONSUMED,
                f"claim {claim.name} holds {held.brief()} on block {block}, too little for its step"
                f" {step!r} of {granted.brief()}: it has consumed that already",
            )
    return Payment(claim, ledger.stream(claim.stream).spec, step, mechanism, granted)


def step_of(claim: Claim, name: str) -> tuple[Mechanism, Budget]:
    """What a step of the claim's plan does, and what was granted for it."""
    steps = steps_of(claim)
    if name not in steps:
        raise PrivateKubeError(
            Reason.UNKNOWN_STEP,
            f"the plan of claim {claim.name} has no step {name!r}; it has {', '.join(steps)}",
        )
    return steps[name]


def steps_of(claim: Claim) -> dict[str, tuple[Mechanism, Budget]]:
    """The steps that were granted, each with its price."""
    steps: dict[str, tuple[Mechanism, Budget]] = {}
    for request in claim.granted():
        prices = dict(request.steps)
        for step in plan_from_json(request.body["plan"]).steps:
            steps.setdefault(step.name, (step.mechanism, prices[step.name]))
    return steps


def make_sure_it_belongs(claim: Claim, what: str, named: object) -> None:
    """Refuse data or results that are not of this claim."""
    if named != claim.name:
        raise Invalid(Reason.INVALID_REQUEST, f"the {what} are not those of claim {claim.name}")


@contextmanager
def untold(what: str) -> Iterator[None]:
    """Errors that may know what is in the data, without it."""
    try:
        yield
    except PrivateKubeError:
        raise
    except Exception as error:
        where = where_it_failed(error)
        raise PrivateKubeError(
            Reason.DATA_UNREADABLE, f"{what} could not be computed on the data ({where})"
        ) from None
