"""Whether the run that owns a claim is still there.

A claim can name the Argo Workflow of its run, a lease that its holder renews, or a deadline. A
Workflow that cannot be observed, because the cluster has none, says nothing.
"""

from __future__ import annotations

from privatekube_kfp.core.unlocking import format_duration
from privatekube_kfp.ledger.kubernetes.api import WORKFLOWS, Api, Change, Object
from privatekube_kfp.ledger.times import format_time
from scheduler.register import KnownClaim

_OVER = {
    "Succeeded": "is over",
    "Failed": "has failed",
    "Error": "has ended in an error",
}


class Runs:
    """The Workflows of the cluster, as far as they are known."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._observed = False
        self._known: dict[tuple[str, str], tuple[str, str]] = {}

    def relisted(self, objects: list[Object]) -> None:
        """The cluster has Workflows, and these are all."""
        self._observed = True
        self._known.clear()
        for obj in objects:
            self._keep(obj)

    def see(self, change: Change) -> None:
        meta = change.object["metadata"]
        if change.type == "DELETED":
            self._known.pop((meta["namespace"], meta["name"]), None)
        else:
            self._keep(change.object)

    def _keep(self, obj: Object) -> None:
        meta = obj["metadata"]
        phase = str(obj.get("status", {}).get("phase", ""))
        self._known[meta["namespace"], meta["name"]] = (meta["uid"], phase)

    def why_abandoned(self, known: KnownClaim, now: int) -> str | None:
        """Why a claim is to be taken back, in a sentence; None if it is not."""
        signs = known.abandonment
        if signs.deadline is not None and now >= signs.deadline:
            return f"its deadline was {format_time(signs.deadline)}"
        if signs.lease is not None and now >= known.lease_seen + signs.lease[0]:
            return f"its lease was not renewed for {format_duration(signs.lease[0])}"
        if signs.workflow is None or not self._observed:
            return None
        name, uid = signs.workflow
        found = self._known.get((known.namespace, name))
        if found is None or found[0] != uid:
            # Not, or not yet, or no longer: only the cluster itself can tell.
            obj = self._api.find(WORKFLOWS, name, known.namespace)
            if obj is None or obj["metadata"]["uid"] != uid:
                return f"its run, Workflow {name}, is gone"
            self._keep(obj)
            found = self._known[known.namespace, name]
        over = _OVER.get(found[1])
        return f"its run, Workflow {name}, {over}" if over else None
