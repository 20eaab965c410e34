"""An ingest under way: what it has read so far, so that a killed one need not read it again.

Input is staged in runs of bounded size. A run counts once the journal names it; what a crash leaves
of another is written over.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as parquet

from privatekube_kfp.data.store import Store

_JOURNAL = "staging/journal.json"


@dataclass
class Progress:
    """How far the input was read: the source, its rows, the runs, and what became of the rows."""

    plan: str
    source: int = 0
    rows: int = 0
    runs: int = 0
    tally: dict[str, int] = field(default_factory=dict)


class Staging:
    """The runs of one ingest."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def progress(self, plan: str) -> Progress:
        """Where to go on with this plan; at the start, if what is there belongs to another."""
        kept = self._store.read_json(_JOURNAL)
        if kept is not None and kept["plan"] == plan:
            return Progress(**kept)
        self.clear()
        return Progress(plan)

    def add(self, batches: Sequence[pa.RecordBatch], users: pa.Table, reached: Progress) -> None:
        """Stage a run and its new users; `reached` says how far the input is read with this run."""
        with self._store.writing(_run(reached.runs - 1)) as path:
            _write_batches(path, batches)
        with self._store.writing(_users(reached.runs - 1)) as path:
            parquet.write_table(users, path)
        self._store.write_json(_JOURNAL, vars(reached))

    def run(self, number: int) -> pa.Table:
        with self._store.reading(_run(number)) as opened:
            return pyarrow.ipc.open_stream(opened).read_all()

    def users(self, runs: int) -> Iterator[pa.RecordBatch]:
        """Who was new in these runs."""
        for number in range(runs):
            with self._store.reading(_users(number)) as opened:
                yield from parquet.read_table(opened).to_batches()

    def clear(self) -> None:
        self._store.remove("staging")


def _run(number: int) -> str:
    return f"staging/{number:06d}.arrow"


def _users(number: int) -> str:
    return f"staging/{number:06d}.users.parquet"


def _write_batches(path: Path, batches: Sequence[pa.RecordBatch]) -> None:
    with (
        pa.OSFile(str(path), "wb") as opened,
        pyarrow.ipc.new_stream(opened, batches[0].schema) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)


class Pile:
    """Rows of many blocks, on this machine's disk, where a block's rows can be had together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[Any] = []
        self._slices: dict[int, list[tuple[int, int]]] = {}
        self._reading = threading.Lock()

    def add(self, number: int, slices: Sequence[int]) -> None:
        """The next run, which was written with its blocks in this order."""
        for position, block in enumerate(slices):
            self._slices.setdefault(block, []).append((number, position))
        self._files.append(pyarrow.ipc.open_file(pa.OSFile(self._path(number), "rb")))

    def _path(self, number: int) -> str:
        return str(self._folder / f"{number:06d}.arrow")

    def write(self, number: int, rows: pa.Table, blocks: Any) -> list[int]:
        """Write a run's rows block by block; which block each batch is of."""
        if (blocks[1:] < blocks[:-1]).any():
            order = blocks.argsort(kind="stable")
            rows, blocks = rows.take(order), blocks[order]
        (edges,) = (blocks[1:] != blocks[:-1]).nonzero()
        starts = [0, *(edges + 1).tolist(), len(blocks)]
        slices: list[int] = []
        with (
            pa.OSFile(self._path(number), "wb") as opened,
            pyarrow.ipc.new_file(opened, rows.schema) as writer,
        ):
            for start, end in pairwise(starts):
                for batch in rows.slice(start, end - start).to_batches():
                    writer.write_batch(batch)
                    slices.append(int(blocks[start]))
        return slices

    def blocks(self) -> list[int]:
        return sorted(self._slices)

    def rows(self, block: int) -> Iterator[pa.RecordBatch]:
        """The rows of a block, in the order in which they came."""
        for file, number in self._slices.get(block, ()):
            with self._reading:
                batch = self._files[file].get_batch(number)
            yield batch
