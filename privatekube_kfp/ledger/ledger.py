"""What a ledger is: the one protocol that the memory, SQLite and Kubernetes ledgers keep.

The claim API, the command line and the components know only this. One contract suite runs on
every implementation, with the memory ledger as the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.claim import Claim, Response
from privatekube_kfp.core.pool import BlockBudget, Refusal
from privatekube_kfp.core.stream import Block, BlockPhase
from privatekube_kfp.ledger.requests import ClaimRequest
from privatekube_kfp.ledger.streams import StreamSpec


@dataclass(frozen=True)
class StreamRecord:
    """A stream as declared, and what each of its blocks gets."""

    spec: StreamSpec
    capacity: Budget
    blocks: int


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
