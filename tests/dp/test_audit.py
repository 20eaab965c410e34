"""Audits stay below what is claimed, and catch training that does less than it claims."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
import torch

from privatekube_kfp.accounting import DpSgd
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.sample import CATEGORIES, reviews
from privatekube_kfp.dp.architectures import architecture
from privatekube_kfp.dp.audit import (
    Audit,
    Run,
    audit,
    epsilon_at_least,
    odds,
    p_value,
    rare_reviews,
    with_canaries,
)
from privatekube_kfp.dp.embeddings import stand_in
from privatekube_kfp.dp.examples import Examples, examples
from privatekube_kfp.dp.models import build
from privatekube_kfp.dp.planning import LEARNING_RATES, calibrated, schedule
from privatekube_kfp.dp.randomness import seeded
from privatekube_kfp.dp.training import Data, train
from privatekube_kfp.ledger.streams import Semantic

ROW = architecture("product", "linear")
REVIEWS, CANARIES, GUESSES = 500, 1000, 200
DELTA = "1e-5"


@cache
def _examples(count: int, semantic: Semantic = Semantic.EVENT) -> Examples:
    table = pa.Table.from_batches(reviews(count))
    return examples(table, ROW, stand_in(), semantic, categories=CATEGORIES)


def _training(step: DpSgd, seed: int, semantic: Semantic = Semantic.EVENT) -> Run:
    """The real training, from reviews and canaries to how sure the model is of the canaries."""
    made = _examples(REVIEWS, semantic)
    embeddings, canaries = rare_reviews(CANARIES, ROW, stand_in())
    vectors = torch.from_numpy(embeddings.vectors)

    def run(included: np.ndarray) -> np.ndarray:
        model = build(ROW, vectors)
        before = odds(model, canaries)
        data = Data.of(model, with_canaries(made, canaries, included))
        rate = LEARNING_RATES[ROW.kind]
        trained = train(model, data, step, learning_rate=rate, randomness=seeded(seed))
        assert trained.spent == step
        return odds(model, canaries) - before

    return run


@cache
def _step(epsilon: str) -> DpSgd:
    return calibrated(epsilon, schedule(REVIEWS + CANARIES // 2, 10), DELTA)


def _audited(epsilon: str, seed: int = 0, semantic: Semantic = Semantic.EVENT) -> Audit:
    return audit(
        _training(_step(epsilon), seed, semantic),
        CANARIES,
        guesses=GUESSES,
        delta=DELTA,
        confidence=0.99,
        randomness=seeded(100 + seed),
    )


# Of training


@pytest.mark.parametrize("semantic", [Semantic.EVENT, Semantic.USER])
@pytest.mark.parametrize("seed", [0, 1])
def test_training_gives_away_less_than_it_claims(seed: int, semantic: Semantic) -> None:
    found = _audited("1", seed, semantic)
    assert not found.spent_more_than("1")
    assert found.epsilon < 1


def test_the_audit_is_not_blind_to_what_a_large_budget_gives_away() -> None:
    found = _audited("60")
    assert 0.8 < found.epsilon < 60


@pytest.mark.parametrize("seed", [0, 1])
def test_gradients_that_are_not_clipped_are_caught(monkeypatch, seed: int) -> None:
    monkeypatch.setattr(
        "privatekube_kfp.dp.gradients._factors", lambda squares, clip: torch.ones_like(squares)
    )
    found = _audited("1", seed)
    assert found.spent_more_than("1")
    assert found.epsilon > 1.5


def test_noise_that_is_missing_is_caught(monkeypatch) -> None:
    monkeypatch.setattr(
        "privatekube_kfp.dp.training.with_noise", lambda total, deviation, randomness: total
    )
    assert _audited("1").spent_more_than("1")


# Of other trainers: answers of which the epsilon is known exactly


def _randomized_response(epsilon: float, seed: int) -> Run:
    """Says of each canary the truth at odds of e^epsilon to 1: nothing gives away more."""
    generator = np.random.default_rng(seed)

    def run(included: np.ndarray) -> np.ndarray:
        true = generator.random(len(included)) < 1 / (1 + math.exp(-epsilon))
        return (included == true).astype(float)

    return run


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_what_is_proven_is_true_at_its_confidence(epsilon: float) -> None:
    found = [
        audit(
            _randomized_response(epsilon, seed),
            300,
            guesses=200,
            delta="0",
            confidence=0.9,
            randomness=seeded(1000 + seed),
        ).epsilon
        for seed in range(100)
    ]
    too_much = np.mean([bound > epsilon for bound in found])
    assert too_much <= 0.1 + 5 * math.sqrt(0.09 / 100)
    assert np.mean(found) > epsilon - 0.5


def test_with_many_canaries_it_is_nearly_all() -> None:
    found = audit(
        _randomized_response(1.0, 1), 20_000, guesses=18_000, delta="0", randomness=seeded(2)
    )
    assert 0.9 < found.epsilon < 1


def test_a_trainer_that_tells_all_and_one_that_tells_nothing() -> None:
    everything = audit(
        lambda included: included * 1.0, 300, guesses=100, delta="0", randomness=seeded(2)
    )
    assert everything.right == 100
    # All of a hundred guesses: 0.05 is the hundredth power of how often one must be right.
    often = 0.05**0.01
    assert everything.epsilon == pytest.approx(math.log(often / (1 - often)), abs=1e-5)
    nothing = audit(
        lambda included: np.zeros(100), 100, guesses=100, delta="0", randomness=seeded(3)
    )
    assert nothing.epsilon == 0


def test_half_of_the_guesses_are_on_either_side() -> None:
    scores = np.array([3.0, -1.0, 0.0, 2.0, 0.5])
    seen = []

    def run(included: np.ndarray) -> np.ndarray:
        seen.append(included)
        return scores

    found = audit(run, 5, guesses=3, delta="0", randomness=seeded(4))
    (included,) = seen
    assert found.right == int(included[0]) + int(included[3]) + int(not included[1])


# The bound


def test_the_bound_is_the_one_of_the_paper() -> None:
    """Its own example: 75 of 100 guesses on 1,000 canaries, at a delta of 0.0001."""
    assert epsilon_at_least(75, 100, 1000, delta="0.0001") == pytest.approx(0.673, abs=5e-4)
    assert p_value(75, 100, 100, math.log(3), 0.0) == pytest.approx(0.553, abs=5e-4)


def test_more_right_guesses_prove_more_and_a_larger_delta_less() -> None:
    bounds = [epsilon_at_least(right, 100, 200, delta="1e-5") for right in range(0, 101, 10)]
    assert bounds == sorted(bounds)
    assert bounds[:6] == [0.0] * 6
    by_delta = [epsilon_at_least(90, 100, 200, delta=delta) for delta in ("0", "1e-4", "1e-3")]
    assert by_delta == sorted(by_delta, reverse=True)
    assert by_delta[0] > by_delta[2]
    by_confidence = [epsilon_at_least(90, 100, 200, delta="0", confidence=c) for c in (0.9, 0.99)]
    assert by_confidence[0] > by_confidence[1]


def test_claims_are_compared_as_numbers() -> None:
    found = Audit(canaries=100, guesses=100, right=100, delta="0", confidence=0.95)
    assert found.spent_more_than("3.4")
    assert not found.spent_more_than("3.5")


# Canaries


def test_canaries_are_units_of_their_own_behind_the_examples() -> None:
    made = _examples(40, Semantic.USER)
    embeddings, canaries = rare_reviews(30, ROW, stand_in())
    included = np.arange(30) % 3 == 0
    both = with_canaries(made, canaries, included)
    assert both.units.count == made.units.count + 10
    rows, unit = both.units.rows_of(np.arange(made.units.count, both.units.count))
    assert rows.tolist() == list(range(40, 50))
    assert unit.tolist() == list(range(10))
    assert (both.ids[rows] == canaries.ids[included]).all()
    assert (both.labels[rows] == canaries.labels[included]).all()
    assert len(embeddings.vectors) == len(stand_in().vectors) + 100
    assert with_canaries(made, canaries, np.zeros(30, bool)).units.count == made.units.count


@pytest.mark.parametrize("task", ["product", "sentiment"])
def test_no_two_canaries_are_the_same_and_clipping_binds_all(task: str) -> None:
    row = architecture(task, "linear")
    most = 1100 if task == "product" else 200
    embeddings, canaries = rare_reviews(most, row, stand_in())
    pairs = np.stack([canaries.ids[:, 0], canaries.labels], 1)
    assert len(np.unique(pairs, axis=0)) == most
    model = build(row, torch.from_numpy(embeddings.vectors))
    sure = odds(model, canaries)
    assert sure.shape == (most,)
    # A gradient is as long as its vector times at least what the label's chance is short of 1.
    assert (12 / (1 + np.exp(sure))).min() > 1
    with pytest.raises(Invalid, match=f"from 1 to {most} canaries .* not {most + 1}"):
        rare_reviews(most + 1, row, stand_in())


# Refusals


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: audit(lambda m: m * 1.0, 10, guesses=11, delta="0"),
            "11 guesses on 10 canaries",
        ),
        (lambda: audit(lambda m: m * 1.0, 10, guesses=1, delta="0"), "at least 2"),
        (
            lambda: audit(lambda m: np.zeros(3), 10, guesses=4, delta="0"),
            r"a number for each of 10 canaries; it answered 3 .* \(3,\)",
        ),
        (
            lambda: audit(lambda m: np.full(10, np.nan), 10, guesses=4, delta="0"),
            "it answered 0 numbers",
        ),
        (lambda: epsilon_at_least(5, 4, 10, delta="0"), "5 right of 4 guesses on 10 canaries"),
        (lambda: epsilon_at_least(4, 4, 10, delta="0", confidence=1.0), "above 0 and below 1"),
    ],
)
def test_what_is_no_audit_is_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(Invalid, match=sentence) as caught:
        call()
    assert caught.value.reason is Reason.INVALID_REQUEST
