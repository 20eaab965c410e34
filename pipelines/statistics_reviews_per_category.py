"""How many reviews each category has, with differential privacy."""

from kfp import dsl

from privatekube_kfp.components import dp_statistic, privacy_budget, show_statistic

CATEGORIES = [
    *("apps", "automotive", "beauty", "books", "electronics", "food"),
    *("games", "garden", "music", "office", "toys"),
]


@dsl.pipeline(name="statistics-reviews-per-category")
def reviews_per_category(
    stream: str = "reviews",
    epsilon: str = "0.1",
    delta: str = "0",
    last_blocks: int = 7,
    categories: list = CATEGORIES,
    uri: str = "published/reviews_per_category.json",
):
    with privacy_budget(
        stream=stream, epsilon=epsilon, delta=delta, last_blocks=last_blocks
    ) as budget:
        counts = dp_statistic(
            claim=budget.claim,
            data=budget.download().outputs["data"],
            statistic="reviews_per_category",
            categories=categories,
        )
        paid = budget.consume(after=[counts]).outputs["consumed"]
        show_statistic(claim=paid, result=counts.outputs["result"])
        budget.upload(counts.outputs["result"], uri=uri)
