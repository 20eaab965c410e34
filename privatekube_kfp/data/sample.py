"""Reviews that nobody wrote, for demonstrations and tests.

They look like Amazon's: user, product, timestamp, rating, category, text, sorted by time. Nobody
is in them, so they cost no budget. A category can be learnt from the words, but not trivially:
many words are common to all, some to two categories, and part of the reviews are about something
else. The same seed gives the same reviews, and the first of them whatever their number.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LEXICON = """
apps: app phone screen update crash download widget install free ads level login version sync
automotive: car engine tire oil truck brake wiper battery mileage garage wheel filter hood fit
beauty: skin hair lotion scent cream shampoo lipstick makeup dry soft smell bottle nails face
books: book novel chapter author plot reader story pages writing series ending character page
electronics: camera cable laptop battery charger usb screen sound video headset plug device tv
food: taste flavor coffee tea chocolate snack sweet cup fresh bag organic bitter salt tasty
games: game level controller player graphics console story mission play multiplayer disc fun
garden: plant garden soil seeds hose lawn water grill bird outdoor pot leaves tool spray
music: album song band guitar lyrics voice vinyl track concert melody sound bass listen singer
office: paper printer ink pen desk envelope label folder chair stapler tape page binder office
toys: toy kids daughter son puzzle doll blocks birthday play box lego pieces grandson fun
"""
_COMMON_WORDS = """
the a it is was and this that for with my of to in on i we very so but not as have had just they
you be at all from one when would really after use used get got bought product item price time
day week year well much more than then even only also still other some any out up down good
great nice ok bad love like want need made make work works first again never always order
arrived shipping quality small big little long short old new right wrong easy
"""
_PRAISE_WORDS = "excellent perfect amazing happy recommend wonderful best pleased favorite solid"
_BLAME_WORDS = "broken terrible waste refund disappointed poor awful returned worst useless"

_WORDS = {
    category: words.split()
    for category, words in (line.split(":") for line in _LEXICON.strip().splitlines())
}
CATEGORIES = tuple(_WORDS)
_COMMON, _PRAISE, _BLAME = (words.split() for words in (_COMMON_WORDS, _PRAISE_WORDS, _BLAME_WORDS))

_TOPICAL = 0.12
_MISLEADING = 0.24
_MOODY = 0.06
_SHORTEST, _LONGEST = 8, 60
_RETURNING = 0.3
_RATINGS = (0.07, 0.05, 0.09, 0.2, 0.59)
_BATCH = 50_000

_LISTS = list(_WORDS.values())
_VOCABULARY = pa.array([*_COMMON, *_PRAISE, *_BLAME, *(w for words in _LISTS for w in words)])
_SIZES = np.array([len(words) for words in _LISTS])
_STARTS = len(_COMMON) + len(_PRAISE) + len(_BLAME) + np.concatenate(([0], np.cumsum(_SIZES)[:-1]))


def reviews(
    count: int, *, seed: int = 0, start: int = 1_500_000_000, days: int = 100
) -> Iterator[pa.RecordBatch]:
    """So many reviews, spread evenly over so many days, in batches.

    Args:
        count: How many.
        seed: The same gives the same.
        start: The time of the first, in seconds since 1970.
        days: Over how many days they are spread.
    """
    for number, first in enumerate(range(0, count, _BATCH)):
        rng = np.random.default_rng([seed, number])
        rows = np.arange(first, first + _BATCH, dtype=np.int64)
        batch = _batch(rng, rows, start + rows * days * 86_400 // count)
        yield batch.slice(0, min(_BATCH, count - first))


def _batch(rng: np.random.Generator, rows: np.ndarray, times: np.ndarray) -> pa.RecordBatch:
    size = len(rows)
    category = rng.integers(len(CATEGORIES), size=size)
    rating = rng.choice(np.arange(1, 6), size=size, p=_RATINGS)
    return pa.RecordBatch.from_pydict(
        {
            "user": _named("U", _users(rng, rows)),
            "product": _named("P", category * 10_000 + rng.integers(500, size=size)),
            "timestamp": pa.array(times),
            "rating": pa.array(rating, pa.int8()),
            "category": pc.take(pa.array(CATEGORIES), pa.array(category)),
            "text": _texts(rng, category, rating),
        }
    )


def _users(rng: np.random.Generator, rows: np.ndarray) -> np.ndarray:
    """Most reviews are of somebody new; the others of somebody who came before, if anybody did."""
    known = (rows * (1 - _RETURNING)).astype(np.int64)
    before = (rng.random(len(rows)) * known).astype(np.int64)
    return np.where((rng.random(len(rows)) < _RETURNING) & (known > 0), before, rows)


def _named(letter: str, numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(letter, pc.cast(pa.array(numbers), pa.string()), "")


def _texts(rng: np.random.Generator, category: np.ndarray, rating: np.ndarray) -> pa.Array:
    size = len(category)
    lengths = rng.integers(_SHORTEST, _LONGEST + 1, size=size)
    total = int(lengths.sum())
    # Some reviews are about something else than their category.
    topic = np.where(
        rng.random(size) < _MISLEADING, rng.integers(len(CATEGORIES), size=size), category
    )
    topics = np.repeat(topic, lengths)
    ratings = np.repeat(rating, lengths)
    common = (len(_COMMON) * rng.random(total) ** 2).astype(np.int64)
    topical = _STARTS[topics] + (_SIZES[topics] * rng.random(total)).astype(np.int64)
    mood = len(_COMMON) + rng.integers(len(_PRAISE), size=total)
    mood += np.where(ratings <= 2, len(_PRAISE), 0)
    kind = rng.random(total)
    words = np.where(kind < _TOPICAL, topical, np.where(kind < _TOPICAL + _MOODY, mood, common))
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    lists = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pc.take(_VOCABULARY, pa.array(words))
    )
    return pc.binary_join(lists, " ")
