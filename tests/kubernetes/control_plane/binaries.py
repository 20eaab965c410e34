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

from tests.kubernetes.control_plane import die_with_parent, golang, recipe
from tests.kubernetes.control_plane.golang import GoMissing
from tests.kubernetes.control_plane.recipe import CONTROL_PLANE, NODE, ProgramSet

ASSETS = "KUBEBUILDER_ASSETS"
_DISK_GB = 8
_EVERY_SECONDS = 15
_INSTEAD = {
    CONTROL_PLANE.name: (
        f" To do without, set {ASSETS} to a folder with kube-apiserver, etcd and kubectl."
    ),
    NODE.name: "",
}

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
    return base / "privatekube/kubernetes"


def cache_entry(wanted: ProgramSet) -> Path:
    """The folder in the cache for these programs, this recipe and this kind of machine."""
    digest = hashlib.sha256()
    for file in recipe.sources():
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    name = f"{wanted.name}-{recipe.KUBERNETES}-{platform.machine()}-{digest.hexdigest()[:12]}"
    return cache() / name


def find_or_build(say: Say) -> Binaries:
    """The programs of a control plane, from the first place that has them.

    `say` gets lines of progress.

    Raises:
        BinariesMissing: nobody provided them and they cannot be built here.
    """
    assets = os.environ.get(ASSETS)
    if assets:
        return _provided(Path(assets), say)
    entry = find_or_build_set(CONTROL_PLANE, say)
    return Binaries(
        kube_apiserver=entry / "kube-apiserver",
        kube_controller_manager=entry / "kube-controller-manager",
        etcd=entry / "etcd",
        kubectl=entry / "kubectl",
    )


def find_or_build_set(wanted: ProgramSet, say: Say) -> Path:
    """The folder with the programs of CONTROL_PLANE or of NODE, from the cache or a build.

    Raises:
        BinariesMissing: they are not in the cache and cannot be built here.
    """
    entry = cache_entry(wanted)
    if not entry.is_dir():
        _build(wanted, entry, say)
    return entry


def find_kubectl() -> Path:
    """kubectl from wherever it is already; it alone is not worth a build."""
    assets = os.environ.get(ASSETS)
    places = [Path(assets) / "kubectl"] if assets else []
    found = _on_path("kubectl")
    places += [found] if found else []
    places.append(cache_entry(CONTROL_PLANE) / "kubectl")
    for place in places:
        if _runs(place):
            return place
    raise BinariesMissing("There is no kubectl on the PATH. Install it, then run this again.")


def _provided(folder: Path, say: Say) -> Binaries:
    programs = {name: folder / name for name in CONTROL_PLANE.programs}
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


def _build(wanted: ProgramSet, entry: Path, say: Say) -> None:
    what, instead = f"a Kubernetes {wanted.name.replace('-', ' ')}", _INSTEAD[wanted.name]
    entry.parent.mkdir(parents=True, exist_ok=True)
    with _only_one_builds(entry.parent, say):
        if entry.is_dir():  # The other one made it.
            return
        for left in entry.parent.glob(".building-*"):
            shutil.rmtree(left)
        work = Path(tempfile.mkdtemp(prefix=".building-", dir=entry.parent))
        steps = _Steps(say, entry.parent / "build.log")
        try:
            go = golang.find_or_fetch(entry.parent, work, steps)
            _check_disk(go, entry.parent, steps)
            say(
                f"Building {what} ({recipe.KUBERNETES}), once: {wanted.cpu_seconds // 60} minutes "
                "of CPU time and 1 GB to fetch when Go's caches have nothing of it"
            )
            out = work / "out"
            out.mkdir()
            recipe.build(go, wanted, out, steps)
            out.rename(entry)
        except GoMissing as error:
            raise BinariesMissing(f"Building {what} takes {error}.{instead}") from error
        except _DiskFull as error:
            raise BinariesMissing(f"Building {what} takes {error}; free some.{instead}") from error
        except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            raise BinariesMissing(
                f"Building {what} failed: {str(error).rstrip('.')}. "
                f"All of its output is in {steps.log}.{instead}"
            ) from error
        finally:
            shutil.rmtree(work)
        steps.finish(entry)


class _DiskFull(RuntimeError):
    """There is too little room for a build; a clause that says where."""


def _check_disk(go: Path, folder: Path, steps: "_Steps") -> None:
    """Go keeps modules and compiled packages in caches of its own."""
    told = steps.run([str(go), "env", "GOCACHE", "GOMODCACHE"], env=recipe.environment())
    for place in (folder, *(Path(line) for line in told.splitlines())):
        there = next(each for each in (place, *place.parents) if each.is_dir())
        free = shutil.disk_usage(there).free / 1e9
        if free < _DISK_GB:
            raise _DiskFull(f"{_DISK_GB} GB of disk, and {place} has {free:.1f} GB left")


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

    def count(self, what: str, done: int, total: int | None = None) -> None:
        """Says the first, the last, and now and then one between."""
        if done in (1, total) or time.monotonic() - self._said >= _EVERY_SECONDS:
            self.say(f"{what}: {done}" if total is None else f"{what}: {done} of {total} packages")

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
