"""Becomes another program that the kernel kills when the thread that started it is gone.

A test run that is killed outright cannot stop its servers. So they are started through this
file: `python die_with_parent.py PARENT_PID PROGRAM ARGUMENT...`. The process id stays the same.
It is a file of its own, and no `preexec_fn`, because forking Python code out of a process with
threads can hang.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def wrapped(command: list[str]) -> list[str]:
    """The command that runs `command` and dies with the calling thread."""
    own = str(Path(__file__).resolve())
    return [sys.executable, "-I", "-S", own, str(os.getpid()), *command]


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # It died before the kernel was told.
            sys.exit(f"{command[0]}: not started, its parent is gone")
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
