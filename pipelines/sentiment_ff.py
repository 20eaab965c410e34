"""Whether a review is good, told by a network trained with differential privacy."""

from kfp import dsl

from privatekube_kfp.components import training_budget


@dsl.pipeline(name="sentiment-ff")
def sentiment_ff(
    stream: str = "reviews",
    epsilon: str = "1",
    delta: str = "1e-9",
    last_blocks: int = 30,
    units: int = 20_000,
    epochs: int = 0,
    words: str = "",
    vocabulary: str = "public",
    uri: str = "",
):
    with training_budget(
        "sentiment",
        "ff",
        stream=stream,
        epsilon=epsilon,
        delta=delta,
        last_blocks=last_blocks,
        units=units,
        epochs=epochs,
        vocabulary=vocabulary,
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
