"""The gradient of each unit, clipped, and the sum of them: what DP-SGD adds noise to.

A unit's loss is the mean of the losses of its reviews, so its gradient is the mean of theirs, and
it is that which is clipped: whoever wrote a hundred reviews moves the sum no further than whoever
wrote one. (With the sum, nearly all gradients of people with many reviews would be clipped to the
same length anyway, and people with few reviews would count for less.)

Models with a tape are done without a gradient for every review. A linear map's gradient is a
product of its inputs and what comes back to its outputs, so its length follows from the two alone,
and the clipped sum is one product in which every review's part is scaled. Over time (the LSTM) a
gradient for every unit is cheaper than that. For other models Opacus works out each review's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from privatekube_kfp.dp.models import Features, Model, Record, Tape

if TYPE_CHECKING:
    from opacus import GradSampleModule

# In single precision a length is known to a few millionths: clipped a hair below, the clipped
# gradient is no longer than it may be, however it was rounded.
_HAIR = 1 - 1e-4


@dataclass(frozen=True)
class Batch:
    """Reviews of some units: their features and labels, and each review's unit from 0 on."""

    features: Features
    labels: Tensor
    unit: Tensor
    units: int

    def shares(self) -> Tensor:
        """What each review counts in its unit's mean."""
        sizes = torch.bincount(self.unit, minlength=self.units)
        return 1 / sizes[self.unit].to(torch.float32)

    def without(self, left_out: Tensor) -> Batch:
        """The batch without the reviews of these units, which remain as units without any."""
        rows = ~left_out[self.unit]
        features = tuple(feature[rows] for feature in self.features)
        return Batch(features, self.labels[rows], self.unit[rows], self.units)


def losses(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of each review, over categories or of a single score."""
    if scores.shape[1] == 1:
        return functional.binary_cross_entropy_with_logits(
            scores[:, 0], labels.to(scores.dtype), reduction="none"
        )
    return functional.cross_entropy(scores, labels, reduction="none")


class UnitGradients:
    """Sums of clipped gradients of a model, batch after batch."""

    def __init__(self, model: Model, clip: float) -> None:
        self._model = model
        self._clip = clip
        self._per_review = None if model.taped else _with_opacus(model)

    def clipped_sum(self, batch: Batch) -> list[Tensor]:
        """For each trainable parameter, the sum of the units' clipped gradients.

        A unit whose gradient is no number adds nothing, so that it spoils nobody else's. A batch
        of no reviews is a sum of nothing.
        """
        if not len(batch.labels):
            return [torch.zeros_like(parameter) for parameter in self._model.trainable()]
        if self._per_review is None:
            squares, sums = _from_tape(self._model, batch, self._clip)
        else:
            squares, sums = _from_opacus(self._per_review, self._model, batch, self._clip)
        if not torch.isfinite(squares).all():
            return self.clipped_sum(batch.without(~torch.isfinite(squares)))
        return sums

    @property
    def taped(self) -> bool:
        return self._per_review is None

    def close(self) -> None:
        """Leave the model without Opacus' hooks."""
        if self._per_review is not None:
            self._per_review.to_standard_module()


def _with_opacus(model: Model) -> GradSampleModule:
    """Opacus takes as long to import as PyTorch does, and most models do without."""
    from opacus import GradSampleModule

    return GradSampleModule(model, loss_reduction="sum")


def _factors(squares: Tensor, clip: float) -> Tensor:
    """What each unit's gradient is scaled by, from its squared length."""
    limit = clip * _HAIR
    return limit / squares.sqrt().clamp(min=limit)


def _from_tape(model: Model, batch: Batch, clip: float) -> tuple[Tensor, list[Tensor]]:
    # 1. What comes back to the outputs of every linear map, and to nothing else.
    tape: Tape = []
    scores = model(*batch.features, tape=tape)
    total = (losses(scores, batch.labels) * batch.shares()).sum()
    backs = torch.autograd.grad(total, [record.outputs for record in tape])
    # 2. The length of every unit's gradient, over all of its maps and reviews.
    single = len(batch.unit) == batch.units and bool((batch.unit.diff() == 1).all())
    maps = [
        (_OverTime if record.inputs.dim() == 3 else _Flat)(record, back, batch, single)
        for record, back in zip(tape, backs, strict=True)
    ]
    squares = torch.stack([part.squares() for part in maps]).sum(0)
    # 3. The sum, every unit scaled.
    factors = _factors(squares, clip)
    sums = {id(p): total for part in maps for p, total in part.scaled_sums(factors)}
    return squares, [sums[id(parameter)] for parameter in model.trainable()]


class _Flat:
    """A linear map that every review goes through once."""

    def __init__(self, record: Record, back: Tensor, batch: Batch, single: bool) -> None:
        self._record, self._back, self._batch, self._single = record, back, batch, single

    def squares(self) -> Tensor:
        inputs, back, biases = self._record.inputs, self._back, len(self._record.biases)
        if self._single:
            return (inputs.square().sum(1) + biases) * back.square().sum(1)
        unit = self._batch.unit
        # Two reviews of one unit add the product of how alike they are, on either side.
        alike = (inputs @ inputs.t() + biases) * (back @ back.t())
        # Not a product with 0: what is no number must stay within its unit.
        alike = torch.where(unit.unsqueeze(0) == unit.unsqueeze(1), alike, 0.0)
        return alike.new_zeros(self._batch.units).index_add_(0, unit, alike.sum(1)).clamp_(min=0)

    def scaled_sums(self, factors: Tensor) -> list[tuple[Tensor, Tensor]]:
        back = self._back * factors[self._batch.unit].unsqueeze(1)
        bias = back.sum(0)
        weight = (self._record.weight, back.t() @ self._record.inputs)
        return [weight, *((parameter, bias) for parameter in self._record.biases)]


class _OverTime:
    """A linear map that every review goes through once for each token."""

    def __init__(self, record: Record, back: Tensor, batch: Batch, single: bool) -> None:
        self._record = record
        self._weights = torch.bmm(back.permute(1, 2, 0), record.inputs.transpose(0, 1))
        self._biases = back.sum(0)
        if not single:
            self._weights = _by_unit(self._weights, batch)
            self._biases = _by_unit(self._biases, batch)

    def squares(self) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(self._weights.flatten(1), dim=1)
        return lengths.square() + len(self._record.biases) * self._biases.square().sum(1)

    def scaled_sums(self, factors: Tensor) -> list[tuple[Tensor, Tensor]]:
        weight = (self._record.weight, torch.tensordot(factors, self._weights, 1))
        bias = factors @ self._biases
        return [weight, *((parameter, bias) for parameter in self._record.biases)]


def _from_opacus(
    per_review: GradSampleModule, model: Model, batch: Batch, clip: float
) -> tuple[Tensor, list[Tensor]]:
    per_review.zero_grad()
    per_review.train()  # or Opacus notes nothing
    scores = per_review(*batch.features)
    total = (losses(scores, batch.labels) * batch.shares()).sum()
    total.backward()  # type: ignore[no-untyped-call]
    grads = [_by_unit(parameter.grad_sample, batch) for parameter in model.trainable()]  # type: ignore[attr-defined]
    per_review.zero_grad()
    squares = torch.stack([grad.flatten(1).square().sum(1) for grad in grads]).sum(0)
    factors = _factors(squares, clip)
    return squares, [torch.tensordot(factors, grad, 1) for grad in grads]


def _by_unit(per_review: Tensor, batch: Batch) -> Tensor:
    total = per_review.new_zeros(batch.units, *per_review.shape[1:])
    return total.index_add_(0, batch.unit, per_review)
