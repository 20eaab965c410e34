"""Which category a review is of, told by a network trained with differential privacy."""

from kfp import dsl

from privatekube_kfp.components import training_budget

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
    uri: str = "",
):
    with training_budget(
        "product",
        "ff",
        stream=stream,
        epsilon=epsilon,
        delta=delta,
        last_blocks=last_blocks,
        units=units,
        epochs=epochs,
        vocabulary=vocabulary,
        categories=categories,
        words=words,
        results=uri,
    ) as budget:
        reviews = budget.download()
        examples = budget.preprocess(reviews)
        model = budget.train(examples)
        evaluated = budget.evaluate(examples, model)
        budget.consume(evaluated)
        budget.show(model, evaluated)
        budget.upload(model)
