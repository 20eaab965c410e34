"""DP-SGD over units, priced by what it did, and its twin without privacy.

A step of a plan says how training will go: noise multiplier, sample rate, how many steps. Training
does exactly that, so its price is the plan's, to the last unit; where it is stopped early, what it
spent is the price of the steps it took. None of the three is taken from the data (see `planning`).

What comes out is a mean of the weights on the way, which the noise of single steps moves less than
the last ones; it is worked out from what is public already, so it costs nothing.

What is told on the way (`Progress`) says how far training is, not how well it fits: the loss on
private data would be a release that nobody paid for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from privatekube_kfp.accounting import DpSgd
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.bounds import Ints
from privatekube_kfp.dp.architectures import Kind
from privatekube_kfp.dp.examples import Examples
from privatekube_kfp.dp.gradients import Batch, UnitGradients, losses
from privatekube_kfp.dp.models import Features, Model, seeded
from privatekube_kfp.dp.planning import CLIP, Diverged, Progress, share_in_mean, spent_after
from privatekube_kfp.dp.randomness import Randomness
from privatekube_kfp.dp.units import Units

PLAIN_LEARNING_RATES = {Kind.LINEAR: 0.01, Kind.FF: 0.001, Kind.LSTM: 0.001, Kind.BERT: 0.0005}
PLAIN_BATCH = 256
_ROWS_AT_ONCE = 2048
_ROWS_AT_ONCE_BY_OPACUS = 32


# What was run


@dataclass(frozen=True)
class Trained:
    """What training spent: None if it was stopped before its first step."""

    steps: int
    spent: DpSgd | None


@dataclass(frozen=True)
class Data:
    """Examples as a model reads them: whatever is frozen is worked out once."""

    features: Features
    labels: Tensor
    units: Units

    @classmethod
    def of(cls, model: Model, examples: Examples) -> Data:
        with torch.no_grad():
            features = model.prepare(torch.from_numpy(examples.ids))
        return cls(features, torch.from_numpy(examples.labels), examples.units)

    def batch(self, rows: Ints, unit: Ints, units: int) -> Batch:
        chosen = torch.from_numpy(rows)
        features = tuple(feature[chosen] for feature in self.features)
        return Batch(features, self.labels[chosen], torch.from_numpy(unit), units)


def train(
    model: Model,
    data: Data,
    step: DpSgd,
    *,
    learning_rate: float,
    clip: float = CLIP,
    randomness: Randomness | None = None,
    progress: Callable[[Progress], bool | None] = lambda _: None,
) -> Trained:
    """Train as this step of a plan says.

    Args:
        model: Its trainable parameters are changed.
        data: What to train on; units of the stream's semantic.
        step: Noise multiplier, sample rate and how many steps; its price is what this may spend.
        learning_rate: Of AdamW; `planning` has one that does for each kind of model.
        clip: The longest that a unit's gradient may be.
        randomness: The operating system's unless given; a seeded one is for tests.
        progress: Told after each step; training stops early if it answers true. It must decide by
            what is public, such as the clock, the model as it would be now, or public data.
    """
    randomness = randomness or Randomness()
    parameters = model.trainable()
    optimizer = torch.optim.AdamW(parameters, lr=learning_rate)
    gradients = UnitGradients(model, clip)
    deviation = float(step.noise_multiplier) * clip
    rate = float(step.sample_rate)
    average = _Average(parameters)
    model.train()
    taken = 0
    try:
        while True:
            # 1. Each unit is in the batch or not, by a coin of its own.
            chosen = randomness.sampled(data.units.count, step.sample_rate)
            # 2. Their gradients, each clipped, and the sum.
            total = clipped_sum(gradients, data, chosen)
            # 3. Noise as large as the longest gradient times the multiplier. From here on all is
            #    public. Batches are about as many as 1/rate (see `schedule`), which unlike the
            #    number of units is public too; AdamW does not mind the scale.
            noisy = with_noise(total, deviation, randomness)
            for parameter, gradient in zip(parameters, noisy, strict=True):
                parameter.grad = gradient.mul_(rate)
            taken += 1
            optimizer.step()
            # 4. What is no number stays so: say it now, not after all of the budget.
            if not all(bool(torch.isfinite(parameter).all()) for parameter in parameters):
                raise Diverged(taken, spent_after(step, taken))
            average.add(taken)
            # 5. The model is the mean of its weights over the later part of what was run.
            average.swap()
            if progress(Progress(taken, step.steps, taken * rate)) or taken == step.steps:
                break
            average.swap()
    finally:
        gradients.close()
        optimizer.zero_grad()
        model.eval()
    return Trained(taken, spent_after(step, taken))


def clipped_sum(gradients: UnitGradients, data: Data, chosen: Ints) -> list[Tensor]:
    """The sum over the chosen units, some of them at a time so that memory is bounded."""
    most = _ROWS_AT_ONCE if gradients.taped else _ROWS_AT_ONCE_BY_OPACUS
    total: list[Tensor] | None = None
    for part in _in_parts(data.units, chosen, most):
        sums = gradients.clipped_sum(data.batch(*data.units.rows_of(part), len(part)))
        total = sums if total is None else [a.add_(b) for a, b in zip(total, sums, strict=True)]
    assert total is not None
    return total


def with_noise(total: list[Tensor], deviation: float, randomness: Randomness) -> list[Tensor]:
    """Gaussian noise of this deviation on every number; added in double precision."""
    drawn = randomness.normal(sum(part.numel() for part in total)).mul_(deviation)
    noise = torch.split_with_sizes(drawn, [part.numel() for part in total])
    return [
        (part.double() + extra.view_as(part)).to(part.dtype)
        for part, extra in zip(total, noise, strict=True)
    ]


class _Average:
    """The mean of all weights so far (see `share_in_mean`)."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        self._mean = [parameter.detach().clone() for parameter in parameters]

    def add(self, taken: int) -> None:
        share = share_in_mean(taken)
        for mean, parameter in zip(self._mean, self._parameters, strict=True):
            mean.lerp_(parameter.detach(), share)

    def swap(self) -> None:
        """Put the mean in place of the weights, and keep those; the second time, the reverse."""
        for number, parameter in enumerate(self._parameters):
            self._mean[number], parameter.data = parameter.data, self._mean[number]


