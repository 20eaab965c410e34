"""Training with TensorFlow Privacy does what training with torch does, step by step."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from privatekube_kfp.accounting import DEFAULT_ORDERS, DpSgd, Plan
from privatekube_kfp.core.budget import BASIC, renyi
from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.data.sample import CATEGORIES, reviews
from privatekube_kfp.dp.architectures import architecture
from privatekube_kfp.dp.embeddings import stand_in
from privatekube_kfp.dp.evaluation import true_accuracy
from privatekube_kfp.dp.examples import Examples, examples
from privatekube_kfp.dp.gradients import UnitGradients
from privatekube_kfp.dp.models import Model, build
from privatekube_kfp.dp.planning import LEARNING_RATES, calibrated, schedule
from privatekube_kfp.dp.randomness import seeded
from privatekube_kfp.dp.training import Data, clipped_sum, train
from privatekube_kfp.ledger.streams import Semantic
from tests.keras.conftest import Keras

pytestmark = pytest.mark.slow

EMBEDDINGS = stand_in()
VECTORS = torch.from_numpy(EMBEDDINGS.vectors)
STEP = DpSgd("1.5", "0.1", 5, "1e-9")
MODELS = [(task, kind) for task in ("product", "sentiment") for kind in ("linear", "ff")]
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
NOBODY: Arrays = (np.zeros((0, 100), np.float32), np.zeros(0, np.int64), np.zeros(1, np.int64))


def _examples(task: str, kind: str, count: int, semantic: Semantic = Semantic.USER) -> Examples:
    table = pa.Table.from_batches(reviews(count))
    row = architecture(task, kind)
    return examples(table, row, EMBEDDINGS, semantic, categories=CATEGORIES)


def _model(task: str = "product", kind: str = "linear") -> Model:
    return build(architecture(task, kind), VECTORS)


def _arrays(model: Model, made: Examples) -> Arrays:
    data = Data.of(model, made)
    return data.features[0].numpy(), data.labels.numpy(), data.units.offsets


def _weights(model: Model) -> list[np.ndarray]:
    return [part.numpy() for part in model.state_dict().values()]


def _load(model: Model, weights: list[np.ndarray]) -> Model:
    names = model.state_dict().keys()
    parts = (torch.from_numpy(part) for part in weights)
    model.load_state_dict(dict(zip(names, parts, strict=True)))
    return model


def _small(units: list[int]) -> Arrays:
    """Units of so many rows each, drawn the same every time."""
    drawn = np.random.RandomState(1)
    rows = sum(units)
    features = drawn.standard_normal((rows, 100)).astype(np.float32)
    return features, drawn.randint(0, 2, rows), np.append(0, np.cumsum(units))


# Gradients


@pytest.mark.parametrize("clip", [0.05, 100.0], ids=["clipped", "not"])
@pytest.mark.parametrize("semantic", [Semantic.EVENT, Semantic.USER], ids=["events", "users"])
@pytest.mark.parametrize(("task", "kind"), MODELS)
def test_the_clipped_sum_is_torchs(keras: Keras, task, kind, semantic, clip) -> None:
    model, made = _model(task, kind), _examples(task, kind, 300, semantic)
    sizes = np.diff(made.units.offsets)
    assert (sizes.max() > 2) == (semantic is Semantic.USER)
    chosen = np.arange(0, made.units.count, 2)
    expected = clipped_sum(UnitGradients(model, clip), Data.of(model, made), chosen)
    sums = keras(
        "clipped_sum",
        weights=_weights(model),
        data=_arrays(model, made),
        chosen=chosen,
        clip=clip,
    )
    for ours, theirs in zip(sums, expected, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-3, atol=1e-4 * clip)


def test_a_unit_of_any_size_moves_the_sum_by_at_most_the_clipping_norm(keras: Keras) -> None:
    weights = _weights(_model("sentiment", "ff"))
    for size in (1, 3, 300):
        features, labels, offsets = _small([2, size, 1])
        data = (features * 30, labels, offsets)
        with_it, without = (
            keras("clipped_sum", weights=weights, data=data, chosen=np.array(chosen), clip=1.0)
            for chosen in ([0, 1, 2], [0, 2])
        )
        moved = [a - b for a, b in zip(with_it, without, strict=True)]
        length = math.sqrt(sum(float(np.square(part, dtype=np.float64).sum()) for part in moved))
        assert 0.9 < length <= 1 + 1e-5


def test_a_unit_whose_gradient_is_no_number_adds_nothing(keras: Keras) -> None:
    weights = _weights(_model("sentiment", "ff"))
    features, labels, offsets = _small([3, 3, 1, 2])
    features[4] = np.nan
    data = (features, labels, offsets)
    spoilt, without = (
        keras("clipped_sum", weights=weights, data=data, chosen=np.array(chosen), clip=1.0)
        for chosen in ([0, 1, 2, 3], [0, 2, 3])
    )
    for one, other in zip(spoilt, without, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
        assert np.isfinite(one).all()


@pytest.mark.parametrize(("task", "kind"), MODELS)
def test_no_units_sum_to_nothing(keras: Keras, task, kind) -> None:
    weights = _weights(_model(task, kind))
    sums = keras("clipped_sum", weights=weights, data=NOBODY, chosen=NOBODY[1], clip=1.0)
    assert [part.shape for part in sums] == [part.shape for part in weights]
    assert not any(part.any() for part in sums)


# Steps


def test_the_same_coins_and_noise_make_the_model_that_torch_makes(keras: Keras) -> None:
    model, made = _model("product", "ff"), _examples("product", "ff", 400)
    weights, *_ = keras(
        "train",
        weights=_weights(model),
        data=_arrays(model, made),
        step=STEP,
        learning_rate=0.005,
        seed=3,
    )
    train(model, Data.of(model, made), STEP, learning_rate=0.005, randomness=seeded(3))
    for ours, theirs in zip(weights, _weights(model), strict=True):
        # Where a gradient happens to be about 0, AdamW goes by how it was rounded.
        apart = abs(ours - theirs)
        assert np.quantile(apart, 0.999) < 1e-4
        assert apart.max() < 0.005


def test_with_nobodys_data_the_gradient_is_noise_of_the_steps_spread(keras: Keras) -> None:
    step = DpSgd("1.5", "0.1", 60, "1e-9")
    spread, count = keras(
        "spread_of_gradients", weights=_weights(_model()), data=NOBODY, step=step, clip=2.0
    )
    assert count > 60_000
    assert spread / 0.1 == pytest.approx(3.0, rel=5 / math.sqrt(2 * count))


@pytest.mark.parametrize(
    "units", [[], [1], [3], [1, 2]], ids=["nobody", "one", "three rows", "two"]
)
def test_few_units_and_none_train_like_many(keras: Keras, units) -> None:
    _, _, taken, spent, _ = keras(
        "train",
        weights=_weights(_model("product", "ff")),
        data=_small(units),
        step=STEP,
        learning_rate=0.01,
    )
    assert (taken, spent) == (5, STEP)


def test_what_was_spent_is_the_price_of_the_plan(keras: Keras) -> None:
    step = calibrated("1", schedule(100, 1))
    *_, spent, _ = keras(
        "train", weights=_weights(_model()), data=_small([1] * 90), step=step, learning_rate=0.01
    )
    for accounting in (BASIC, renyi(DEFAULT_ORDERS)):
        assert spent.price(accounting) == Plan.of({"train": step}).parts(accounting)["train"]


def test_stopped_early_it_spent_less_and_weights_on_the_way_are_kept(keras: Keras) -> None:
    weights, snapshots, taken, spent, told = keras(
        "train",
        weights=_weights(_model()),
        data=_small([1] * 20),
        step=STEP,
        learning_rate=0.01,
        keep=[1, 3, 4],
        stop_at=3,
    )
    assert (taken, spent) == (3, replace(STEP, steps=3))
    assert told == [(1, 5, 0.1), (2, 5, 0.2), (3, 5, pytest.approx(0.3))]
    assert list(snapshots) == [1, 3]
    assert np.abs(snapshots[1][0] - weights[0]).max() > 0.005
    np.testing.assert_array_equal(snapshots[3][0], weights[0])


def test_unless_seeded_no_two_trainings_are_the_same(keras: Keras) -> None:
    first, second, third, fourth = (
        keras(
            "train",
            weights=_weights(_model()),
            data=_small([1] * 20),
            step=STEP,
            learning_rate=0.01,
            seed=seed,
        )[0][0]
        for seed in (None, None, 1, 1)
    )
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(third, fourth)


# Weights to begin with


def test_initial_weights_are_spread_like_torchs(keras: Keras) -> None:
    model = _model("product", "ff")
    given = {"hidden": (185, 150), "inputs": 100, "outputs": 11}
    weights = keras("initial_weights", **given, seed=7)
    for ours, theirs in zip(weights, _weights(model), strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        assert ours.std() == pytest.approx(theirs.std(), rel=0.35)
        assert abs(ours).max() <= abs(theirs).max() * 1.3
    np.testing.assert_array_equal(weights[0], keras("initial_weights", **given, seed=7)[0])
    assert not np.array_equal(weights[0], keras("initial_weights", **given, seed=8)[0])


# Refusals


def test_what_cannot_be_trained_on_is_refused(keras: Keras) -> None:
    weights = _weights(_model("sentiment", "linear"))
    features, labels, offsets = _small([1, 2])
    for data, sentence in (
        ((features[:2], labels, offsets), r"features of shape \(2, 100\) do not go with 3 labels"),
        ((features, labels, offsets[:2]), "offsets of units must go up from 0 to .* rows, 3"),
        ((features, labels, np.array([0, 2, 1, 3])), "offsets of units must go up"),
        ((features[:, :50], labels, offsets), "features have 50 numbers; the network reads 100"),
        ((features, labels + 7, offsets), "labels that are not from 0 to 1"),
    ):
        with pytest.raises(Invalid, match=sentence):
            keras("train", weights=weights, data=data, step=STEP, learning_rate=0.01)
    with pytest.raises(Invalid, match="cannot be clipped to length 0"):
        keras("train", weights=weights, data=NOBODY, step=STEP, learning_rate=0.01, clip=0.0)
    with pytest.raises(Invalid, match=r"layers of \[100, 0, 11\] cannot be made"):
        keras("initial_weights", hidden=(0,), inputs=100, outputs=11)


def test_weights_that_are_no_numbers_end_training_and_what_was_spent_is_told(keras: Keras) -> None:
    with pytest.raises(Invalid, match=r"diverged at step 1: .* smaller learning rate") as caught:
        keras(
            "train",
            weights=_weights(_model()),
            data=_small([1] * 20),
            step=STEP,
            learning_rate=float("inf"),
        )
    assert caught.value.spent == replace(STEP, steps=1)


# Learning


def _learn(keras: Keras, task: str, kind: str, data: Arrays, step: DpSgd) -> Model:
    row = architecture(task, kind)
    begin = keras("initial_weights", hidden=row.hidden, inputs=100, outputs=row.outputs)
    rate = LEARNING_RATES[row.kind]
    weights, *_ = keras("train", weights=begin, data=data, step=step, learning_rate=rate)
    return _load(_model(task, kind), weights)


@pytest.mark.parametrize("kind", ["linear", "ff"])
def test_categories_are_learnt_and_torch_reads_what_was(keras: Keras, kind) -> None:
    model, made = _model("product", kind), _examples("product", kind, 3000, Semantic.EVENT)
    learnt = _learn(
        keras, "product", kind, _arrays(model, made), calibrated("8", schedule(3000, 5))
    )
    majority = np.bincount(made.labels).max() / len(made.labels)
    assert true_accuracy(learnt, Data.of(learnt, made)) > majority + 0.1


@pytest.mark.parametrize("kind", ["linear", "ff"])
def test_a_single_score_is_learnt_from_users_of_several_reviews(keras: Keras, kind) -> None:
    """On drawn data: of the sample's ratings as few say too little, with torch as well."""
    features, _, offsets = _small([1, 2, 3] * 300)
    labels = (features[:, 0] + features[:, 1] > 0).astype(np.int64)
    step = calibrated("8", schedule(900, 8))
    learnt = _learn(keras, "sentiment", kind, (features, labels, offsets), step)
    with torch.no_grad():
        right = (learnt(torch.from_numpy(features))[:, 0] > 0).numpy() == labels
    assert right.mean() > 0.65


def test_scores_are_torchs(keras: Keras) -> None:
    model = _model("product", "ff")
    features, *_ = _small([5])
    with torch.no_grad():
        expected = model(torch.from_numpy(features)).numpy()
    scores = keras("scores", weights=_weights(model), features=features)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


def test_torch_is_not_loaded_there(keras: Keras) -> None:
    assert not keras("loaded", module="torch")
    assert keras("loaded", module="tensorflow_privacy")
