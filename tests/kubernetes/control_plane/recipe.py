"""How the control plane's programs are made from Debian 12's packages.

`binaries` runs this when they are not in the cache. Any change of this file makes another entry
in the cache, so keep out of it what does not change the programs.

Debian ships no API server, but the source package of kubectl is the whole of Kubernetes with all
it needs vendored. Three things keep it from building as it is:

* Go 1.19 refuses its vendor folder in module mode, so it is built in GOPATH mode;
* the generated OpenAPI definitions are not in the archive, so they are generated first;
* the vendored reflect2 crashes the server on the first custom object when built with Go 1.18 or
  later, so Debian's newer one takes its place.

Debian's patches touch only what kubectl prints, and are left out.
"""

import itertools
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests.kubernetes.control_plane.debian import Apt

KUBERNETES = "1.20.2"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "etcd", "kubectl")

_GO_PACKAGES = ["golang-1.19-go", "golang-1.19-src", "golang-github-modern-go-reflect2-dev"]
_PROGRAM_PACKAGES = ["etcd-server", "kubernetes-client"]
_BUILT = ("kube-apiserver", "kube-controller-manager")
_REFLECT2 = "github.com/modern-go/reflect2"
_TAGS = "providerless dockerless"


class Steps(Protocol):
    """Says what is being done, and runs the commands of it."""

    def say(self, what: str) -> None: ...

    def count(self, what: str, done: int, total: int) -> None: ...

    def run(
        self,
        command: list[str],
        *,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> str: ...


def build(work: Path, out: Path, steps: Steps) -> None:
    """Put PROGRAMS into `out`. `work` is left full of what only the build needed."""
    packages = work / "packages"
    tree = work / "go/src/k8s.io/kubernetes"

    # 1. Fetch. Nothing is installed.
    apt = Apt(work / "apt", steps.run)
    steps.say("fetching the lists of Debian's packages")
    apt.update()
    steps.say("fetching the source package kubernetes (35 MB)")
    version = apt.unpack_upstream("kubernetes", tree)
    if KUBERNETES not in version:
        raise RuntimeError(f"Debian's source package kubernetes is {version}, not {KUBERNETES}")
    steps.say(f"fetching {', '.join(_GO_PACKAGES + _PROGRAM_PACKAGES)} (98 MB)")
    apt.unpack(_GO_PACKAGES + _PROGRAM_PACKAGES, packages)
    for program in ("etcd", "kubectl"):
        shutil.copy(packages / "usr/bin" / program, out)

    # 2. Put in place the reflect2 that works.
    vendored = tree / "vendor" / _REFLECT2
    for file in [*vendored.glob("*.go"), *vendored.glob("*.s")]:
        file.unlink()
    newer = packages / "usr/share/gocode/src" / _REFLECT2
    for file in [*newer.glob("*.go"), *newer.glob("*.s")]:
        shutil.copy(file, vendored)

    # 3. Generate the OpenAPI definitions.
    go = str(packages / "usr/lib/go-1.19/bin/go")
    env = _go_environment(work, packages)
    generator = str(work / "openapi-gen")
    steps.say("building the generator of the OpenAPI definitions")
    steps.run(
        [go, "build", "-o", generator, "./vendor/k8s.io/kube-openapi/cmd/openapi-gen"],
        cwd=tree,
        env=env,
    )
    steps.say("generating the OpenAPI definitions")
    steps.run(
        [
            generator,
            "--logtostderr",
            f"--input-dirs={','.join(_described_in_openapi(tree))}",
            "--output-package=k8s.io/kubernetes/pkg/generated/openapi",
            "--output-file-base=zz_generated.openapi",
            "--go-header-file=vendor/k8s.io/code-generator/hack/boilerplate.go.txt",
            f"--report-filename={work / 'violations'}",
        ],
        cwd=tree,
        env=env,
    )

    # 4. Compile both at once: they share most of their packages.
    commands = [f"./cmd/{program}" for program in _BUILT]
    tags = f"-tags={_TAGS}"
    total = len(steps.run([go, "list", "-deps", tags, *commands], cwd=tree, env=env).split())
    done = itertools.count(1)
    what = f"compiling {' and '.join(_BUILT)}"
    flags = ["-v", "-trimpath", tags, f"-ldflags={_linker_flags()}", f"-o={out}/"]
    steps.run(
        [go, "build", *flags, *commands],
        cwd=tree,
        env=env,
        on_line=lambda _: steps.count(what, next(done), total),
    )


def _go_environment(work: Path, packages: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GO", "CGO"))}
    (work / "tmp").mkdir()
    return kept | {
        "GOROOT": str(packages / "usr/lib/go-1.19"),
        "GOPATH": str(work / "go"),
        "GOCACHE": str(work / "gocache"),
        "GOTMPDIR": str(work / "tmp"),
        "GOENV": "off",
        "GO111MODULE": "off",
        "GOGC": "400",  # Memory for CPU time.
        "CGO_ENABLED": "0",
    }


def _described_in_openapi(tree: Path) -> list[str]:
    """The packages whose types carry the OpenAPI tag, by import path."""
    found = set()
    for top in ("pkg", "cmd", "plugin", "staging/src/k8s.io"):
        for file in (tree / top).rglob("*.go"):
            if b"+k8s:openapi-gen=" in file.read_bytes():
                found.add(file.parent.relative_to(tree).as_posix())
    imported = {re.sub("^staging/src/", "vendor/", folder) for folder in found}
    tools = ("vendor/k8s.io/code-generator/", "vendor/k8s.io/sample-apiserver/")
    return sorted(f"k8s.io/kubernetes/{path}" for path in imported if not path.startswith(tools))


def _linker_flags() -> str:
    major, minor, _ = KUBERNETES.split(".")
    values = {
        "gitVersion": f"v{KUBERNETES}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
    }
    vendor = "k8s.io/kubernetes/vendor/k8s.io"
    return " ".join(
        ["-s", "-w"]
        + [
            f"-X {vendor}/{package}.{name}={value}"
            for package in ("component-base/version", "client-go/pkg/version")
            for name, value in values.items()
        ]
    )
