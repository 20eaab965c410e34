"""Data come in with one pipeline, and are spent budget on with another."""

import json
import signal
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from privatekube_kfp.accounting import Counter
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.streams import Semantic, StreamSpec
from tests.e2e.conftest import HERE, tells
from tests.scheduler.running import until

pytestmark = pytest.mark.slow
START = 1_514_764_800  # 2018-01-01
DAY = 86_400
SECRET = "xyzzy"
PIPELINES = HERE / "ingesting.py"


@pytest.fixture
def shop(on_a_file):
    on_a_file.ledger.create_stream(StreamSpec("reviews", "1", "1e-7", ByPipelines(1)))
    counted = StreamSpec(
        *("people", "10", "1e-7", ByPipelines(1)), semantic=Semantic.USER, counter=Counter("5", 64)
    )
    on_a_file.ledger.create_stream(counted)
    return Shop(on_a_file)


class Shop:
    """A table of reviews, and runs that bring it in."""

    def __init__(self, place):
        self.place = place
        self.store = place.folder / "store"

    def write(self, rows=300, days=3, name="raw.parquet", **more):
        path = self.place.folder / name
        table = {
            "user": [f"{SECRET}-{n}" for n in range(rows)],
            "timestamp": [START + n * days * DAY // rows for n in range(rows)],
            "rating": [n % 5 for n in range(rows)],
            **more,
        }
        pyarrow.parquet.write_table(pyarrow.table(table), path)
        return path

    def asked(self, path, **more):
        return {
            "stream": "reviews",
            "sources": [str(path)],
            "to": self.store,
            "until": "2018-01-05",
            **more,
        }

    def bring_in(self, path, *flags, **more):
        return self.place.run(PIPELINES, "--function=bring_in", *flags, **self.asked(path, **more))

    def begin(self, path, *flags, **more):
        return self.place.begin(
            PIPELINES, "--function=bring_in", *flags, **self.asked(path, **more)
        )

    def blocks(self, stream="reviews"):
        return [record.block.name for record in self.place.ledger.blocks(stream)]

    def contents(self):
        """The rows of every block, by its name."""
        return {
            path.stem: pyarrow.parquet.read_table(path).to_pylist()
            for path in sorted(self.store.glob("blocks/*.parquet"))
        }


def shown(place, ended):
    """All that a run leaves for people to read: its words, its logs, its artifacts, its record."""
    left = [path.read_bytes() for path in Path(place.folder, "runs").rglob("*") if path.is_file()]
    return ended.told + json.dumps(ended.document) + b"\n".join(left).decode(errors="replace")


def test_data_come_in_and_budget_is_spent_on_them(shop):
    place = shop.place
    ended = shop.bring_in(shop.write(rows=4567), "-v")
    assert (ended.code, ended.tasks) == (0, ["ingest"]), ended.told
    assert shop.blocks() == [f"reviews-2018-01-0{n}" for n in (1, 2, 3, 4)]
    assert sum(map(len, shop.contents().values())) == 4567
    everything = shown(place, ended)
    assert "stream reviews: 4 new blocks, whole until 2018-01-05T00:00:00Z" in everything
    assert not tells(everything, 4567)
    assert SECRET not in everything
    # The last of the two has no rows.
    ended = place.run(PIPELINES, "--function=spend", stream="reviews", uri=place.out)
    assert ended.code == 0, ended.told
    expected = sum(row["rating"] for row in shop.contents()["reviews-2018-01-03"])
    assert place.out.read_text() == f"shop: {expected}"
    assert place.epsilons("reviews-2018-01-04") == ("0", "0.1")
    assert place.epsilons("reviews-2018-01-02") == ("0", "0")


def test_a_claim_on_nothing_but_empty_blocks(shop):
    place = shop.place
    assert shop.bring_in(shop.write(days=1)).code == 0
    ended = place.run(PIPELINES, "--function=spend", stream="reviews", uri=place.out)
    assert ended.code == 0, ended.told
    assert place.out.read_text() == "shop: 0"


def test_both_in_one_pipeline(shop):
    """And with users: of those that are surely there, each group is a block."""
    place = shop.place
    asked = shop.asked(shop.write(rows=3500), stream="people", uri=place.out)
    ended = place.run(PIPELINES, "--function=both", **asked)
    assert ended.code == 0, ended.told
    tasks = ["ingest", "allocate", "download", "total", "consume", "upload", "release"]
    assert ended.tasks == tasks
    count = place.ledger.stream("people").count
    told = f"users: about {count.estimate}, from {count.lower} to {count.upper} with confidence"
    assert told in shown(place, ended)
    blocks = shop.blocks("people")
    expected = sum(row["rating"] for name in blocks for row in shop.contents()[name])
    assert place.out.read_text() == f"rating: {expected}"
    assert place.epsilons(blocks[0]) == ("0", "0.1")


def test_how_bad_the_data_are_is_not_told(shop):
    path = shop.write(user=[None if n % 7 == 0 else SECRET for n in range(300)])
    ended = shop.bring_in(path, "-v", max_bad_rows=30)
    assert ended.code == 1
    last = ended.told.strip().splitlines()[-1]
    assert "more rows are bad than the limit of 30; run `privatekube ingest` where" in last
    everything = shown(shop.place, ended)
    assert "no user" not in everything
    assert SECRET not in everything
    assert shop.blocks() == []


@pytest.mark.parametrize("at", ["staging", "ingest.json", "blocks", "ledger"])
@pytest.mark.parametrize("again", ["the same run", "another run"])
def test_killed_and_run_again(shop, at, again):
    """Nothing is added twice, and nothing is missing."""
    path = shop.write(rows=20_000, days=300)
    wanted = {"until": "2018-11-01"}
    process = shop.begin(path, "--run-id=first", **wanted)
    if at == "ledger":
        until(lambda: len(shop.blocks()) > 10)
    else:
        until(lambda: (shop.store / at).exists())
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    run = "first" if again == "the same run" else "second"
    ended = shop.bring_in(path, f"--run-id={run}", **wanted)
    assert ended.code == 0, ended.told
    assert len(shop.blocks()) == 304
    rows = [row for block in shop.contents().values() for row in block]
    assert sorted(int(row["user"].removeprefix(f"{SECRET}-")) for row in rows) == [*range(20_000)]
