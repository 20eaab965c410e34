"""The scheduler as a process: campaign, lead, and campaign again, until told to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from privatekube_kfp.core.errors import LedgerError
from privatekube_kfp.ledger.kubernetes.api import Api, Connection
from privatekube_kfp.ledger.times import system_clock
from scheduler.election import Election
from scheduler.events import Recorder
from scheduler.leader import Habits, Term
from scheduler.metrics import Metrics
from scheduler.writing import Deposed

log = logging.getLogger(__name__)


class Scheduler:
    """Runs terms. One in a cluster leads; the others stand by."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        election: Election,
        habits: Habits,
        metrics: Metrics,
        *,
        clock: Callable[[], int] = system_clock,
        clock_tolerance: float | None = 60.0,
        make_api: Callable[..., Api] = Api,
    ) -> None:
        self._connect = connect
        self._election = election
        self._habits = habits
        self._metrics = metrics
        self._clock = clock
        self._clock_tolerance = clock_tolerance
        self._make_api = make_api
        self._stop = threading.Event()
        self._beat = time.monotonic()
        self._aside: dict[tuple[str, str], str] = {}
        self._wrong: str | None = None
        self.term: Term | None = None

    def stop(self) -> None:
        """Finish the cycle that runs, show what is to be shown, give the lease up, and return."""
        self._stop.set()
        term = self.term
        if term is not None:
            term.wake()

    def run(self) -> None:
        while not self._stop.is_set():
            if not self._election.campaign(self._stop, self._may_lead):
                return
            self._metrics.leading(True)
            try:
                self._lead()
            except Deposed as deposed:
                log.warning("the term is over: %s", deposed)
            except LedgerError as error:
                log.error("the term is over: %s", error.message)
            except Exception:
                log.exception("the term is over; the next one begins from what is written")
            finally:
                self._metrics.leading(False)
                self._election.resign()
            self._stop.wait(0.2)

    def _lead(self) -> None:
        api = self._make_api(
            self._connect,
            keep_trying=lambda: self._election.leads,
            observe=self._metrics.requested,
            retried=self._metrics.retried,
        )
        recorder = Recorder(
            self._make_api(self._connect, patience=2.0, observe=self._metrics.requested),
            self._election.identity,
            dropped=self._metrics.event_dropped,
        )
        term = Term(
            api,
            self._election.identity,
            self._habits,
            self._metrics,
            recorder,
            clock=self._clock,
            leads=self._still_leads,
            aside=self._aside,
        )
        try:
            term.begin()
            self.term = term
            term.run(self._stop)
        finally:
            self.term = None
            term.end()
            recorder.close()
            api.close()

    def _still_leads(self) -> bool:
        self._beat = time.monotonic()
        return self._election.leads and self._may_lead()

    def _may_lead(self) -> bool:
        self._beat = time.monotonic()
        wrong = self.why_not_ready()
        if wrong is not None and self._wrong is None:
            log.error("%s", wrong)
        self._wrong = wrong
        return wrong is None

    # Probes

    def why_not_ready(self) -> str | None:
        """Why this scheduler could not lead; None if it could."""
        skew = self._election.clock_skew
        if skew is None:
            return None
        self._metrics.clock_skew(skew)
        if self._clock_tolerance is not None and abs(skew) > self._clock_tolerance:
            where = "ahead of" if skew > 0 else "behind"
            return (
                f"this machine's clock is {abs(skew):.0f} seconds {where} the API server's;"
                " budget that time unlocks would be unlocked at the wrong time"
            )
        return None

    def why_unhealthy(self) -> str | None:
        """Why this process should be started anew; None if it works."""
        silent = time.monotonic() - self._beat
        return f"nothing has moved for {silent:.0f} seconds" if silent > 300 else None
