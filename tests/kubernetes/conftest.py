"""A cluster for every test in this folder, all of which are marked `server`."""

from pathlib import Path

import pytest

from tests.kubernetes.fixtures import binaries, control_plane, namespace, own_control_plane
from tests.kubernetes.world import a_world, stream_with_blocks
from tests.scheduler.dying import Nursery
from tests.scheduler.running import clean, install

__all__ = ["binaries", "control_plane", "namespace", "own_control_plane"]

_HERE = Path(__file__).parent
RUNS, DOWN = "while it runs", "while it is down"


@pytest.fixture
def nursery(control_plane, namespace):
    """Where schedulers come from that die or freeze at a write."""
    install(control_plane)
    made = Nursery(control_plane.kubeconfig, namespace)
    yield made
    made.close()
    clean(control_plane)


@pytest.fixture
def world(control_plane, namespace):
    """A cluster with a stream of two blocks, and a scheduler that runs."""
    with a_world(control_plane, namespace) as made:
        stream_with_blocks(made.ledger, "b1", "b2")
        yield made


@pytest.fixture
def ledger(world):
    """To look at it as users do."""
    return world.ledger


@pytest.fixture(params=[RUNS, DOWN])
def edit(world, request):
    """Does something to the cluster's objects at one of the moments of a scheduler's life."""

    def edit(change):
        if request.param == DOWN:
            world.stop()
        change()
        if request.param == DOWN:
            world.start()

    return edit


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.server)
