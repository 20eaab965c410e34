"""Which settings hold: those that are named, else the nearest file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from privatekube_kfp.settings import InvalidSettings, find_settings, read_settings


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `work/inner` to be in, below the home folder."""
    inner = tmp_path / "home" / "work" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PRIVATEKUBE_SETTINGS", raising=False)
    return inner


def write(path: Path, namespace: str) -> str:
    path.write_text(f"namespace: {namespace}\n")
    return str(path)


def test_there_need_be_none() -> None:
    assert find_settings().source == ""


def test_the_nearest_file_up_to_the_home_folder(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "privatekube.yaml", "above-home")
    assert find_settings().namespace == ""
    write(tmp_path / "home" / "privatekube.yaml", "home")
    assert find_settings().namespace == "home"
    write(folder.parent / "privatekube.yaml", "work")
    assert find_settings().namespace == "work"
    write(folder / "privatekube.yaml", "inner")
    assert find_settings().namespace == "inner"


def test_what_is_named_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "privatekube.yaml", "found")
    monkeypatch.setenv("PRIVATEKUBE_SETTINGS", write(folder / "a.yaml", "variable"))
    assert find_settings().namespace == "variable"
    assert find_settings(write(folder / "b.yaml", "option")).namespace == "option"
    assert find_settings("none").source == ""


def test_what_is_named_must_be_there(folder: Path) -> None:
    write(folder / "privatekube.yaml", "found")
    with pytest.raises(InvalidSettings, match="the settings nowhere cannot be read: No such file"):
        find_settings("nowhere")
    with pytest.raises(InvalidSettings, match=r"the settings \. cannot be read: Is a directory"):
        find_settings(".")
    (folder / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidSettings, match="binary is not text"):
        find_settings("binary")
    for nonsense in ("configmap:", "configmap:a/b/c"):
        with pytest.raises(InvalidSettings, match="does not name a ConfigMap"):
            read_settings(nonsense)


def test_two_documents_are_not_settings(folder: Path) -> None:
    (folder / "two.yaml").write_text("namespace: a\n---\nnamespace: b\n")
    with pytest.raises(InvalidSettings, match="has 2 YAML documents; settings are one"):
        find_settings("two.yaml")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_a_file_above_that_belongs_to_another_is_not_followed(folder: Path) -> None:
    path = folder.parent / "privatekube.yaml"
    write(path, "theirs")
    os.chown(path, 12345, 12345)
    with pytest.raises(InvalidSettings, match="belongs to another user: name it with --settings"):
        find_settings()
    assert find_settings(str(path)).namespace == "theirs"


def test_a_file_without_end():
    with pytest.raises(InvalidSettings, match=r"/dev/zero is longer than 1,048,576 characters"):
        read_settings("/dev/zero")
