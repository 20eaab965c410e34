"""The components that train a model with differential privacy.

As with statistics, those that compute show nothing; `show_model` does, and takes a consumed claim.
"""

# No `from __future__ import annotations`: Kubeflow reads the annotations as objects, and of those
# that may be None only `Optional`.
# ruff: noqa: UP045
from functools import partial
from typing import NamedTuple, Optional

from kfp.dsl import HTML, Artifact, ClassificationMetrics, Dataset, Input, Metrics, Model, Output

from privatekube_kfp.components.artifacts import PrivacyClaim
from privatekube_kfp.components.protocol import KERAS_IMAGE, TORCH_IMAGE, protocol_component


@protocol_component
def plan_training(
    run_id: str,
    stream: str,
    task: str,
    model: str,
    epsilon: str,
    delta: str = "1e-9",
    units: int = 0,
    epochs: int = 0,
    vocabulary: str = "public",
    shares: Optional[dict] = None,
    categories: Optional[list] = None,
    words: Optional[str] = None,
) -> NamedTuple("Outputs", [("plan", dict)]):  # type: ignore[valid-type]
    """Plans a training for Allocate: its noise, how many steps, and what its evaluation may cost.

    It sees no data. Batches are of about the square root of the number of units. What would stop
    the training later is refused here, before budget is asked for.

    Args:
        run_id: The run that it plans for: dsl.PIPELINE_JOB_ID_PLACEHOLDER, alone.
        stream: The stream whose data will be trained on.
        task: What to predict: product (the category of a review) or sentiment.
        model: linear, ff, lstm or bert.
        epsilon: What the whole plan may spend, as a decimal such as 1.
        delta: The delta of training.
        units: About how many there are of what is protected: reviews, or users. Anybody may
            know it, so it must not be counted in the data. 0 for the stream's published count.
        epochs: How often each is seen, on average; 0 for as often as is good for the model.
        vocabulary: public, or private: the words are chosen from the data, which costs a share.
        shares: How epsilon is divided, in percent: {"train": "80", "validate": "10",
            "evaluate": "10"}, unless given; with a private vocabulary {"preprocess": "10",
            "train": "70", "validate": "10", "evaluate": "10"}.
        categories: As dp_preprocess will be told, to be checked now; not checked if left out.
        words: As dp_preprocess will be told, to be checked now; not checked if left out.

    Returns:
        plan: The plan, for Allocate.
    """
    # privatekube.io/role: compute
    from privatekube_kfp.steps.training import plan_training as step

    return (
        step(
            stream=stream,
            task=task,
            model=model,
            epsilon=epsilon,
            delta=delta,
            units=units,
            epochs=epochs,
            vocabulary=vocabulary,
            shares=shares,
            categories=categories,
            words=words,
        ),
    )


@partial(protocol_component, image=TORCH_IMAGE)
def dp_preprocess(
    run_id: str,
    claim: Input[PrivacyClaim],
    data: Input[Dataset],
    examples: Output[Dataset],
    task: str,
    model: str,
    categories: Optional[list] = None,
    words: str = "",
    vocabulary: str = "public",
    vocabulary_size: int = 5000,
    step: str = "preprocess",
    held_out_percent: int = 10,
    per_user_per_day: int = 0,
    per_user: int = 0,
) -> None:
    """Turns reviews into what a model reads, and holds some users out to evaluate on.

    Args:
        run_id: The run that the claim belongs to: dsl.PIPELINE_JOB_ID_PLACEHOLDER, alone.
        claim: The claim, from Allocate.
        data: Its data, from Download: user, time, text, and category or rating.
        task: What to predict: product or sentiment.
        model: linear, ff, lstm or bert.
        categories: Of the task product: the public list of categories. Others are left out.
        words: Where word vectors in GloVe's text format are, a path or an address; for bert, a
            directory or a hub's name. stand-in for drawn ones. Needed on a cluster; empty for the
            best that is on this machine.
        vocabulary: public for all words that there are vectors of; private to choose them from
            the data, with the noise that the step pays for.
        vocabulary_size: How many words are chosen.
        step: The step of the plan that pays for the choice: laplace, pure or gaussian.
        held_out_percent: How many users of a hundred are not trained on.
        per_user_per_day: Rows that count, of a user and day, where users are protected; 0 for 20.
        per_user: Rows that count, of a unit in all, where users are protected; 0 for 100.

    Returns:
        examples: What the model reads. As private as the data.
    """
    # privatekube.io/role: compute
    from privatekube_kfp.steps.preprocessing import dp_preprocess as preprocess

    preprocess(
        claim,
        data,
        examples,
        run_id=run_id,
        task=task,
        model=model,
        categories=categories,
        source=words,
        vocabulary=vocabulary,
        vocabulary_size=vocabulary_size,
        plan_step=step,
        held_out_percent=held_out_percent,
        per_user_per_day=per_user_per_day,
        per_user=per_user,
    )


