"""How training will go, worked out before anybody has seen the data.

Noise multiplier, sample rate and number of steps follow from a budget and from a number of units
that is public: a stream's published count, or a guess. How many units there really are changes
none of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from privatekube_kfp.accounting import (
    DpSgd,
    EpsilonDelta,
    Laplace,
    Mechanism,
    Plan,
    PureEpsilon,
    dp_sgd_noise,
)
from privatekube_kfp.core.budget import EPSILON_DIGITS, format_amount, parse_epsilon
from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.dp.architectures import Kind

DELTA = "1e-9"
TRAIN = "train"
VALIDATE = "validate"
EVALUATE = "evaluate"
PREPROCESS = "preprocess"
PUBLIC, PRIVATE = "public", "private"
"""Vocabularies: one that somebody published, or one that is chosen from the data and paid for."""
SHARES = {
    PUBLIC: {TRAIN: "80", VALIDATE: "10", EVALUATE: "10"},
    PRIVATE: {PREPROCESS: "10", TRAIN: "70", VALIDATE: "10", EVALUATE: "10"},
}
"""How a budget is divided, in percent."""
CLIP = 1.0
"""How long a unit's gradient may be."""
# Linear and FF: the best of a few on sample reviews, which are nobody's. LSTM: one that did there.
# BERT: not tuned.
LEARNING_RATES = {Kind.LINEAR: 0.02, Kind.FF: 0.003, Kind.LSTM: 0.003, Kind.BERT: 0.0005}
_RATE_DIGITS = 9
_LATER = 5


@dataclass(frozen=True)
class Schedule:
    """How often units are sampled, as accounting writes it."""

    sample_rate: str
    steps: int


def schedule(units: int, epochs: int) -> Schedule:
    """Batches of about the square root of so many units, so often that each is seen `epochs` times.

    The number of units must be one that anybody may know.
    """
    if units < 1 or epochs < 1:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"training needs at least one unit and one epoch, not {units} and {epochs}",
        )
    batch = round(math.sqrt(units))
    return Schedule(f"{batch / units:.{_RATE_DIGITS}f}", math.ceil(epochs * units / batch))


def calibrated(epsilon: str, wanted: Schedule, delta: str = DELTA) -> DpSgd:
    """The step of a plan that trains by this schedule with the least noise for this budget."""
    noise = dp_sgd_noise(epsilon, delta, wanted.sample_rate, wanted.steps)
    return DpSgd(noise, wanted.sample_rate, wanted.steps, delta)


def training_of(step: Mechanism, wanted: Schedule) -> DpSgd:
    """How to train for what a step of a plan was granted.

    A DP-SGD step says so itself. A share of epsilon and delta is filled by a schedule.
    """
    match step:
        case DpSgd():
            return step
        case EpsilonDelta() if step.delta != "0":
            return calibrated(step.epsilon, wanted, step.delta)
    raise Invalid(
        Reason.CANNOT_PRICE,
        f"training cannot be paid with a step of kind {step.kind}: its noise is Gaussian, so it"
        " needs a dp-sgd step, or an epsilon with a delta above 0",
    )


def check_vocabulary(vocabulary: str) -> str:
    if vocabulary not in SHARES:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"a vocabulary is {' or '.join(SHARES)}, not {vocabulary!r}",
        )
    return vocabulary


def training_plan(
    epsilon: str,
    *,
    units: int,
    epochs: int,
    delta: str = DELTA,
    shares: Mapping[str, str] = SHARES[PUBLIC],
) -> Plan:
    """A plan that spends at most epsilon and delta on training and what goes with it.

    The delta is all for training: the other steps have Laplace noise, which needs none.
    """
    if TRAIN not in shares:
        raise Invalid(
            Reason.INVALID_PLAN, f"the shares are of {', '.join(shares)}; {TRAIN!r} is not there"
        )
    wanted = schedule(units, epochs)
    steps: dict[str, Mechanism] = {}
    for step in Plan.split(epsilon, shares).steps:
        assert isinstance(step.mechanism, PureEpsilon)
        part = step.mechanism.epsilon
        steps[step.name] = calibrated(part, wanted, delta) if step.name == TRAIN else Laplace(part)
    return Plan.of(steps)


def divided(step: Mechanism, weights: Sequence[int]) -> list[Mechanism]:
    """A step's epsilon in parts, for several releases in place of one: together they cost no more.

    Only Laplace noise and a pure epsilon can be divided so: their price is at least the sum's under
    every accounting, since it grows faster than epsilon does.
    """
    if not isinstance(step, Laplace | PureEpsilon):
        raise Invalid(
            Reason.CANNOT_PRICE,
            f"a step of kind {step.kind} cannot be divided among several releases; it takes"
            " laplace or pure",
        )
    whole = parse_epsilon(step.epsilon)
    marks = [whole * total // sum(weights) for total in accumulate(weights, initial=0)]
    parts = [upper - lower for lower, upper in pairwise(marks)]
    if not all(parts):
        raise Invalid(
            Reason.CANNOT_PRICE,
            f"epsilon {step.epsilon} is too small to be divided in {len(parts)}: a part would be"
            f" below 1e-{EPSILON_DIGITS}",
        )
    return [replace(step, epsilon=format_amount(part, EPSILON_DIGITS)) for part in parts]


@dataclass(frozen=True)
class Progress:
    """How far training is; anybody may see it."""

    step: int
    steps: int
    epoch: float


class Diverged(PrivateKubeError):
    """Weights are no numbers any more. The steps up to here are spent."""

    def __init__(self, step: int, spent: DpSgd | None) -> None:
        super().__init__(
            Reason.INVALID_REQUEST,
            f"training diverged at step {step}: the model's weights are no numbers any more; try"
            " a smaller learning rate",
        )
        self.spent = spent


def spent_after(step: DpSgd, taken: int) -> DpSgd | None:
    """What was spent of a step of a plan, if so many of its steps were taken."""
    return replace(step, steps=taken) if taken else None


def share_in_mean(taken: int) -> float:
    """What the weights after so many steps count for when they enter the mean of those before.

    Later ones count more: the mean is of about the last sixth. How far training will go need not
    be known, so whoever stops it early has a mean, too.
    """
    return (_LATER + 1) / (_LATER + taken)
