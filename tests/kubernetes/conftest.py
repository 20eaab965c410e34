"""A cluster for every test in this folder, all of which are marked `server`."""

from pathlib import Path

import pytest

from tests.kubernetes.fixtures import binaries, control_plane, namespace, own_control_plane
from tests.scheduler.dying import Nursery
from tests.scheduler.running import clean, install

__all__ = ["binaries", "control_plane", "namespace", "own_control_plane"]

_HERE = Path(__file__).parent


@pytest.fixture
def nursery(control_plane, namespace):
    """Where schedulers come from that die or freeze at a write."""
    install(control_plane)
    made = Nursery(control_plane.kubeconfig, namespace)
    yield made
    made.close()
    clean(control_plane)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.server)
