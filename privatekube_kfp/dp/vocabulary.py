"""The words that a model reads, chosen from the data and paid for by a step of the plan.

    chosen = choose_words(table["text"], units, embeddings, Laplace("0.1"), size=5_000)
    reader = chosen.reader(embeddings)    # knows these words and no others

Candidates are all words of published vectors. Each unit counts for its first words only, at most
forty different ones, and for each of them once. So whoever comes or goes changes forty counts by
one, and noise for that is added to the counts of all candidates, of those too that nobody wrote.
The words with the largest noisy counts are kept: always as many as were asked for, so that how
many there are tells nothing, and some of them by chance where there are few data.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from privatekube_kfp.accounting import (
    EpsilonDelta,
    Gaussian,
    Laplace,
    Mechanism,
    PureEpsilon,
    gaussian_sigma,
)
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.bounds import Ints
from privatekube_kfp.data.noise import rounded_laplace
from privatekube_kfp.dp.embeddings import PADDING, Embeddings, Vocabulary
from privatekube_kfp.dp.randomness import Randomness
from privatekube_kfp.dp.units import Units

WORDS_PER_UNIT = 40
WORDS_PER_TEXT = 75
_UNITS_AT_ONCE = 2048

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ChosenWords:
    """The numbers of the words that were kept, the most frequent first, and what paid for them."""

    numbers: Ints
    spent: Mechanism

    def reader(self, embeddings: Embeddings) -> Embeddings:
        """The vectors they were chosen for, which now know no other words."""
        kept = _Kept(embeddings.vocabulary, frozenset(self.numbers.tolist()))
        name = f"{embeddings.name}, {len(self.numbers):,} words chosen with differential privacy"
        return replace(embeddings, name=name, vocabulary=kept)


def choose_words(
    texts: pa.ChunkedArray | pa.Array,
    units: Units,
    embeddings: Embeddings,
    step: Mechanism,
    *,
    size: int,
    per_unit: int = WORDS_PER_UNIT,
    per_text: int = WORDS_PER_TEXT,
    randomness: Randomness | None = None,
) -> ChosenWords:
    """The words that most units use, with the noise of this step of a plan.

    All that is given here is public but the texts and their units.

    Args:
        texts: A text or null for each row.
        units: Whose they are.
        embeddings: Whose words are candidates.
        step: `laplace`, `pure` and `epsilon-delta` without a delta are Laplace noise, which is
            exact; `gaussian` and `epsilon-delta` with a delta are Gaussian noise.
        size: How many words to keep.
        per_unit: How many different words of a unit count; its first.
        per_text: How many words of a text are read.
        randomness: The operating system's unless given.
    """
    candidates = len(embeddings.vectors) - 1
    if not 1 <= size <= candidates:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"{size} words cannot be kept of the {candidates} that {embeddings.name} has",
        )
    if per_unit < 1 or per_text < 1:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"at least one word must count, of a unit and of a text, not {per_unit} and {per_text}",
        )
    _check(step)
    counts = counted(texts, units, embeddings, per_unit=per_unit, per_text=per_text)
    # Padding, the first number, is no candidate. Among equal counts the first word is kept.
    noisy = _with_noise(counts[1:], step, per_unit, randomness or Randomness())
    return ChosenWords(1 + np.argsort(-noisy, kind="stable")[:size], step)


def counted(
    texts: pa.ChunkedArray | pa.Array,
    units: Units,
    embeddings: Embeddings,
    *,
    per_unit: int = WORDS_PER_UNIT,
    per_text: int = WORDS_PER_TEXT,
) -> Ints:
    """How many units use each word, by number. Private: nothing has noise yet."""
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        raise Invalid(Reason.WRONG_COLUMNS, f"words are chosen from texts, not from {texts.type}")
    total = np.zeros(len(embeddings.vectors), np.int64)
    for first in range(0, units.count, _UNITS_AT_ONCE):
        part = np.arange(first, min(first + _UNITS_AT_ONCE, units.count))
        rows, unit = units.rows_of(part)
        ids = embeddings.ids(texts.take(pa.array(rows)).to_pylist(), per_text)
        total += np.bincount(_first_words(ids, unit, per_unit), minlength=len(total))
    return total


def _first_words(ids: Ints, unit: Ints, most: int) -> Ints:
    """Of every unit the first different words, one after the other; rows lie by unit."""
    words, whose = ids.ravel(), np.repeat(unit, ids.shape[1])
    known = words != PADDING
    words, whose = words[known], whose[known]
    _, first = np.unique(whose * (words.max(initial=0) + 1) + words, return_index=True)
    first.sort()
    words, whose = words[first], whose[first]
    place = np.arange(len(whose)) - np.searchsorted(whose, whose)
    kept: Ints = words[place < most]
    return kept


def _with_noise(counts: Ints, step: Mechanism, per_unit: int, randomness: Randomness) -> Floats:
    """A unit changes so many counts by one: so much in sum, and in length the root of it."""
    match step:
        case Laplace() | PureEpsilon() | EpsilonDelta(delta="0"):
            scale = per_unit / Fraction(step.epsilon)
            drawn = (count + rounded_laplace(scale, randomness.below) for count in counts.tolist())
            return np.fromiter(drawn, np.float64, len(counts))
        case Gaussian():
            sigma = step.sigma
        case EpsilonDelta():
            sigma = gaussian_sigma(step.epsilon, step.delta)
    noise = randomness.normal(len(counts)) * (float(sigma) * math.sqrt(per_unit))
    noisy: Floats = (torch.from_numpy(counts) + noise.round()).numpy()
    return noisy


def _check(step: Mechanism) -> None:
    if not isinstance(step, Laplace | PureEpsilon | Gaussian | EpsilonDelta):
        raise Invalid(
            Reason.CANNOT_PRICE,
            f"a vocabulary cannot be paid with a step of kind {step.kind}; it takes laplace, pure,"
            " gaussian or epsilon-delta",
        )


@dataclass(frozen=True)
class _Kept:
    """A vocabulary of which only these numbers are known."""

    whole: Vocabulary
    numbers: Collection[int]

    def __call__(self, word: str) -> int:
        number = self.whole(word)
        return number if number in self.numbers else PADDING
