"""Following a kind of object: list once, then watch for changes, for as long as it takes.

Each follower is a thread that puts what it sees into the leader's inbox and decides nothing. A
connection that ends is taken up where it was; when that is too long ago, everything is listed
anew and handed over as one `Relisted`.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from privatekube_kfp.core.errors import LedgerError
from privatekube_kfp.ledger.kubernetes.api import (
    Api,
    Change,
    Expired,
    NotFound,
    Object,
    Resource,
    Watching,
)

log = logging.getLogger(__name__)
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0


@dataclass(frozen=True)
class Seen:
    """One object of a kind was added, modified or deleted."""

    kind: Resource
    change: Change


@dataclass(frozen=True)
class Relisted:
    """All objects of a kind as of a version, after changes may have been missed."""

    kind: Resource
    objects: list[Object]
    version: str


class Follower(threading.Thread):
    """Follows one kind from a version on; from a first list if there is none yet.

    `if_missing` is how long to wait before asking again for a kind that the cluster does not
    have; None if it must have it.
    """

    def __init__(
        self,
        api: Api,
        kind: Resource,
        inbox: queue.SimpleQueue[Any],
        version: str | None,
        *,
        if_missing: float | None = None,
        restarted: Callable[[str, str], None] = lambda kind, cause: None,
    ) -> None:
        super().__init__(name=f"following-{kind.label}", daemon=True)
        self._api = api
        self._kind = kind
        self._inbox = inbox
        self._version = version
        self._if_missing = if_missing
        self._restarted = restarted
        self._stopped = threading.Event()
        self._watching: Watching | None = None
        self._pause = _FIRST_PAUSE

    def stop(self) -> None:
        self._stopped.set()
        watching = self._watching
        if watching is not None:
            watching.close()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                if self._version is None:
                    objects, self._version = self._api.list_all(self._kind)
                    self._inbox.put(Relisted(self._kind, objects, self._version))
                self._watch(self._version)
                self._pause = _FIRST_PAUSE
                cause = "closed"
            except Expired:
                self._version = None
                cause = "expired"
            except NotFound:
                cause = "missing"
                if self._if_missing is not None:
                    self._stopped.wait(self._if_missing)
                else:
                    self._rest()
            except LedgerError as error:
                cause = "failed"
                if not self._stopped.is_set():
                    log.warning("following %s: %s", self._kind.label, error.message)
                    self._rest()
            except Exception:
                cause = "failed"
                log.exception("following %s; it goes on from a new list", self._kind.label)
                self._version = None
                self._rest()
            if not self._stopped.is_set():
                self._restarted(self._kind.label, cause)

    def _watch(self, version: str) -> None:
        self._watching = watching = self._api.watch(self._kind, version)
        if self._stopped.is_set():
            watching.close()
        for change in watching:
            if change.type != "BOOKMARK":
                self._inbox.put(Seen(self._kind, change))
            self._version = change.version
            self._pause = _FIRST_PAUSE

    def _rest(self) -> None:
        """For longer each time, until there is an answer again: others wait for the server too."""
        self._stopped.wait(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
