"""A cluster of the doctor's own, with a good set-up: it looks at all that a cluster has."""

import base64
import json
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
        self._way = ""
        self._login = ""

    def wants(self, way: str, user: str, password: str) -> None:
        """Ask for credentials: by `basic`, or by `bearer` tokens that it gives itself."""
        self._way = way
        self._login = base64.b64encode(f"{user}:{password}".encode()).decode() if user else ""

    def challenge(self, authorization: str | None) -> str | None:
        """What to ask for, unless what was sent will do."""
        taken = {"basic": f"Basic {self._login}", "bearer": "Bearer given"}
        if not self._way or authorization == taken[self._way]:
            return None
        if self._way == "basic":
            return 'Basic realm="here"'
        host = self.name.partition("/")[0]
        return f'Bearer realm="http://{host}/token",service="here",scope="repository:team:pull"'

    def token(self, authorization: str | None) -> str | None:
        known = not self._login or authorization == f"Basic {self._login}"
        return json.dumps({"token": "given"}) if known else None


@pytest.fixture
def registry() -> Iterator[Web]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            known = self.path.removeprefix("/v2/team/") in web.has
            asked = web.challenge(self.headers["Authorization"])
            self.send_response(401 if asked else 200 if known else 404)
            if asked:
                self.send_header("WWW-Authenticate", asked)
            self.end_headers()

        def do_GET(self) -> None:
            page = web.pages.get(self.path)
            if self.path == "/token?scope=repository%3Ateam%3Apull&service=here":
                page = web.token(self.headers["Authorization"])
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
