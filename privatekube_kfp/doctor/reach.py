"""Which servers this machine can reach, and which only the cluster can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Reach:
    """Where the doctor runs."""

    inside: bool
    """Whether it runs in a pod of the cluster: then what it cannot reach, tasks cannot."""
    has_namespace: Callable[[str], bool] = lambda name: False
    """Whether the cluster is known to have a namespace."""

    def is_of_cluster(self, host: str) -> bool:
        """Whether only the cluster's DNS knows the name: `seaweedfs.kubeflow`, `minio.a.svc`."""
        host = host.rstrip(".").lower()
        if not host or ":" in host or host == "localhost":
            return False
        if host.endswith((".svc", ".cluster.local")) or "." not in host:
            return True
        namespace = host.partition(".")[2]
        return "." not in namespace and not namespace.isdigit() and self.has_namespace(namespace)
