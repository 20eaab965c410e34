"""`python -m privatekube_kfp.local.worker`: runs one pipeline with `kfp.local`, and tells of it.

The command that started it writes an order, a line of JSON, to standard input and reads events,
lines of JSON, from standard output. The worker leads a process group, its tasks are in it. When
standard input ends, the command is gone: the worker kills the whole group, itself included, so that
no task works on for a run that nobody watches.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from privatekube_kfp.local.folder import RunFolder
from privatekube_kfp.local.pipeline import read_compiled


def main() -> None:
    order_pipe, event_pipe = _take_over_pipes()
    order = json.loads(order_pipe.readline())
    threading.Thread(target=_end_with, args=(order_pipe,), daemon=True).start()
    telling = threading.Lock()

    def emit(event: Mapping[str, Any]) -> None:
        line = json.dumps(event).encode() + b"\n"
        with telling:
            event_pipe.write(line)
            event_pipe.flush()

    folder = RunFolder(Path(order["parent"]), order["run"])
    failure = _run(folder, order["arguments"], order["pythons"], emit)
    emit({"event": "ended", "failure": failure})
    sys.stdout.flush()
    # At once: a thread that a loop left behind must not keep the run from ending.
    os._exit(0)


def _take_over_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The pipes to the command, out of reach of what is printed here and of the tasks."""
    orders, events = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return os.fdopen(orders, "rb"), os.fdopen(events, "wb")


def _end_with(order_pipe: IO[bytes]) -> None:
    while order_pipe.read(1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _run(
    folder: RunFolder, arguments: dict[str, Any], pythons: Mapping[str, str], emit: Any
) -> str | None:
    """Run the pipeline; what went wrong if it did not even get to fail at a task."""
    warnings.simplefilter("ignore")
    try:
        from kfp import components, local

        from privatekube_kfp.local.kfp_hooks import Hooks

        workspace = folder.path / "workspace"
        workspace.mkdir(exist_ok=True)
        local.init(
            runner=local.SubprocessRunner(use_venv=False),
            pipeline_root=str(folder.artifacts),
            workspace_root=str(workspace),
            raise_on_error=True,
        )
        Hooks(folder, pythons, emit).install()
        # A second document in the file, if any, is for clusters: secrets, labels and the like.
        spec = read_compiled(folder.pipeline).spec
        components.load_component_from_text(json.dumps(spec))(**arguments)
        return None
    except Exception as error:
        traceback.print_exc()
        said = " ".join(str(error).split())
        return f"{type(error).__name__}: {said}" if said else type(error).__name__


if __name__ == "__main__":
    main()
