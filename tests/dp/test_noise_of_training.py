"""Noise is as large as the plan says, wherever it is drawn, and a ledger loses what was reported.

What one step does is seen where it acts: in the gradient that the optimizer is handed. Where the
operating system draws, a test fails by chance less than once in a million runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from privatekube_kfp.accounting import (
    DEFAULT_ORDERS,
    DpSgd,
    Gaussian,
    Laplace,
    Mechanism,
    Plan,
    Weighted,
    mechanism_from_json,
)
from privatekube_kfp.core.budget import BASIC, Budget, renyi
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.unlocking import AtOnce
from privatekube_kfp.data.sample import CATEGORIES, reviews
from privatekube_kfp.dp.architectures import architecture
from privatekube_kfp.dp.contribution import unit_of
from privatekube_kfp.dp.embeddings import stand_in
from privatekube_kfp.dp.evaluation import evaluate
from privatekube_kfp.dp.examples import Examples, examples
from privatekube_kfp.dp.gradients import UnitGradients
from privatekube_kfp.dp.models import Model, build
from privatekube_kfp.dp.noise import Kind, draw
from privatekube_kfp.dp.planning import Diverged, calibrated, schedule
from privatekube_kfp.dp.randomness import Randomness, seeded
from privatekube_kfp.dp.statistics import STATISTICS, calibrate, statistic
from privatekube_kfp.dp.training import Data, clipped_sum, train
from privatekube_kfp.dp.units import Units
from privatekube_kfp.ledger.client import ClaimClient
from privatekube_kfp.ledger.sqlite import SqliteLedger
from privatekube_kfp.ledger.streams import Semantic, StreamSpec

EMBEDDINGS = stand_in()
VECTORS = torch.from_numpy(EMBEDDINGS.vectors)
RENYI = renyi(DEFAULT_ORDERS)
# Beyond six standard errors is what happens twice in a thousand million times.
SURE = 6.0

Floats = npt.NDArray[np.float64]


def _table(count: int) -> pa.Table:
    return pa.Table.from_batches(reviews(count))


def _data(model: Model, kind: str, count: int, semantic: Semantic = Semantic.EVENT) -> Data:
    if not count:
        empty = np.zeros(0, np.int64)
        length = architecture("product", kind).length
        units = Units(empty, np.zeros(1, np.int64))
        return Data.of(model, Examples(np.zeros((0, length), np.int64), empty, units, 0))
    row = architecture("product", kind)
    made = examples(_table(count), row, EMBEDDINGS, semantic, categories=CATEGORIES)
    return Data.of(model, made)


@contextmanager
def _handed_over() -> Iterator[list[Floats]]:
    """What optimizers are handed, step after step, all parameters in a row."""
    seen: list[Floats] = []

    def look(optimizer: torch.optim.Optimizer, *_: object) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        whole = torch.cat([parameter.grad.flatten() for parameter in parameters])
        seen.append(whole.double().numpy())

    hook = register_optimizer_step_pre_hook(look)
    try:
        yield seen
    finally:
        hook.remove()


def _flat(parts: list[torch.Tensor]) -> Floats:
    return torch.cat([part.flatten() for part in parts]).double().numpy()


def _is_gaussian(noise: Floats, deviation: float) -> None:
    """Its spread, and its whole shape: Massart's bound on how far a sample's can be off."""
    count = noise.size
    assert noise.std() == pytest.approx(deviation, rel=SURE / math.sqrt(2 * count))
    assert abs(noise.mean()) < SURE * deviation / math.sqrt(count)
    ordered = torch.from_numpy(np.sort(noise, axis=None)) / deviation
    expected = torch.special.ndtr(ordered).numpy()
    furthest = abs(expected - (np.arange(count) + 0.5) / count).max()
    assert furthest < math.sqrt(math.log(2e9) / (2 * count)) + 0.5 / count


# Training


@pytest.mark.parametrize("seed", [None, 11], ids=["operating system", "seeded"])
@pytest.mark.parametrize("semantic", [Semantic.EVENT, Semantic.USER])
def test_one_step_of_many_trainings_is_the_clipped_sum_and_the_calibrated_noise(
    semantic: Semantic, seed: int | None
) -> None:
    clip, runs = 0.5, 200
    randomness = Randomness() if seed is None else seeded(seed)
    step = replace(calibrated("3", schedule(60, 1)), sample_rate="1", steps=1)
    model = build(architecture("product", "linear"), VECTORS)
    data = _data(model, "linear", 60, semantic)
    truth = _flat(clipped_sum(UnitGradients(model, clip), data, np.arange(data.units.count)))
    start = {name: value.clone() for name, value in model.state_dict().items()}
    with _handed_over() as seen:
        for _ in range(runs):
            model.load_state_dict(start)
            trained = train(model, data, step, learning_rate=0.01, clip=clip, randomness=randomness)
            assert trained.spent == step
    noise = np.stack(seen) - truth
    deviation = float(step.noise_multiplier) * clip
    _is_gaussian(noise, deviation)
    # No number of the model gets less than the others: of 1,111 spreads none is far off.
    spreads = noise.std(axis=0) / deviation
    assert abs(spreads - 1).max() < 8 / math.sqrt(2 * runs)
    # Nor do two trainings get the same, or two halves of one, which are drawn in pairs.
    for one, other in (
        (noise[1:], noise[:-1]),
        (noise[:, 1:], noise[:, :-1]),
        (noise[:, :555], noise[:, 556:]),
    ):
        alike = float((one * other).mean()) / deviation**2
        assert abs(alike) < SURE / math.sqrt(one.size)


@pytest.mark.parametrize("kind", ["linear", "ff", "lstm"])
def test_every_step_of_a_training_has_noise_of_its_own_on_all_parameters(kind: str) -> None:
    """With nobody's data there is nothing but noise."""
    step = calibrated("1", schedule(400, 1))
    assert step.steps == 20
    model = build(architecture("product", kind), VECTORS)
    data = _data(model, kind, 0)
    with _handed_over() as seen:
        train(model, data, step, learning_rate=0.01, clip=2.0)
    assert len(seen) == step.steps
    noise = np.stack(seen) / float(step.sample_rate)
    deviation = float(step.noise_multiplier) * 2.0
    _is_gaussian(noise, deviation)
    between = float((noise[1:] * noise[:-1]).mean()) / deviation**2
    assert abs(between) < SURE / math.sqrt(noise[1:].size)


