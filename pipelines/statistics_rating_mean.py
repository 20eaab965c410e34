"""How good ratings are on average, with differential privacy."""

from kfp import dsl

from privatekube_kfp.components import privacy_budget

RATINGS = [1, 5]


@dsl.pipeline(name="statistics-rating-mean")
def rating_mean(
    stream: str = "reviews",
    epsilon: str = "0.1",
    delta: str = "0",
    last_blocks: int = 7,
    bounds: list = RATINGS,
    uri: str = "",
):
    with privacy_budget(
        stream=stream, epsilon=epsilon, delta=delta, last_blocks=last_blocks, results=uri
    ) as budget:
        mean = budget.statistic("rating_mean", budget.download(), bounds=bounds)
        budget.consume(after=[mean])
        budget.show_statistic(mean)
        budget.upload(mean, name="rating_mean.json")
