"""How many words all reviews have together, with differential privacy."""

from kfp import dsl

from privatekube_kfp.components import dp_statistic, privacy_budget, show_statistic

TOKENS = [0, 200]  # what a review counts for, at least and at most


@dsl.pipeline(name="statistics-tokens-total")
def tokens_total(
    stream: str = "reviews",
    epsilon: str = "0.1",
    delta: str = "0",
    last_blocks: int = 7,
    bounds: list = TOKENS,
    uri: str = "published/tokens_total.json",
):
    with privacy_budget(
        stream=stream, epsilon=epsilon, delta=delta, last_blocks=last_blocks
    ) as budget:
        total = dp_statistic(
            claim=budget.claim,
            data=budget.download().outputs["data"],
            statistic="tokens_total",
            bounds=bounds,
        )
        paid = budget.consume(after=[total]).outputs["consumed"]
        show_statistic(claim=paid, result=total.outputs["result"])
        budget.upload(total.outputs["result"], uri=uri)
