"""The same on every ledger and in every place: a stream in, budget out, data read back."""

import fsspec
import pyarrow.parquet as parquet
import pytest

from privatekube_kfp.core.errors import PrivateKubeError
from privatekube_kfp.data.store import Store
from privatekube_kfp.ledger.requests import ConsumeRequest
from privatekube_kfp.ledger.sqlite import SqliteLedger
from tests.contract.world import ask
from tests.data import object_store  # noqa: F401
from tests.data.world import START, arrivals, row, stream_of, table, take_in
from tests.kubernetes.fixtures import binaries, control_plane, namespace  # noqa: F401
from tests.scheduler.running import served

GROUPS = {"event": {}, "user": {"group_size": 60}, "user-time": {"group_size": 60}}


@pytest.fixture
def on_a_file(tmp_path):
    with SqliteLedger(str(tmp_path / "ledger.db"), create=True) as ledger:
        yield ledger


@pytest.fixture
def in_a_cluster(control_plane, namespace):  # noqa: F811
    with served(control_plane, namespace) as ledger:
        yield ledger


@pytest.fixture(params=["sqlite", pytest.param("kubernetes", marks=pytest.mark.server)])
def ledger(request):
    return request.getfixturevalue("on_a_file" if request.param == "sqlite" else "in_a_cluster")


@pytest.fixture(params=["file", "bucket"])
def place(request, tmp_path, monkeypatch):
    if request.param == "file":
        return f"file://{tmp_path}/store"
    (tmp_path / "buckets").mkdir()
    monkeypatch.setenv("TEST_BUCKETS", str(tmp_path / "buckets"))
    return "bucket://private/reviews"


def read(record):
    with fsspec.open(record.block.data_source) as opened:
        return parquet.read_table(opened).to_pylist()


@pytest.mark.parametrize("semantic", GROUPS)
def test_a_stream_in_and_budget_out(ledger, place, tmp_path, semantic):
    ledger.create_stream(stream_of(semantic))
    rows = arrivals(days=12, a_day=60)
    first = [r for r in rows if r["timestamp"] < START // 10**6 + 10 * 86_400]
    settings = GROUPS[semantic]
    take_in(ledger, table(tmp_path / "a.parquet", first), place, until=10, **settings)
    report = take_in(ledger, table(tmp_path / "b.parquet", rows), place, until=12, **settings)
    assert report.rows["added"] == len(rows) - len(first)
    records = ledger.blocks("s")
    assert len(records) > 2
    whose = [r["user"] for record in records for r in read(record)]
    assert set(whose) <= {r["user"] for r in rows}
    if semantic == "event":
        assert len(whose) == len(rows)
    else:
        assert ledger.stream("s").count == report.count
    name = records[0].block.name
    assert ledger.submit("c", ask("2", name)).done
    assert ledger.submit("c", ConsumeRequest("consume")).done
    verdict = ledger.verify()
    assert verdict.ok, verdict.difference


def test_a_bucket_is_left_clean(on_a_file, tmp_path, monkeypatch):
    """No lock, no staging, nothing half: only what stays."""
    (tmp_path / "buckets").mkdir()
    monkeypatch.setenv("TEST_BUCKETS", str(tmp_path / "buckets"))
    on_a_file.create_stream(stream_of("user"))
    source = table(tmp_path / "in.parquet", arrivals())
    take_in(on_a_file, source, "bucket://private/s", until=30, group_size=60)
    there = {
        n.removeprefix("private/s/").split("/")[0] for n in fsspec.filesystem("bucket")._keys()
    }
    assert there == {"blocks", "users", "ingest.json"}


def test_two_at_once_on_one_bucket(on_a_file, tmp_path, monkeypatch):
    (tmp_path / "buckets").mkdir()
    monkeypatch.setenv("TEST_BUCKETS", str(tmp_path / "buckets"))
    on_a_file.create_stream(stream_of("event"))
    source = table(tmp_path / "in.parquet", [row("a", 0)])
    with (
        Store("bucket://private/s").held(),
        pytest.raises(PrivateKubeError, match="another ingest is at work"),
    ):
        take_in(on_a_file, source, "bucket://private/s", until=1)
    take_in(on_a_file, source, "bucket://private/s", until=1)
