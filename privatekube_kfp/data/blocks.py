"""The data of one block: a Parquet file that rows are added to.

Adding rows that are there already adds nothing. So an ingest that was killed can simply add all of
its rows once more, and the same file can be ingested twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet

from privatekube_kfp.core.errors import PrivateKubeError, Reason
from privatekube_kfp.data.bounds import Ints, Mask, ranks, within_bounds
from privatekube_kfp.data.settings import Settings
from privatekube_kfp.data.store import Store

USER, INDEX, TIME = "user", "user_index", "time"
ROWS_OF_BLOCKS = "privatekube.rowsOfBlocks"
"""Where a file of several blocks' rows says, in its footer, how many rows each has."""
_ROWS_IN_A_GROUP = 32 * 1024

Rows = Callable[[], Iterator[pa.RecordBatch]]
"""Rows that can be gone through more than once, and are never all in memory."""


@dataclass(frozen=True)
class Added:
    """What became of new rows."""

    rows: int
    duplicates: int
    beyond_bounds: int


def blocks_of_rows(file: parquet.FileMetaData) -> Ints:
    """The number of the block that each row of a downloaded file is in."""
    said = (file.metadata or {}).get(ROWS_OF_BLOCKS.encode())
    sizes = json.loads(said) if said else []
    if not said or sum(sizes) != file.num_rows:
        raise PrivateKubeError(
            Reason.DATA_UNREADABLE,
            "the data do not say which rows are of which block; under user-time that is what is"
            " protected. Take them from Download as they are",
        )
    return np.repeat(np.arange(len(sizes)), sizes)


def extend(store: Store, name: str, schema: pa.Schema, new: Rows, settings: Settings) -> Added:
    """Add rows to a block's file, which is made if it is not there.

    What is in the file stays as it is, and first. A row is a duplicate if user, time and payload
    are the same. Where users are what is protected, they get indexes within the block, in the order
    in which they appear there, and are held to their bounds: rows that came last are left out.
    """
    exists = store.exists(name)

    def old(columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        if exists:
            with store.reading(name) as opened, parquet.ParquetFile(opened) as table:
                yield from table.iter_batches(_ROWS_IN_A_GROUP, columns=columns)

    users, times, before = _keys(old([USER, TIME]), new())
    keep = _first_of_its_kind(users, times, before, lambda: chain(old(), new()))
    different = int(keep.sum())
    if INDEX in schema.names:
        _keep_within_bounds(keep, users, times, settings)
    kept = int(keep.sum())
    added = Added(kept - before, len(keep) - different, different - kept)
    if added.rows or not exists:
        with store.writing(name) as path:
            write_parquet(path, schema, _kept(chain(old(), new()), users, keep, schema))
    return added


def _keys(old: Iterable[pa.RecordBatch], new: Iterable[pa.RecordBatch]) -> tuple[Ints, Ints, int]:
    """Of all rows, old and new: the user's index, and the time; and how many rows are old."""
    users: list[Ints] = [np.empty(0, np.int64)]
    times: list[Ints] = [np.empty(0, np.int64)]
    indexes: dict[str, int] = {}
    counts = [0, 0]
    for age, batches in enumerate((old, new)):
        for batch in batches:
            names = batch.column(USER).dictionary_encode()
            known = [indexes.setdefault(n, len(indexes)) for n in names.dictionary.to_pylist()]
            users.append(np.array(known, np.int64)[names.indices.to_numpy()])
            times.append(batch.column(TIME).cast(pa.int64()).to_numpy())
            counts[age] += batch.num_rows
    return np.concatenate(users), np.concatenate(times), counts[0]


# Duplicates


def _first_of_its_kind(users: Ints, times: Ints, before: int, rows: Rows) -> Mask:
    """Which rows are not the same as one before them.

    Most are told apart by user and time; the rest by a digest of all else that they hold.
    """
    keep = np.ones(len(users), bool)
    suspects = _suspects(users, times, before)
    if suspects.size:
        digests = _digests(rows(), suspects)
        keep[suspects[ranks(times[suspects], *digests.T) > 0]] = False
        keep[:before] = True
    return keep


def _suspects(users: Ints, times: Ints, before: int) -> Ints:
    """The rows that share user and time with another, if one of them is new."""
    order = np.lexsort((times, users))
    former, latter = order[:-1], order[1:]
    alike = (users[latter] == users[former]) & (times[latter] == times[former])
    # Among equals the sort keeps the order, so the latter is the newer.
    shared = np.zeros(len(order), bool)
    shared[latter[alike]] = True
    shared[former[alike]] = True
    groups = np.concatenate(([0], np.cumsum(~alike))) if len(order) else order
    new = np.bincount(groups, weights=order >= before) > 0
    shared[order[~new[groups]]] = False
    return np.nonzero(shared)[0]


def _digests(batches: Iterable[pa.RecordBatch], positions: Ints) -> Ints:
    """Of the rows at these positions, counted through all batches."""
    digests: list[bytes] = []
    offset = 0
    for batch in batches:
        low, high = np.searchsorted(positions, (offset, offset + batch.num_rows))
        if low < high:
            rows = _as_bytes(batch.take(pa.array(positions[low:high] - offset)))
            digests += [blake2b(row, digest_size=16).digest() for row in rows]
        offset += batch.num_rows
    return np.frombuffer(b"".join(digests), np.int64).reshape(-1, 2)


def _as_bytes(batch: pa.RecordBatch) -> Iterator[memoryview]:
    """Each row as one text from which all but its time could be read again."""
    parts = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in (INDEX, TIME):
            continue
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            column = column.cast(pa.large_string())
        size = pc.binary_length(column).cast(pa.string())
        parts += [size.fill_null("null"), column.fill_null("")]
    parts = [part.cast(pa.large_binary()) for part in parts]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b" ", pa.large_binary()))
    _, ends, data = joined.buffers()
    edges = np.frombuffer(ends, np.int64)[joined.offset : joined.offset + len(joined) + 1].tolist()
    bytes_ = memoryview(data)
    for start, end in pairwise(edges):
        yield bytes_[start:end]


