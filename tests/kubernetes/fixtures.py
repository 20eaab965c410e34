"""The fixtures of a cluster, for the conftest of this folder and of any other that needs one.

However many conftests import them, one test run starts one control plane.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import kubernetes.client
import pytest

from tests.kubernetes.control_plane.binaries import (
    Binaries,
    BinariesMissing,
    find_kubectl,
    find_or_build,
)
from tests.kubernetes.control_plane.cluster import (
    EXISTING,
    Cluster,
    ControlPlane,
    ControlPlaneFailed,
    ExistingCluster,
)

_SHARED = pytest.StashKey[Cluster]()


@pytest.fixture(scope="session")
def binaries(request: pytest.FixtureRequest) -> Binaries:
    """The programs of a control plane, built first if need be; the test fails without them."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(line, flush=True)

    try:
        return find_or_build(say)
    except BinariesMissing as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Cluster:
    """The cluster all tests share: our own, or the one PRIVATEKUBE_TEST_KUBECONFIG names."""
    stash = request.config.stash
    if _SHARED not in stash:
        try:
            stash[_SHARED] = (
                _existing() or ControlPlane(request.getfixturevalue("binaries")).start()
            )
        except (BinariesMissing, ControlPlaneFailed) as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        request.config.add_cleanup(stash[_SHARED].stop)
    return stash[_SHARED]


@pytest.fixture
def own_control_plane(control_plane: Cluster) -> ControlPlane:
    """The shared cluster, for tests that break it; skipped on a cluster that is not ours."""
    if not isinstance(control_plane, ControlPlane):
        pytest.skip(f"needs our own control plane, and {EXISTING} names another")
    return control_plane


@pytest.fixture
def namespace(control_plane: Cluster) -> Iterator[str]:
    """A new namespace, deleted afterwards without waiting for what is in it."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    api = kubernetes.client.CoreV1Api(control_plane.admin)
    api.create_namespace({"metadata": {"name": name}})
    yield name
    api.delete_namespace(name)


def _existing() -> ExistingCluster | None:
    named = os.environ.get(EXISTING)
    if not named:
        return None
    if not Path(named).is_file():
        pytest.fail(f"{EXISTING} names {named}, which is no file.", pytrace=False)
    return ExistingCluster(Path(named).absolute(), find_kubectl())
