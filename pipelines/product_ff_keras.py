"""Which category a review is of, told by a network trained with TensorFlow Privacy."""

from kfp import dsl

from privatekube_kfp.components import (
    dp_evaluate,
    dp_preprocess,
    dp_train_keras,
    plan_training,
    privacy_budget,
    show_model,
)

CATEGORIES = [
    *("apps", "automotive", "beauty", "books", "electronics", "food"),
    *("games", "garden", "music", "office", "toys"),
]


SHARES = {"train": "90", "evaluate": "10"}  # percent of epsilon: it has no looks on the way


@dsl.pipeline(name="product-ff-keras")
def product_ff_keras(
    stream: str = "reviews",
    epsilon: str = "1",
    delta: str = "1e-9",
    last_blocks: int = 30,
    units: int = 20_000,
    epochs: int = 0,
    categories: list = CATEGORIES,
    words: str = "",
    uri: str = "published/product_ff_keras",
):
    plan = plan_training(
        stream=stream,
        task="product",
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
            task="product",
            model="ff",
            categories=categories,
            words=words,
        ).output
        model = dp_train_keras(claim=budget.claim, examples=examples).outputs["model"]
        evaluated = dp_evaluate(claim=budget.claim, examples=examples, model=model)
        paid = budget.consume(amounts=evaluated.outputs["spent"], name="model")
        show_model(
            claim=paid.outputs["consumed"], model=model, evaluation=evaluated.outputs["evaluation"]
        )
        budget.upload(model, uri=uri)
