"""One stream's book: its blocks, its claims, and what happens to a request.

Every ledger keeps one book per stream and does nothing of its own with budgets: it brings in
what it has stored, calls one of the verbs here, then `settle`, and stores what became `dirty`.
Input is checked before anything changes, so a call that raises leaves the book as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.claim import Claim, Kind, Request, Response
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.per_block import NOTHING, PerBlock
from privatekube_kfp.core.policy import check_weighs
from privatekube_kfp.core.pool import BlockBudget, Pool, Refusal
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.stream import Block, BlockPhase, Stream
from privatekube_kfp.core.unlocking import ByTime


class Book:
    """Blocks and claims of one stream, and the scheduling pass over them."""

    def __init__(self, stream: Stream, arrivals: int = 0) -> None:
        self.stream = stream
        self.blocks: dict[str, Block] = {}
        self.claims: dict[str, Claim] = {}
        self.arrivals = arrivals
        """How many allocate requests have arrived so far: the next one's place in line."""
        self.dirty_blocks: set[str] = set()
        self.dirty_claims: set[str] = set()
        self._pool = Pool(stream.accounting, stream.unlocking, stream.policy)
        self._in_line: set[str] = set()
        self._opened: dict[str, int] = {}

    # What a ledger brings in

    def restore_block(
        self, block: Block, arrivals: int, opened: int, allocated: Budget, consumed: Budget
    ) -> None:
        self.blocks[block.name] = block
        self._opened[block.name] = opened
        self._pool.add_block(
            block.name,
            self.stream.capacity,
            block.created,
            arrivals=arrivals,
            opened=opened,
            allocated=allocated,
            consumed=consumed,
            retired=block.retired,
        )

    def restore_claim(self, claim: Claim) -> None:
        """A claim as stored; if it waits, it goes back in line without unlocking anything anew."""
        self.claims[claim.name] = claim
        turn = claim.unanswered()
        if turn is not None:
            self._line_up(claim, turn, unlocks=())

    def forget_answered(self) -> None:
        """Drop the claims that are stored and not in line; they are brought in when needed."""
        self.claims = {name: self.claims[name] for name in self._in_line}

    # Blocks

    def add_block(self, block: Block) -> None:
        self.blocks[block.name] = block
        self._pool.add_block(block.name, self.stream.capacity, block.created)
        self.dirty_blocks.add(block.name)

    def retire_block(self, name: str) -> None:
        if not self.blocks[name].retired:
            self.blocks[name] = replace(self.blocks[name], retired=True)
            self._pool.retire(name)
            self.dirty_blocks.add(name)

    def unlock_until(self, now: int) -> None:
        """Bring what the blocks show up to date; `settle` does it too."""
        self._pool.unlock_until(now)

    def budget(self, block: str) -> BlockBudget:
        return self._pool.view(block)

    def block_phase(self, name: str) -> BlockPhase:
        if self.blocks[name].retired:
            return BlockPhase.RETIRED
        return BlockPhase.EXHAUSTED if self._pool.is_exhausted(name) else BlockPhase.ACTIVE

    def choose(self, selection: Selection) -> tuple[str, ...]:
        """The blocks a selection means now."""
        return selection.choose(
            self.blocks, lambda name: self.block_phase(name) is BlockPhase.ACTIVE
        )

    # Requests

    def knows(self, claim: str, id: str, body: Mapping[str, object]) -> bool:
        """Whether this very request was made before; refused if its id was used for another."""
        known = self.claims.get(claim)
        request = known.request(id) if known else None
        if request is not None and request.body != body:
            raise id_reused(claim, id)
        return request is not None

    def submit(self, claim: Claim, request: Request) -> None:
        """Append a request to a claim, which may be new, and answer what needs no pass.

        Requests are answered in order, but a release does not queue behind an allocate that
        waits: it withdraws it.
        """
        self.check_request(request)
        if request.kind is Kind.ALLOCATE:
            request = replace(request, arrival=self.arrivals)
            self.arrivals += 1
        self.claims[claim.name] = claim
        claim.requests.append(request)
        self.dirty_claims.add(claim.name)
        if request.kind is Kind.RELEASE and claim.name in self._in_line:
            self._pool.withdraw(claim.name)
            self._in_line.remove(claim.name)
            message = "the claim was released while it waited"
            self._deny(claim, self._turn(claim), Reason.WITHDRAWN, message, request.submitted)
        self._take_turns(claim, request.submitted)

    def why_waiting(self, claim: str, id: str) -> Refusal:
        """What an unanswered request is waiting for."""
        if self._turn(self.claims[claim]).id == id:
            if not self._pool.is_waiting(claim):
                return Refusal(claim, Reason.WAITING_FOR_UNLOCK, "its turn has not come yet")
            return self._pool.why_waiting(claim)
        message = "an earlier request of the claim has no answer yet"
        return Refusal(claim, Reason.WAITING_FOR_ALLOCATE, message)

    def check_request(self, request: Request) -> None:
        """Refuse a demand that is none, and a weight for nothing; `submit` does it too."""
        if request.kind is not Kind.ALLOCATE:
            return
        check_weighs(self.stream.policy, request.weight)
        for _, budget in request.steps:
            if budget.accounting != self.stream.accounting or min(budget.amounts) < 0:
                raise TypeError(f"{budget} is no demand on stream {self.stream.name}")
        demand = request.price()
        smallest = min if self.stream.accounting.is_renyi else max
        if smallest(demand.amounts) <= 0:
            raise Invalid(
                Reason.INVALID_BUDGET, f"{demand} is nothing to ask for; ask for more than zero"
            )

    # The cycle

    def settle(self, now: int) -> None:
        """Decide all that can be decided now, until nothing changes any more."""
        self._note_unlocked(now)
        while True:
            outcome = self._pool.plan(now)
            for name in outcome.grants:
                claim = self.claims[name]
                request = self._turn(claim)
                amounts = request.demand()
                count = len(request.blocks)
                message = f"{request.price().brief()} on {count} block{'s' if count > 1 else ''}"
                self._grant(claim, request, Reason.ALLOCATED, message, now, amounts)
            for refusal in outcome.refusals:
                claim = self.claims[refusal.claim]
                self._deny(claim, self._turn(claim), refusal.reason, refusal.message, now)
            answered = [*outcome.grants, *(refusal.claim for refusal in outcome.refusals)]
            self._in_line.difference_update(answered)
            if not answered:
                return
            for name in answered:
                self._take_turns(self.claims[name], now)

    def next_due(self) -> int | None:
        """When `settle` could decide something even if nobody calls before."""
        return self._pool.next_due()

    @staticmethod
    def _turn(claim: Claim) -> Request:
        turn = claim.unanswered()
        assert turn is not None
        return turn

    def _take_turns(self, claim: Claim, now: int) -> None:
        """Answer the claim's requests in order, up to an allocate that has to wait in line."""
        while claim.name not in self._in_line and (request := claim.unanswered()) is not None:
            if request.kind is Kind.ALLOCATE:
                self._allocate(claim, request, now)
            elif request.kind is Kind.CONSUME:
                self._consume(claim, request, now)
            else:
                self._release(claim, request, now)

    def _allocate(self, claim: Claim, request: Request, now: int) -> None:
        if any(other.kind is Kind.RELEASE for other in claim.requests):
            message = "the claim was released; make another claim"
            return self._deny(claim, request, Reason.ALREADY_RELEASED, message, now)
        arrived = claim.arrived(before=request)
        self._line_up(claim, request, [b for b in request.blocks if b not in arrived])
        self.dirty_blocks.update(request.blocks)

    def _line_up(self, claim: Claim, request: Request, unlocks: Iterable[str]) -> None:
        self._in_line.add(claim.name)
        self._pool.arrive(
            claim.name,
            request.demand(),
            arrival=request.arrival,
            deadline=request.deadline,
            unlocks=unlocks,
            weight=request.weight,
        )

    def _consume(self, claim: Claim, request: Request, now: int) -> None:
        held = claim.held()
        refused = self._why_not_consume(claim, request, held)
        if refused:
            return self._deny(claim, request, *refused, now)
        amounts = self._spending(claim, request, held)
        if short := held.first_not_covering(amounts):
            asked = dict(amounts.items())[short]
            has = dict(held.items()).get(short, self.stream.accounting.zero())
            label = asked.first_above(has)
            message = (
                f"block {short}: {asked.at(label)} asked,"
                f" {has.at(label)} left of what the claim holds"
            )
            return self._deny(claim, request, Reason.EXCEEDS_ALLOCATION, message, now)
        left = held - amounts
        message = "all of it" if left.is_zero else f"{left.groups[0][0].brief()} left of the claim"
        self._pool.consume(amounts)
        self._grant(claim, request, Reason.CONSUMED, message, now, amounts)

    def _why_not_consume(
        self, claim: Claim, request: Request, held: PerBlock
    ) -> tuple[Reason, str] | None:
        if claim.is_done(Kind.RELEASE):
            return Reason.ALREADY_RELEASED, "the claim was released; nothing is left"
        if not claim.is_done(Kind.ALLOCATE):
            return Reason.NOT_ALLOCATED, "the claim was not allocated"
        if held.is_zero:
            return Reason.NOTHING_LEFT, "the claim has consumed all it was allocated"
        if request.step is None:
            return None
        steps = [step for other in claim.granted() for step, _ in other.steps]
        if request.step not in steps:
            known = ", ".join(steps)
            return Reason.UNKNOWN_STEP, f"no step {request.step!r} in the plan; it has {known}"
        if request.step in claim.consumed_steps():
            return Reason.ALREADY_CONSUMED, f"step {request.step!r} was consumed before"
        return None

    @staticmethod
    def _spending(claim: Claim, request: Request, held: PerBlock) -> PerBlock:
        """What a consume request comes to: a step's part, an amount on each block, or all."""
        if request.amount is not None:
            return PerBlock.uniform(request.amount, held.blocks)
        for allocate in claim.granted():
            for step, price in allocate.steps:
                if step == request.step:
                    return PerBlock.uniform(price, allocate.blocks)
        return held

    def _release(self, claim: Claim, request: Request, now: int) -> None:
        held = NOTHING if claim.held().is_zero else claim.held()
        self._pool.release(held)
        message = (
            f"{held.groups[0][0].brief()} given back" if held.groups else "nothing to give back"
        )
        self._grant(claim, request, Reason.RELEASED, message, now, held)

    def _grant(
        self,
        claim: Claim,
        request: Request,
        reason: Reason,
        message: str,
        now: int,
        amounts: PerBlock,
    ) -> None:
        claim.responses[request.id] = Response(request.id, True, reason, message, now, amounts)
        self.dirty_claims.add(claim.name)
        self.dirty_blocks.update(amounts.blocks)

    def _deny(self, claim: Claim, request: Request, reason: Reason, message: str, now: int) -> None:
        claim.responses[request.id] = Response(request.id, False, reason, message, now)
        self.dirty_claims.add(claim.name)

    def _note_unlocked(self, now: int) -> None:
        """Blocks that time has unlocked a share of since they were last stored are dirty."""
        unlocking = self.stream.unlocking
        if isinstance(unlocking, ByTime):
            for name, block in self.blocks.items():
                due = min((now - block.created) // unlocking.interval, unlocking.shares)
                if self._opened.get(name, 0) < due:
                    self._opened[name] = due
                    self.dirty_blocks.add(name)


def id_reused(claim: str, id: str) -> Invalid:
    return Invalid(
        Reason.ID_REUSED,
        f"claim {claim} already has a request {id!r} that says something else;"
        " repeat that one word for word, or choose another request id",
    )
