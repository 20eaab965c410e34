"""Streams and tables for tests of ingest."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from privatekube_kfp.accounting import Counter
from privatekube_kfp.core.unlocking import AtOnce
from privatekube_kfp.data.ingest import ingest
from privatekube_kfp.data.tables import Source
from privatekube_kfp.ledger.streams import Semantic, StreamSpec
from privatekube_kfp.ledger.times import parse_time

START = parse_time("2018-01-01")
NOW = parse_time("2026-11-16")
SECOND = 1_000_000
DAY = 86_400 * SECOND

SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("timestamp", pa.int64()),
        ("rating", pa.int64()),
        ("text", pa.string()),
    ]
)


def steady(below):
    """Randomness that is always the same: noise that does not change from run to run."""
    return below - 1


def stream_of(semantic, *, epsilon="5", days=64, name="s"):
    """A stream whose user counter is precise enough for small tests."""
    counter = None if semantic == "event" else Counter(epsilon, days)
    return StreamSpec(name, "10", "1e-7", AtOnce(), semantic=Semantic(semantic), counter=counter)


def row(user, day, second=0, text="good", rating=5):
    return {
        "user": user,
        "timestamp": START // SECOND + round(day * 86_400) + second,
        "rating": rating,
        "text": text,
    }


def table(path, rows):
    """A Parquet file of rows, as a source."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(list(rows), SCHEMA), path)
    return Source(path)


def arrivals(days=30, a_day=40, returning=10, seed=0):
    """Rows of users, new ones every day and some who came before, in the order of time."""
    rows, known = [], []
    for day in range(days):
        new = [f"u{day}-{i}" for i in range(a_day)]
        old = (
            [known[(7 * day + 13 * i + seed) % len(known)] for i in range(returning)] if day else []
        )
        for second, user in enumerate([*new, *old]):
            rows.append(row(user, day, second, text=f"{user} on day {day}"))
        known += new
    return rows


def take_in(ledger, sources, place, *, until=None, semantic_settings=None, **more):
    """Ingest with settings that fit the tests; `until` in days."""
    settings = {"start": START, **(semantic_settings or {}), **more}
    return ingest(
        ledger,
        "s",
        sources if isinstance(sources, list) else [sources],
        str(place),
        until=None if until is None else START + until * DAY,
        clock=lambda: NOW,
        **{"randbelow": steady, **settings},
    )


def contents(place):
    """The rows of every block's file, by the block's name."""
    return {
        path.stem: parquet.read_table(path).to_pylist()
        for path in sorted(Path(place, "blocks").glob("*.parquet"))
    }


def bytes_of(place):
    """A digest of every file that stays, by its name."""
    place = Path(place)
    return {
        str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def numbers(ledger):
    """All that the ledger tells of the stream and its blocks, but when they were made."""
    record = ledger.stream("s")
    blocks = [
        (b.block.name, b.block.start, b.block.end, b.block.users, b.block.data_source, b.budget)
        for b in ledger.blocks("s")
    ]
    return record.count, blocks
