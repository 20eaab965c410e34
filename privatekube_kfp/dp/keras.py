"""DP-SGD with TensorFlow Privacy, for the linear and feed-forward models: `training`'s twin.

It does what a step of a plan says and is priced by that step, as with torch; TensorFlow Privacy's
own accounting is not used. What it is used for is its fast gradient clipping: how long each unit's
gradient is, without working out the gradient of each, and what it is then scaled by. Its optimizers
(`DPKerasAdamOptimizer` and the like) cannot be used as they are:

* They divide by the size of the batch, which is private where each unit enters by a coin, and is 0
  in an empty one. Here a batch is divided by a public number.
* They take parts of a batch of one size each, but units have as many reviews as they have.
* Their noise is TensorFlow's, which can be told from enough of its output. Here it is the operating
  system's, as with torch.

TensorFlow lives in an environment of its own (docs/keras.md), which has no torch: weights go in and
out as arrays, laid out as in the state of torch's `FeedForward`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

# Before TensorFlow is loaded, or it tells at length which graphics cards there are not.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from tensorflow_privacy.privacy.fast_gradient_clipping import clip_grads, layer_registry

from privatekube_kfp.accounting import DpSgd
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.bounds import Ints
from privatekube_kfp.dp.planning import CLIP, Diverged, Progress, share_in_mean, spent_after
from privatekube_kfp.dp.randomness import Randomness

Floats = npt.NDArray[np.float32]
Weights = list[Floats]
"""As torch has them: of each layer its weight, a row per output, and then its bias."""

_ROWS_AT_ONCE = 2048
# As in `gradients`: what is clipped a hair below is no longer than it may be, however rounded.
_HAIR = 1 - 1e-4
# AdamW's in torch; Keras has others.
_WEIGHT_DECAY = 0.01
_EPSILON = 1e-8
_COUNT = tf.TensorSpec([], tf.int32)


@dataclass(frozen=True)
class Data:
    """Mean word vectors and labels of reviews, which lie in the order of their units.

    Unit `u` has the rows from `offsets[u]` to before `offsets[u + 1]`.
    """

    features: Floats
    labels: Ints
    offsets: Ints

    def __post_init__(self) -> None:
        rows = len(self.labels)
        if self.features.ndim != 2 or len(self.features) != rows:
            raise _invalid(
                f"features of shape {self.features.shape} do not go with {rows} labels: there must"
                " be a row for each"
            )
        steps = np.diff(self.offsets)
        if (
            not len(self.offsets)
            or self.offsets[0]
            or self.offsets[-1] != rows
            or (steps < 0).any()
        ):
            raise _invalid(f"offsets of units must go up from 0 to the number of rows, {rows}")

    @property
    def units(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class Trained:
    """What training made, also after each of the steps that were asked for, and what it spent."""

    weights: Weights
    snapshots: Mapping[int, Weights]
    steps: int
    spent: DpSgd | None


def initial_weights(hidden: Sequence[int], inputs: int, outputs: int, *, seed: int = 0) -> Weights:
    """Weights to begin with, as evenly spread as torch's; anybody may know the seed."""
    if min(inputs, outputs, *hidden) < 1:
        raise _invalid(f"layers of {[inputs, *hidden, outputs]} cannot be made: one is empty")
    # This generator is promised never to change, others are not.
    drawn = np.random.RandomState(seed)
    weights: Weights = []
    for size, following in pairwise((inputs, *hidden, outputs)):
        bound = 1 / math.sqrt(size)
        for shape in ((following, size), (following,)):
            weights.append(drawn.uniform(-bound, bound, shape).astype(np.float32))
    return weights


