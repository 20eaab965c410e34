"""Which category a review is of, told by a linear model trained with TensorFlow Privacy."""

from kfp import dsl

from privatekube_kfp.components import dp_train_keras, training_budget

CATEGORIES = [
    *("apps", "automotive", "beauty", "books", "electronics", "food"),
    *("games", "garden", "music", "office", "toys"),
]
SHARES = {"train": "90", "evaluate": "10"}  # percent of epsilon: it has no looks on the way


@dsl.pipeline(name="product-linear-keras")
def product_linear_keras(
    stream: str = "reviews",
    epsilon: str = "1",
    delta: str = "1e-9",
    last_blocks: int = 30,
    units: int = 20_000,
    epochs: int = 0,
    categories: list = CATEGORIES,
    words: str = "",
    uri: str = "",
):
    with training_budget(
        "product",
        "linear",
        stream=stream,
        epsilon=epsilon,
        delta=delta,
        last_blocks=last_blocks,
        units=units,
        epochs=epochs,
        shares=SHARES,
        categories=categories,
        words=words,
        results=uri,
    ) as budget:
        reviews = budget.download()
        examples = budget.preprocess(reviews)
        model = budget.train(examples, dp_train_keras)
        evaluated = budget.evaluate(examples, model)
        budget.consume(evaluated)
        budget.show(model, evaluated)
        budget.upload(model)
