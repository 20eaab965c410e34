"""How many words all reviews have together, with differential privacy."""

from kfp import dsl

from privatekube_kfp.components import privacy_budget

TOKENS = [0, 200]  # what a review counts for, at least and at most


@dsl.pipeline(name="statistics-tokens-total")
def tokens_total(
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
        total = budget.statistic("tokens_total", budget.download(), bounds=bounds)
        budget.consume(after=[total])
        budget.show_statistic(total)
        budget.upload(total, name="tokens_total.json")
