"""What a machine needs to run pods, and what of it can be installed.

Pods need a kernel's namespaces, mounts and cgroups, so they need root. runc and the network plugins
are Debian's; everything else is built from Go modules (tests.kubernetes.control_plane).
"""

import ctypes
import os
import platform
import shutil
import subprocess
from pathlib import Path

PACKAGES = {
    "runc": "runc",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "conntrack": "conntrack",
    "iptables": "iptables",
}
"""By program, the Debian package that has it."""
PLUGINS = Path("/usr/lib/cni")
_PLUGINS_PACKAGE = "containernetworking-plugins"
_NEW_NETWORK = 0x40000000


def why_not() -> str | None:
    """Why no node can run on this machine, in one sentence; None if one can."""
    if platform.system() != "Linux":
        return f"pods need Linux, and this is {platform.system()}"
    if os.geteuid() != 0:
        return "pods need root: run `sudo make test-node`"
    if not _may_make_namespaces():
        return "root may make no namespaces here: this looks like a container without privileges"
    missing = _missing()
    if missing and shutil.which("apt-get") is None:
        return f"pods need the programs of {', '.join(missing)}, and there is no apt-get for them"
    return None


def install() -> None:
    """Install what is missing of Debian's packages.

    Raises:
        RuntimeError: apt-get could not.
    """
    missing = _missing()
    if not missing:
        return
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends"]
    # Somebody else may be installing at this moment.
    command += ["-o", "DPkg::Lock::Timeout=300", *missing]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        update = ["apt-get", "update", "-q", "-o", "DPkg::Lock::Timeout=300"]
        subprocess.run(update, env=environment, capture_output=True, text=True)
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode or _missing():
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise RuntimeError(f"apt-get could not install {', '.join(missing)}: {''.join(said)}")


def _missing() -> list[str]:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [
        package for program, package in PACKAGES.items() if not shutil.which(program, path=path)
    ]
    return missing if (PLUGINS / "bridge").exists() else [*missing, _PLUGINS_PACKAGE]


def _may_make_namespaces() -> bool:
    """Tried in a process of its own, which then ends."""
    child = os.fork()
    if child == 0:
        os._exit(ctypes.CDLL(None).unshare(_NEW_NETWORK) != 0)
    return os.waitpid(child, 0)[1] == 0
