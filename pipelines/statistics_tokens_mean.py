"""How many words a review has on average, with differential privacy."""

from kfp import dsl

from privatekube_kfp.components import privacy_budget

TOKENS = [0, 200]  # what a review counts for, at least and at most


@dsl.pipeline(name="statistics-tokens-mean")
def tokens_mean(
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
        mean = budget.statistic("tokens_mean", budget.download(), bounds=bounds)
        budget.consume(after=[mean])
        budget.show_statistic(mean)
        budget.upload(mean, name="tokens_mean.json")
