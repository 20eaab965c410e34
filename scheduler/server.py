"""Where the scheduler can be asked how it is: /healthz, /readyz and /metrics over HTTP.

The kubelet asks the first two, Prometheus the third. Requests are answered on threads of their
own that end with the process, so a slow or broken asker holds up neither the scheduler nor its
end. A crash leaves nothing behind but a port that is free again.
"""

from __future__ import annotations

import logging
import re
import socket
import socketserver
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from scheduler.metrics import Metrics

_log = logging.getLogger(__name__)

_TEXT = "text/plain; charset=utf-8"
_ASKER_SECONDS = 10.0

Probe = Callable[[], str | None]
"""None if all is well, else a sentence that says what is not."""

_Answer = tuple[HTTPStatus, str, bytes]


class StatusServer:
    """Serves one scheduler's state from `start` to `close`; `port` is the one it got.

    The address is taken at once, so that a scheduler that cannot have it says so before it
    does anything else.

    Raises:
        ValueError: `listen` names no address.
        OSError: the address cannot be had.
    """

    def __init__(self, listen: str, metrics: Metrics, healthy: Probe, ready: Probe) -> None:
        family, address = _address(listen)
        pages: dict[str, Callable[[], _Answer]] = {
            "/healthz": lambda: _probed(healthy),
            "/readyz": lambda: _probed(ready),
            "/metrics": lambda: (HTTPStatus.OK, *metrics.exposition()),
        }
        index = "".join(f"{path}\n" for path in pages)
        pages["/"] = lambda: _plain(HTTPStatus.OK, index)
        try:
            self._server = _Server(family, address, pages)
        except OSError as error:
            text = f"cannot listen on {listen}: {error.strerror or error}"
            raise OSError(error.errno, text) from error
        self.port: int = self._server.server_address[1]
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to answer. Who asked before has been waiting in line."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._server.serve_forever,
                kwargs={"poll_interval": 0.1},  # How long `close` may take.
                name="status-server",
                daemon=True,
            )
            self._thread.start()

    def close(self) -> None:
        """Answer no more and give the port back; doing it twice does it once."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, family: int, address: tuple[str, int], pages: dict[str, Callable[[], _Answer]]
    ) -> None:
        self.address_family = family
        self.pages = pages
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            # `::` is all addresses of both kinds, whatever the machine's default.
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Not HTTPServer's: it asks DNS for a name that nobody needs, and waits for the answer.
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("no answer to %s", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "privatekube"
    sys_version = ""
    timeout = _ASKER_SECONDS

    def do_GET(self) -> None:
        status, content_type, body = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def _answer(self) -> _Answer:
        path = self.path.partition("?")[0]
        page = self.server.pages.get(path)
        if page is None:
            known = ", ".join(self.server.pages)
            return _plain(HTTPStatus.NOT_FOUND, f"nothing is here; try one of {known}\n")
        try:
            return page()
        except Exception as error:
            _log.exception("%s cannot be answered", path)
            sentence = f"{path} cannot be answered: {type(error).__name__}: {error}\n"
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR, sentence)

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug("%s: %s", self.address_string(), format % args)


def _plain(status: HTTPStatus, text: str) -> _Answer:
    return status, _TEXT, text.encode()


def _probed(probe: Probe) -> _Answer:
    sentence = probe()
    if sentence is None:
        return _plain(HTTPStatus.OK, "ok\n")
    return _plain(HTTPStatus.SERVICE_UNAVAILABLE, f"{sentence}\n")


def _address(listen: str) -> tuple[int, tuple[str, int]]:
    """The family and address of `host:port`, `[IPv6]:port`, or `:port` for all addresses."""
    host, colon, digits = listen.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not bracketed):
        raise ValueError(
            f"{listen!r} is no address to listen on; write host:port, such as 0.0.0.0:8080,"
            " [::1]:8080, or :8080 for all addresses"
        )
    if not re.fullmatch("[0-9]{1,5}", digits) or int(digits) > 65535:
        raise ValueError(f"{listen!r} is no address to listen on; its port must be 0 to 65535")
    port = int(digits)
    if not host:
        both = socket.has_dualstack_ipv6()
        return (socket.AF_INET6, ("::", port)) if both else (socket.AF_INET, ("0.0.0.0", port))
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ValueError(
            f"{listen!r} is no address to listen on: {host} cannot be resolved ({error})"
        ) from None
    family, *_, address = found[0]
    return family, (str(address[0]), port)
