"""Training does what its step of the plan says, costs what that costs, and learns."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from privatekube_kfp.accounting import (
    DEFAULT_ORDERS,
    DpSgd,
    EpsilonDelta,
    Gaussian,
    Laplace,
    Plan,
    PureEpsilon,
)
from privatekube_kfp.core.budget import BASIC, basic, renyi
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.sample import CATEGORIES, reviews
from privatekube_kfp.dp.architectures import architecture
from privatekube_kfp.dp.embeddings import stand_in
from privatekube_kfp.dp.evaluation import confusion, evaluate, true_accuracy
from privatekube_kfp.dp.examples import Examples, examples
from privatekube_kfp.dp.gradients import UnitGradients
from privatekube_kfp.dp.models import Model, build
from privatekube_kfp.dp.planning import (
    Diverged,
    Progress,
    Schedule,
    calibrated,
    schedule,
    training_of,
)
from privatekube_kfp.dp.randomness import Randomness, seeded
from privatekube_kfp.dp.training import (
    Data,
    clipped_sum,
    train,
    train_without_privacy,
    with_noise,
)
from privatekube_kfp.dp.units import Units
from privatekube_kfp.ledger.streams import Semantic

EMBEDDINGS = stand_in()
VECTORS = torch.from_numpy(EMBEDDINGS.vectors)
STEP = DpSgd("1.5", "0.1", 5, "1e-9")


def _examples(count: int, kind: str = "linear", semantic: Semantic = Semantic.EVENT) -> Examples:
    table = pa.Table.from_batches(reviews(count))
    row = architecture("product", kind)
    return examples(table, row, EMBEDDINGS, semantic, categories=CATEGORIES)


def _model(kind: str = "linear") -> Model:
    return build(architecture("product", kind), VECTORS)


def _nobody() -> Examples:
    empty = np.zeros(0, np.int64)
    return Examples(np.zeros((0, 75), np.int64), empty, Units(empty, np.zeros(1, np.int64)), 0)


# Schedules and prices


def test_batches_are_about_the_square_root_of_the_units() -> None:
    assert schedule(10_000, 15) == Schedule("0.010000000", 1500)
    assert schedule(1, 15) == Schedule("1.000000000", 15)
    assert schedule(3, 1) == Schedule("0.666666667", 2)
    with pytest.raises(Invalid, match="at least one unit and one epoch, not 0 and 15"):
        schedule(0, 15)


@pytest.mark.parametrize("accounting", [BASIC, renyi(DEFAULT_ORDERS)], ids=["basic", "renyi"])
def test_what_was_spent_is_the_price_of_the_step(accounting) -> None:
    model, step = _model(), calibrated("1", schedule(100, 1))
    assert basic("1", "1e-9").covers(step.price(BASIC))
    trained = train(
        model, Data.of(model, _examples(100)), step, learning_rate=0.01, randomness=seeded(0)
    )
    assert trained.spent is not None
    plan = Plan.of({"train": step, "evaluate": Laplace("0.1")})
    assert trained.spent.price(accounting) == plan.parts(accounting)["train"]


@pytest.mark.parametrize("accounting", [BASIC, renyi(DEFAULT_ORDERS)], ids=["basic", "renyi"])
def test_stopped_early_it_spent_less(accounting) -> None:
    model = _model()
    data = Data.of(model, _examples(50))
    trained = train(
        model, data, STEP, learning_rate=0.01, randomness=seeded(0), progress=lambda p: p.step == 2
    )
    assert trained.steps == 2
    assert trained.spent == replace(STEP, steps=2)
    spent, whole = trained.spent.price(accounting), STEP.price(accounting)
    assert whole.covers(spent)
    assert spent != whole


def test_progress_is_told_after_each_step() -> None:
    model, told = _model(), []
    train(
        model,
        Data.of(model, _examples(50)),
        STEP,
        learning_rate=0.01,
        randomness=seeded(0),
        progress=told.append,
    )
    assert told[0] == Progress(1, 5, 0.1)
    assert [progress.step for progress in told] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("stopped", [1, 3, 5])
def test_what_comes_out_is_a_mean_of_the_weights_in_which_later_ones_count_more(stopped) -> None:
    model, seen, looks = _model(), [], []

    def weights() -> Tensor:
        return model.trainable()[0].detach().double().clone()

    def look(progress: Progress) -> bool:
        looks.append(weights())
        return progress.step == stopped

    data = Data.of(model, _examples(50))
    watching = register_optimizer_step_post_hook(lambda *_: seen.append(weights()))
    try:
        train(model, data, STEP, learning_rate=0.01, randomness=seeded(0), progress=look)
    finally:
        watching.remove()
    assert len(seen) == stopped
    for step, looked in enumerate(looks, start=1):
        counts = [math.comb(earlier + 4, 5) for earlier in range(1, step + 1)]
        expected = sum(count * weight for count, weight in zip(counts, seen[:step], strict=True))
        torch.testing.assert_close(looked, expected / sum(counts))
    assert torch.equal(weights(), looks[-1])


def test_a_step_of_a_plan_says_how_to_train() -> None:
    wanted = schedule(10_000, 15)
    assert training_of(STEP, wanted) is STEP
    share = EpsilonDelta("1", "1e-9")
    step = training_of(share, wanted)
    assert share.price(BASIC).covers(step.price(BASIC))
    assert (step.sample_rate, step.steps) == ("0.01", 1500)
    for unfit in (PureEpsilon("1"), EpsilonDelta("1", "0"), Gaussian("3", "1e-9")):
        with pytest.raises(Invalid, match=f"with a step of kind {unfit.kind}: its noise"):
            training_of(unfit, wanted)


def test_a_budget_that_no_noise_fits_is_refused() -> None:
    with pytest.raises(Invalid) as caught:
        calibrated("0", schedule(100, 1))
    assert caught.value.reason is Reason.INVALID_BUDGET


# Noise and sampling


def test_noise_of_one_step_has_the_calibrated_spread() -> None:
    """The difference between the noisy sum and the true one, over all parameters of many steps."""
    model = _model()
    data = Data.of(model, _examples(40))
    total = clipped_sum(UnitGradients(model, 2.0), data, np.arange(40))
    randomness = seeded(1)
    runs = [with_noise([part.clone() for part in total], 1.5 * 2.0, randomness) for _ in range(200)]
    noise = torch.stack(
        [
            torch.cat([(a - b).flatten() for a, b in zip(run, total, strict=True)]).double()
            for run in runs
        ]
    )
    count = noise.numel()
    assert count > 200_000
    # Five standard errors of a mean, of a deviation and of a correlation between steps.
    assert abs(float(noise.mean())) < 5 * 3.0 / math.sqrt(count)
    assert float(noise.std()) == pytest.approx(3.0, rel=5 / math.sqrt(2 * count))
    between = float((noise[1:] * noise[:-1]).mean()) / 9.0
    assert abs(between) < 5 / math.sqrt(count)
    assert float((noise.abs() > 2 * 3.0).double().mean()) == pytest.approx(0.0455, abs=0.003)


def test_a_whole_step_moves_the_model_by_what_its_noise_says(monkeypatch) -> None:
    """With nobody's data the gradient that AdamW is given is noise alone, of the step's spread."""
    seen: list[torch.Tensor] = []

    class Spy(torch.optim.AdamW):
        def step(self, closure=None):
            for group in self.param_groups:
                seen.extend(parameter.grad.clone().flatten() for parameter in group["params"])
            return super().step(closure)

    monkeypatch.setattr(torch.optim, "AdamW", Spy)
    model = _model()
    step = DpSgd("1.5", "0.1", 100, "1e-9")
    train(
        model, Data.of(model, _nobody()), step, learning_rate=0.01, clip=2.0, randomness=seeded(2)
    )
    noise = torch.cat(seen).double() / 0.1
    assert float(noise.std()) == pytest.approx(3.0, rel=5 / math.sqrt(2 * noise.numel()))


def test_each_unit_is_sampled_by_a_coin_of_its_own() -> None:
    randomness = seeded(3)
    drawn = [randomness.sampled(2000, "0.1") for _ in range(100)]
    sizes = np.array([len(chosen) for chosen in drawn])
    assert sizes.mean() == pytest.approx(200, abs=5 * math.sqrt(180 / 100))
    assert sizes.std() == pytest.approx(math.sqrt(180), rel=0.4)
    hits = np.bincount(np.concatenate(drawn), minlength=2000)
    assert hits.max() < 35
    assert randomness.sampled(5, "1").tolist() == [0, 1, 2, 3, 4]
    assert randomness.sampled(0, "0.5").tolist() == []


def test_whole_numbers_are_even() -> None:
    randomness = seeded(4)
    drawn = np.bincount([randomness.below(5) for _ in range(5000)], minlength=5)
    assert (abs(drawn - 1000) < 5 * math.sqrt(800)).all()
    assert randomness.below(1) == 0
    assert randomness.below(1 << 80) < 1 << 80


def test_unless_seeded_no_two_trainings_are_the_same() -> None:
    weights = []
    for randomness in (None, None, seeded(1), seeded(1)):
        model = _model()
        train(model, Data.of(model, _examples(30)), STEP, learning_rate=0.01, randomness=randomness)
        weights.append(model.trainable()[0].detach())
    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(weights[2], weights[3])
    assert not torch.equal(Randomness().normal(3), Randomness().normal(3))


# Odd data


@pytest.mark.parametrize("kind", ["linear", "ff", "lstm"])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_few_units_and_none_train_like_many(kind: str, count: int) -> None:
    made = _examples(5, kind)
    made = Examples(
        made.ids[:count], made.labels[:count], Units(np.arange(count), np.arange(count + 1)), 0
    )
    model = _model(kind)
    trained = train(model, Data.of(model, made), STEP, learning_rate=0.01, randomness=seeded(0))
    assert trained.spent == STEP


def test_parts_of_a_batch_add_up(monkeypatch) -> None:
    model = _model("ff")
    data = Data.of(model, _examples(60, "ff", Semantic.USER))
    chosen = np.arange(0, data.units.count, 2)
    whole = clipped_sum(UnitGradients(model, 1.0), data, chosen)
    monkeypatch.setattr("privatekube_kfp.dp.training._ROWS_AT_ONCE", 4)
    parts = clipped_sum(UnitGradients(model, 1.0), data, chosen)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_weights_that_are_no_numbers_end_training_and_what_was_spent_is_told() -> None:
    model = _model()
    data = Data.of(model, _examples(30))
    with pytest.raises(Diverged, match=r"diverged at step 1: .* smaller learning rate") as caught:
        train(model, data, STEP, learning_rate=float("inf"), randomness=seeded(0))
    assert caught.value.spent == replace(STEP, steps=1)
    with pytest.raises(Diverged):
        train_without_privacy(model, data, epochs=1, learning_rate=0.01)
    with pytest.raises(Invalid, match="not one example"):
        train_without_privacy(model, Data.of(model, _nobody()), epochs=1, learning_rate=0.01)


# Learning


def test_it_beats_the_majority_with_privacy_and_without() -> None:
    made = _examples(4000)
    majority = np.bincount(made.labels).max() / len(made.labels)
    private, plain = _model(), _model()
    data = Data.of(private, made)
    train(
        private, data, calibrated("5", schedule(4000, 8)), learning_rate=0.02, randomness=seeded(0)
    )
    train_without_privacy(plain, data, epochs=8, learning_rate=0.02)
    assert true_accuracy(private, data) > majority + 0.15
    assert true_accuracy(plain, data) > majority + 0.3


def test_users_are_trained_on_as_one() -> None:
    made = _examples(3000, semantic=Semantic.USER)
    assert made.units.count < 3000
    model = _model()
    data = Data.of(model, made)
    train(model, data, calibrated("8", schedule(2300, 8)), learning_rate=0.02, randomness=seeded(0))
    assert true_accuracy(model, data) > np.bincount(made.labels).max() / 3000 + 0.1


# Evaluation


def test_accuracy_is_noised_for_one_unit() -> None:
    made = _examples(400, semantic=Semantic.USER)
    model = _model()
    data = Data.of(model, made)
    truth = true_accuracy(model, data) * made.units.count
    for step, spread in ((Laplace("0.5"), math.sqrt(2) / 0.5), (Gaussian("4"), 4.0)):
        randomness = seeded(5)
        runs = [evaluate(model, data, step, randomness=randomness) for _ in range(400)]
        right = np.array([run.right for run in runs])
        wrong = np.array([run.wrong for run in runs])
        assert runs[0].spent is step
        assert right.mean() == pytest.approx(truth, abs=5 * spread / 20)
        assert (right + wrong).mean() == pytest.approx(made.units.count, abs=10 * spread / 20)
        assert right.std() == pytest.approx(spread, rel=0.25)
        assert abs(np.corrcoef(right, wrong)[0, 1]) < 0.25


def test_a_user_more_or_less_changes_right_and_wrong_by_one_in_all(monkeypatch) -> None:
    monkeypatch.setattr("privatekube_kfp.dp.evaluation.rounded_laplace", lambda *_: 0)
    made = _examples(300, semantic=Semantic.USER)
    sizes = np.diff(made.units.offsets)
    assert sizes[-1] >= 1
    assert sizes.max() > 1
    model = _model()
    whole = evaluate(model, Data.of(model, made), Laplace("1"))
    for unit in (int(sizes.argmax()), 0):
        kept = np.delete(np.arange(made.units.count), unit)
        rows, whose = made.units.rows_of(kept)
        offsets = np.append(0, np.cumsum(np.bincount(whose)))
        less = replace(made, units=Units(rows, offsets))
        other = evaluate(model, Data.of(model, less), Laplace("1"))
        changes = [whole.right - other.right, whole.wrong - other.wrong]
        assert min(changes) >= 0
        assert sum(changes) == 1


def test_labels_that_were_not_given_are_never_told(monkeypatch) -> None:
    """A model has eleven scores; where there are three categories, only three are read."""
    monkeypatch.setattr("privatekube_kfp.dp.evaluation.rounded_laplace", lambda *_: 0)
    made = _examples(200)
    three = np.flatnonzero(made.labels < 3)
    made = Examples(made.ids[three], made.labels[three], Units(*_one_by_one(len(three))), 0)
    model = _model()
    with torch.no_grad():
        model.trainable()[1][10] = 100.0  # the last score is always the largest
    data = Data.of(model, made)
    assert evaluate(model, data, Laplace("1")).right == 0
    found = evaluate(model, data, Laplace("1"), classes=3)
    table = confusion(model, data, Laplace("1"), 3)
    assert np.sum(table) == found.right + found.wrong == len(three)
    assert np.trace(table) == found.right > 0


def _one_by_one(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(count), np.arange(count + 1)


def test_nothing_to_evaluate_on_is_noise_and_other_steps_are_refused() -> None:
    model = _model()
    data = Data.of(model, _nobody())
    found = evaluate(model, data, Laplace("1"), randomness=seeded(0))
    assert found.accuracy is None or 0 <= found.accuracy <= 1
    with pytest.raises(Invalid, match="cannot be paid with a step of kind dp-sgd"):
        evaluate(model, data, STEP)
    with pytest.raises(Invalid, match="not one example"):
        true_accuracy(model, data)
