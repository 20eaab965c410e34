"""A network of the node's own: for the processes that this thread starts, and for the thread.

Nothing of it is seen by the machine, and it is gone with the last process in it. There is a bridge
with the node's address and no way out.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ADDRESS = "10.200.0.1"
SERVICES = "10.96.0.0/16"
FIRST_SERVICE = "10.96.0.1"
DNS = "10.96.0.10"
PODS = "10.244.0.0/24"
_NEW_NETWORK = 0x40000000


@contextmanager
def own_network() -> Iterator[None]:
    """Move the calling thread into a new network, and back at the end."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _call("unshare", _NEW_NETWORK)
        try:
            _set_up()
            yield
        finally:
            _call("setns", before, _NEW_NETWORK)
    finally:
        os.close(before)


def _set_up() -> None:
    for command in (
        "link set lo up",
        "link add br0 type bridge",
        f"addr add {ADDRESS}/24 dev br0",
        "link set br0 up",
        f"route add {SERVICES} dev br0",
        # Refused at once, where it would otherwise be tried for ever.
        "route add unreachable default",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    bridged = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if bridged.exists():
        bridged.write_text("1")


def _call(name: str, *args: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*args):
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
