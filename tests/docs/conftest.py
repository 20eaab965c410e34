"""A cluster, for the pages that need one."""

from tests.kubernetes.fixtures import binaries, control_plane, namespace

__all__ = ["binaries", "control_plane", "namespace"]