def train(
    network: Network,
    data: Data,
    step: DpSgd,
    *,
    learning_rate: float,
    clip: float = CLIP,
    keep: Collection[int] = (),
    randomness: Randomness | None = None,
    progress: Callable[[Progress], bool | None] = lambda _: None,
) -> Trained:
    """Train as this step of a plan says.

    Args:
        network: It is changed.
        data: What to train on; units of the stream's semantic.
        step: Noise multiplier, sample rate and how many steps; its price is what this may spend.
        learning_rate: Of AdamW; `planning` has one that does for each kind of model.
        clip: The longest that a unit's gradient may be.
        keep: After which steps to keep the weights too; they are as public as the last ones.
        randomness: The operating system's unless given; a seeded one is for tests.
        progress: Told after each step; training stops early if it answers true. It must decide by
            what is public, such as the clock, the network as it would be now, or public data.
    """
    if not (math.isfinite(clip) and clip > 0):
        raise _invalid(f"gradients cannot be clipped to length {clip}: it must be above 0")
    network.check(data)
    randomness = randomness or Randomness()
    descend = network.descent(learning_rate)
    deviation = float(step.noise_multiplier) * clip
    rate = float(step.sample_rate)
    snapshots: dict[int, Weights] = {}
    taken = 0
    while taken < step.steps:
        # 1. Each unit is in the batch or not, by a coin of its own.
        chosen = randomness.sampled(data.units, step.sample_rate)
        # 2. Their gradients, each clipped, and the sum.
        total = network.clipped_sum(data, chosen, clip)
        # 3. Noise as large as the longest gradient times the multiplier. From here on all is
        #    public, also what it is divided by (see `training`).
        noisy = with_noise(total, deviation, randomness)
        descend([part * np.float32(rate) for part in noisy])
        taken += 1
        # 4. What is no number stays so: say it now, not after all of the budget.
        if not network.is_finite:
            raise Diverged(taken, spent_after(step, taken))
        # 5. The network is the mean of its weights over the later part of what was run.
        network.add_to_mean(share_in_mean(taken))
        if taken in keep:
            snapshots[taken] = network.weights()
        if progress(Progress(taken, step.steps, taken * rate)):
            break
    return Trained(network.weights(), snapshots, taken, spent_after(step, taken))


def with_noise(total: Weights, deviation: float, randomness: Randomness) -> Weights:
    """Gaussian noise of this deviation on every number; added in double precision."""
    noise = randomness.normal_array(sum(part.size for part in total)) * deviation
    ends = np.cumsum([part.size for part in total])[:-1]
    return [
        (part + extra.reshape(part.shape)).astype(np.float32)
        for part, extra in zip(total, np.split(noise, ends), strict=True)
    ]


class Network:
    """A Keras model of dense layers, which is trained, and the mean of its weights, which is read.

    Args:
        weights: What to begin with, such as `initial_weights`.
    """

    def __init__(self, weights: Weights) -> None:
        self._mean = [part.copy() for part in weights]
        self._inputs = weights[0].shape[1]
        self._outputs = len(weights[-1])
        self._model = _model(weights)
        self._registry = layer_registry.make_default_layer_registry()
        kinds = [
            tf.TensorSpec([None, self._inputs], tf.float32),
            tf.TensorSpec([None, 1], tf.int64),
            tf.TensorSpec([None], tf.float32),
        ]
        self._lengths = _traced(self._lengths_of, [*kinds, _COUNT])
        self._sums = _traced(self._sums_of, kinds)

    def check(self, data: Data) -> None:
        """Refuse data that this network cannot read, without telling of any row."""
        if data.features.shape[1] != self._inputs:
            raise _invalid(
                f"features have {data.features.shape[1]} numbers; the network reads {self._inputs}"
            )
        most = max(self._outputs - 1, 1)
        if len(data.labels) and not 0 <= data.labels.min() <= data.labels.max() <= most:
            raise _invalid(f"there are labels that are not from 0 to {most}")

    def clipped_sum(self, data: Data, chosen: Ints, clip: float) -> Weights:
        """For each of the weights, the sum of the chosen units' clipped gradients.

        A unit whose gradient is no number adds nothing, so that it spoils nobody else's. Of no
        units the sum is nothing.
        """
        sums = [tf.zeros_like(variable) for variable in self._model.trainable_variables]
        for part, width in _in_parts(data.offsets, chosen):
            lengths = self._lengths(*_padded(data, part, width), len(part))
            known = np.isfinite(lengths.numpy())
            features, labels, shares = _padded(data, part[known], width)
            scales = clip_grads.compute_clip_weights(clip * _HAIR, lengths[known])
            scaled = shares * np.repeat(scales.numpy(), width) / np.float32(width)
            sums = [a + b for a, b in zip(sums, self._sums(features, labels, scaled), strict=True)]
        return [_turned(total.numpy()) for total in sums]

    def descent(self, learning_rate: float) -> Callable[[Weights], None]:
        """AdamW on these weights, with torch's settings: a step for each gradient it is given."""
        variables = self._model.trainable_variables
        optimizer = tf.keras.optimizers.AdamW(
            learning_rate, weight_decay=_WEIGHT_DECAY, epsilon=_EPSILON
        )
        optimizer.build(variables)

        def apply(*turned: Any) -> None:
            optimizer.apply_gradients(zip(turned, variables, strict=True))

        step = _traced(apply, [tf.TensorSpec(variable.shape) for variable in variables])
        return lambda gradients: step(*map(_turned, gradients))

    @property
    def is_finite(self) -> bool:
        return all(np.isfinite(part).all() for part in self._model.get_weights())

    def add_to_mean(self, share: float) -> None:
        """Let the weights of now enter the mean, for such a share of it."""
        for mean, part in zip(self._mean, self._model.get_weights(), strict=True):
            mean += np.float32(share) * (_turned(part) - mean)

    def weights(self) -> Weights:
        """The mean of the weights so far, as torch has them."""
        return [part.copy() for part in self._mean]

    def scores(self, features: Floats) -> Floats:
        """A row per review, a column per output: what the mean of the weights says."""
        for depth in range(0, len(self._mean), 2):
            weight, bias = self._mean[depth : depth + 2]
            features = (np.maximum(features, 0) if depth else features) @ weight.T + bias
        return features

    def _lengths_of(self, features: Any, labels: Any, shares: Any, units: Any) -> Any:
        """How long each unit's gradient is; each has as many rows, one after the other."""
        return clip_grads.compute_gradient_norms(
            self._model,
            self._registry,
            features,
            labels,
            shares,
            per_example_loss_fn=self._losses,
            num_microbatches=units,
        )

    def _sums_of(self, features: Any, labels: Any, scales: Any) -> Any:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(self._losses(labels, self._model(features), scales))
        return tape.gradient(total, self._model.trainable_variables)

    def _losses(self, labels: Any, scores: Any, scales: Any) -> Any:
        """Cross entropy of each review, over categories or of a single score, scaled."""
        if self._outputs == 1:
            each = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, tf.float32), scores)
            return each[:, 0] * scales
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels[:, 0], scores) * scales


