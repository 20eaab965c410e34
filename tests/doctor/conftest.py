"""A cluster of the doctor's own, with a good set-up: it looks at all that a cluster has."""

from collections.abc import Iterator

import pytest

from tests.doctor.bed import Bed
from tests.kubernetes.control_plane.binaries import Binaries
from tests.kubernetes.control_plane.cluster import ControlPlane
from tests.kubernetes.fixtures import binaries

__all__ = ["binaries"]


@pytest.fixture(scope="package")
def bed(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with ControlPlane(binaries) as cluster:
        made = Bed(cluster, tmp_path_factory.mktemp("doctor"))
        try:
            made.set_up()
            yield made
        finally:
            made.tear_down()
