"""Kubernetes Events: what `kubectl describe` shows under a claim, a block or a stream.

They are for people, and best effort: written by a thread of their own, at most so many a second,
dropped when there are more. Nothing depends on them.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

from privatekube_kfp.core.errors import LedgerError
from privatekube_kfp.ledger.kubernetes.api import EVENTS, Api, Object, Resource

log = logging.getLogger(__name__)
_A_SECOND = 5.0
_AT_ONCE = 25.0
_WAITING = 500


class Recorder:
    """Takes events from the leader and writes those that there is room for."""

    def __init__(
        self,
        api: Api,
        identity: str,
        *,
        dropped: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._identity = identity
        self._dropped = dropped
        self._monotonic = monotonic
        self._room = _AT_ONCE
        self._at = monotonic()
        self._queue: queue.Queue[Object | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._write, name="events", daemon=True)
        self._thread.start()

    def say(
        self,
        kind: Resource,
        metadata: Object,
        reason: str,
        message: str,
        *,
        warning: bool = False,
    ) -> None:
        now = self._monotonic()
        self._room = min(_AT_ONCE, self._room + (now - self._at) * _A_SECOND)
        self._at = now
        if self._room < 1 and not warning:
            self._dropped()
            return
        self._room = max(0.0, self._room - 1)
        try:
            self._queue.put_nowait(self._event(kind, metadata, reason, message, warning))
        except queue.Full:
            self._dropped()

    def close(self) -> None:
        """Write what is waiting, for a moment at most."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(timeout=2)

    def _event(
        self, kind: Resource, metadata: Object, reason: str, message: str, warning: bool
    ) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        namespace = metadata.get("namespace") or "default"
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {
                "name": f"{metadata['name'][:200]}.{uuid.uuid4().hex[:16]}",
                "namespace": namespace,
            },
            "involvedObject": {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": metadata["name"],
                "namespace": metadata.get("namespace", ""),
                "uid": metadata.get("uid", ""),
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": message[:1000],
            "source": {"component": "privatekube-scheduler", "host": self._identity},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

    def _write(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                self._api.create(EVENTS, event)
            except LedgerError as error:
                self._dropped()
                log.debug("an event was not written: %s", error.message)
            except Exception:
                log.exception("an event was not written")
