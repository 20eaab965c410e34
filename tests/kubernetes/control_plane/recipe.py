"""How the programs of a cluster are made from Go modules.

`binaries` runs this when they are not in the cache. Any change of this file or of the Go module
(tests/kubernetes/programs) makes other entries in the cache, so keep out of here what does not
change the programs.

Kubernetes names its own libraries by folders of its repository, which no other module can follow.
So the go.mod replaces each of them by the release of that library with the same number, and all
programs are built from one list of versions.
"""

import itertools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MODULE = Path(__file__).parents[1] / "programs"
"""The Go module that names the programs and the versions of everything they need."""

_KUBERNETES = "k8s.io/kubernetes"
_CONTAINERD = "github.com/containerd/containerd/v2"


@dataclass(frozen=True)
class ProgramSet:
    """Programs that are built together and are one entry of the cache."""

    name: str
    packages: dict[str, str]
    """By program, the Go package it is built from."""
    cpu_seconds: int
    """What building them takes with nothing in Go's cache, roughly."""

    @property
    def programs(self) -> tuple[str, ...]:
        return tuple(self.packages)


CONTROL_PLANE = ProgramSet(
    "control-plane",
    {
        "kube-apiserver": f"{_KUBERNETES}/cmd/kube-apiserver",
        "kube-controller-manager": f"{_KUBERNETES}/cmd/kube-controller-manager",
        "etcd": "go.etcd.io/etcd/server/v3",
        "kubectl": f"{_KUBERNETES}/cmd/kubectl",
    },
    cpu_seconds=600,
)
NODE = ProgramSet(
    "node",
    {
        "kube-scheduler": f"{_KUBERNETES}/cmd/kube-scheduler",
        "kubelet": f"{_KUBERNETES}/cmd/kubelet",
        "kube-proxy": f"{_KUBERNETES}/cmd/kube-proxy",
        "containerd": f"{_CONTAINERD}/cmd/containerd",
        "containerd-shim-runc-v2": f"{_CONTAINERD}/cmd/containerd-shim-runc-v2",
        "ctr": f"{_CONTAINERD}/cmd/ctr",
        "coredns": "./coredns",
        "pause": "./pause",
    },
    cpu_seconds=150,
)


class Steps(Protocol):
    """Says what is being done, and runs the commands of it."""

    def say(self, what: str) -> None: ...

    def count(self, what: str, done: int, total: int | None = None) -> None: ...

    def run(
        self,
        command: list[str],
        *,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> str: ...


def version_of(module: str) -> str:
    """The version of a module that go.mod requires, without the v."""
    match = re.search(rf"^\s*{re.escape(module)} v(\S+)", (MODULE / "go.mod").read_text(), re.M)
    if match is None:
        raise ValueError(f"{MODULE / 'go.mod'} requires no {module}")
    return match[1]


def go_version() -> str:
    """The oldest Go that the module can be built with."""
    match = re.search(r"^go (\S+)$", (MODULE / "go.mod").read_text(), re.M)
    if match is None:
        raise ValueError(f"{MODULE / 'go.mod'} names no version of Go")
    return match[1]


KUBERNETES = version_of(_KUBERNETES)


def sources() -> list[Path]:
    """The files that decide what is built."""
    return [
        Path(__file__),
        MODULE / "go.mod",
        MODULE / "go.sum",
        *sorted(MODULE.glob("*/*.go")),
    ]


def build(go: Path, wanted: ProgramSet, out: Path, steps: Steps) -> None:
    """Put the programs of `wanted` into `out`, each under its own name."""
    env = environment()
    packages = list(wanted.packages.values())

    # 1. Fetch the modules, which tells how many packages there are to compile.
    fetched = itertools.count(1)

    def on_line(line: str) -> None:
        if line.startswith("go: downloading "):
            steps.count("fetching modules", next(fetched))

    steps.say("finding what there is to compile")
    listed = steps.run([str(go), "list", "-deps", *packages], cwd=MODULE, env=env, on_line=on_line)
    total = sum(not line.startswith("go: ") for line in listed.splitlines())

    # 2. Compile all at once: they share most of their packages.
    done = itertools.count(1)
    what = f"compiling {', '.join(wanted.programs)}"
    flags = ["-v", f"-ldflags={_linker_flags()}", f"-o={out}/"]
    steps.run(
        [str(go), "build", *flags, *packages],
        cwd=MODULE,
        env=env,
        on_line=lambda _: steps.count(what, next(done), total),
    )

    # 3. Go names a program after the last folder of its package.
    for program, package in wanted.packages.items():
        (out / _built_as(package)).rename(out / program)


def environment() -> dict[str, str]:
    """The variables for Go: where modules come from and are kept is the machine's choice."""
    kept = {name: value for name, value in os.environ.items() if name not in ("GOARCH", "GOOS")}
    return kept | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false -mod=readonly -trimpath",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _built_as(package: str) -> str:
    parts = package.split("/")
    return parts[-2] if re.fullmatch(r"v\d+", parts[-1]) else parts[-1]


def _linker_flags() -> str:
    major, minor, _ = KUBERNETES.split(".")
    kubernetes = {
        "gitVersion": f"v{KUBERNETES}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "module",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    values = {
        f"k8s.io/{package}.{name}": value
        for package in ("component-base/version", "client-go/pkg/version")
        for name, value in kubernetes.items()
    } | {
        f"{_CONTAINERD}/version.Version": f"v{version_of(_CONTAINERD)}",
        f"{_CONTAINERD}/version.Revision": "module",
    }
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in values.items())])
