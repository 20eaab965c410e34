"""`privatekube sample`: reviews that nobody wrote, in a file to try things with."""

from __future__ import annotations

import gzip
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privatekube_kfp.cli.bars import bar
from privatekube_kfp.cli.errors import needing_pyarrow
from privatekube_kfp.cli.options import json_option
from privatekube_kfp.cli.output import say
from privatekube_kfp.cli.session import Session
from privatekube_kfp.cli.values import TIME, WHOLE
from privatekube_kfp.core.errors import PrivateKubeError, Reason
from privatekube_kfp.core.unlocking import MICROSECONDS
from privatekube_kfp.ledger.times import parse_time

if TYPE_CHECKING:
    import pyarrow

_ENDINGS = (".parquet", ".csv", ".csv.gz", ".json", ".json.gz", ".jsonl", ".jsonl.gz")
_MOST_ROWS, _MOST_DAYS = 1_000_000_000, 36_525
_AMAZON_NAMES = {
    "user": "reviewerID",
    "product": "asin",
    "text": "reviewText",
    "rating": "overall",
    "timestamp": "unixReviewTime",
}


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--rows", type=WHOLE, default="100000", help="How many reviews.")
@click.option("--seed", type=WHOLE, default="0", help="The same seed gives the same reviews.")
@click.option("--start", type=TIME, default="2018-01-01", help="The time of the first.")
@click.option("--days", type=WHOLE, default="90", help="Over how many days they are spread.")
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@json_option
@click.pass_obj
def sample(
    session: Session, path: Path, rows: int, seed: int, start: int, days: int, overwrite: bool
) -> None:
    """Write reviews that nobody wrote, to try things with.

    PATH ends in .parquet, .csv or .jsonl, which says how they are written; .csv and .jsonl may
    have .gz after it. The columns are user, product, timestamp (seconds since 1970), rating,
    category and text; JSON has them under the names of the public Amazon reviews.

    \b
    Examples:
      privatekube sample reviews.parquet
      privatekube sample reviews.jsonl.gz --rows 1000 --start 2020-06-01 --days 30 --seed 7
    """
    if not path.name.lower().endswith(_ENDINGS):
        raise click.UsageError(f"{path} must end in one of {', '.join(_ENDINGS)}")
    for name, value, most in (("--rows", rows, _MOST_ROWS), ("--days", days, _MOST_DAYS)):
        if not 1 <= value <= most:
            raise click.UsageError(f"{name} must be from 1 to {most}")
    if path.exists() and not overwrite:
        raise PrivateKubeError(
            Reason.ALREADY_EXISTS, f"{path} is there already; --overwrite would replace it"
        )
    if start + days * MICROSECONDS["d"] > parse_time("9999-12-31"):
        raise click.UsageError("--start and --days go beyond the year 9999")
    reviews = _reviews(rows, seed, start // MICROSECONDS["s"], days)
    with _in_place(path) as partial, bar("reviews", rows) as advance:
        _write(partial, path.name.lower(), _told(reviews, advance))
    document = {"path": str(path), "rows": rows, "seed": seed, "bytes": path.stat().st_size}
    session.answer(document, lambda: say(f"{path}: {rows} reviews"))


def _reviews(rows: int, seed: int, start: int, days: int) -> Iterator[pyarrow.RecordBatch]:
    with needing_pyarrow():
        from privatekube_kfp.data.sample import reviews
    return reviews(rows, seed=seed, start=start, days=days)


def _told(
    batches: Iterator[pyarrow.RecordBatch], advance: Callable[[int], None]
) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        yield batch
        advance(batch.num_rows)


@contextmanager
def _in_place(path: Path) -> Iterator[Path]:
    """A file to write, which gets its name when it is whole. A crash leaves a .partial."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _write(partial: Path, name: str, batches: Iterator[pyarrow.RecordBatch]) -> None:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    first = next(batches)
    batches = chain([first], batches)
    with partial.open("wb") as file:
        if name.endswith(".parquet"):
            with pyarrow.parquet.ParquetWriter(file, first.schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            return
        # Without the time of writing, so that the same seed gives the same file.
        zipped = gzip.GzipFile("", "wb", 6, file, mtime=0) if name.endswith(".gz") else None
        with closing(zipped or file) as target:
            if ".csv" in name:
                with pyarrow.csv.CSVWriter(target, first.schema) as writer:
                    for batch in batches:
                        writer.write(batch)
            else:
                for batch in batches:
                    target.write(_json_lines(batch))


def _json_lines(batch: pyarrow.RecordBatch) -> bytes:
    columns = batch.rename_columns([_AMAZON_NAMES.get(name, name) for name in batch.schema.names])
    return "".join(json.dumps(row) + "\n" for row in columns.to_pylist()).encode()
