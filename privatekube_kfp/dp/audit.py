"""How much a training gives away, measured: at least so much epsilon, at a stated confidence.

Accounting proves that training spends at most its epsilon. An audit comes from the other side: it
puts canaries among the examples, each by a coin, trains once, and guesses the coins from what came
out. Under (epsilon, delta) no guess can be right more often than e^epsilon to 1, so guesses that
are better prove a larger epsilon (Steinke, Nasr and Jagielski, "Privacy auditing with one training
run", 2023). If that is above what was claimed, the training is broken; if it is below, nothing is
proven but that this attack did not succeed.

Canaries are added to the data of a run, so audit on data that are nobody's, or pay for the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from privatekube_kfp.core.budget import (
    DELTA_DIGITS,
    EPSILON_DIGITS,
    parse_delta,
    parse_epsilon,
)
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.bounds import Mask
from privatekube_kfp.dp.architectures import Architecture
from privatekube_kfp.dp.embeddings import PADDING, Embeddings
from privatekube_kfp.dp.examples import Examples
from privatekube_kfp.dp.models import Model
from privatekube_kfp.dp.randomness import Randomness
from privatekube_kfp.dp.training import Data
from privatekube_kfp.dp.units import Units

CONFIDENCE = 0.95
HEIGHT = 12.0
_PRECISION = 1e-6
_LARGEST = 64.0

Floats = npt.NDArray[np.float64]
Run = Callable[[Mask], Floats]
"""Trains with the canaries of a mask, and says of all of them how much they look trained on."""


@dataclass(frozen=True)
class Audit:
    """Of so many guesses so many were right, which proves an epsilon of at least so much."""

    canaries: int
    guesses: int
    right: int
    delta: str
    confidence: float

    @property
    def epsilon(self) -> float:
        """No training of a smaller epsilon at this delta gives that away but by chance."""
        return epsilon_at_least(
            self.right, self.guesses, self.canaries, delta=self.delta, confidence=self.confidence
        )

    def spent_more_than(self, claimed: str) -> bool:
        """Whether a claim of this epsilon is refuted."""
        return self.epsilon > float(Fraction(parse_epsilon(claimed), 10**EPSILON_DIGITS))


def audit(
    run: Run,
    canaries: int,
    *,
    guesses: int,
    delta: str,
    confidence: float = CONFIDENCE,
    randomness: Randomness | None = None,
) -> Audit:
    """Train once and guess which canaries were there.

    Half of the guesses are that the canaries of the highest scores were, half that those of the
    lowest were not; of the others nothing is said. A few hundred canaries show an epsilon of up to
    4 or 5. More of them disturb each other, in a model of few parameters.

    Args:
        run: The training to audit, of whatever trainer. It is handed a mask of the canaries to
            train on, and answers a score for every canary: the higher, the more it looks as if it
            had been trained on. It may look at all that the training tells, and at nothing else.
        canaries: How many there are.
        guesses: How many to guess. Chosen before anything is seen: to try several and keep the
            best would be no proof.
        delta: The claim's.
        confidence: How sure the bound is; 0.95 errs once in twenty runs of a sound training.
        randomness: Of the coins; the operating system's unless given.
    """
    if not 2 <= guesses <= canaries:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"{guesses} guesses on {canaries} canaries; there must be at least 2, and no more than"
            " canaries",
        )
    included = np.zeros(canaries, bool)
    included[(randomness or Randomness()).sampled(canaries, "0.5")] = True
    scores = run(included.copy())
    if scores.shape != (canaries,) or np.isnan(scores).any():
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"a run must answer a number for each of {canaries} canaries; it answered"
            f" {np.isfinite(scores).sum()} numbers in the shape {scores.shape}",
        )
    order = np.argsort(scores, kind="stable")
    out, within = order[: guesses // 2], order[len(order) - (guesses - guesses // 2) :]
    right = int(included[within].sum() + (~included[out]).sum())
    return Audit(canaries, guesses, right, delta, confidence)


def epsilon_at_least(
    right: int, guesses: int, canaries: int, *, delta: str, confidence: float = CONFIDENCE
) -> float:
    """The largest epsilon of which so many right guesses are too many; 0 if there is none."""
    if not 0 <= right <= guesses <= canaries:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"{right} right of {guesses} guesses on {canaries} canaries is no outcome of an audit",
        )
    if not 0 < confidence < 1:
        raise Invalid(
            Reason.INVALID_REQUEST, f"confidence {confidence} must be above 0 and below 1"
        )
    failure = float(Fraction(parse_delta(delta), 10**DELTA_DIGITS))
    low, high = 0.0, _LARGEST

    def refuted(epsilon: float) -> bool:
        return p_value(right, guesses, canaries, epsilon, failure) <= 1 - confidence

    if not refuted(low):
        return 0.0
    while high - low > _PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def p_value(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """How likely so many guesses are right, or more, at most, if training keeps its promise.

    Without a delta, guesses are right no more often than coins that fall so at odds of e^epsilon
    to 1. Where there is one it may have put right some number of them, whichever helps most.
    """
    tails = _tails(guesses, epsilon)
    more = np.arange(1, right + 1)
    made_up = (tails[right - more] - tails[right]) / more
    return min(1.0, float(tails[right] + 2 * canaries * delta * made_up.max(initial=0.0)))


def _tails(count: int, epsilon: float) -> Floats:
    """How likely at least 0, 1, ... of so many coins fall on the side with odds of e^epsilon."""
    successes = np.arange(count + 1)
    logs = np.array([math.lgamma(n + 1) for n in range(count + 1)])
    chosen = logs[-1] - logs - logs[::-1]
    terms = chosen - (count - successes) * epsilon - count * math.log1p(math.exp(-epsilon))
    return np.cumsum(np.exp(terms)[::-1])[::-1]


# Canaries for the models that read word vectors


def rare_reviews(
    count: int, row: Architecture, embeddings: Embeddings, *, height: float = HEIGHT
) -> tuple[Embeddings, Examples]:
    """Reviews of one word that nobody else writes, and the vectors with these words added.

    The vector of such a word is an axis: its canaries move weights that no other axis has, and
    are long, so that their gradients are as large as clipping lets them be. DP-SGD is worst
    against those. Each axis is there once for every label.
    """
    size, labels = embeddings.vectors.shape[1], max(2, row.outputs)
    if not 1 <= count <= size * labels:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"there can be from 1 to {size * labels} canaries ({size} axes, {labels} labels), not"
            f" {count}",
        )
    axes = np.eye(size, dtype=np.float32) * np.float32(height)
    ids = np.full((count, row.length), PADDING, np.int64)
    ids[:, 0] = len(embeddings.vectors) + np.arange(count) % size
    # Neighbours in the list differ in axis and in label.
    turn = np.arange(count) // size + np.arange(count) % size
    widened = replace(embeddings, vectors=np.concatenate([embeddings.vectors, axes]))
    units = Units(np.arange(count), np.arange(count + 1))
    return widened, Examples(ids, turn % labels, units, 0)


def with_canaries(made: Examples, canaries: Examples, included: Mask) -> Examples:
    """The examples and behind them the included canaries, each a unit of its own."""
    (chosen,) = np.nonzero(included)
    rows = len(made.labels)
    units = Units(
        np.append(made.units.rows, rows + np.arange(len(chosen))),
        np.append(made.units.offsets, made.units.offsets[-1] + 1 + np.arange(len(chosen))),
    )
    return Examples(
        np.concatenate([made.ids, canaries.ids[chosen]]),
        np.append(made.labels, canaries.labels[chosen]),
        units,
        made.left_out,
    )


def odds(model: Model, canaries: Examples) -> Floats:
    """How sure a model is of each canary's label; by how much that rose is a good score."""
    data = Data.of(model, canaries)
    with torch.no_grad():
        found = model(*data.features).double()
    if found.shape[1] == 1:
        found = torch.cat([torch.zeros_like(found), found], 1)
    label = functional.one_hot(data.labels, found.shape[1]).bool()
    others = found.masked_fill(label, -math.inf).logsumexp(1)
    result: Floats = (found[label] - others).numpy()
    return result
