"""A real S3 server on this machine, and one in front of it that misbehaves.

The server is rclone's, the one program of its kind that PyPI has: `rclone serve s3`.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

KEY, SECRET = "test-access-key", "test-secret-key"
_STARTED = re.compile(r"Starting s3 server on \[http://127\.0\.0\.1:(\d+)/\]")
_SECONDS = 180


@dataclass
class S3:
    """Where it serves, and the folder that has its buckets."""

    url: str
    folder: Path

    def environment(self, **more: str) -> dict[str, str]:
        """What a client needs to know."""
        said = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
            "AWS_MAX_ATTEMPTS": "1",
        }
        return {**said, **more}

    def use(self, monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
        """Make this process a client; an empty value takes a variable away."""
        for name, value in self.environment(**more).items():
            if value:
                monkeypatch.setenv(name, value)
            else:
                monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, os.devnull)
        forget_clients()


def forget_clients() -> None:
    """fsspec keeps a client as long as it is asked for the same."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()


def rclone() -> str:
    """The program, from this environment rather than from elsewhere."""
    found = shutil.which("rclone", path=str(Path(sys.executable).parent)) or shutil.which("rclone")
    assert found is not None, "rclone comes with the extra dev: pip install -e '.[dev]'"
    return found


@contextmanager
def s3_server(folder: Path) -> Iterator[S3]:
    """Serves the folders in a folder as buckets."""
    log = folder.parent / f"{folder.name}.rclone.log"
    with log.open("wb") as written:
        server = subprocess.Popen(
            [rclone(), "serve", "s3", "--config", os.devnull, "--addr", "127.0.0.1:0",
             "--auth-key", f"{KEY},{SECRET}", str(folder)],
            stdout=written, stderr=written, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        give_up = time.monotonic() + _SECONDS
        while not (found := _STARTED.search(log.read_text())):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < give_up, "rclone does not start"
            time.sleep(0.02)
        yield S3(f"http://127.0.0.1:{found[1]}", folder)
    finally:
        server.terminate()
        server.wait()


@dataclass
class Misbehaving:
    """Passes requests on to a server, unless told to do something else with those for objects.

    Attributes:
        status: Answer with this status.
        truncated: Send the first half of an object, and hang up.
        silent: Do not answer until the test is over.
        reads_only: Refuse to write.
    """

    s3: S3
    url: str = ""
    status: int = 0
    truncated: bool = False
    silent: bool = False
    reads_only: bool = False
    over: threading.Event = field(default_factory=threading.Event)

    def in_front(self) -> S3:
        return S3(self.url, self.s3.folder)


@contextmanager
def misbehaving(s3: S3) -> Iterator[Misbehaving]:
    made = Misbehaving(s3)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if made.silent:
                made.over.wait(_SECONDS)
                self.close_connection = True
            elif made.status:
                self._answer(made.status, b"<Error><Code>SlowDown</Code></Error>", [])
            elif made.reads_only and self.command in ("PUT", "POST"):
                error = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
                self._answer(403, error, [])
            else:
                self._pass_on(body)

        def _pass_on(self, body: bytes) -> None:
            connection = http.client.HTTPConnection(s3.url.removeprefix("http://"))
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            headers = [(k, v) for k, v in answer.getheaders() if k != "Content-Length"]
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self._answer(answer.status, content, headers, length)

        def _answer(
            self,
            status: int,
            content: bytes,
            headers: list[tuple[str, str]],
            length: str | None = None,
        ) -> None:
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            if made.truncated and self.command == "GET" and "list-type" not in self.path:
                content = content[: len(content) // 2]
                self.close_connection = True
            self.wfile.write(content)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _serve

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
