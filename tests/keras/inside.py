"""What tests have done in TensorFlow's environment, which has no pytest: one process for them all.

It reads pairs of a function's name and its arguments, and answers with what the function returned,
or with the refusal; both pickled.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import numpy as np

from privatekube_kfp.core.errors import PrivateKubeError
from privatekube_kfp.dp import keras
from privatekube_kfp.dp.randomness import seeded


def initial_weights(**given: Any) -> list[np.ndarray]:
    return keras.initial_weights(**given)


def clipped_sum(weights: Any, data: Any, chosen: Any, clip: float) -> list[np.ndarray]:
    return keras.Network(weights).clipped_sum(keras.Data(*data), chosen, clip)


def spread_of_gradients(weights: Any, data: Any, step: Any, clip: float) -> tuple[float, int]:
    """Of what the optimizer is given, over all steps: its standard deviation, and of how many."""
    seen: list[np.ndarray] = []
    descent = keras.Network.descent

    def spy(network: keras.Network, learning_rate: float) -> Any:
        descend = descent(network, learning_rate)

        def told(gradients: keras.Weights) -> None:
            seen.extend(part.ravel() for part in gradients)
            descend(gradients)

        return told

    keras.Network.descent = spy
    try:
        train(weights, data, step, learning_rate=0.01, clip=clip)
    finally:
        keras.Network.descent = descent
    all_of_them = np.concatenate(seen).astype(np.float64)
    return float(all_of_them.std()), len(all_of_them)


def train(
    weights: Any, data: Any, step: Any, seed: int | None = 0, stop_at: int = -1, **given: Any
) -> Any:
    told: list[tuple[int, int, float]] = []

    def progress(now: Any) -> bool:
        told.append((now.step, now.steps, now.epoch))
        return now.step == stop_at

    trained = keras.train(
        keras.Network(weights),
        keras.Data(*data),
        step,
        randomness=None if seed is None else seeded(seed),
        progress=progress,
        **given,
    )
    return trained.weights, dict(trained.snapshots), trained.steps, trained.spent, told


def scores(weights: Any, features: Any) -> np.ndarray:
    return keras.Network(weights).scores(features)


def loaded(module: str) -> bool:
    return module in sys.modules


def _answer(name: str, given: dict[str, Any]) -> tuple[str, Any]:
    try:
        return "returned", globals()[name](**given)
    except PrivateKubeError as error:
        return "refused", (error.reason, error.message, getattr(error, "spent", None))


def main() -> None:
    # What TensorFlow prints must not get among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            name, given = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(_answer(name, given), answers)
        answers.flush()


if __name__ == "__main__":
    main()
