"""How many reviews there are, with differential privacy."""

from kfp import dsl

from privatekube_kfp.components import dp_statistic, privacy_budget, show_statistic


@dsl.pipeline(name="statistics-reviews-total")
def reviews_total(
    stream: str = "reviews",
    epsilon: str = "0.1",
    delta: str = "0",
    last_blocks: int = 7,
    uri: str = "published/reviews_total.json",
):
    with privacy_budget(
        stream=stream, epsilon=epsilon, delta=delta, last_blocks=last_blocks
    ) as budget:
        total = dp_statistic(
            claim=budget.claim,
            data=budget.download().outputs["data"],
            statistic="reviews_total",
        )
        paid = budget.consume(after=[total]).outputs["consumed"]
        show_statistic(claim=paid, result=total.outputs["result"])
        budget.upload(total.outputs["result"], uri=uri)
