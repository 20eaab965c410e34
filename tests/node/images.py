"""Our images, built by buildah from the Dockerfiles that we ship.

No registry is asked: what the Dockerfiles name in FROM is stood in for by an image with Debian's
own Python 3.11, made by mmdebstrap. All is kept in the user's cache. An image whose inputs have not
changed is not built again, and one of which only our code has changed keeps its layer of
dependencies.
"""

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from privatekube_kfp import __version__
from tests.kubernetes.control_plane.binaries import cache

Say = Callable[[str], None]

ROOT = Path(__file__).parents[2]
_CONTEXT = (
    "pyproject.toml",
    "setup.cfg",
    "README.md",
    "LICENSE",
    "crds",
    "privatekube_kfp",
    "scheduler",
)
_SUITE = "bookworm"
_BASE_PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
_NOT_IN_THE_BASE = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")


class BuildFailed(RuntimeError):
    """An image could not be built; carries the end of what the builder said."""


@dataclass(frozen=True)
class Image:
    """One of our images: its name, and how it is built."""

    name: str
    dockerfile: str
    arguments: tuple[str, ...] = ()

    @property
    def tag(self) -> str:
        """As pods of the tests name it: of no registry, so that none is asked for it."""
        return f"localhost/{self.name}:{__version__}"

    def digest(self) -> str:
        """Of all that it is built from."""
        total = hashlib.sha256(repr((self, _base_digest())).encode())
        total.update((ROOT / self.dockerfile).read_bytes())
        for path in _inputs():
            total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
        return total.hexdigest()[:16]


SCHEDULER = Image("privatekube/scheduler", "scheduler/Dockerfile")
PYTHON = Image("privatekube/python", "components/Dockerfile")
TORCH = Image("privatekube/python-torch", "components/Dockerfile", ("--build-arg=EXTRA=bert",))
KERAS = Image("privatekube/keras", "components/Dockerfile.keras")


def folder() -> Path:
    """Where images and the node's store of them are kept."""
    return cache().parent / "node"


def build(image: Image, say: Say) -> Path:
    """The image as an OCI archive, built first if it is not in the cache."""
    archives = folder() / "archives"
    name = image.name.replace("/", "-")
    archive = archives / f"{name}-{image.digest()}.tar"
    if archive.exists():
        return archive
    with _only_one_builds():
        if archive.exists():
            return archive
        archives.mkdir(parents=True, exist_ok=True)
        _base(say)
        say(f"Building {image.tag} from {image.dockerfile} ...")
        _buildah(
            "build",
            "--isolation=chroot",
            "--pull-never",
            "--network=host",
            "--layers",
            *_machine_settings(),
            *image.arguments,
            f"--file={ROOT / image.dockerfile}",
            f"--tag={image.tag}",
            str(ROOT),
        )
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        _buildah(
            "push", "-q", "--disable-compression", image.tag, f"oci-archive:{partial}:{image.tag}"
        )
        # Layers of older code go, or the cache would grow with every change.
        _buildah("rmi", "--prune", "--force")
        for old in archives.glob(f"{name}-{'?' * 16}.tar"):
            old.unlink()
        partial.rename(archive)
    return archive


def build_program(name: str, program: Path) -> Path:
    """An image of one static program and nothing else, as an OCI archive."""
    digest = hashlib.sha256(program.read_bytes()).hexdigest()[:16]
    archive = folder() / "archives" / f"{name}-{digest}.tar"
    if archive.exists():
        return archive
    with _only_one_builds():
        archive.parent.mkdir(parents=True, exist_ok=True)
        container = _buildah("from", "scratch").strip()
        try:
            _buildah("add", "-q", container, str(program), f"/{name}")
            _buildah("config", f'--entrypoint=["/{name}"]', container)
            tag = f"localhost/{name}:1"
            _buildah("commit", "-q", container, tag)
        finally:
            _buildah("rm", container)
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        _buildah("push", "-q", tag, f"oci-archive:{partial}:{tag}")
        partial.rename(archive)
    return archive


def sizes() -> str:
    """What buildah says of the images that it has."""
    return _buildah("images")


def _base(say: Say) -> None:
    """The image that Dockerfiles build on, if it is not there."""
    [name] = {
        line.split()[1]
        for file in ("components/Dockerfile", "components/Dockerfile.keras", "scheduler/Dockerfile")
        for line in (ROOT / file).read_text().splitlines()
        if line.startswith("FROM ")
    }
    made = folder() / f"base-{_base_digest()}"
    if made.exists():
        return
    say(f"Making a stand-in for {name} from Debian's packages ...")
    with tempfile.TemporaryDirectory(prefix="privatekube-base-", dir=folder()) as work:
        tar = Path(work) / "root.tar"
        sources = Path("/etc/apt/sources.list.d/debian.sources")
        options = [f"--aptopt={file}" for file in sorted(Path("/etc/apt/apt.conf.d").iterdir())]
        excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in _NOT_IN_THE_BASE]
        _run(
            "mmdebstrap",
            "--variant=minbase",
            f"--include={_BASE_PACKAGES}",
            *options,
            *excluded,
            _SUITE,
            str(tar),
            *([str(sources)] if sources.exists() else []),
        )
        container = _buildah("from", "scratch").strip()
        try:
            _buildah("add", "-q", container, str(tar), "/")
            mounted = Path(_buildah("mount", container).strip())
            # As the real one has it: `python`, and a pip that installs for all.
            (mounted / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink(missing_ok=True)
            (mounted / "usr/bin/python").symlink_to("python3")
            for of_this_machine in ("etc/apt/apt.conf.d/99mmdebstrap", "var/lib/apt/lists"):
                path = mounted / of_this_machine
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            _buildah("umount", container)
            _buildah("config", "--env=LANG=C.UTF-8", "--cmd=python3", container)
            _buildah("commit", "-q", container, name)
        finally:
            _buildah("rm", container)
    made.touch()


def _base_digest() -> str:
    said = repr((_SUITE, _BASE_PACKAGES, _NOT_IN_THE_BASE))
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _inputs() -> Iterator[Path]:
    for name in _CONTEXT:
        path = ROOT / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (each for each in files if each.is_file() and "__pycache__" not in each.parts)


def _machine_settings() -> list[str]:
    """What pip needs to reach packages from this machine: its settings, and whom it trusts."""
    mounted = [
        Path("/etc/ssl/certs"),
        Path("/usr/local/share/ca-certificates"),
        Path("/etc/pip.conf"),
    ]
    return [f"--volume={path}:{path}:ro" for path in mounted if path.exists()]


@contextmanager
def _only_one_builds() -> Iterator[None]:
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _buildah(*args: str) -> str:
    place = folder()
    return _run(
        "buildah",
        f"--root={place / 'buildah'}",
        f"--runroot={place / 'buildah-run'}",
        "--storage-driver=overlay",
        *args,
    )


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise BuildFailed(f"{' '.join(command[:1])} {command[-1]} failed:\n{end}")
    return done.stdout