# Bounds


def _keep_within_bounds(keep: Mask, users: Ints, times: Ints, settings: Settings) -> None:
    """Of each user's rows the first, in the order in which they came."""
    per_day, in_all = settings.per_user_per_day, settings.per_user
    assert per_day is not None
    assert in_all is not None
    (kept,) = np.nonzero(keep)
    # Hardly anybody has so many rows: then there is nothing to sort.
    if kept.size and np.bincount(users[kept]).max() > min(per_day, in_all):
        count = within_bounds([users[kept]], times[kept], per_day=per_day, in_all=in_all)
        keep[kept[~count]] = False


# Writing


def _kept(
    batches: Iterable[pa.RecordBatch], users: Ints, keep: Mask, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows to keep, with their users' indexes where the block has these."""
    at = schema.get_field_index(INDEX)
    offset = 0
    for batch in batches:
        mask, whose = keep[offset:][: batch.num_rows], users[offset:][: batch.num_rows]
        offset += batch.num_rows
        if at >= 0 and INDEX not in batch.schema.names:
            batch = batch.add_column(at, schema.field(at), pa.array(whose))
        yield batch if mask.all() else batch.filter(pa.array(mask))


def write_parquet(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """The same rows make the same file, whatever the batches are.

    Without large dictionaries: texts hardly repeat.
    """
    with parquet.ParquetWriter(path, schema, dictionary_pagesize_limit=32 * 1024) as writer:
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(batch)
            while sum(each.num_rows for each in waiting) >= _ROWS_IN_A_GROUP:
                rows = pa.Table.from_batches(waiting, schema)
                writer.write_table(rows.slice(0, _ROWS_IN_A_GROUP).combine_chunks())
                waiting = rows.slice(_ROWS_IN_A_GROUP).to_batches()
        if any(batch.num_rows for batch in waiting):
            writer.write_table(pa.Table.from_batches(waiting, schema).combine_chunks())
