"""Words to vectors: real ones from a file, or a stand-in that needs no download.

Vocabularies are public: a list of words that somebody published, never the words of the data. Which
vectors were really used is kept as `name`, for reports.

Clipped gradients leave little of what vectors say if they are small, or if most of each is what all
have in common. So vectors are of one size here, and those from a file are centred: on the list of
words alone, which is public.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from privatekube_kfp.core.errors import Invalid, Reason

SIZE = 100
PADDING = 0
STAND_IN = "hashed stand-in vectors (no pretrained embeddings)"
_BUCKETS = 1 << 15
# Large beside a bias, whose gradient is about 1 whatever was read: or clipping leaves little else.
_SPREAD = 1.2
_NO_SPREAD = 1e-6
_TOKEN = re.compile(r"[^\W_]+?(?=n['\u2019]t\b)|n['\u2019]t\b|['\u2019][a-z]+|[^\W_]+|[^\w\s]")

Ids = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]


class Vocabulary(Protocol):
    """The number of a word, from 1 on, or 0 where it has none."""

    def __call__(self, word: str) -> int: ...


@dataclass(frozen=True)
class Embeddings:
    """Vectors by number, the first of which is padding and zero, and the numbers of words."""

    name: str
    vectors: Vectors
    vocabulary: Vocabulary

    def ids(self, texts: Iterable[str | None], length: int) -> Ids:
        """The first known words of every text, padded on the right; of an empty text, none."""
        rows = [self._known(text or "", length) for text in texts]
        result = np.full((len(rows), length), PADDING, np.int64)
        for row, known in zip(result, rows, strict=True):
            row[: len(known)] = known
        return result

    def only(self, words: Iterable[str], name: str) -> Embeddings:
        """The same vectors for these words alone, such as those of a vocabulary that was paid."""
        numbers = {word: number for word in words if (number := self.vocabulary(word))}
        return replace(self, name=f"{self.name}, {name}", vocabulary=_Listed(numbers))

    def _known(self, text: str, length: int) -> list[int]:
        numbers = map(self.vocabulary, tokens(text))
        return list(islice((number for number in numbers if number), length))


def tokens(text: str) -> Iterable[str]:
    """Words in lower case, marks one by one, and `don't` as `do` and `n't`: as GloVe has them."""
    for match in _TOKEN.finditer(text.lower()):
        yield match[0].replace("\u2019", "'")


def stand_in() -> Embeddings:
    """Vectors that are drawn, not learnt: the same word has the same one everywhere.

    Any word has a number, by its hash, so there is no list of words. Words that mean the same have
    nothing in common here, as they have in real vectors; any two share theirs once in 32,768.
    """
    # This generator is promised never to change, others are not.
    drawn = np.random.RandomState(0).standard_normal((_BUCKETS + 1, SIZE)) * _SPREAD
    drawn[PADDING] = 0
    return Embeddings(STAND_IN, drawn.astype(np.float32), _hashed)


def from_file(path: str | Path, *, size: int = SIZE, centred: bool = True) -> Embeddings:
    """Vectors in GloVe's text format, also as `.gz`: a word and its numbers on each line.

    Args:
        path: The file; its words in order of how frequent they are, as files of vectors have them.
        size: How many numbers a vector has.
        centred: Whether to take out what texts have in common, and bring all to one size.
    """
    path = Path(path)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            words, vectors = _read(path.name, lines, size)
    except (OSError, EOFError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Invalid(
            Reason.DATA_UNREADABLE, f"the word vectors {path} cannot be read: {why}"
        ) from None
    if centred:
        vectors = _centred(vectors)
    return Embeddings(f"{path.name} ({len(words)} words)", vectors, _Listed(words))


def from_arrays(name: str, words: Sequence[str], vectors: Vectors) -> Embeddings:
    """Vectors that were read elsewhere, a row for each word, the most frequent first; centred."""
    numbers = {word: number for number, word in enumerate(words, start=1)}
    padded = np.concatenate([np.zeros((1, vectors.shape[1]), np.float32), vectors])
    return Embeddings(f"{name} ({len(words)} words)", _centred(padded), _Listed(numbers))


def _read(name: str, lines: Iterable[bytes], size: int) -> tuple[dict[str, int], Vectors]:
    words: dict[str, int] = {}
    vectors = [np.zeros(size, np.float32)]
    for number, line in enumerate(lines, start=1):
        word, *parts = line.rstrip().split(b" ")
        if number == 1 and len(parts) == 1 and parts[0].isdigit():
            continue  # word2vec's header: how many words, of what size
        if len(parts) != size:
            raise _bad(name, number, f"has {len(parts)} numbers after the word, not {size}")
        try:
            vector = np.array(parts, np.float32)
        except ValueError:
            raise _bad(name, number, "has something that is no number after the word") from None
        if not np.isfinite(vector).all():
            raise _bad(name, number, "has a number that is not finite")
        if words.setdefault(word.decode(errors="replace"), len(vectors)) == len(vectors):
            vectors.append(vector)
    if not words:
        raise Invalid(Reason.DATA_UNREADABLE, f"the word vectors {name} are an empty file")
    return words, np.stack(vectors)


def _centred(vectors: Vectors) -> Vectors:
    """Less the mean word of a text, by Zipf's law: the second word half as frequent, and so on."""
    frequency = 1 / np.arange(1, len(vectors), dtype=np.float32)
    words = vectors[1:] - np.average(vectors[1:], axis=0, weights=frequency)
    spread = max(float(np.sqrt(np.square(words).mean())), _NO_SPREAD)
    return np.concatenate([vectors[:1], words * (_SPREAD / spread)]).astype(np.float32)


def _bad(name: str, number: int, what: str) -> Invalid:
    return Invalid(Reason.DATA_UNREADABLE, f"the word vectors {name}: line {number} {what}")


@dataclass(frozen=True)
class _Listed:
    numbers: Mapping[str, int]

    def __call__(self, word: str) -> int:
        return self.numbers.get(word, PADDING)


def _hashed(word: str) -> int:
    return 1 + stand_in_number(word, _BUCKETS)


@lru_cache(maxsize=1 << 18)
def stand_in_number(word: str, below: int) -> int:
    """A number for any word, by its hash; the same everywhere."""
    digest = hashlib.blake2b(word.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest) % below
