"""How much is read at once, so that memory does not grow with a file."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

MOST_ROWS = 64 * 1024
"""In a batch."""
MOST_BYTES = 16 * 1024 * 1024
"""In a batch, unless one row has more."""
LONGEST_LINE = 64 * 1024 * 1024
BLOCK = 2 * 1024 * 1024
"""What is asked of a file at once."""


def bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """In parts of at most so many rows and bytes; a row is never cut."""
    if batch.num_rows <= MOST_ROWS and (batch.num_rows <= 1 or batch.nbytes <= MOST_BYTES):
        yield batch
    else:
        half = batch.num_rows // 2
        yield from bounded(batch.slice(0, half))
        yield from bounded(batch.slice(half))
