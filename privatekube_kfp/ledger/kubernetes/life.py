"""How a cluster sees whether the run that owns a claim still lives.

A run in the cluster has an Argo Workflow, which a pod learns from its own owner reference. A run
elsewhere has a lease, which whoever watches over the run renews. The scheduler takes back what a
claim holds once its Workflow has ended or its lease has run out.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from privatekube_kfp.core.unlocking import MICROSECONDS, format_duration, parse_duration
from privatekube_kfp.ledger.kubernetes.api import Api, NotFound, Object, Refused, Resource
from privatekube_kfp.ledger.opening import IN_A_POD
from privatekube_kfp.ledger.times import format_time

LEASE_VARIABLE = "PRIVATEKUBE_CLAIM_LEASE"
"""How long a claim is kept without a sign of life, such as 2m: set by whoever renews it."""

_POD_VARIABLE = "KFP_POD_NAME"
"""Set by Kubeflow in the pod of every task."""

_PODS = Resource("", "v1", "pods", "Pod", namespaced=True, label="pods")
_UNWATCHED = 24 * MICROSECONDS["h"]


@dataclass(frozen=True)
class Life:
    """Signs of life of a run: the name and uid of its Workflow, or how long its lease lasts."""

    workflow: tuple[str, str] | None = None
    lease: int | None = None

    def spec(self, now: int) -> Object:
        """What a claim's spec says about it."""
        said: Object = {}
        if self.workflow is not None:
            name, uid = self.workflow
            said["workflow"] = {"name": name, "uid": uid}
        if self.lease is not None:
            said["lease"] = {"duration": format_duration(self.lease), "renewed": format_time(now)}
        return said


def _own_pod(environment: Mapping[str, str]) -> str:
    """The name of the pod that this process runs in.

    A host's name has at most 63 letters: that of a pod of a pipeline with a long name is cut off.
    """
    names = (environment.get(variable) for variable in (_POD_VARIABLE, "HOSTNAME"))
    return next(filter(None, names), None) or socket.gethostname()


def life_of_run(api: Api, namespace: str, environment: Mapping[str, str]) -> tuple[Life, str]:
    """The signs of life of the run that this process belongs to, and a sentence about them."""
    lease = environment.get(LEASE_VARIABLE)
    if lease:
        lasting = parse_duration(lease, LEASE_VARIABLE)
        return Life(lease=lasting), f"kept for {lease} after the last sign of life"
    if IN_A_POD not in environment:
        return Life(), "kept until it is released: nobody watches over this run"
    pod = _own_pod(environment)
    why = "it belongs to no Workflow"
    try:
        owners = api.get(_PODS, pod, namespace)["metadata"].get("ownerReferences", ())
        for owner in owners:
            if owner["kind"] == "Workflow" and owner["apiVersion"].startswith("argoproj.io/"):
                found = Life(workflow=(owner["name"], owner["uid"]))
                return found, f"kept for as long as Workflow {owner['name']} runs"
    except (NotFound, Refused) as error:
        why = error.message
    return Life(lease=_UNWATCHED), (
        f"kept for {format_duration(_UNWATCHED)}: the run of pod {pod} is not known: {why}"
    )
