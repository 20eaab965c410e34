"""Claims on their way out: what they spent is kept in their blocks, then they are let go.

Called by the leader in every cycle. A crash in between leaves some blocks with what a claim spent
and some without; the claim is still there then, and the blocks know whom they have folded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from privatekube_kfp.core.budget import Budget
from privatekube_kfp.ledger.kubernetes.api import CLAIMS, Object, Unreachable
from privatekube_kfp.ledger.kubernetes.objects import claim_of, folded_of
from scheduler.register import KnownClaim, Register
from scheduler.writing import Writer

LOOK_FOR_FINISHED = 10.0
_MOST_AT_ONCE = 1_000


class Leaving:
    """Folds deleted claims into their blocks, and deletes those that are long finished.

    `keep_finished` is after how many microseconds that is; None keeps them all.
    """

    def __init__(
        self,
        writer: Writer,
        keep_finished: int | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._keep_finished = keep_finished
        self._monotonic = monotonic
        self._looked_at = 0.0

    def fold(self, register: Register, now: int) -> None:
        """Keep what deleted claims have spent in their blocks, and let them go."""
        ready = [
            register.claims[uid]
            for uid in register.leaving
            if not register.claims[uid].is_live
            and not register.claims[uid].let_go
            and uid not in register.book.dirty_claims
        ]
        if not ready:
            return
        found = self._writer.every(self._writer.find, ((CLAIMS, known.metadata) for known in ready))
        going: list[tuple[KnownClaim, Object]] = []
        folds: dict[str, dict[str, tuple[KnownClaim, Budget, int]]] = {}
        for known, obj in zip(ready, found, strict=True):
            if obj is None:
                continue  # its deletion is on the way to us
            claim = claim_of(obj, register.spec.accounting, name=known.uid)
            if claim.unanswered() is not None or not claim.held().is_zero:
                continue
            left = register.spending(claim)
            known.folded_on = tuple(left)
            for block, (spent, arrived) in left.items():
                folds.setdefault(block, {})[known.uid] = (known, spent, arrived)
            going.append((known, obj))
        for written in self._writer.every(
            self._writer.fold, ((register, name, leaving) for name, leaving in folds.items())
        ):
            if written is not None:
                kept = register.blocks[written["metadata"]["name"]]
                kept.folded = folded_of(written, register.spec.accounting)
                register.follow_block(written, register.time(now))
        for known, _ in going:
            known.let_go = True
        self._writer.every(self._writer.let_go, ((CLAIMS, obj) for _, obj in going))

    def delete_finished(self, registers: Iterable[Register], now: int) -> None:
        """Delete claims that have been finished for long enough, now and then."""
        keep = self._keep_finished
        if keep is None or self._monotonic() - self._looked_at < LOOK_FOR_FINISHED:
            return
        self._looked_at = self._monotonic()
        for register in registers:
            old = [
                known
                for known in register.claims.values()
                if known.finished is not None
                and known.claim is None
                and not known.deleting
                and known.finished + keep <= register.time(now)
            ]
            results = self._writer.all(
                self._writer.delete, ((known,) for known in old[:_MOST_AT_ONCE])
            )
            for result in results:
                if isinstance(result, Unreachable):
                    raise result
