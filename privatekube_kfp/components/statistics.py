"""The components of differentially private statistics.

Kubeflow shows metrics and reports as soon as a task has ended, and so before its claim is consumed.
So there are two: `dp_statistic` computes and shows nothing; `show_statistic` lets the result out
into what people see, and takes a consumed claim as every sink does.
"""

# No `from __future__ import annotations`: Kubeflow reads the annotations as objects, and of those
# that may be None only `Optional`.
# ruff: noqa: UP045
from typing import Optional

from kfp.dsl import HTML, Artifact, Dataset, Input, Metrics, Output

from privatekube_kfp.components.artifacts import PrivacyClaim
from privatekube_kfp.components.protocol import protocol_component


@protocol_component
def dp_statistic(
    run_id: str,
    claim: Input[PrivacyClaim],
    data: Input[Dataset],
    result: Output[Artifact],
    statistic: str,
    step: str = "all",
    bounds: Optional[list] = None,
    categories: Optional[list] = None,
    column: str = "",
    per_user_per_day: int = 0,
    per_user: int = 0,
) -> None:
    """Computes a differentially private statistic, with the noise that a step of the plan pays for.

    It shows nothing: consume the step, then hand the result to `show_statistic` or `upload`. All
    that it is told is public: neither bounds nor categories may be taken from the data.

    Args:
        run_id: The run that the claim belongs to: dsl.PIPELINE_JOB_ID_PLACEHOLDER, alone.
        claim: The claim, from Allocate.
        data: Its data, from Download.
        statistic: reviews_total, reviews_per_category, tokens_total, tokens_mean,
            tokens_deviation or rating_mean.
        step: The step of the plan that pays for it: laplace, pure, gaussian or epsilon-delta.
        bounds: The least and the most that a row counts for: [0, 200] tokens, a rating of [1, 5].
        categories: The categories to count; any other is left out.
        column: Where the texts, ratings or categories are, if not in text, rating or category.
        per_user_per_day: Rows that count, of a user and day, where users are protected; 0 for 20.
        per_user: Rows that count, of a unit in all, where users are protected; 0 for 100.

    Returns:
        result: The statistic as JSON, with its noise and its cost.
    """
    # privatekube.io/role: compute
    from privatekube_kfp.steps.statistics import dp_statistic as compute

    compute(
        claim,
        data,
        result,
        run_id=run_id,
        statistic=statistic,
        plan_step=step,
        bounds=bounds,
        categories=categories,
        column=column,
        per_user_per_day=per_user_per_day,
        per_user=per_user,
    )


@protocol_component
def show_statistic(
    run_id: str,
    claim: Input[PrivacyClaim],
    result: Input[Artifact],
    metrics: Output[Metrics],
    statistic_report: Output[HTML],
) -> None:
    """Shows a statistic as metrics and as a page, once the step that pays for it is consumed.

    Args:
        run_id: The run that the claim belongs to: dsl.PIPELINE_JOB_ID_PLACEHOLDER, alone.
        claim: The consumed claim, from Consume.
        result: The result of `dp_statistic`.

    Returns:
        metrics: The value or values, and their error in 95 of 100 runs: error95, of a table that of
            all values at once, and error95_each that of each alone.
        statistic_report: The value or values with their error, the noise, and what was spent.
    """
    # privatekube.io/role: sink
    from privatekube_kfp.steps.statistics import show_statistic as show

    show(claim, result, metrics, statistic_report, run_id=run_id)
