"""Who leads: a Lease that one scheduler holds and renews while the others wait.

The lease keeps two schedulers from working at the same time; it does not make that safe. A leader
that was paused does not know that its lease ran out. That nothing goes wrong then is due to the
commit record (see `commit`), which only the newest leader can write.

Times of other schedulers are never compared with this machine's clock: a lease has run out when
it has not changed for its whole duration, by our own monotonic clock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from privatekube_kfp.core.errors import LedgerError
from privatekube_kfp.ledger.kubernetes.api import LEASES, VERSION_ANNOTATION, Api, Conflict, Object

log = logging.getLogger(__name__)


class Election:
    """One scheduler's part in it: `campaign` until it leads, then renewed until `resign`."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration: float,
        renew_deadline: float,
        retry: float,
        version: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 < retry < renew_deadline < duration:
            raise ValueError(
                "the retry period must be shorter than the renew deadline, and that shorter than"
                " the lease's duration"
            )
        self._api = api
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._version = version
        self._duration = duration
        self._renew_deadline = renew_deadline
        self._retry = retry
        self._monotonic = monotonic
        self._seen: tuple[Any, ...] | None = None
        self._seen_at = 0.0
        self._renewed_at: float | None = None
        self._resigned = threading.Event()
        self._renewing: threading.Thread | None = None

    @property
    def leads(self) -> bool:
        """Whether the lease was renewed recently enough to go on."""
        renewed = self._renewed_at
        return renewed is not None and self._monotonic() - renewed < self._renew_deadline

    @property
    def clock_skew(self) -> float | None:
        """How far this machine's clock is ahead of the API server's, as the lease was answered."""
        return self._api.clock_skew

    def campaign(self, stop: threading.Event, may_lead: Callable[[], bool]) -> bool:
        """Wait until this scheduler leads; False if it is to stop first."""
        self._resigned.clear()
        while not stop.is_set():
            self._look()
            if may_lead() and self._try():
                log.info("leading", extra={"identity": self.identity})
                self._renewing = threading.Thread(
                    target=self._keep_renewing, name="renewing", daemon=True
                )
                self._renewing.start()
                return True
            stop.wait(self._retry)
        return False

    def _look(self) -> None:
        """Ask for the lease: the answer brings the server's time."""
        try:
            self._api.find(LEASES, self._name, self._namespace)
        except LedgerError as error:
            log.warning("the lease: %s", error.message)

    def resign(self) -> None:
        """Give the lease up, so that another need not wait for it to run out."""
        self._resigned.set()
        if self._renewing is not None:
            self._renewing.join()
        led, self._renewed_at = self._renewed_at is not None, None
        if not led:
            return
        try:
            obj = self._api.find(LEASES, self._name, self._namespace)
            if obj is not None and obj["spec"].get("holderIdentity") == self.identity:
                obj["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                self._api.replace(LEASES, obj)
        except LedgerError as error:
            log.info("the lease was not given up: %s", error.message)

    def _keep_renewing(self) -> None:
        while not self._resigned.wait(self._retry):
            if not self._try() and not self.leads:
                log.warning("the lease is lost", extra={"identity": self.identity})
                self._renewed_at = None
                return

    def _try(self) -> bool:
        """Take the lease or renew it, if it is ours or nobody's."""
        began = self._monotonic()
        try:
            obj = self._api.find(LEASES, self._name, self._namespace)
            if obj is None:
                self._api.create(LEASES, self._lease(None))
            elif self._may_take(obj):
                self._api.replace(LEASES, self._lease(obj))
            else:
                self._renewed_at = None
                return False
        except Conflict:
            return False
        except LedgerError as error:
            log.warning("the lease: %s", error.message)
            return False
        self._renewed_at = began
        return True

    def _may_take(self, obj: Object) -> bool:
        spec = obj["spec"]
        holder = spec.get("holderIdentity")
        if not holder or holder == self.identity:
            return True
        seen = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._monotonic()
        waited = self._monotonic() - self._seen_at
        return bool(waited > float(spec.get("leaseDurationSeconds") or self._duration))

    def _lease(self, obj: Object | None) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Object = dict(obj["spec"]) if obj else {}
        if spec.get("holderIdentity") != self.identity:
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (obj is not None)
            spec["acquireTime"] = now
        spec |= {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._duration)),
            "renewTime": now,
        }
        metadata: Object = {"name": self._name, "namespace": self._namespace}
        if obj:
            metadata = dict(obj["metadata"])
        if self._version is not None:
            noted = metadata.get("annotations") or {}
            metadata["annotations"] = {**noted, VERSION_ANNOTATION: self._version}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": spec,
        }
