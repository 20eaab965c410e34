"""A real Kubernetes control plane for tests: etcd, API server and controller manager.

`binaries` finds the programs or builds them, `cluster` runs them, `python -m
tests.kubernetes.control_plane` does both by hand. Tests use the fixtures of
tests/kubernetes/conftest.py. README.md beside this folder says how to choose another cluster.
"""

from tests.kubernetes.control_plane.binaries import (
    Binaries,
    BinariesMissing,
    find_or_build,
    find_or_build_set,
)
from tests.kubernetes.control_plane.cluster import (
    Cluster,
    ControlPlane,
    ControlPlaneFailed,
    ExistingCluster,
    NeedsOwnControlPlane,
)
from tests.kubernetes.control_plane.recipe import CONTROL_PLANE, NODE

__all__ = [
    "CONTROL_PLANE",
    "NODE",
    "Binaries",
    "BinariesMissing",
    "Cluster",
    "ControlPlane",
    "ControlPlaneFailed",
    "ExistingCluster",
    "NeedsOwnControlPlane",
    "find_or_build",
    "find_or_build_set",
]
