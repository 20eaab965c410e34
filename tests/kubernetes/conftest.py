"""A cluster for every test in this folder, all of which are marked `server`."""

from pathlib import Path

import pytest

from tests.kubernetes.fixtures import binaries, control_plane, namespace, own_control_plane

__all__ = ["binaries", "control_plane", "namespace", "own_control_plane"]

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.server)
