"""The first process of a node: it makes the node's mounts, and keeps its namespaces while it lives.

Started as `unshare --pid --mount-proc ... python keeper.py FOLDER`, it is process 1 of its own:
when it is killed, the kernel kills all that was started beside it, pods too. Its mounts are seen by
nobody else and are gone with it.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

FIXED = ("/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", "/var/log/pods")
"""Folders that kubelet and network plugins write whatever they are told."""
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""Settings of the whole machine that the kubelet writes: it gets files to write instead."""


def main() -> None:
    folder = Path(sys.argv[1])
    _mount("--make-rshared", "/")
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    (Path("/run") / "netns").mkdir()
    for fixed in FIXED:
        Path(fixed).mkdir(parents=True, exist_ok=True)
        own = folder / "fixed" / fixed.strip("/").replace("/", "-")
        own.mkdir(parents=True)
        _mount("--bind", str(own), fixed)
    for name in SYSCTLS:
        setting = Path("/proc/sys") / name
        if setting.exists():
            own = folder / "sysctls" / name.replace("/", "-")
            own.parent.mkdir(exist_ok=True)
            shutil.copyfile(setting, own)
            _mount("--bind", str(own), str(setting))
    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    (folder / "kept").touch()
    while True:
        signal.pause()


def _reap() -> None:
    """Processes whose parents are gone become children of the first one."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _mount(*args: str) -> None:
    subprocess.run(["mount", *args], check=True)


if __name__ == "__main__":
    main()
