"""What a client asks of a claim, as it travels: to a file, or to the Kubernetes API.

A request carries the client's own words only. Which blocks they mean and what a plan costs is
worked out by the ledger when the request arrives, and kept with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from privatekube_kfp.accounting import Plan
from privatekube_kfp.core.claim import Kind
from privatekube_kfp.core.policy import check_weight
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.unlocking import format_duration
from privatekube_kfp.ledger.names import check_name, check_request_id
from privatekube_kfp.ledger.times import format_time


@dataclass(frozen=True)
class AllocateRequest:
    """Ask for what a plan costs, on every selected block, all or nothing.

    A timeout of zero means now or never; None waits for as long as it takes. A weight says how much
    the claim matters beside others, where the stream's policy knows weights.
    """

    id: str
    stream: str
    selection: Selection
    plan: Plan
    timeout: int | None = None
    owner: str | None = None
    weight: int = 1
    kind = Kind.ALLOCATE

    def __post_init__(self) -> None:
        check_request_id(self.id)
        check_name("stream", self.stream)
        check_weight(self.weight)

    def body(self) -> dict[str, object]:
        """A weight of one is left out: that is what requests without one mean."""
        said: dict[str, object] = {
            "stream": self.stream,
            "select": selection_to_json(self.selection),
            "plan": self.plan.to_json(),
            "timeout": None if self.timeout is None else format_duration(self.timeout),
        }
        return said if self.weight == 1 else said | {"weight": self.weight}


@dataclass(frozen=True)
class ConsumeRequest:
    """Spend: a step of the plan, an amount on each block, or all that is held if neither."""

    id: str
    step: str | None = None
    amount: Plan | None = None
    kind = Kind.CONSUME

    def __post_init__(self) -> None:
        check_request_id(self.id)
        if self.step is not None and self.amount is not None:
            raise TypeError("consume a step or an amount, not both")

    def body(self) -> dict[str, object]:
        if self.step is not None:
            return {"step": self.step}
        return {} if self.amount is None else {"amount": self.amount.to_json()}


@dataclass(frozen=True)
class ReleaseRequest:
    """Give back all that is held and not consumed."""

    id: str
    kind = Kind.RELEASE

    def __post_init__(self) -> None:
        check_request_id(self.id)

    def body(self) -> dict[str, object]:
        return {}


ClaimRequest = AllocateRequest | ConsumeRequest | ReleaseRequest


def selection_to_json(selection: Selection) -> Mapping[str, object]:
    """Only what was said: defaults are left out."""
    if selection.names:
        return {"names": list(selection.names)}
    said: dict[str, object] = {}
    if selection.start is not None:
        said["start"] = format_time(selection.start)
    if selection.end is not None:
        said["end"] = format_time(selection.end)
    if selection.users is not None:
        said["users"] = list(selection.users)
    if selection.last is not None:
        said["last"] = selection.last
    if selection.at_least != 1:
        said["atLeast"] = selection.at_least
    if selection.at_most is not None:
        said["atMost"] = selection.at_most
    return said
