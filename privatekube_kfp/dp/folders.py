"""What the steps of a training hand on: examples that are ready to be read, and a model.

Both are folders of plain arrays and a JSON file. Nothing in them is code, and whatever trains,
PyTorch or TensorFlow, can read and write them.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.data.bounds import Ints
from privatekube_kfp.data.places import in_one_line
from privatekube_kfp.dp.architectures import Architecture, architecture

Array = npt.NDArray[Any]
Weights = dict[str, Array]
"""By the names that PyTorch gives them."""
Spent = tuple[Mapping[str, Any], ...]
"""The mechanisms that were run on the data, as accounting writes them."""


@dataclass(frozen=True)
class Part:
    """Examples in the order of their units, of which unit u has the rows offsets[u]:offsets[u + 1].

    `inputs` are what a model reads: vectors of a hundred numbers, or the numbers of words.
    """

    inputs: Array
    labels: Ints
    offsets: Ints


@dataclass(frozen=True)
class About:
    """What anybody may know of examples, and of the model that is trained on them."""

    claim: str
    task: str
    model: str
    semantic: str
    labels: tuple[str, ...]
    words: str
    """Which word vectors, or which BERT, were really used."""
    source: str = ""
    """Where they are from, to be read again; empty for the stand-in."""

    @property
    def architecture(self) -> Architecture:
        return architecture(self.task, self.model)


@dataclass(frozen=True)
class ReadyExamples:
    """A claim's data as its model reads them. As private as the data."""

    about: About
    train: Part
    held_out: Part
    vectors: Array
    """The vectors of the words that are numbered in `inputs`; of none, if those are vectors."""
    spent: Spent = ()
    vocabulary: Ints | None = None
    """The words that may be read, if they were chosen with differential privacy."""


@dataclass(frozen=True)
class Point:
    """How often a model was right after so many epochs; with noise, and paid."""

    epoch: float
    accuracy: float | None
    margin: float


@dataclass(frozen=True)
class ReadyModel:
    """A trained model, what it has cost, and how it came along."""

    about: About
    weights: Weights
    trainer: str
    """What trained it, such as PyTorch."""
    seed: int
    planned: Mapping[str, Any]
    """The mechanism that training was granted."""
    spent: Spent
    """All that was run up to here; last, training itself."""
    curve: tuple[Point, ...] = ()
    looked_by: str = ""
    """The step of the plan that was consumed for the looks, beside what is in `spent`."""
    vocabulary: Ints | None = None


def save_examples(folder: str | Path, examples: ReadyExamples) -> None:
    """Write the folder. A crash leaves one that is not whole, which nobody reads."""
    with _writing(folder) as place:
        for name, part in (("train", examples.train), ("held_out", examples.held_out)):
            arrays = {"inputs": part.inputs, "labels": part.labels, "offsets": part.offsets}
            np.savez(place / f"{name}.npz", **arrays)  # type: ignore[arg-type]
        np.save(place / "vectors.npy", examples.vectors)
        _save_vocabulary(place, examples.vocabulary)
        _write(place / "examples.json", {**asdict(examples.about), "spent": examples.spent})


def load_examples(folder: str | Path) -> ReadyExamples:
    folder = Path(folder)
    with _reading(folder, "examples"):
        said = json.loads((folder / "examples.json").read_text())
        spent = tuple(said.pop("spent"))
        return ReadyExamples(
            _about(said),
            Part(**np.load(folder / "train.npz")),
            Part(**np.load(folder / "held_out.npz")),
            np.load(folder / "vectors.npy"),
            spent,
            _vocabulary(folder),
        )


def save_model(folder: str | Path, model: ReadyModel) -> None:
    """Write the folder. A crash leaves one that is not whole, which nobody reads."""
    said = {
        **asdict(model.about),
        "trainer": model.trainer,
        "seed": model.seed,
        "spent": model.spent,
        "planned": model.planned,
        "curve": [asdict(point) for point in model.curve],
        "looked_by": model.looked_by,
    }
    with _writing(folder) as place:
        np.savez(place / "weights.npz", **model.weights)  # type: ignore[arg-type]
        _save_vocabulary(place, model.vocabulary)
        _write(place / "model.json", said)


def load_model(folder: str | Path) -> ReadyModel:
    folder = Path(folder)
    with _reading(folder, "model"):
        said = json.loads((folder / "model.json").read_text())
        curve = tuple(Point(**point) for point in said.pop("curve"))
        spent = tuple(said.pop("spent"))
        own = {key: said.pop(key) for key in ("trainer", "seed", "planned", "looked_by")}
        return ReadyModel(
            _about(said),
            dict(np.load(folder / "weights.npz")),
            spent=spent,
            curve=curve,
            vocabulary=_vocabulary(folder),
            **own,
        )


def _about(said: dict[str, Any]) -> About:
    return About(**{**said, "labels": tuple(said["labels"])})


def _save_vocabulary(folder: Path, vocabulary: Ints | None) -> None:
    if vocabulary is not None:
        np.save(folder / "vocabulary.npy", vocabulary)


def _vocabulary(folder: Path) -> Ints | None:
    path = folder / "vocabulary.npy"
    return np.load(path) if path.exists() else None


@contextmanager
def _writing(folder: str | Path) -> Iterator[Path]:
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        yield place
    except OSError as error:
        raise PrivateKubeError(
            Reason.DATA_UNWRITABLE, f"{folder} cannot be written: {in_one_line(error)}"
        ) from None


def _write(path: Path, said: Mapping[str, Any]) -> None:
    """Last of all: it is what says that the folder is whole."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(said, indent=2, allow_nan=False) + "\n")
    partial.replace(path)


@contextmanager
def _reading(folder: Path, what: str) -> Iterator[None]:
    """Whatever is wrong with a folder, in a sentence that tells nothing of what is in it."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise Invalid(
            Reason.DATA_UNREADABLE,
            f"{folder} holds no {what} that can be read ({type(error).__name__})",
        ) from None
