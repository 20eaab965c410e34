"""What a ledger is: the one protocol that the memory, SQLite and Kubernetes ledgers keep.

The claim API, the command line and the components know only this. One contract suite runs on
every implementation, with the memory ledger as the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from privatekube_kfp.core.budget import Budget, parse_decimal
from privatekube_kfp.core.claim import Claim, Response
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.pool import BlockBudget, Refusal
from privatekube_kfp.core.stream import Block, BlockPhase
from privatekube_kfp.ledger.requests import ClaimRequest
from privatekube_kfp.ledger.streams import StreamSpec
from privatekube_kfp.ledger.times import format_time, parse_time

_MOST = 2**63 - 1


@dataclass(frozen=True)
class PublishedCount:
    """How many users a stream has, differentially private: all that may be told of it.

    `time` (microseconds) is the end of the period up to which users were counted. With the stated
    confidence there are from `lower` to `upper` users.
    """

    estimate: int
    lower: int
    upper: int
    confidence: str
    time: int

    def __post_init__(self) -> None:
        numbers = (self.lower, self.estimate, self.upper)
        if any(type(number) is not int for number in (*numbers, self.time)):
            raise _invalid("a count of users and its time are whole numbers")
        if not 0 <= self.lower <= self.estimate <= self.upper <= _MOST:
            raise _invalid(
                f"{self.estimate} users, at least {self.lower} and at most {self.upper}: these are"
                " no bounds"
            )
        parsed = parse_decimal(self.confidence, "confidence")
        if not 0 < parsed < 1 or self.confidence != self.confidence.strip():
            raise _invalid(f"confidence {self.confidence!r} must be above 0 and below 1")
        try:
            format_time(self.time)
        except OverflowError:
            raise _invalid(f"time {self.time} is not in the years 1 to 9999") from None

    def to_json(self) -> dict[str, object]:
        return {
            "estimate": self.estimate,
            "lowerBound": self.lower,
            "upperBound": self.upper,
            "confidence": self.confidence,
            "time": format_time(self.time),
        }

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> PublishedCount:
        """Reads back what `to_json` wrote."""
        return PublishedCount(
            estimate=said["estimate"],
            lower=said["lowerBound"],
            upper=said["upperBound"],
            confidence=said["confidence"],
            time=parse_time(said["time"]),
        )


@dataclass(frozen=True)
class StreamRecord:
    """A stream as declared, what each of its blocks gets, and how many users it has."""

    spec: StreamSpec
    capacity: Budget
    blocks: int
    count: PublishedCount | None = None


@dataclass(frozen=True)
class BlockRecord:
    """A block, where its budget is, and whether it can be asked for."""

    block: Block
    budget: BlockBudget
    phase: BlockPhase


@dataclass(frozen=True)
class Verdict:
    """What verifying a ledger found: how much was checked, and the first difference if any."""

    streams: int
    blocks: int
    claims: int
    difference: str | None

    @property
    def ok(self) -> bool:
        return self.difference is None


class Ledger(ABC):
    """Where budgets live. Calls that raise have changed nothing."""

    # Streams and blocks

    @abstractmethod
    def create_stream(self, spec: StreamSpec) -> StreamRecord:
        """Declare a stream; creating the very same one again is done once."""

    @abstractmethod
    def streams(self) -> Sequence[StreamRecord]: ...

    @abstractmethod
    def stream(self, name: str) -> StreamRecord: ...

    @abstractmethod
    def delete_stream(self, name: str) -> None:
        """Forget a stream. Refused once it has blocks: that would forget what was spent."""

    @abstractmethod
    def publish_count(self, stream: str, count: PublishedCount) -> StreamRecord:
        """Publish how many users a stream has, differentially private.

        An older count than the one there, or the very same again, changes nothing; another one for
        the same time is refused (it would be a second look at the same people). Lower bounds never
        fall: a newer count with a lower one is refused.
        """

    @abstractmethod
    def create_block(
        self,
        name: str,
        stream: str,
        *,
        start: int | None = None,
        end: int | None = None,
        users: tuple[int, int] | None = None,
        data_source: str | None = None,
    ) -> BlockRecord:
        """Add a block with the stream's full capacity; the very same one again is done once."""

    @abstractmethod
    def blocks(self, stream: str | None = None) -> Sequence[BlockRecord]: ...

    @abstractmethod
    def block(self, name: str) -> BlockRecord: ...

    @abstractmethod
    def retire_block(self, name: str) -> BlockRecord:
        """Take a block out of use for good. Its record stays; held budget may still be used."""

    # Claims

    @abstractmethod
    def submit(self, claim: str, request: ClaimRequest) -> Response | None:
        """Append a request to a claim and answer it; None if it has to wait.

        Idempotent by the request's id. An allocate request creates the claim if need be.
        """

    @abstractmethod
    def response(self, claim: str, request: str) -> Response | None:
        """The answer to a request; None while it waits. Cheap: waiting callers poll it."""

    @abstractmethod
    def why_waiting(self, claim: str, request: str) -> Refusal | None:
        """What a request is waiting for; None once it has an answer."""

    @abstractmethod
    def claim(self, name: str) -> Claim: ...

    @abstractmethod
    def claims(self, stream: str | None = None) -> Sequence[Claim]: ...

    @abstractmethod
    def tend(self) -> None:
        """Do what is due by now: unlock, grant, time out. Nothing where a scheduler runs."""

    # Audit

    @abstractmethod
    def verify(self) -> Verdict:
        """Derive every number again from the claims' responses and compare."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _invalid(message: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, message)
