"""How many words a review has on average, with differential privacy."""

from kfp import dsl

from privatekube_kfp.components import dp_statistic, privacy_budget, show_statistic

TOKENS = [0, 200]  # what a review counts for, at least and at most


@dsl.pipeline(name="statistics-tokens-mean")
def tokens_mean(
    stream: str = "reviews",
    epsilon: str = "0.1",
    delta: str = "0",
    last_blocks: int = 7,
    bounds: list = TOKENS,
    uri: str = "published/tokens_mean.json",
):
    with privacy_budget(
        stream=stream, epsilon=epsilon, delta=delta, last_blocks=last_blocks
    ) as budget:
        mean = dp_statistic(
            claim=budget.claim,
            data=budget.download().outputs["data"],
            statistic="tokens_mean",
            bounds=bounds,
        )
        paid = budget.consume(after=[mean]).outputs["consumed"]
        show_statistic(claim=paid, result=mean.outputs["result"])
        budget.upload(mean.outputs["result"], uri=uri)
