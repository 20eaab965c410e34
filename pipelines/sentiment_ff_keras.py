"""Whether a review is good, told by a network trained with TensorFlow Privacy."""

from kfp import dsl

from privatekube_kfp.components import (
    dp_evaluate,
    dp_preprocess,
    dp_train_keras,
    plan_training,
    privacy_budget,
    show_model,
)

SHARES = {"train": "90", "evaluate": "10"}  # percent of epsilon: it has no looks on the way


@dsl.pipeline(name="sentiment-ff-keras")
def sentiment_ff_keras(
    stream: str = "reviews",
    epsilon: str = "1",
    delta: str = "1e-9",
    last_blocks: int = 30,
    units: int = 20_000,
    epochs: int = 0,
    words: str = "",
    uri: str = "published/sentiment_ff_keras",
):
    plan = plan_training(
        stream=stream,
        task="sentiment",
        model="ff",
        epsilon=epsilon,
        delta=delta,
        units=units,
        epochs=epochs,
        shares=SHARES,
    )
    with privacy_budget(stream=stream, plan=plan.output, last_blocks=last_blocks) as budget:
        reviews = budget.download()
        examples = dp_preprocess(
            claim=budget.claim,
            data=reviews.outputs["data"],
            task="sentiment",
            model="ff",
            words=words,
        ).output
        model = dp_train_keras(claim=budget.claim, examples=examples).outputs["model"]
        evaluated = dp_evaluate(claim=budget.claim, examples=examples, model=model)
        paid = budget.consume(amounts=evaluated.outputs["spent"], name="model")
        show_model(
            claim=paid.outputs["consumed"], model=model, evaluation=evaluated.outputs["evaluation"]
        )
        budget.upload(model, uri=uri)