@partial(protocol_component, image=TORCH_IMAGE)
def dp_train(
    run_id: str,
    claim: Input[PrivacyClaim],
    examples: Input[Dataset],
    model: Output[Model],
    step: str = "train",
    validate_step: str = "validate",
    looks: int = 5,
    patience: int = 0,
    learning_rate: float = 0.0,
    units: int = 0,
    epochs: int = 0,
    seed: int = 0,
) -> NamedTuple("Outputs", [("spent", list)]):  # type: ignore[valid-type]
    """Trains a model by DP-SGD, with the noise that a step of the plan pays for.

    It consumes the validation step before it first looks at the accuracy, which is in its log then.

    Args:
        run_id: The run that the claim belongs to: dsl.PIPELINE_JOB_ID_PLACEHOLDER, alone.
        claim: The claim, from Allocate.
        examples: What to train on, from dp_preprocess.
        step: The step of the plan that pays for it: dp-sgd, or epsilon-delta.
        validate_step: The step that pays for looks at the accuracy; there are none without it.
        looks: How often to look at the accuracy.
        patience: Stop after so many looks that were no better than the best; 0 for never. What is
            not run is not spent.
        learning_rate: Of AdamW; 0 for one that does for the model.
        units: With an epsilon-delta step: about how many there are of what is protected.
        epochs: With an epsilon-delta step: how often each is seen; 0 for what is good.
        seed: Of the weights to begin with. It is not the noise's, which nobody can foretell.

    Returns:
        model: Its weights, what it is and what it cost. Consume before it is let out.
        spent: What was run on the data so far, for Consume.
    """
    # privatekube.io/role: compute
    from privatekube_kfp.steps.training import dp_train as train

    return (
        train(
            claim,
            examples,
            model,
            run_id=run_id,
            plan_step=step,
            validate_step=validate_step,
            looks=looks,
            patience=patience,
            learning_rate=learning_rate,
            units=units,
            epochs=epochs,
            seed=seed,
        ),
    )


@partial(protocol_component, image=KERAS_IMAGE)
def dp_train_keras(
    run_id: str,
    claim: Input[PrivacyClaim],
    examples: Input[Dataset],
    model: Output[Model],
    step: str = "train",
    learning_rate: float = 0.0,
    units: int = 0,
    epochs: int = 0,
    seed: int = 0,
) -> NamedTuple("Outputs", [("spent", list)]):  # type: ignore[valid-type]
    """Trains a linear or ff model with TensorFlow Privacy, as dp_train does with PyTorch.

    The same plan pays for it, and dp_evaluate reads its model like any other. It does not look at
    the accuracy on the way.

    Args:
        run_id: The run that the claim belongs to: dsl.PIPELINE_JOB_ID_PLACEHOLDER, alone.
        claim: The claim, from Allocate.
        examples: What to train on, from dp_preprocess.
        step: The step of the plan that pays for it: dp-sgd, or epsilon-delta.
        learning_rate: Of AdamW; 0 for one that does for the model.
        units: With an epsilon-delta step: about how many there are of what is protected.
        epochs: With an epsilon-delta step: how often each is seen; 0 for what is good.
        seed: Of the weights to begin with. It is not the noise's, which nobody can foretell.

    Returns:
        model: Its weights, what it is and what it cost. Consume before it is let out.
        spent: What was run on the data so far, for Consume.
    """
    # privatekube.io/role: compute
    from privatekube_kfp.steps.keras_training import dp_train_keras as train

    return (
        train(
            claim,
            examples,
            model,
            run_id=run_id,
            plan_step=step,
            learning_rate=learning_rate,
            units=units,
            epochs=epochs,
            seed=seed,
        ),
    )


@partial(protocol_component, image=TORCH_IMAGE)
def dp_evaluate(
    run_id: str,
    claim: Input[PrivacyClaim],
    examples: Input[Dataset],
    model: Input[Model],
    evaluation: Output[Artifact],
    step: str = "evaluate",
) -> NamedTuple("Outputs", [("spent", list)]):  # type: ignore[valid-type]
    """Evaluates a model on the users that were held out, with the noise that a step pays for.

    It shows nothing: consume what was spent, then hand the evaluation to `show_model`.

    Args:
        run_id: The run that the claim belongs to: dsl.PIPELINE_JOB_ID_PLACEHOLDER, alone.
        claim: The claim, from Allocate.
        examples: From dp_preprocess.
        model: From dp_train.
        step: The step of the plan that pays for it: laplace or pure.

    Returns:
        evaluation: Accuracy and confusion matrix, with noise.
        spent: All that was run on the data so far, by training too, for Consume.
    """
    # privatekube.io/role: compute
    from privatekube_kfp.steps.evaluation import dp_evaluate as evaluate

    return (evaluate(claim, examples, model, evaluation, run_id=run_id, plan_step=step),)


@protocol_component
def show_model(
    run_id: str,
    claim: Input[PrivacyClaim],
    model: Input[Model],
    evaluation: Input[Artifact],
    metrics: Output[Metrics],
    classification: Output[ClassificationMetrics],
    model_report: Output[HTML],
) -> None:
    """Shows how good a model is and what it cost, once all of that is consumed.

    Args:
        run_id: The run that the claim belongs to: dsl.PIPELINE_JOB_ID_PLACEHOLDER, alone.
        claim: The consumed claim, from Consume.
        model: From dp_train.
        evaluation: From dp_evaluate.

    Returns:
        metrics: The accuracy.
        classification: The confusion matrix, with noise.
        model_report: Both, the accuracy over epochs, and privacy spent against granted.
    """
    # privatekube.io/role: sink
    from privatekube_kfp.steps.evaluation import show_model as show

    show(claim, model, evaluation, metrics, classification, model_report, run_id=run_id)