def test_who_is_sampled_is_drawn_anew_in_every_step() -> None:
    """Hardly any noise, so that who was in a step can be told from its sum: each by a coin."""
    model = build(architecture("product", "linear"), VECTORS)
    data = _data(model, "linear", 12)
    gradients = UnitGradients(model, 1.0)
    each = np.stack([_flat(clipped_sum(gradients, data, np.array([n]))) for n in range(12)])
    step = DpSgd("0.000001", "0.25", 400, "1e-9")
    with _handed_over() as seen:
        # At so small a rate of learning every step has the gradients of the first.
        train(model, data, step, learning_rate=1e-12, randomness=seeded(12))
    found, *_ = np.linalg.lstsq(each.T, np.stack(seen).T / 0.25, rcond=None)
    assert abs(found - found.round()).max() < 0.05
    chosen = found.round().astype(int)
    assert set(np.unique(chosen)) == {0, 1}
    error = math.sqrt(0.25 * 0.75 / chosen.size)
    assert chosen.mean() == pytest.approx(0.25, abs=5 * error)
    again = float((chosen[:, 1:] & chosen[:, :-1]).mean())
    assert again == pytest.approx(1 / 16, abs=5 * math.sqrt(1 / 16 / chosen.size) * 1.5)


# Statistics: what their own tests leave open, users, and the noise of a Renyi stream


@pytest.mark.parametrize(
    ("step", "accounting"),
    [(Gaussian("4"), RENYI), (Laplace("0.5"), RENYI), (Gaussian("4", "1e-7"), BASIC)],
    ids=["gaussian-renyi", "laplace-renyi", "gaussian-basic"],
)
@pytest.mark.parametrize("name", list(STATISTICS))
def test_statistics_of_users_have_the_calibrated_spread(
    name: str, step: Mechanism, accounting, tmp_path: Path
) -> None:
    path = tmp_path / "data.parquet"
    table = _table(50).append_column(
        "time", pa.array([n * 1_000_000 for n in range(50)], pa.timestamp("us", "UTC"))
    )
    parquet.write_table(table, path)
    said = {"categories": CATEGORIES} if "category" in name else {}
    known = statistic(name, unit_of(Semantic.USER, per_user=7, per_user_per_day=7), **said)
    planned = calibrate(known, step, accounting)
    asked: list[tuple[Kind, float]] = []

    def noted(kind: Kind, scale: float) -> int:
        asked.append((kind, scale))
        return draw(kind, scale)

    planned.run(path, noted)
    # A draw for every number that is told, of its part's scale.
    widths = [part.width for part in known.parts]
    assert asked == [
        (planned.kind, scale)
        for scale, width in zip(planned.scales, widths, strict=True)
        for _ in range(width)
    ]
    for n, part in enumerate(known.parts):
        if planned.kind is Kind.LAPLACE:
            scale = 7 * part.per_row / (0.5 * float(part.share))
            size, spread = scale, scale
        else:
            scale = 7 * part.per_row * 4.0 / math.sqrt(part.share)
            # For an epsilon at a delta discrete noise is a little more than continuous.
            most = 1.0 + 1e-9 if accounting.is_renyi else 1.1
            assert scale * (1 - 1e-9) <= planned.scales[n] <= scale * most
            scale = planned.scales[n]
            size, spread = scale * math.sqrt(2 / math.pi), scale * math.sqrt(1 - 2 / math.pi)
        off = abs(np.array([draw(planned.kind, planned.scales[n]) for _ in range(1000)], float))
        assert off.mean() == pytest.approx(size, abs=SURE * spread / math.sqrt(off.size))


