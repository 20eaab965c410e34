"""Ingest: how much slower than pyarrow that reads and rewrites the same rows once, how much memory?

Each in a process of its own, in turn, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pyarrow.parquet as parquet

from benchmarks.report import Result, at_least, at_most
from privatekube_kfp.data.sample import reviews

Say = Callable[[str], None]
SEMANTICS = ("event", "user", "user-time")
_START = 1_514_764_800  # 2018-01-01
_DAYS = 90

_REWRITE = """
import sys, time, resource
import pyarrow.parquet as parquet
began = time.perf_counter()
with parquet.ParquetFile(sys.argv[1]) as table:
    with parquet.ParquetWriter(sys.argv[2], table.schema_arrow) as writer:
        for batch in table.iter_batches():
            writer.write_batch(batch)
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
_INGEST = """
import sys, time, resource
from privatekube_kfp.accounting import Counter
from privatekube_kfp.core.unlocking import AtOnce
from privatekube_kfp.data.ingest import ingest
from privatekube_kfp.data.tables import Source
from privatekube_kfp.ledger.opening import open_ledger
from privatekube_kfp.ledger.streams import Semantic, StreamSpec
source, place, semantic, start, days = sys.argv[1:]
counter = None if semantic == "event" else Counter("0.1")
start = int(start) * 1_000_000
with open_ledger(f"sqlite:///{place}/ledger.db", create=True) as ledger:
    ledger.create_stream(
        StreamSpec("s", "10", "1e-7", AtOnce(), semantic=Semantic(semantic), counter=counter)
    )
    began = time.perf_counter()
    ingest(
        ledger, "s", [Source(source)], f"{place}/store",
        start=start, until=start + int(days) * 86_400_000_000, interval=7 * 86_400_000_000,
    )
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def measure(quick: bool, say: Say) -> list[Result]:
    rows, turns = (100_000, 1) if quick else (1_000_000, 5)
    say(f"Ingest: {rows:,} reviews under each semantic, beside a plain rewrite; {turns} turns ...")
    shares: dict[str, list[float]] = {semantic: [] for semantic in SEMANTICS}
    peaks: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        source = _sample(here / "reviews.parquet", rows)
        for turn in range(turns):
            for semantic in SEMANTICS:
                plain, _ = _run(_REWRITE, source, here / "rewritten.parquet")
                ours, peak = _ingest(here / f"{semantic}-{turn}", source, semantic)
                shares[semantic].append(plain / ours)
                peaks[rows] = max(peaks.get(rows, 0), peak)
        say(f"Ingest: {4 * rows:,} reviews, for their memory ...")
        source.unlink()
        many = _sample(here / "many.parquet", 4 * rows)
        for semantic in SEMANTICS:
            _, peak = _ingest(here / f"{semantic}-many", many, semantic)
            peaks[4 * rows] = max(peaks.get(4 * rows, 0), peak)
    return [
        *(
            at_least(
                f"ingest over a plain rewrite, {semantic}",
                median(shares[semantic]),
                "of its speed",
                1 / 3,
                not quick,
            )
            for semantic in SEMANTICS
        ),
        at_most(f"peak memory, {rows:,} reviews", peaks[rows], "MiB", 1024, not quick),
        at_most(
            "peak memory of four times the reviews",
            peaks[4 * rows] / peaks[rows],
            "times",
            1.5,
            not quick,
        ),
    ]


def _sample(path: Path, rows: int) -> Path:
    writer = None
    for batch in reviews(rows, start=_START, days=_DAYS):
        writer = writer or parquet.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    assert writer is not None
    writer.close()
    return path


def _ingest(place: Path, source: Path, semantic: str) -> tuple[float, float]:
    place.mkdir()
    # A week more than there are reviews: the last period is over then.
    return _run(_INGEST, source, place, semantic, _START, _DAYS + 1)


def _run(program: str, *args: object) -> tuple[float, float]:
    """Seconds that it measured itself, and its peak memory in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"ingest failed: {done.stderr[-2000:]}")
    seconds, peak = done.stdout.split()
    return float(seconds), int(peak) / 1024
