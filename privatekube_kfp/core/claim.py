"""A claim: an append-only list of requests, and one response for each.

The responses are the truth about budgets: what a claim holds and has spent, and so what every
block has allocated and consumed, is the sum of the amounts in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.errors import Reason
from privatekube_kfp.core.per_block import NOTHING, PerBlock

REFUSED_AT_THE_DOOR = (Reason.EXCEEDS_CAPACITY, Reason.NO_MATCHING_BLOCKS, Reason.ALREADY_RELEASED)
"""Why an allocate is refused before it stands in line: it unlocks nothing then."""


class Kind(StrEnum):
    ALLOCATE = "allocate"
    CONSUME = "consume"
    RELEASE = "release"


class Phase(StrEnum):
    """Where a claim is in its life."""

    PENDING = "Pending"
    ALLOCATED = "Allocated"
    CONSUMED = "Consumed"
    RELEASED = "Released"
    DENIED = "Denied"


@dataclass(frozen=True)
class Request:
    """What a client asked: its own words (`body`), and what the ledger made of them on receipt."""

    id: str
    kind: Kind
    body: Mapping[str, object]
    submitted: int
    # Allocate: the chosen blocks, the price of each step of the plan, the place in line.
    blocks: tuple[str, ...] = ()
    steps: tuple[tuple[str, Budget], ...] = ()
    arrival: int = 0
    deadline: int | None = None
    weight: int = 1
    # Consume: a step of the plan, or an amount; all that is left if neither.
    step: str | None = None
    amount: Budget | None = None

    def price(self) -> Budget:
        """The price of all steps together."""
        first, *others = (budget for _, budget in self.steps)
        return sum(others, first)

    def demand(self) -> PerBlock:
        return PerBlock.uniform(self.price(), self.blocks)


@dataclass(frozen=True)
class Response:
    """The final answer to one request."""

    request: str
    done: bool
    reason: Reason
    message: str
    at: int
    amounts: PerBlock = NOTHING

    @property
    def denied(self) -> bool:
        return not self.done


@dataclass
class Claim:
    """One pipeline's requests on one stream, in order, and what became of them."""

    name: str
    stream: str
    owner: str | None
    created: int
    requests: list[Request] = field(default_factory=list)
    responses: dict[str, Response] = field(default_factory=dict)

    def copy(self) -> Claim:
        """A snapshot that later requests do not change."""
        return replace(self, requests=list(self.requests), responses=dict(self.responses))

    def request(self, id: str) -> Request | None:
        return next((request for request in self.requests if request.id == id), None)

    def unanswered(self) -> Request | None:
        """The first request without a response: the one whose turn it is."""
        for request in self.requests:
            if request.id not in self.responses:
                return request
        return None

    def total(self, kind: Kind) -> PerBlock:
        """All that was allocated, consumed or released so far, per block."""
        total = NOTHING
        for request in self.requests:
            if request.kind is kind and self._was_done(request):
                amounts = self.responses[request.id].amounts
                total = total + amounts if total.groups else amounts
        return total

    def held(self) -> PerBlock:
        """Allocated and neither consumed nor released."""
        return self.total(Kind.ALLOCATE) - self.total(Kind.CONSUME) - self.total(Kind.RELEASE)

    @property
    def is_live(self) -> bool:
        """Whether it waits for something or holds something."""
        return self.unanswered() is not None or not self.held().is_zero

    def bound(self) -> tuple[str, ...]:
        """Every block that the claim ever asked for, in order."""
        return tuple(dict.fromkeys(block for r in self.requests for block in r.blocks))

    def arrived(self, before: Request | None = None) -> set[str]:
        """The blocks that an allocate of this claim stood in line for: each unlocked a share."""
        blocks: set[str] = set()
        for request in self.requests:
            if request is before:
                break
            if request.kind is Kind.ALLOCATE and self._stood_in_line(request):
                blocks.update(request.blocks)
        return blocks

    def _stood_in_line(self, request: Request) -> bool:
        response = self.responses.get(request.id)
        if response is None:
            return request is self.unanswered()
        return response.reason not in REFUSED_AT_THE_DOOR

    def granted(self) -> list[Request]:
        """The allocate requests that were granted."""
        return [
            request
            for request in self.requests
            if request.kind is Kind.ALLOCATE and self._was_done(request)
        ]

    def consumed_steps(self) -> set[str]:
        return {r.step for r in self.requests if r.step is not None and self._was_done(r)}

    def _was_done(self, request: Request) -> bool:
        response = self.responses.get(request.id)
        return response is not None and response.done

    def is_done(self, kind: Kind) -> bool:
        return any(request.kind is kind and self._was_done(request) for request in self.requests)

    @property
    def phase(self) -> Phase:
        held = self.held()
        if not held.is_zero:
            return Phase.ALLOCATED
        turn = self.unanswered()
        if turn is not None and turn.kind is Kind.ALLOCATE:
            return Phase.PENDING
        if not self.total(Kind.RELEASE).is_zero:
            return Phase.RELEASED
        if self.is_done(Kind.CONSUME):
            return Phase.CONSUMED
        return Phase.RELEASED if self.is_done(Kind.RELEASE) else Phase.DENIED
