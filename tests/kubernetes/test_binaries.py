"""Where the programs come from, and what is said when they cannot come from anywhere."""

import fcntl
import threading

import pytest

from tests.kubernetes.control_plane import binaries, debian, recipe
from tests.kubernetes.control_plane.binaries import BinariesMissing, find_or_build

STANZAS = """\
# Comment
Types: deb
# Another
URIs: mirror+file:/somewhere
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By:
 -----BEGIN-----
 .
 abc

Types: deb
URIs: mirror+file:/elsewhere
Suites: nodistro
Components: main

Types: deb
Enabled: no
URIs: mirror+file:/off
Suites: bookworm
Components: main
"""


def program(folder, name, text="#!/bin/sh\n"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def said(monkeypatch, tmp_path):
    """Nothing provided, an empty cache, an empty PATH; the lines that are said."""
    monkeypatch.delenv(binaries.ASSETS, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return []


def quick_build(work, out, steps):
    for name in recipe.PROGRAMS:
        program(out, name)


def test_provided(said, monkeypatch, tmp_path):
    monkeypatch.setenv(binaries.ASSETS, str(tmp_path / "assets"))
    for name in recipe.PROGRAMS:
        program(tmp_path / "assets", name)
    found = find_or_build(said.append)
    assert found.kube_apiserver == tmp_path / "assets/kube-apiserver"
    assert found.kube_controller_manager == tmp_path / "assets/kube-controller-manager"
    assert said == []


def test_provided_without_a_controller_manager(said, monkeypatch, tmp_path):
    monkeypatch.setenv(binaries.ASSETS, str(tmp_path / "assets"))
    for name in ("kube-apiserver", "etcd"):
        program(tmp_path / "assets", name)
    on_path = program(tmp_path / "path", "kubectl")
    found = find_or_build(said.append)
    assert (found.kube_controller_manager, found.kubectl) == (None, on_path)
    assert "no kube-controller-manager" in said[0]


def test_provided_without_what_is_needed(said, monkeypatch, tmp_path):
    monkeypatch.setenv(binaries.ASSETS, str(tmp_path / "assets"))
    program(tmp_path / "assets", "kube-apiserver")
    with pytest.raises(BinariesMissing, match="no etcd and no kubectl that can be run"):
        find_or_build(said.append)


def test_built_once_then_from_the_cache(said, monkeypatch):
    monkeypatch.setattr(debian, "why_not", lambda: None)
    monkeypatch.setattr(recipe, "build", quick_build)
    first = find_or_build(said.append)
    assert first.etcd.parent == first.kube_apiserver.parent == binaries.cache_entry()
    monkeypatch.setattr(recipe, "build", None)
    assert find_or_build(said.append) == first


def test_the_machines_etcd_and_kubectl_come_before_the_caches(said, monkeypatch, tmp_path):
    monkeypatch.setattr(debian, "why_not", lambda: None)
    monkeypatch.setattr(recipe, "build", quick_build)
    wanted = program(tmp_path / "path", "etcd"), program(tmp_path / "path", "kubectl")
    found = find_or_build(said.append)
    assert (found.etcd, found.kubectl) == wanted


def test_a_build_that_breaks_off_leaves_no_entry(said, monkeypatch):
    def broken(work, out, steps):
        program(out, "kube-apiserver")
        raise RuntimeError("the disk is on fire")

    def killed(work, out, steps):
        program(out, "kube-apiserver")
        raise KeyboardInterrupt

    monkeypatch.setattr(debian, "why_not", lambda: None)
    monkeypatch.setattr(recipe, "build", broken)
    with pytest.raises(BinariesMissing, match=r"the disk is on fire\. .*build\.log\. Set KUBEB"):
        find_or_build(said.append)
    monkeypatch.setattr(recipe, "build", killed)
    with pytest.raises(KeyboardInterrupt):
        find_or_build(said.append)
    assert {each.name for each in binaries.cache().iterdir()} == {"lock", "build.log"}

    left = binaries.cache() / ".building-left-by-a-kill"
    program(left / "out", "kube-apiserver")
    monkeypatch.setattr(recipe, "build", quick_build)
    find_or_build(said.append)
    assert not left.exists()


def test_two_do_not_build_at_once(said, monkeypatch):
    monkeypatch.setattr(debian, "why_not", lambda: None)
    monkeypatch.setattr(recipe, "build", quick_build)
    waits = threading.Event()
    binaries.cache().mkdir(parents=True)
    with (binaries.cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other = threading.Thread(target=find_or_build, args=[lambda line: waits.set()])
        other.start()
        assert waits.wait(10)
        for name in recipe.PROGRAMS:  # Made by the one that holds the lock.
            program(binaries.cache_entry(), name, "#!/bin/sh\n# first\n")
    other.join()
    assert "first" in find_or_build(said.append).kube_apiserver.read_text()


def test_a_failed_command_is_quoted(said, monkeypatch, tmp_path):
    def fails(work, out, steps):
        steps.run([str(program(work, "go", "#!/bin/sh\necho no space left >&2; exit 3\n"))])

    monkeypatch.setattr(debian, "why_not", lambda: None)
    monkeypatch.setattr(recipe, "build", fails)
    with pytest.raises(BinariesMissing, match="go ended with 3: no space left"):
        find_or_build(said.append)


def test_neither_there_nor_buildable(said, monkeypatch):
    monkeypatch.setattr(debian, "why_not", lambda: "this is not Debian 12")
    with pytest.raises(BinariesMissing) as missing:
        find_or_build(said.append)
    assert str(missing.value) == (
        "There is no Kubernetes control plane here, and none can be built: this is not Debian 12. "
        "Set KUBEBUILDER_ASSETS to a folder with kube-apiserver, etcd and kubectl, or run on "
        "Debian 12, where they are built from Debian's packages."
    )


def test_sources_of_packages_beside_packages():
    assert debian.with_sources_822(STANZAS) == (
        "types: deb deb-src\n"
        "uris: mirror+file:/somewhere\n"
        "suites: bookworm bookworm-updates\n"
        "components: main contrib\n"
        "signed-by:\n -----BEGIN-----\n .\n abc\n"
    )
    assert debian.with_sources(
        "# deb mirror+file:/off bookworm main\n"
        "deb [signed-by=/a/key] mirror+file:/here bookworm-security main contrib # why\n"
        "deb-src mirror+file:/here bookworm main\n"
        "deb mirror+file:/other trixie main\n"
        "deb mirror+file:/vendor bookworm stable\n"
    ) == (
        "deb [signed-by=/a/key] mirror+file:/here bookworm-security main contrib\n"
        "deb-src [signed-by=/a/key] mirror+file:/here bookworm-security main contrib\n"
    )
