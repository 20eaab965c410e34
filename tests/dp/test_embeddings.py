"""Texts become numbers of words, by vectors of a file or by the stand-in."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.dp.embeddings import STAND_IN, from_file, stand_in, tokens


def _file(folder: Path, text: str, name: str = "vectors.txt") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    return path


def test_words_are_cut_as_glove_cuts_them() -> None:
    assert list(tokens("I don't like Bob's 2nd-hand \u201ccar\u201d, can\u2019t!")) == [
        *("i", "do", "n't", "like", "bob", "'s", "2nd", "-", "hand", "\u201c", "car", "\u201d"),
        *(",", "ca", "n't", "!"),
    ]
    assert list(tokens(" \n_ ")) == []


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz"])
def test_vectors_are_read_from_a_file(tmp_path: Path, name: str) -> None:
    path = _file(tmp_path, "good 1 2\nbad -1 .5\ngood 7 7\n", name)
    vectors = from_file(path, size=2, centred=False)
    assert vectors.name == f"{name} (2 words)"
    assert vectors.vectors.tolist() == [[0, 0], [1, 2], [-1, 0.5]]
    texts = ["Bad, unknown and good. Good!", "", None, "nothing known"]
    ids = vectors.ids(texts, 3)
    assert ids.tolist() == [[2, 1, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    paid = vectors.only(["good", "unknown"], "a vocabulary of 2 words")
    assert paid.ids(texts[:1], 3).tolist() == [[1, 1, 0]]
    assert paid.name == f"{name} (2 words), a vocabulary of 2 words"


def test_a_header_is_skipped(tmp_path: Path) -> None:
    assert from_file(_file(tmp_path, "1 2\nword 3 4\n"), size=2, centred=False).vectors.tolist()[
        1
    ] == [3, 4]


def test_what_all_words_have_in_common_is_taken_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = (" ".join([f"w{i}", *(f"{x:.4f}" for x in rng.normal(3, 0.1, 5))]) for i in range(1000))
    vectors = from_file(_file(tmp_path, "\n".join(lines)), size=5).vectors
    assert not vectors[0].any()
    assert float(np.sqrt(np.square(vectors[1:]).mean())) == pytest.approx(1.2, rel=1e-5)
    common = np.average(vectors[1:], axis=0, weights=1 / np.arange(1, 1001))
    assert np.abs(common).max() < 1e-4
    (tmp_path / "vectors.txt").unlink()
    assert not from_file(_file(tmp_path, "alone 1 2"), size=2).vectors.any()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("good 1 2\nbad 1\n", "line 2 has 1 numbers after the word, not 2"),
        ("good 1 2 3\n", "line 1 has 3 numbers after the word, not 2"),
        ("good 1 x\n", "line 1 has something that is no number after the word"),
        ("good 1 nan\n", "line 1 has a number that is not finite"),
        ("", "are an empty file"),
    ],
)
def test_bad_files_are_told_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(Invalid, match=sentence) as caught:
        from_file(_file(tmp_path, text), size=2)
    assert caught.value.reason is Reason.DATA_UNREADABLE


def test_a_missing_file_and_one_that_is_no_gzip_are_told(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"nowhere.txt cannot be read: No such file"):
        from_file(tmp_path / "nowhere.txt")
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(b"good 1 2\n" * 100)[:-9])
    with pytest.raises(Invalid, match=r"cut.gz cannot be read: "):
        from_file(path, size=2)
    path.write_bytes(b"plain")
    with pytest.raises(Invalid, match=r"cut.gz cannot be read: Not a gzipped file"):
        from_file(path, size=2)


def test_the_stand_in_knows_every_word_the_same_way_everywhere() -> None:
    vectors = stand_in()
    assert vectors.name == STAND_IN
    assert vectors.vectors.shape[1] == 100
    assert not vectors.vectors[0].any()
    ids = vectors.ids(["coffee tea", "tea"], 4)
    assert ids.tolist() == [[5629, 17553, 0, 0], [17553, 0, 0, 0]]
    assert vectors.vectors[5629, 0] == pytest.approx(0.643606, abs=1e-5)
