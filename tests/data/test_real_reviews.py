"""Real reviews, where they are: 46,762 of Amazon's, in a folder beside the project's own."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from privatekube_kfp.data.ingest import ingest
from privatekube_kfp.data.tables import Source
from privatekube_kfp.ledger.sqlite import SqliteLedger
from privatekube_kfp.ledger.times import parse_time
from tests.data.world import DAY, NOW, contents, stream_of

REVIEWS = Path(__file__).parents[3] / "shared/data/amazon_reviews.parquet"
pytestmark = pytest.mark.skipif(not REVIEWS.exists(), reason="there are no real reviews here")


@pytest.mark.parametrize("semantic", ["event", "user", "user-time"])
def test_real_reviews(tmp_path, semantic):
    rows = parquet.read_table(REVIEWS).to_pylist()
    settings = {} if semantic == "event" else {"group_size": 1_000}
    with SqliteLedger(str(tmp_path / "ledger.db"), create=True) as ledger:
        ledger.create_stream(stream_of(semantic, epsilon="1", days=1024))
        report = ingest(
            ledger,
            "s",
            [Source(REVIEWS)],
            str(tmp_path / "store"),
            start=parse_time("1997-01-01"),
            until=parse_time("2019-01-01"),
            interval=30 * DAY,
            clock=lambda: NOW,
            **settings,
        )
        names = {record.block.name for record in ledger.blocks("s")}
        assert ledger.verify().ok
    assert report.rows["read"] == len(rows) == 46_762
    distinct = {tuple(r.values()) for r in rows}
    held = contents(tmp_path / "store")
    kept = [r for block in held.values() for r in block]
    assert report.rows["duplicates"] == len(rows) - len(distinct)
    assert len(kept) == report.rows["added"] == len(distinct) - report.rows["beyond bounds"]
    assert set(names) <= set(held)
    if semantic == "event":
        assert len(names) == 267
        assert report.rows["beyond bounds"] == 0
        return
    # All but those who came last can be asked for.
    users = {r["user"] for r in kept}
    assert len(users) == 32_822
    assert report.count.lower <= len(users) <= report.count.upper
    reachable = {r["user"] for name in names for r in held[name]}
    assert len(reachable) > 0.9 * len(users)
    bounded = Counter((name, r["user"]) for name, block in held.items() for r in block)
    assert max(bounded.values()) <= 100
    if semantic == "user":
        assert max(Counter(user for _, user in bounded).values()) == 1
