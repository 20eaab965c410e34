"""Where the control plane's programs come from: a folder the user names, our cache, a build.

`find_or_build` is called by the fixture of the tests and by the command line. A build that is
killed leaves only a folder that the next one removes: an entry of the cache appears whole, by
one rename, or not at all.
"""

import fcntl
import hashlib
import os
import platform
import resource
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.control_plane import debian, die_with_parent, recipe

ASSETS = "KUBEBUILDER_ASSETS"
_HOW = (
    f"Set {ASSETS} to a folder with kube-apiserver, etcd and kubectl, or run on Debian 12, "
    "where they are built from Debian's packages."
)
_DISK_GB = 4
_EVERY_SECONDS = 15

Say = Callable[[str], None]


class BinariesMissing(RuntimeError):
    """There is no control plane to run and none can be built; says how to provide one."""


@dataclass(frozen=True)
class Binaries:
    """The programs of a control plane, by path."""

    kube_apiserver: Path
    etcd: Path
    kubectl: Path
    kube_controller_manager: Path | None
    """None only where the user's own folder has none."""


def cache() -> Path:
    """The folder that keeps what was built."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".cache"
    return base / "privatekube/control-plane"


def cache_entry() -> Path:
    """The folder in the cache for this recipe on this kind of machine."""
    digest = hashlib.sha256(Path(recipe.__file__).read_bytes()).hexdigest()[:12]
    return cache() / f"{recipe.KUBERNETES}-{platform.machine()}-{digest}"


def find_or_build(say: Say) -> Binaries:
    """The programs, from the first place that has them; `say` gets lines of progress.

    Raises:
        BinariesMissing: nobody provided them and they cannot be built here.
    """
    assets = os.environ.get(ASSETS)
    if assets:
        return _provided(Path(assets), say)
    entry = cache_entry()
    if not entry.is_dir():
        _build(entry, say)
    return Binaries(
        kube_apiserver=entry / "kube-apiserver",
        kube_controller_manager=entry / "kube-controller-manager",
        etcd=_on_path("etcd") or entry / "etcd",
        kubectl=_on_path("kubectl") or entry / "kubectl",
    )


def find_kubectl() -> Path:
    """kubectl from wherever it is already; it alone is not worth a build."""
    assets = os.environ.get(ASSETS)
    places = [Path(assets) / "kubectl"] if assets else []
    found = _on_path("kubectl")
    places += [found] if found else []
    places.append(cache_entry() / "kubectl")
    for place in places:
        if _runs(place):
            return place
    raise BinariesMissing("There is no kubectl on the PATH. Install it, then run this again.")


def _provided(folder: Path, say: Say) -> Binaries:
    programs = {name: folder / name for name in recipe.PROGRAMS}
    lacking = [name for name, path in programs.items() if not _runs(path)]
    if "kubectl" in lacking and (found := _on_path("kubectl")):
        lacking.remove("kubectl")
        programs["kubectl"] = found
    if needed := [name for name in lacking if name != "kube-controller-manager"]:
        raise BinariesMissing(
            f"{ASSETS} names {folder}, which has no {' and no '.join(needed)} that can be run. "
            "Add what is missing, or unset it to use the cache or a build."
        )
    manager: Path | None = programs["kube-controller-manager"]
    if lacking:
        manager = None
        say(
            f"{ASSETS} names {folder}, which has no kube-controller-manager: namespaces are never "
            "emptied, nothing is garbage collected, and tests of these fail."
        )
    return Binaries(
        kube_apiserver=programs["kube-apiserver"],
        etcd=programs["etcd"],
        kubectl=programs["kubectl"],
        kube_controller_manager=manager,
    )


def _build(entry: Path, say: Say) -> None:
    if why := debian.why_not():
        raise BinariesMissing(
            f"There is no Kubernetes control plane here, and none can be built: {why}. {_HOW}"
        )
    entry.parent.mkdir(parents=True, exist_ok=True)
    with _only_one_builds(entry.parent, say):
        if entry.is_dir():  # The other one made it.
            return
        for left in entry.parent.glob(".building-*"):
            shutil.rmtree(left)
        free = shutil.disk_usage(entry.parent).free / 1e9
        if free < _DISK_GB:
            raise BinariesMissing(
                f"Building the control plane takes {_DISK_GB} GB of disk, and "
                f"{entry.parent} has {free:.1f} GB left. {_HOW}"
            )
        say(
            f"Building kube-apiserver {recipe.KUBERNETES} from Debian's source package, once: "
            "3 to 10 minutes on 2 cores"
        )
        work = Path(tempfile.mkdtemp(prefix=".building-", dir=entry.parent))
        steps = _Steps(say, entry.parent / "build.log")
        try:
            out = work / "out"
            out.mkdir()
            try:
                recipe.build(work, out, steps)
            except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
                raise BinariesMissing(
                    f"Building the control plane failed: {str(error).rstrip('.')}. "
                    f"All of its output is in {steps.log}. {_HOW}"
                ) from error
            out.rename(entry)
        finally:
            shutil.rmtree(work)
        steps.finish(entry)


@contextmanager
def _only_one_builds(folder: Path, say: Say) -> Iterator[None]:
    """The kernel gives the lock back when its holder dies, however it dies."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another process is building the control plane; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Steps:
    """Runs the recipe's commands into a log, with a line now and then for who waits."""

    def __init__(self, say: Say, log: Path) -> None:
        self.log = log
        self._say = say
        self._began = time.monotonic()
        self._cpu_before = _cpu_seconds()
        self._said = self._began
        log.write_text("")

    def say(self, what: str) -> None:
        self._said = time.monotonic()
        self._say(f"[{self._said - self._began:4.0f} s] {what}")

    def count(self, what: str, done: int, total: int) -> None:
        """Says the first, the last, and now and then one between."""
        if done in (1, total) or time.monotonic() - self._said >= _EVERY_SECONDS:
            self.say(f"{what}: {done} of {total} packages")

    def run(
        self,
        command: list[str],
        *,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> str:
        program = shutil.which(command[0])
        if program is None:
            raise RuntimeError(f"{command[0]} cannot be found")
        lines = []
        with (
            self.log.open("a") as log,
            subprocess.Popen(
                die_with_parent.wrapped([program, *command[1:]]),
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as process,
        ):
            log.write(f"\n$ {' '.join(command)}\n")
            assert process.stdout is not None
            for line in process.stdout:
                log.write(line)
                lines.append(line)
                if on_line:
                    on_line(line)
        if process.returncode:
            last = "".join(deque(lines, 5)).strip()
            raise RuntimeError(f"{Path(command[0]).name} ended with {process.returncode}: {last}")
        return "".join(lines)

    def finish(self, entry: Path) -> None:
        size = sum(file.stat().st_size for file in entry.iterdir()) / 1e6
        self.say(f"built, {_cpu_seconds() - self._cpu_before:.0f} s of CPU: {entry}, {size:.0f} MB")


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
