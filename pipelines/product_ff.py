"""Which category a review is of, told by a network trained with differential privacy."""

from kfp import dsl

from privatekube_kfp.components import (
    dp_evaluate,
    dp_preprocess,
    dp_train,
    plan_training,
    privacy_budget,
    show_model,
)

CATEGORIES = [
    *("apps", "automotive", "beauty", "books", "electronics", "food"),
    *("games", "garden", "music", "office", "toys"),
]


@dsl.pipeline(name="product-ff")
def product_ff(
    stream: str = "reviews",
    epsilon: str = "1",
    delta: str = "1e-9",
    last_blocks: int = 30,
    units: int = 20_000,
    epochs: int = 0,
    categories: list = CATEGORIES,
    words: str = "",
    vocabulary: str = "public",
    uri: str = "published/product_ff",
):
    plan = plan_training(
        stream=stream,
        task="product",
        model="ff",
        epsilon=epsilon,
        delta=delta,
        units=units,
        epochs=epochs,
        vocabulary=vocabulary,
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
            vocabulary=vocabulary,
        ).output
        model = dp_train(claim=budget.claim, examples=examples).outputs["model"]
        evaluated = dp_evaluate(claim=budget.claim, examples=examples, model=model)
        paid = budget.consume(amounts=evaluated.outputs["spent"], name="model")
        show_model(
            claim=paid.outputs["consumed"], model=model, evaluation=evaluated.outputs["evaluation"]
        )
        budget.upload(model, uri=uri)
