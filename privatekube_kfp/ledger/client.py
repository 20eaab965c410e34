"""The claim API: what components, pipelines and the command line call.

Every verb names its request, so that a retry after a crash resumes it instead of doing it
again: the same claim, the same request id, the same words give the same response. A denial is a
value; `raise_if_denied` turns it into an exception for those who cannot go on without.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from privatekube_kfp.accounting import Plan
from privatekube_kfp.core.claim import Response
from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.unlocking import MICROSECONDS
from privatekube_kfp.ledger.ledger import Ledger
from privatekube_kfp.ledger.requests import (
    AllocateRequest,
    ClaimRequest,
    ConsumeRequest,
    ReleaseRequest,
)

_FIRST_POLL = 0.01
_SLOWEST_POLL = 1.0


class ClaimDenied(PrivateKubeError):
    """A request was denied: its claim, and the response with the reason and the numbers."""

    def __init__(self, claim: str, response: Response) -> None:
        super().__init__(response.reason, f"claim {claim}: {response.message}")
        self.claim = claim
        self.response = response


class StillWaiting(PrivateKubeError):
    """The caller's patience ended before the request was answered. It keeps waiting in line."""


def raise_if_denied(claim: str, response: Response) -> Response:
    if response.denied:
        raise ClaimDenied(claim, response)
    return response


class ClaimClient:
    """Allocate, consume and release on claims of a ledger, and wait for answers."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._sleep = sleep
        self._monotonic = monotonic

    def allocate(
        self,
        claim: str,
        *,
        stream: str,
        selection: Selection,
        plan: Plan,
        timeout: int | None = None,
        request_id: str = "allocate",
        owner: str | None = None,
        weight: int = 1,
    ) -> Response:
        """Ask for what the plan costs on the selected blocks, and wait for the answer.

        Args:
            claim: The claim's name; made if it is new, resumed if not.
            stream: The stream whose blocks are selected.
            selection: Which blocks.
            plan: What the pipeline will run.
            timeout: Microseconds after which the ledger refuses; 0 is now or never, None waits.
            request_id: Names the request among the claim's; the same again is done once.
            owner: The run that the claim belongs to.
            weight: How much the claim matters beside others, from 1 to 1000; only where the
                stream's policy knows weights.
        """
        return self._answered(
            claim, AllocateRequest(request_id, stream, selection, plan, timeout, owner, weight)
        )

    def consume(
        self,
        claim: str,
        *,
        step: str | None = None,
        amount: Plan | None = None,
        request_id: str | None = None,
    ) -> Response:
        """Spend a step of the plan, an amount on each block, or all that the claim still holds.

        An amount may be spent more than once, so it needs a request id of its own.
        """
        if request_id is None and amount is not None:
            raise Invalid(
                Reason.INVALID_REQUEST,
                "consuming an amount needs a request id: without one, a retry would spend it twice",
            )
        id = request_id or ("consume" if step is None else f"consume-{step}")
        return self._answered(claim, ConsumeRequest(id, step, amount))

    def release(self, claim: str, *, request_id: str = "release") -> Response:
        """Give back all that the claim holds; withdraws it if it still waits."""
        return self._answered(claim, ReleaseRequest(request_id))

    def wait(
        self, claim: str, request_id: str = "allocate", *, patience: int | None = None
    ) -> Response:
        """The answer to a request, when there is one.

        Where no scheduler runs, the waiting caller drives the cycle. `patience` (microseconds)
        bounds this wait only: when it ends, `StillWaiting` says what the request waits for, and
        the request stays in line.
        """
        give_up = None if patience is None else self._monotonic() + patience / MICROSECONDS["s"]
        pause = _FIRST_POLL
        while True:
            self._ledger.tend()
            response = self._ledger.response(claim, request_id)
            if response is not None:
                return response
            left = _SLOWEST_POLL if give_up is None else give_up - self._monotonic()
            if left <= 0:
                waiting_for = self._ledger.why_waiting(claim, request_id)
                if waiting_for is None:  # answered just now
                    continue
                raise StillWaiting(waiting_for.reason, f"claim {claim}: {waiting_for.message}")
            self._sleep(min(pause, left))
            pause = min(2 * pause, _SLOWEST_POLL)

    def _answered(self, claim: str, request: ClaimRequest) -> Response:
        response = self._ledger.submit(claim, request)
        return response if response is not None else self.wait(claim, request.id)
