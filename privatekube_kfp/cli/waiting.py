"""Waiting for answers where somebody watches.

A waiting caller drives the ledger's cycle itself; meanwhile it shows what the request waits for,
on standard error, and an interrupt says that the request stays in line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from privatekube_kfp.cli.errors import INTERRUPTED, Failure
from privatekube_kfp.ledger.client import ClaimClient
from privatekube_kfp.ledger.ledger import Ledger

if TYPE_CHECKING:
    from rich.status import Status

_QUIET_SECONDS = 1.0


@contextmanager
def waiting_client(ledger: Ledger, claim: str, request_id: str) -> Iterator[ClaimClient]:
    """A client whose waits for this one request can be watched and interrupted."""
    line = _StatusLine(ledger, claim, request_id)
    try:
        yield ClaimClient(ledger, sleep=line.sleep)
    except KeyboardInterrupt:
        if not line.waited:
            raise
        raise Failure(
            "Interrupted",
            f"interrupted: request {request_id!r} of claim {claim} stays in line."
            f" Wait for it again with `privatekube claim wait {claim}`,"
            f" or withdraw it with `privatekube claim release {claim}`",
            code=INTERRUPTED,
        ) from None
    finally:
        line.close()


class _StatusLine:
    """Says what a request waits for: a live line at a terminal, a line per new reason elsewhere."""

    def __init__(self, ledger: Ledger, claim: str, request_id: str) -> None:
        self.waited = False
        self._ledger = ledger
        self._claim = claim
        self._request_id = request_id
        self._since = time.monotonic()
        self._status: Status | None = None
        self._told: str | None = None

    def sleep(self, seconds: float) -> None:
        self.waited = True
        if time.monotonic() - self._since >= _QUIET_SECONDS:
            self._show()
        time.sleep(seconds)

    def _show(self) -> None:
        waiting_for = self._ledger.why_waiting(self._claim, self._request_id)
        if waiting_for is None:
            return
        sentence = f"claim {self._claim} waits: {waiting_for.reason}: {waiting_for.message}"
        if sys.stderr.isatty():
            self._update(sentence)
        elif self._told != waiting_for.reason:
            self._told = waiting_for.reason
            click.echo(f"privatekube: {sentence}", err=True)

    def _update(self, sentence: str) -> None:
        from rich.console import Console
        from rich.status import Status
        from rich.text import Text

        if self._status is None:
            self._status = Status(Text(sentence), console=Console(stderr=True))
            self._status.start()
        else:
            self._status.update(Text(sentence))

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
