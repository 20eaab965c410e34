"""Whether the run that owns a claim is still there.

A claim can name the Argo Workflow of its run, a lease that its holder renews, or a deadline. A
Workflow that cannot be observed, because the cluster has none, says nothing.

A run that was terminated is still Running until its exit task has ended, which may never be: it has
a while to give back by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from privatekube_kfp.core.unlocking import MICROSECONDS, format_duration
from privatekube_kfp.ledger.kubernetes.api import WORKFLOWS, Api, Change, Object
from privatekube_kfp.ledger.times import format_time
from scheduler.register import KnownClaim

_OVER = {
    "Succeeded": "is over",
    "Failed": "has failed",
    "Error": "has ended in an error",
}


AFTER_TERMINATION = 30 * MICROSECONDS["s"]
"""How long a terminated run may still hold budget, for its exit task to give it back."""


@dataclass
class _Workflow:
    """What matters of a Workflow; since when it is known here to be terminated, if it is."""

    uid: str
    phase: str
    terminated: bool
    since: int | None = None


class Runs:
    """The Workflows of the cluster, as far as they are known."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._observed = False
        self._known: dict[tuple[str, str], _Workflow] = {}

    def relisted(self, objects: list[Object]) -> None:
        """The cluster has Workflows, and these are all."""
        self._observed = True
        there = {(obj["metadata"]["namespace"], obj["metadata"]["name"]) for obj in objects}
        for gone in self._known.keys() - there:
            del self._known[gone]
        for obj in objects:
            self._keep(obj)

    def see(self, change: Change) -> None:
        meta = change.object["metadata"]
        if change.type == "DELETED":
            self._known.pop((meta["namespace"], meta["name"]), None)
        else:
            self._keep(change.object)

    def _keep(self, obj: Object) -> _Workflow:
        meta, spec = obj["metadata"], obj.get("spec", {})
        phase = str(obj.get("status", {}).get("phase", ""))
        # The first is how Kubeflow terminates a run, the second how Argo does.
        terminated = spec.get("activeDeadlineSeconds") == 0 or bool(spec.get("shutdown"))
        found = _Workflow(meta["uid"], phase, terminated)
        before = self._known.get((meta["namespace"], meta["name"]))
        if before is not None and before.uid == found.uid and terminated:
            found.since = before.since
        self._known[meta["namespace"], meta["name"]] = found
        return found

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
        if found is None or found.uid != uid:
            # Not, or not yet, or no longer: only the cluster itself can tell.
            obj = self._api.find(WORKFLOWS, name, known.namespace)
            if obj is None or obj["metadata"]["uid"] != uid:
                return f"its run, Workflow {name}, is gone"
            found = self._keep(obj)
        over = _OVER.get(found.phase)
        if over is None and found.terminated:
            found.since = now if found.since is None else found.since
            if now >= found.since + AFTER_TERMINATION:
                over = f"was terminated, and has not ended in {format_duration(AFTER_TERMINATION)}"
        return f"its run, Workflow {name}, {over}" if over else None