# What a ledger loses


def _stream(accounting) -> StreamSpec:
    conversion = Weighted() if accounting.is_renyi else None
    return StreamSpec(
        *("reviews", "20", "1e-6", AtOnce()), accounting=accounting, conversion=conversion
    )


@pytest.fixture(params=[BASIC, RENYI], ids=["basic", "renyi"])
def client(request, tmp_path: Path) -> Iterator[tuple[ClaimClient, SqliteLedger]]:
    with SqliteLedger(tmp_path / "ledger.db", create=True) as ledger:
        ledger.create_stream(_stream(request.param))
        ledger.create_block("monday", "reviews")
        yield ClaimClient(ledger), ledger


def _as_logged(spent: Mechanism | None) -> Mechanism:
    """What somebody reads who has nothing but the report."""
    assert spent is not None
    return mechanism_from_json(json.loads(json.dumps(spent.to_json())))


def _consumed(ledger: SqliteLedger) -> Budget:
    assert ledger.verify().ok
    budget = ledger.block("monday").budget
    assert budget.capacity == budget.locked + budget.unlocked + budget.allocated + budget.consumed
    return budget.consumed


def test_the_ledger_loses_what_is_recomputed_from_what_was_reported(client) -> None:
    claims, ledger = client
    accounting = ledger.stream("reviews").spec.accounting
    plan = Plan.of(
        {
            "train": calibrated("1", schedule(100, 1)),
            "evaluate": Laplace("0.1"),
            "again": Gaussian("5", "1e-9"),
        }
    )
    granted = claims.allocate(
        "run", stream="reviews", selection=Selection(last=1), plan=plan, timeout=0
    )
    assert granted.done
    model = build(architecture("product", "linear"), VECTORS)
    data = _data(model, "linear", 100)
    training, first, second = (step.mechanism for step in plan.steps)
    assert isinstance(training, DpSgd)
    told: list[int] = []
    with _handed_over() as seen:
        trained = train(
            model,
            data,
            training,
            learning_rate=0.01,
            randomness=seeded(13),
            progress=lambda progress: told.append(progress.step),
        )
    reported = [_as_logged(trained.spent)]
    assert isinstance(reported[0], DpSgd)
    assert reported[0].steps == len(seen) == len(told) == trained.steps
    reported += [_as_logged(evaluate(model, data, step).spent) for step in (first, second)]
    total = accounting.zero()
    for name, mechanism in zip(("train", "evaluate", "again"), reported, strict=True):
        assert claims.consume("run", step=name).done
        total = total + mechanism.price(accounting)
        assert _consumed(ledger) == total
    assert plan.price(accounting) == total
    assert ledger.claim("run").held().is_zero


@pytest.mark.parametrize("stopped", [1, 7, 10])
def test_stopped_early_it_loses_the_steps_taken_and_the_rest_comes_back(client, stopped) -> None:
    claims, ledger = client
    accounting = ledger.stream("reviews").spec.accounting
    training = calibrated("1", schedule(100, 1))
    assert training.steps == 10
    plan = Plan.of({"train": training})
    claims.allocate("run", stream="reviews", selection=Selection(last=1), plan=plan, timeout=0)
    model = build(architecture("product", "linear"), VECTORS)
    data = _data(model, "linear", 100)
    with _handed_over() as seen:
        trained = train(
            model,
            data,
            training,
            learning_rate=0.01,
            randomness=seeded(14),
            progress=lambda progress: progress.step == stopped,
        )
    spent = _as_logged(trained.spent)
    assert spent == replace(training, steps=len(seen))
    price, granted = spent.price(accounting), training.price(accounting)
    assert granted.covers(price)
    assert (price == granted) == (stopped == training.steps)
    assert claims.consume("run", amount=Plan.of(spent), request_id="spent").done
    claims.release("run")
    assert _consumed(ledger) == price
    assert ledger.block("monday").budget.allocated.is_zero
    assert claims.consume("run", amount=Plan.of(spent), request_id="once-more").denied
    assert _consumed(ledger) == price


def test_a_training_that_diverged_is_paid_for(client) -> None:
    claims, ledger = client
    accounting = ledger.stream("reviews").spec.accounting
    training = calibrated("1", schedule(100, 1))
    plan = Plan.of({"train": training})
    claims.allocate("run", stream="reviews", selection=Selection(last=1), plan=plan, timeout=0)
    model = build(architecture("product", "linear"), VECTORS)
    with _handed_over() as seen, pytest.raises(Diverged) as caught:
        train(model, _data(model, "linear", 100), training, learning_rate=float("inf"))
    spent = _as_logged(caught.value.spent)
    assert isinstance(spent, DpSgd)
    assert spent.steps == len(seen)
    claims.consume("run", amount=Plan.of(spent), request_id="spent")
    assert _consumed(ledger) == spent.price(accounting)
