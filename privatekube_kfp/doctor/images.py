"""Images: names that can be read, and that nodes can pull."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from privatekube_kfp.ledger.kubernetes.api import Object

_CANNOT_PULL = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")


@dataclass(frozen=True)
class Waiting:
    """A pod that does not start, or a container of one: why, in Kubernetes' words."""

    pod: str
    image: str | None
    reason: str
    said: str

    @property
    def cannot_pull(self) -> bool:
        return self.image is not None and self.reason in _CANNOT_PULL


def waiting(pods: Sequence[Object]) -> list[Waiting]:
    """What pods wait for, as far as they tell."""
    found = []
    for pod in pods:
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        for condition in status.get("conditions") or []:
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                said = str(condition.get("message") or condition.get("reason"))
                found.append(Waiting(name, None, "Unschedulable", _line(said)))
        for each in [
            *(status.get("initContainerStatuses") or []),
            *(status.get("containerStatuses") or []),
        ]:
            why = (each.get("state") or {}).get("waiting") or {}
            if why.get("reason"):
                said = str(why.get("message") or why["reason"])
                found.append(Waiting(name, str(each.get("image")), why["reason"], _line(said)))
    return found


def _line(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 200 else words[:200] + "..."
