"""The component that brings data in: Ingest.

It is apart from the protocol's five since it has no claim: it reads raw private data by URI and
writes them to the private place, and only what is public leaves it. It is handed the run's id all
the same, and does nothing with it: two ingests of the same files on two days look alike, and the
second must not be taken for done.
"""

# No `from __future__ import annotations`: Kubeflow reads the annotations as objects, and of those
# that may be None only `Optional`.
# ruff: noqa: UP045
from typing import NamedTuple, Optional

from kfp.dsl import Markdown, Output

from privatekube_kfp.components.protocol import protocol_component


@protocol_component
def ingest(
    run_id: str,
    stream: str,
    sources: list,
    to: str,
    ingest_report: Output[Markdown],
    start: str = "",
    until: str = "",
    interval: str = "",
    layout: str = "columns",
    user_column: str = "",
    time_column: str = "",
    time_unit: str = "",
    keep: Optional[list] = None,
    constants: Optional[dict] = None,
    format: str = "",
    group_size: int = 0,
    per_user_per_day: int = 0,
    per_user: int = 0,
    confidence: str = "",
    max_bad_rows: int = 1000,
) -> NamedTuple("Outputs", [("until", str), ("block_count", int)]):  # type: ignore[valid-type]
    """Brings tables into a stream's private blocks, and lets pipelines ask for these.

    The data go from the sources to the private place, and nothing of them into Kubeflow. What comes
    out depends on no data, or is differentially private. It can be repeated: the same rows are
    added once, and what was interrupted goes on.

    Args:
        run_id: The run that brings them in: dsl.PIPELINE_JOB_ID_PLACEHOLDER, alone.
        stream: The stream that the data are of.
        sources: The tables, as paths or URIs: Parquet, CSV or JSON lines.
        to: The private place for them, a URI that later tasks can read.
        start: When the stream begins, such as 2026-01-01. Needed the first time.
        until: Up to when the data are all there; all periods that are over, if empty.
        interval: How long a period is, 1d if empty.
        layout: What a row looks like: columns, amazon-json, amazon-csv-2014 or amazon-csv-2018.
        user_column: The column of users, if not as in the layout.
        time_column: The column of times, if not as in the layout.
        time_unit: Of times that are numbers: s, ms or us.
        keep: Keep only such columns of the others.
        constants: Columns to add, with the same value in every row: {"category": "books"}.
        format: parquet, csv or json, if the names of the files do not say it.
        group_size: Users that share a block, at least; 0 for 1000.
        per_user_per_day: Rows of a user and day; 0 for 20.
        per_user: Rows of a user in a block; 0 for 100.
        confidence: How sure the bounds on the count of users are, 0.999 if empty.
        max_bad_rows: Fail if more rows are bad.

    Returns:
        ingest_report: What was brought in, as far as anybody may know it.
        until: Up to when all data are there.
        block_count: How many blocks were added; of a retry, those that it added itself.
    """
    # privatekube.io/role: ingest
    from privatekube_kfp.steps.ingest import ingest as step

    return step(
        ingest_report,
        stream=stream,
        sources=sources,
        to=to,
        start=start,
        until=until,
        interval=interval,
        layout=layout,
        user_column=user_column,
        time_column=time_column,
        time_unit=time_unit,
        keep=keep or (),
        constants=constants,
        format=format,
        group_size=group_size,
        per_user_per_day=per_user_per_day,
        per_user=per_user,
        confidence=confidence,
        max_bad_rows=max_bad_rows,
    )
