"""Running the command line: in this process where that is enough, in its own where it matters."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from privatekube_kfp.cli import main

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Result:
    """What a person sees of a finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Run:
    """Runs `privatekube` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *args: str) -> Result:
        self._capsys.readouterr()
        code = main(args)
        out, err = self._capsys.readouterr()
        return Result(code, out, err)

    def ok(self, *args: str) -> Result:
        result = self(*args)
        assert result.code == 0, result
        return result

    def json(self, *args: str) -> Any:
        return self.ok(*args, "--json").json


def in_own_process(
    *args: str, before: str = "", cwd: Path | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs `privatekube` in a process of its own, after the statements `before`."""
    return subprocess.run(
        command_line(*args, before=before),
        cwd=cwd,
        env=environment(),
        text=True,
        capture_output=True,
        timeout=600,
        check=False,
        **options,
    )


def at_a_terminal(*args: str) -> tuple[int, str, bytes]:
    """Runs `privatekube` with standard error at a terminal: its code, its output, what is shown."""
    ours, theirs = pty.openpty()
    env = environment() | {"TERM": "xterm"}
    child = subprocess.Popen(
        command_line(*args), env=env, stderr=theirs, stdout=subprocess.PIPE, text=True
    )
    os.close(theirs)
    shown = b""
    with open(ours, "rb", buffering=0) as terminal:
        while True:
            try:
                shown += terminal.read(4096)
            except OSError:  # what Linux says when the other end is closed
                break
    out, _ = child.communicate()
    return child.returncode, out, shown


def command_line(*args: str, before: str = "") -> list[str]:
    if not before:
        return [sys.executable, "-m", "privatekube_kfp.cli", *args]
    program = f"import sys\nfrom privatekube_kfp.cli import main\n{before}\nsys.exit(main())"
    return [sys.executable, "-c", program, *args]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: here, context: {cluster: c, user: u}}]
"""
"""Names a cluster that nobody serves."""


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