def _traced(function: Callable[..., Any], kinds: Sequence[Any]) -> Callable[..., Any]:
    """A graph of the function, made once, for batches of every size."""
    graph: Callable[..., Any] = tf.function(function, input_signature=kinds, autograph=False)
    return graph


def _model(weights: Weights) -> Any:
    layers = list(zip(weights[::2], weights[1::2], strict=True))
    values = read = tf.keras.Input([weights[0].shape[1]])
    for number, (weight, _) in enumerate(layers, start=1):
        shape = None if number == len(layers) else "relu"
        values = tf.keras.layers.Dense(len(weight), activation=shape)(values)
    model = tf.keras.Model(read, values)
    model.set_weights([_turned(part) for part in weights])
    return model


def _turned(part: Floats) -> Floats:
    """From torch's layout to that of Keras, in which weights have a column per output, and back."""
    return np.ascontiguousarray(part.T)


def _in_parts(offsets: Ints, chosen: Ints) -> Iterator[tuple[Ints, int]]:
    """The chosen units by about how many rows they have, some at a time so that memory is bounded.

    TensorFlow Privacy wants as many rows of each: a power of 2, so that at most half is padding.
    """
    sizes = offsets[chosen + 1] - offsets[chosen]
    widths = np.where(sizes > 0, 1 << np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64), 0)
    for width in np.unique(widths[widths > 0]):
        units = chosen[widths == width]
        at_once = max(1, _ROWS_AT_ONCE // int(width))
        for start in range(0, len(units), at_once):
            yield units[start : start + at_once], int(width)


def _padded(data: Data, units: Ints, width: int) -> tuple[Floats, Ints, Floats]:
    """So many rows of each unit, and what each counts in the mean over them: padding nothing.

    Padding repeats the unit's own last row, so that what is no number stays within its unit.
    """
    starts, ends = data.offsets[units][:, None], data.offsets[units + 1][:, None]
    rows = starts + np.arange(width)
    shares = np.where(rows < ends, width / (ends - starts), 0).astype(np.float32)
    rows = np.minimum(rows, ends - 1).ravel()
    return data.features[rows], data.labels[rows][:, None], shares.ravel()


def _invalid(message: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, message)
