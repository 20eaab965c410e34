"""A Prometheus, and a cluster, for the tests in this folder that are marked `server`."""

import pytest

from tests.kubernetes.fixtures import binaries, control_plane, namespace
from tests.monitoring.prometheus import Programs, PrometheusMissing, find_or_fetch

__all__ = ["binaries", "control_plane", "namespace", "programs"]


@pytest.fixture(scope="session")
def programs() -> Programs:
    """prometheus and promtool, fetched first if need be; the test fails without them."""
    try:
        return find_or_fetch()
    except PrometheusMissing as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