def _in_parts(units: Units, chosen: Ints, most: int) -> Iterator[Ints]:
    """The chosen units in turn, of about so many rows each; at least one part, maybe of nobody."""
    sizes = units.offsets[chosen + 1] - units.offsets[chosen]
    parts = (np.cumsum(sizes) - sizes) // most
    yield from np.split(chosen, np.flatnonzero(np.diff(parts)) + 1)


# Without privacy


def train_without_privacy(
    model: Model,
    data: Data,
    *,
    epochs: int,
    batch: int = PLAIN_BATCH,
    learning_rate: float,
    seed: int = 0,
    progress: Callable[[Progress], bool | None] = lambda _: None,
) -> None:
    """The twin to compare with: the same model, rows in shuffled batches. It protects nobody."""
    count = len(data.labels)
    if not count:
        raise Invalid(Reason.INVALID_REQUEST, "there is not one example to train on")
    optimizer = torch.optim.AdamW(model.trainable(), lr=learning_rate)
    steps = epochs * math.ceil(count / batch)
    taken = 0
    model.train()
    for _ in range(epochs):
        with seeded(seed + taken):
            order = torch.randperm(count)
        for rows in torch.split(order, batch):
            features = (feature[rows] for feature in data.features)
            loss = losses(model(*features), data.labels[rows]).mean()
            if not torch.isfinite(loss):
                raise Diverged(taken + 1, None)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            taken += 1
            if progress(Progress(taken, steps, taken * batch / count)):
                break
        else:
            continue
        break
    model.eval()
