"""How often a model is right, released with a share of budget of its own.

Each unit is worth one: a user with ten reviews of which nine are right adds 0.9 to what is right
and 0.1 to what is wrong. So whoever comes or goes changes the two by 1 in sum, and by at most 1 in
length, whatever the semantic; noise for 1 is enough, where counts of reviews would need noise for
a hundred. Both are noised, since how many units there are is private too.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from privatekube_kfp.accounting import Gaussian, Laplace, Mechanism, PureEpsilon
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.bounds import Ints
from privatekube_kfp.data.noise import rounded_laplace
from privatekube_kfp.dp.models import Model
from privatekube_kfp.dp.randomness import Randomness
from privatekube_kfp.dp.training import Data

# A unit is so many parts, which are whole numbers: their noise is drawn exactly.
_PARTS = 1 << 20
_ROWS_AT_ONCE = 1024
_LAPLACE_95 = 3.0  # scales; Gaussian noise has less beyond so many of its own


@dataclass(frozen=True)
class Evaluation:
    """Units that are right and wrong, with noise; and the step that paid for them."""

    right: float
    wrong: float
    spent: Mechanism
    scale: float = 0.0
    """Of the noise on each of the two."""

    @property
    def margin(self) -> float:
        """About how far off the accuracy may be by the noise, in 95 of 100 runs; 1 is all."""
        total = max(0.0, self.right) + max(0.0, self.wrong)
        return min(1.0, _LAPLACE_95 * self.scale / total) if total else 1.0

    @property
    def accuracy(self) -> float | None:
        """The share that is right; None if the noise leaves nothing to tell it from."""
        right, wrong = max(0.0, self.right), max(0.0, self.wrong)
        return right / (right + wrong) if right + wrong > 0 else None


def evaluate(
    model: Model,
    data: Data,
    step: Mechanism,
    *,
    classes: int | None = None,
    randomness: Randomness | None = None,
) -> Evaluation:
    """The model's accuracy on these data, with the noise of this step of a plan.

    Of the model's scores the first `classes` are read, if fewer labels than it has were given.
    """
    randomness = randomness or Randomness()
    _check(step)
    right, units = _right(model, data, classes), data.units.count
    sums = right, units * _PARTS - right
    match step:
        case Laplace() | PureEpsilon():
            deviation = 1 / float(step.epsilon)
            scale = _PARTS / Fraction(step.epsilon)
            noisy = [part + rounded_laplace(scale, randomness.below) for part in sums]
        case Gaussian():
            deviation = float(step.sigma)
            noise = randomness.normal(2) * (float(step.sigma) * _PARTS)
            noisy = [part + round(float(extra)) for part, extra in zip(sums, noise, strict=True)]
    return Evaluation(noisy[0] / _PARTS, noisy[1] / _PARTS, step, deviation)


def confusion(
    model: Model, data: Data, step: Mechanism, classes: int, *, randomness: Randomness | None = None
) -> list[list[float]]:
    """How many units of each label (rows) were taken for each (columns), with a step's noise.

    A unit is worth one here too, so it changes the whole table by 1 in sum.
    """
    randomness = randomness or Randomness()
    if not isinstance(step, Laplace | PureEpsilon):
        raise Invalid(
            Reason.CANNOT_PRICE,
            f"a table of labels cannot be paid with a step of kind {step.kind}; it takes laplace"
            " or pure",
        )
    table = np.zeros(classes * classes, np.int64)
    units = data.units
    sizes = np.diff(units.offsets)
    if len(sizes):
        labels = data.labels.numpy()[units.rows].astype(np.int64)
        cells = labels * classes + _predictions(model, data, classes)[units.rows]
        unit = np.repeat(np.arange(len(sizes)), sizes)
        (places, of), counts = np.unique(np.stack([cells, unit]), axis=1, return_counts=True)
        np.add.at(table, places, counts * _PARTS // sizes[of])
    scale = _PARTS / Fraction(step.epsilon)
    noisy = [(int(n) + rounded_laplace(scale, randomness.below)) / _PARTS for n in table]
    return [noisy[row : row + classes] for row in range(0, len(noisy), classes)]


def true_accuracy(model: Model, data: Data) -> float:
    """What `evaluate` adds noise to; for tests and benchmarks, on data that are nobody's."""
    if not data.units.count:
        raise Invalid(Reason.INVALID_REQUEST, "there is not one example to evaluate on")
    return _right(model, data) / (_PARTS * data.units.count)


def predicted(scores: Tensor) -> Tensor:
    """The likeliest label of each row of scores."""
    return (scores[:, 0] > 0).long() if scores.shape[1] == 1 else scores.argmax(1)


def _right(model: Model, data: Data, classes: int | None = None) -> int:
    """In parts of a unit, rounded down for each unit."""
    hits = _predictions(model, data, classes) == data.labels.numpy()
    units = data.units
    so_far = np.append(0, np.cumsum(hits[units.rows]))
    of_unit = so_far[units.offsets[1:]] - so_far[units.offsets[:-1]]
    return int((of_unit * _PARTS // np.diff(units.offsets)).sum())


def _predictions(model: Model, data: Data, classes: int | None) -> Ints:
    found = np.zeros(len(data.labels), np.int64)
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for start in range(0, len(found), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            scores = model(*(feature[rows] for feature in data.features))
            found[rows] = predicted(scores[:, :classes]).numpy()
    model.train(was_training)
    return found


def _check(step: Mechanism) -> None:
    if not isinstance(step, Laplace | PureEpsilon | Gaussian):
        raise Invalid(
            Reason.CANNOT_PRICE,
            f"an evaluation cannot be paid with a step of kind {step.kind}; it takes laplace, pure"
            " or gaussian",
        )
