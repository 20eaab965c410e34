"""How many reviews there are, with differential privacy."""

from kfp import dsl

from privatekube_kfp.components import privacy_budget


@dsl.pipeline(name="statistics-reviews-total")
def reviews_total(
    stream: str = "reviews",
    epsilon: str = "0.1",
    delta: str = "0",
    last_blocks: int = 7,
    uri: str = "",
):
    with privacy_budget(
        stream=stream, epsilon=epsilon, delta=delta, last_blocks=last_blocks, results=uri
    ) as budget:
        total = budget.statistic("reviews_total", budget.download())
        budget.consume(after=[total])
        budget.show_statistic(total)
        budget.upload(total, name="reviews_total.json")
