"""A vocabulary costs its step: no unit changes many counts, and noise is made for as many."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatekube_kfp.accounting import (
    Curve,
    DpSgd,
    EpsilonDelta,
    Gaussian,
    Laplace,
    Mechanism,
    PureEpsilon,
    gaussian_sigma,
)
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.sample import CATEGORIES, reviews
from privatekube_kfp.dp import vocabulary
from privatekube_kfp.dp.architectures import architecture
from privatekube_kfp.dp.embeddings import Embeddings, stand_in, stand_in_number
from privatekube_kfp.dp.examples import examples, times_of
from privatekube_kfp.dp.randomness import seeded
from privatekube_kfp.dp.units import Units, numbered, units_of
from privatekube_kfp.dp.vocabulary import (
    WORDS_PER_TEXT,
    WORDS_PER_UNIT,
    ChosenWords,
    choose_words,
    counted,
)
from privatekube_kfp.ledger.streams import Semantic

WORDS = ("apple", "bread", "cheese", "dill", "egg", "fig", "garlic", "honey")
STEPS = [
    (Laplace("0.5"), math.sqrt(2) * 3 / 0.5),
    (PureEpsilon("2"), math.sqrt(2) * 3 / 2),
    (EpsilonDelta("0.5", "0"), math.sqrt(2) * 3 / 0.5),
    (Gaussian("4"), 4 * math.sqrt(3)),
    (EpsilonDelta("1", "1e-7"), float(gaussian_sigma("1", "1e-7")) * math.sqrt(3)),
]


def _embeddings(words: tuple[str, ...] = WORDS) -> Embeddings:
    numbers = {word: number for number, word in enumerate(words, start=1)}
    vectors = np.zeros((len(words) + 1, 4), np.float32)
    return Embeddings("a list", vectors, lambda word: numbers.get(word, 0))


def _hashed() -> Embeddings:
    """Knows every word, by few numbers, so that noise is quickly drawn."""
    vectors = np.zeros((2001, 4), np.float32)
    return Embeddings("hashes", vectors, lambda word: 1 + stand_in_number(word, 2000))


def _units(*sizes: int) -> Units:
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
    return Units(np.arange(offsets[-1]), offsets)


def _texts(*texts: str | None) -> pa.Array:
    return pa.array(texts, pa.string())


# What is counted


def test_each_unit_counts_its_first_different_words_once() -> None:
    texts = _texts(
        *("Apple apple unknown bread.", "bread cheese dill", None, "egg", "", "dill apple")
    )
    found = counted(texts, _units(3, 2, 1), _embeddings(), per_unit=3)
    assert found.tolist() == [0, 2, 1, 1, 1, 1, 0, 0, 0]
    # Beyond what is read of a text nothing counts.
    found = counted(texts, _units(3, 2, 1), _embeddings(), per_unit=3, per_text=1)
    assert found.tolist() == [0, 1, 1, 0, 1, 1, 0, 0, 0]


def test_rows_are_those_of_the_units_wherever_they_lie() -> None:
    texts = _texts("apple", "bread", "left out", "cheese")
    units = Units(np.array([3, 0, 1]), np.array([0, 2, 3]))
    assert counted(texts, units, _embeddings(), per_unit=1).tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 0]
    chunked = pa.chunked_array([texts.slice(0, 1), texts.slice(1)])
    assert counted(chunked, units, _embeddings(), per_unit=1).sum() == 2


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=12)),
        max_size=20,
    ),
    st.integers(1, 4),
)
def test_a_unit_more_or_less_changes_so_many_counts_by_one(rows, most: int) -> None:
    """As the data are read twice: with everybody, and without all rows of one user."""

    def of(rows) -> np.ndarray:
        users = np.array([user for user, _ in rows], np.int64)
        units = units_of(Semantic.USER, users, np.zeros(len(rows), np.int64), per_user=3)
        texts = _texts(*(" ".join(words) for _, words in rows))
        return counted(texts, units, _embeddings(), per_unit=most, per_text=6)

    whole = of(rows)
    for user in {user for user, _ in rows}:
        changes = whole - of([row for row in rows if row[0] != user])
        assert set(changes.tolist()) <= {0, 1}
        assert changes.sum() <= most
        assert np.linalg.norm(changes) <= math.sqrt(most)


def test_parts_add_up(monkeypatch) -> None:
    table = pa.Table.from_batches(reviews(300))
    users, _ = numbered(table["user"])
    units = units_of(Semantic.USER, users, times_of(table))
    whole = counted(table["text"], units, stand_in(), per_unit=10)
    assert whole.sum() <= 10 * units.count
    monkeypatch.setattr(vocabulary, "_UNITS_AT_ONCE", 7)
    assert (counted(table["text"], units, stand_in(), per_unit=10) == whole).all()


# Noise


@pytest.mark.parametrize(("step", "spread"), STEPS, ids=lambda value: str(value)[:28])
def test_noise_is_for_all_words_of_a_unit(step: Mechanism, spread: float) -> None:
    count = 4000
    counts = np.arange(count)
    noisy = vocabulary._with_noise(counts, step, 3, seeded(1))
    noise = noisy - counts
    assert (noise == noise.round()).all()
    # A Laplace sample's spread is off by more than a Gaussian one's.
    assert noise.std() == pytest.approx(spread, rel=6 * math.sqrt(5 / 4 / count))
    assert abs(noise.mean()) < 6 * spread / math.sqrt(count)
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 6 / math.sqrt(count)


def test_every_candidate_has_noise_and_can_be_kept_though_nobody_wrote_it() -> None:
    embeddings = _embeddings()
    first = {
        int(
            choose_words(
                _texts("apple"), _units(1), embeddings, Laplace("0.1"), size=1, randomness=seeded(n)
            ).numbers[0]
        )
        for n in range(200)
    }
    assert first == set(range(1, len(WORDS) + 1))


def test_unless_seeded_no_two_choices_are_the_same() -> None:
    embeddings = _hashed()
    chosen = [
        choose_words(_texts(), _units(), embeddings, step, size=100)
        for step in (Laplace("1"), Laplace("1"), Gaussian("3"), Gaussian("3"))
    ]
    sets = [frozenset(each.numbers.tolist()) for each in chosen]
    assert len(set(sets)) == 4
    assert {len(each) for each in sets} == {100}
    assert all(min(each) >= 1 and max(each) < len(embeddings.vectors) for each in sets)


# What is kept


@pytest.mark.parametrize(
    "step", [Laplace("1"), Gaussian("10", "1e-9"), EpsilonDelta("1", "1e-9")], ids=lambda s: s.kind
)
def test_frequent_words_are_kept(step: Mechanism) -> None:
    table = pa.Table.from_batches(reviews(8000))
    users, _ = numbered(table["user"])
    units = units_of(Semantic.USER, users, times_of(table))
    embeddings = _hashed()
    truth = counted(table["text"], units, embeddings)
    chosen = choose_words(table["text"], units, embeddings, step, size=500, randomness=seeded(2))
    assert chosen.spent is step
    assert len(chosen.numbers) == len(set(chosen.numbers.tolist())) == 500
    # Noise for forty words at epsilon 1 goes up to about 400, over all candidates.
    frequent = np.flatnonzero(truth > 800)
    assert len(frequent) > 20
    assert np.isin(frequent, chosen.numbers).all()
    assert truth[chosen.numbers].sum() > 0.7 * truth.sum()


def test_the_reader_knows_the_kept_words_and_no_others() -> None:
    embeddings = _embeddings()
    chosen = ChosenWords(np.array([3, 1]), Laplace("1"))
    reader = chosen.reader(embeddings)
    assert reader.name == "a list, 2 words chosen with differential privacy"
    assert reader.vectors is embeddings.vectors
    texts = ["apple bread cheese unknown apple", "bread"]
    assert reader.ids(texts, 4).tolist() == [[1, 3, 1, 0], [0, 0, 0, 0]]
    many = ChosenWords(np.arange(1, 5001), Laplace("1")).reader(stand_in())
    assert many.name.endswith(", 5,000 words chosen with differential privacy")


def test_examples_are_read_with_the_kept_words() -> None:
    table = pa.Table.from_batches(reviews(200))
    row, embeddings = architecture("product", "linear"), _hashed()
    users, _ = numbered(table["user"])
    units = units_of(Semantic.USER, users, times_of(table))
    chosen = choose_words(
        table["text"], units, embeddings, Laplace("100"), size=50, randomness=seeded(3)
    )
    reader = chosen.reader(embeddings)
    made = examples(table, row, reader, Semantic.USER, categories=CATEGORIES)
    assert set(np.unique(made.ids)) <= {0, *chosen.numbers.tolist()}
    assert (made.ids != 0).any()


# Odd data and refusals


def test_no_data_are_noise_alone() -> None:
    for texts, units in ((_texts(), _units()), (_texts("", None, "unknown"), _units(1, 1, 1))):
        assert counted(texts, units, _embeddings()).tolist() == [0] * 9
        chosen = choose_words(texts, units, _embeddings(), Laplace("1"), size=8)
        assert sorted(chosen.numbers.tolist()) == list(range(1, 9))


def test_the_smallest_budget_has_noise_that_can_be_drawn() -> None:
    step = Laplace("0.000000000001")
    chosen = choose_words(_texts("fig"), _units(1), _embeddings(), step, size=3)
    assert len(chosen.numbers) == 3


@pytest.mark.parametrize("step", [DpSgd("1", "0.1", 10, "1e-9"), Curve({"2": "0.1"})], ids=str)
def test_other_steps_pay_for_no_vocabulary(step: Mechanism) -> None:
    with pytest.raises(Invalid, match=f"with a step of kind {step.kind}; it takes") as caught:
        choose_words(_texts("fig"), _units(1), _embeddings(), step, size=3)
    assert caught.value.reason is Reason.CANNOT_PRICE


def test_an_epsilon_of_nothing_is_refused() -> None:
    with pytest.raises(Invalid) as caught:
        choose_words(_texts("fig"), _units(1), _embeddings(), EpsilonDelta("0", "1e-9"), size=3)
    assert caught.value.reason is Reason.INVALID_BUDGET


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"size": 0}, "0 words cannot be kept of the 8 that a list has"),
        ({"size": 9}, "9 words cannot be kept of the 8"),
        ({"size": 3, "per_unit": 0}, f"not 0 and {WORDS_PER_TEXT}"),
        ({"size": 3, "per_text": -1}, f"not {WORDS_PER_UNIT} and -1"),
    ],
)
def test_sizes_that_make_no_sense(said: dict[str, int], sentence: str) -> None:
    with pytest.raises(Invalid, match=sentence) as caught:
        choose_words(_texts("fig"), _units(1), _embeddings(), Laplace("1"), **said)
    assert caught.value.reason is Reason.INVALID_REQUEST


def test_what_is_no_text_is_refused_whether_there_are_rows_or_not() -> None:
    for numbers, units in ((pa.array([7]), _units(1)), (pa.array([], pa.int64()), _units())):
        with pytest.raises(Invalid, match="from texts, not from int64") as caught:
            choose_words(numbers, units, _embeddings(), Laplace("1"), size=3)
        assert caught.value.reason is Reason.WRONG_COLUMNS
