"""Training with TensorFlow Privacy, where `training` has PyTorch: the same plan, claim and model.

It runs in an image of its own, which has no PyTorch (docs/keras.md). So it does not look at its
accuracy on the way: whoever evaluates the model does that, with PyTorch, for a step of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.dp import planning
from privatekube_kfp.dp.architectures import EMBEDDING_SIZE, Kind
from privatekube_kfp.steps.paying import untold
from privatekube_kfp.steps.run import Artifact, in_a_sentence
from privatekube_kfp.steps.training import Watching, begin, pay_for_failure


@in_a_sentence
def dp_train_keras(
    claim: Artifact,
    examples: Artifact,
    model: Artifact,
    *,
    run_id: str,
    plan_step: str = planning.TRAIN,
    learning_rate: float = 0.0,
    units: int = 0,
    epochs: int = 0,
    seed: int = 0,
) -> list[Mapping[str, object]]:
    """Train as a step of the claim's plan says; what was run on the data so far, for Consume.

    A crash leaves a folder that nobody reads.
    """
    task = begin(claim, examples, run_id=run_id, plan_step=plan_step, units=units, epochs=epochs)
    row, part = task.ready.about.architecture, task.ready.train
    if row.kind not in (Kind.LINEAR, Kind.FF):
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"TensorFlow Privacy trains the models linear and ff here, not {row.kind}",
        )
    # Here, since it takes its time, and only this image has it.
    import tensorflow

    from privatekube_kfp.dp import keras

    with untold("a model"):
        print(f"{row.task} {row.kind}: {row.parameters:,} trained parameters")
        begun = keras.initial_weights(row.hidden, EMBEDDING_SIZE, row.outputs, seed=seed)
        try:
            trained = keras.train(
                keras.Network(begun),
                keras.Data(part.inputs, part.labels, part.offsets),
                task.step,
                learning_rate=learning_rate or planning.LEARNING_RATES[row.kind],
                progress=Watching(task.step),
            )
        except planning.Diverged as failure:
            pay_for_failure(task, failure.spent)
            raise
    layers = range(len(trained.weights) // 2)
    names = [f"layers.{layer}.{part}" for layer in layers for part in ("weight", "bias")]
    return task.end(
        model,
        weights=dict(zip(names, trained.weights, strict=True)),
        trainer=f"TensorFlow {tensorflow.__version__}, TensorFlow Privacy",
        seed=seed,
        spent=trained.spent,
    )
