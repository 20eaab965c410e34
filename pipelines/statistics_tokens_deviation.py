"""The standard deviation of the number of words in a review, with differential privacy."""

from kfp import dsl

from privatekube_kfp.components import dp_statistic, privacy_budget, show_statistic

TOKENS = [0, 200]  # what a review counts for, at least and at most


@dsl.pipeline(name="statistics-tokens-deviation")
def tokens_deviation(
    stream: str = "reviews",
    epsilon: str = "0.1",
    delta: str = "0",
    last_blocks: int = 7,
    bounds: list = TOKENS,
    uri: str = "published/tokens_deviation.json",
):
    with privacy_budget(
        stream=stream, epsilon=epsilon, delta=delta, last_blocks=last_blocks
    ) as budget:
        deviation = dp_statistic(
            claim=budget.claim,
            data=budget.download().outputs["data"],
            statistic="tokens_deviation",
            bounds=bounds,
        )
        paid = budget.consume(after=[deviation]).outputs["consumed"]
        show_statistic(claim=paid, result=deviation.outputs["result"])
        budget.upload(deviation.outputs["result"], uri=uri)
