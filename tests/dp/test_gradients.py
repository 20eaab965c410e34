"""The unit that is clipped is the one that is protected."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from privatekube_kfp.dp.architectures import ARCHITECTURES, Kind, architecture
from privatekube_kfp.dp.gradients import Batch, UnitGradients, losses
from privatekube_kfp.dp.models import Model, build

CLIP = 1.0
_RANDOM = torch.Generator().manual_seed(5)
VECTORS = torch.randn(40, 100, generator=_RANDOM)
VECTORS[0] = 0
UNITS = torch.tensor([0, 0, 0, 0, 1, 2, 2, 3])
ROWS = [row for row in ARCHITECTURES.values() if row.kind is not Kind.BERT]


def _batch(model: Model, outputs: int, unit: Tensor = UNITS) -> Batch:
    ids = torch.randint(1, 40, (len(unit), 12), generator=_RANDOM)
    ids[1, 7:] = 0
    labels = torch.randint(0, max(2, outputs), (len(unit),), generator=_RANDOM)
    return Batch(model.prepare(ids), labels, unit, int(unit.max()) + 1)


def _one_by_one(model: Model, batch: Batch, clip: float) -> Tensor:
    """The definition: each unit's gradient by autograd, clipped, and summed."""
    total = torch.zeros(sum(p.numel() for p in model.trainable()))
    for unit in range(batch.units):
        rows = batch.unit == unit
        if not rows.any():
            continue
        scores = model(*(feature[rows] for feature in batch.features))
        grads = torch.autograd.grad(losses(scores, batch.labels[rows]).mean(), model.trainable())
        grad = torch.cat([part.flatten() for part in grads])
        total += grad * min(1.0, clip / float(grad.norm()))
    return total


def _flat(sums: list[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in sums])


@pytest.mark.parametrize("clip", [0.01, 100.0], ids=["clipped", "not"])
@pytest.mark.parametrize("unit", [UNITS, torch.arange(8)], ids=["users", "events"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.task}-{row.kind}")
def test_the_sum_is_that_of_each_units_clipped_gradient(row, unit, clip) -> None:
    model = build(row, VECTORS)
    batch = _batch(model, row.outputs, unit)
    sums = _flat(UnitGradients(model, clip).clipped_sum(batch))
    torch.testing.assert_close(sums, _one_by_one(model, batch, clip), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.task}-{row.kind}")
def test_all_of_a_users_reviews_move_the_sum_by_at_most_the_clipping_norm(row) -> None:
    model = build(row, VECTORS * 30)
    batch = _batch(model, row.outputs, torch.tensor([0] * 40 + [1, 2]))
    neighbour = batch.without(torch.tensor([True, False, False]))

    def difference(batch: Batch, neighbour: Batch) -> float:
        with_user, without = (
            _flat(UnitGradients(model, CLIP).clipped_sum(data)) for data in (batch, neighbour)
        )
        return float((with_user - without).norm())

    assert 0 < difference(batch, neighbour) <= CLIP * (1 + 1e-5)
    # Clipped review by review, one user moves it further: this test can fail.
    rows = len(batch.labels)
    as_events = replace(batch, unit=torch.arange(rows), units=rows)
    without = as_events.without(torch.arange(rows) < 40)
    assert difference(as_events, without) > 2 * CLIP


def test_a_unit_whose_gradient_is_no_number_adds_nothing() -> None:
    model = build(architecture("product", "ff"), VECTORS)
    batch = _batch(model, 11)
    batch.features[0][4] = float("nan")
    expected = batch.without(torch.tensor([False, True, False, False]))
    gradients = UnitGradients(model, CLIP)
    sums = _flat(gradients.clipped_sum(batch))
    assert torch.isfinite(sums).all()
    torch.testing.assert_close(sums, _flat(gradients.clipped_sum(expected)))


def test_no_reviews_sum_to_nothing() -> None:
    model = build(architecture("product", "lstm"), VECTORS)
    empty = _batch(model, 11).without(torch.ones(4, dtype=torch.bool))
    assert not _flat(UnitGradients(model, CLIP).clipped_sum(empty)).any()
