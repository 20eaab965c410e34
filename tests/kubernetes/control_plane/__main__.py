"""By hand: `python -m tests.kubernetes.control_plane build|start|stop`, from the project's root.

`build` fills the cache; `make test` calls it. `start` leaves one control plane running and prints
the line that makes kubectl use it; `stop` ends it. The process between the two holds a lock, so a
process id that another program has since been given is never taken for it.
"""

import argparse
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.kubernetes.control_plane.binaries import (
    BinariesMissing,
    cache,
    find_or_build,
    find_or_build_set,
)
from tests.kubernetes.control_plane.cluster import EXISTING, ControlPlane, ControlPlaneFailed
from tests.kubernetes.control_plane.recipe import NODE

_START_SECONDS = 120
_STOP_SECONDS = 30
_LOCK_SECONDS = 2


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kubernetes.control_plane",
        description="A real Kubernetes control plane, for tests and for trying things out.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="build|start|stop")
    build = commands.add_parser(
        "build", help="make sure that its programs are there, building them if not"
    )
    build.add_argument(
        "--node", action="store_true", help="the programs of a node as well, which runs pods"
    )
    commands.add_parser("start", help="start one; prints a line for the shell to evaluate")
    commands.add_parser("stop", help="stop it and remove its data")
    commands.add_parser("serve")
    asked = parser.parse_args()
    try:
        if asked.command == "build":
            _build(node=asked.node)
        else:
            {"start": _start, "stop": _stop, "serve": _serve}[asked.command]()
    except (BinariesMissing, ControlPlaneFailed) as error:
        sys.exit(str(error))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _build(*, node: bool) -> None:
    if existing := os.environ.get(EXISTING):
        _say(f"Tests use the cluster of {EXISTING}={existing}; no control plane to build.")
    else:
        binaries = find_or_build(_say)
        _say(f"The control plane is there: {binaries.kube_apiserver}")
    if node:
        _say(f"The node's programs are there: {find_or_build_set(NODE, _say)}")


def _start() -> None:
    find_or_build(_say)
    folder = _by_hand()
    running = _state()
    if running is None:
        _say("Starting etcd, API server and controller manager")
        with (folder / "log").open("w") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", "tests.kubernetes.control_plane", "serve"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while (running := _state()) is None:
            if server.poll() is not None:
                raise ControlPlaneFailed((folder / "log").read_text().strip())
            if time.monotonic() > deadline:
                server.terminate()
                raise ControlPlaneFailed(f"It was not ready after {_START_SECONDS} s.")
            time.sleep(0.1)
    else:
        _say("It runs already.")
    print(f"export KUBECONFIG={shlex.quote(running['kubeconfig'])}")


def _stop() -> None:
    running = _state()
    if running is None:
        _say("None is running.")
        return
    os.kill(int(running["pid"]), signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while _state() is not None:
        if time.monotonic() > deadline:
            raise ControlPlaneFailed(f"Process {running['pid']} has not stopped.")
        time.sleep(0.1)
    _say("Stopped.")


def _serve() -> None:
    """What `start` leaves running: the control plane dies with this process."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    folder = _by_hand()
    with (folder / "lock").open("w") as lock:
        deadline = time.monotonic() + _LOCK_SECONDS  # `start` holds it for moments, to look.
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ControlPlaneFailed("Another one is starting or running.") from None
                time.sleep(0.01)
        with ControlPlane(find_or_build(_say)) as control_plane:
            state = {"pid": os.getpid(), "kubeconfig": str(control_plane.kubeconfig)}
            (folder / "state.new").write_text(json.dumps(state))
            (folder / "state.new").rename(folder / "state")
            ended.wait()
            (folder / "state").unlink()


def _by_hand() -> Path:
    folder = cache() / "by-hand"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _state() -> dict[str, str] | None:
    """What the running one wrote about itself, or None when none runs."""
    folder = _by_hand()
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            (folder / "state").unlink(missing_ok=True)  # Left by one that was killed.
            return None
    try:
        return dict(json.loads((folder / "state").read_text()))
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    main()
