"""How many reviews each category has, with differential privacy."""

from kfp import dsl

from privatekube_kfp.components import privacy_budget

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
    uri: str = "",
):
    with privacy_budget(
        stream=stream, epsilon=epsilon, delta=delta, last_blocks=last_blocks, results=uri
    ) as budget:
        counts = budget.statistic("reviews_per_category", budget.download(), categories=categories)
        budget.consume(after=[counts])
        budget.show_statistic(counts)
        budget.upload(counts, name="reviews_per_category.json")
