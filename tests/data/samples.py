"""Files of sample reviews."""

import pyarrow.parquet as parquet

from privatekube_kfp.data.sample import reviews
from tests.data.world import START


def sample_file(folder, rows, *, days=90, seed=1):
    """A Parquet file of so many reviews, from the start of the tests' streams on."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"reviews-{rows}-{days}.parquet"
    writer = None
    for batch in reviews(rows, seed=seed, start=START // 1_000_000, days=days):
        writer = writer or parquet.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    writer.close()
    return path
