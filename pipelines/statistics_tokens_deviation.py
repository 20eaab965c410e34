"""The standard deviation of the number of words in a review, with differential privacy."""

from kfp import dsl

from privatekube_kfp.components import privacy_budget

TOKENS = [0, 200]  # what a review counts for, at least and at most


@dsl.pipeline(name="statistics-tokens-deviation")
def tokens_deviation(
    stream: str = "reviews",
    epsilon: str = "0.1",
    delta: str = "0",
    last_blocks: int = 7,
    bounds: list = TOKENS,
    uri: str = "",
):
    with privacy_budget(
        stream=stream, epsilon=epsilon, delta=delta, last_blocks=last_blocks, results=uri
    ) as budget:
        deviation = budget.statistic("tokens_deviation", budget.download(), bounds=bounds)
        budget.consume(after=[deviation])
        budget.show_statistic(deviation)
        budget.upload(deviation, name="tokens_deviation.json")
