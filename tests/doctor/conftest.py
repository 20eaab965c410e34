"""A cluster of the doctor's own, with a good set-up: it looks at all that a cluster has."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.doctor.bed import Bed
from tests.doctor.object_store import serving
from tests.kubernetes.control_plane.binaries import Binaries
from tests.kubernetes.control_plane.cluster import ControlPlane
from tests.kubernetes.fixtures import binaries

__all__ = ["binaries"]


@pytest.fixture(scope="package")
def bed(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    folder = tmp_path_factory.mktemp("doctor")
    # Deployments make pods, which the control plane of other tests does without.
    controllers = ["--controllers=deployment,replicaset"]
    with (
        ControlPlane(binaries, controller_manager_args=controllers) as cluster,
        serving(folder / "store") as store,
    ):
        made = Bed(cluster, folder, store)
        try:
            made.set_up()
            yield made
        finally:
            made.tear_down()


class Web:
    """Stands for what the doctor asks over HTTP: a registry, Kubeflow."""

    def __init__(self, port: int) -> None:
        self.name = f"127.0.0.1:{port}/team"
        self.has: set[str] = set()
        self.pages: dict[str, str] = {}
        self.status = 0


@pytest.fixture
def registry() -> Iterator[Web]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            known = self.path.removeprefix("/v2/team/") in web.has
            self.send_response(web.status or (200 if known else 404))
            self.end_headers()

        def do_GET(self) -> None:
            page = web.pages.get(self.path)
            self.send_response(404 if page is None else 200)
            self.end_headers()
            self.wfile.write((page or "").encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        web = Web(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield web
        server.shutdown()
        thread.join()
