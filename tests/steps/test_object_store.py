"""Data and results in an object store that is real, refuses, is not there or breaks off."""

import json
from pathlib import Path

import fsspec
import pytest

from privatekube_kfp.core.errors import Invalid, PrivateKubeError
from privatekube_kfp.data.store import Store
from privatekube_kfp.dp.sources import word_vectors
from privatekube_kfp.steps.claims import consume
from privatekube_kfp.steps.data import download, upload
from tests.s3 import forget_clients, misbehaving, s3_server

CREDENTIALS = "AWS_ACCESS_KEY_ID"
NOBODY = "http://127.0.0.1:1"
"""Where nobody listens."""


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    folder = tmp_path_factory.mktemp("s3") / "buckets"
    (folder / "private").mkdir(parents=True)
    (folder / "results").mkdir()
    with s3_server(folder) as server:
        yield server
    forget_clients()


@pytest.fixture
def behind(s3):
    """The same server, behind one that misbehaves when told to."""
    with misbehaving(s3) as made:
        yield made
    forget_clients()


@pytest.fixture
def world(world, s3, monkeypatch):
    """The data of the newest two blocks are in the object store."""
    s3.use(monkeypatch)
    for day in ("thursday", "friday"):
        path = world.write(day, [1, 2, 3])
        (s3.folder / "private" / path.name).write_bytes(path.read_bytes())
        world.ledger.create_block(day, "clicks", data_source=f"s3://private/{path.name}")
    return world


def consumed(world):
    claim = world.allocate()
    spent = world.artifact("spent")
    consume(claim, spent, world.artifact("report"), run_id=world.run)
    return spent.travelled()


def model(world):
    made = world.artifact("model")
    Path(made.path).write_text("weights")
    return made


def test_data_come_from_s3_and_results_go_there(world, s3, monkeypatch):
    monkeypatch.setenv("PRIVATEKUBE_RESULTS", "s3://results/mine")
    monkeypatch.setenv("PRIVATEKUBE_UPLOADS", '[""]')
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    claim, data = world.allocate(), world.artifact("data")
    assert not list((s3.folder / "results").rglob("*probe*")), "what proves it is deleted"
    download(claim, data, run_id=world.run)
    assert Path(data.path).stat().st_size > 0
    spent = world.artifact("spent")
    consume(claim, spent, world.artifact("report"), run_id=world.run)
    upload(spent.travelled(), model(world), run_id=world.run, name="model")
    written = s3.folder / "results" / "mine" / "run-1" / "model"
    assert written.read_text() == "weights"
    note = json.loads(written.with_name("model.claim.json").read_text())
    assert note["complete"]


BROKEN = {
    "no credentials": (
        {CREDENTIALS: "", "AWS_SECRET_ACCESS_KEY": ""},
        ["there are no credentials for it", "`secrets` in privatekube.yaml", CREDENTIALS],
    ),
    "wrong credentials": (
        {"AWS_SECRET_ACCESS_KEY": "another-secret"},
        ["access is denied", "`secrets` in privatekube.yaml"],
    ),
    "no server": (
        {"AWS_ENDPOINT_URL": NOBODY},
        ["its server http://127.0.0.1:1 cannot be reached; AWS_ENDPOINT_URL"],
    ),
    "no address": ({"AWS_ENDPOINT_URL": "nonsense"}, ["Invalid endpoint: nonsense"]),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_store_that_cannot_be_used_is_told_in_a_sentence(world, s3, monkeypatch, fails, how):
    claim = world.allocate()
    changed, words = BROKEN[how]
    s3.use(monkeypatch, **changed)
    said = fails(download, claim, world.artifact("data"), run_id=world.run)
    assert "the data of block thursday at s3://private/thursday.parquet cannot be read: " in said
    assert said.startswith("DataUnreadable: ")
    for word in words:
        assert word in said
    with pytest.raises(
        Invalid, match=r"the word vectors s3://private/v.txt cannot be read"
    ) as told:
        word_vectors("s3://private/v.txt")
    for word in words[:1]:
        assert word in told.value.message


@pytest.mark.parametrize("how", BROKEN)
def test_no_budget_is_asked_for_where_results_cannot_go(world, s3, monkeypatch, fails, how):
    changed, words = BROKEN[how]
    s3.use(monkeypatch, **changed)
    said = fails(world.allocate, results="s3://results/model")
    assert said.startswith("DataUnwritable: results cannot be written to s3://results/model: ")
    assert said.endswith("; no budget was asked for")
    for word in words:
        assert word in said
    assert list(world.ledger.claims()) == []


def test_a_bucket_that_is_not_there(world, fails):
    said = fails(world.allocate, results="s3://nobodys/model")
    assert "s3://nobodys/model: The specified bucket does not exist; no budget" in said
    assert list(world.ledger.claims()) == []


def test_data_cannot_be_brought_into_a_bucket_that_is_not_there(world):
    with pytest.raises(PrivateKubeError) as refused, Store("s3://nobodys/clicks").held():
        pass
    assert refused.value.message == (
        "s3://nobodys/clicks/lock cannot be used: The specified bucket does not exist"
    )


def test_a_place_that_can_only_be_read(world, behind, monkeypatch, fails):
    behind.reads_only = True
    behind.in_front().use(monkeypatch)
    said = fails(world.allocate, results="s3://results/model")
    assert "results cannot be written to s3://results/model: access is denied" in said
    assert list(world.ledger.claims()) == []


def test_an_object_that_is_not_there(world, fails):
    world.ledger.create_block("saturday", "clicks", data_source="s3://private/none.parquet")
    said = fails(download, world.allocate(), world.artifact("data"), run_id=world.run)
    assert "saturday at s3://private/none.parquet cannot be read: there is nothing there" in said


def test_a_store_out_of_order(world, behind, monkeypatch, fails):
    claim = world.allocate()
    behind.status = 503
    behind.in_front().use(monkeypatch)
    said = fails(download, claim, world.artifact("data"), run_id=world.run)
    assert "its server is overloaded or out of order" in said
    assert said.startswith("DataUnreadable: ")


def test_half_a_file(world, behind, monkeypatch, fails):
    claim, data = world.allocate(), world.artifact("data")
    behind.truncated = True
    behind.in_front().use(monkeypatch)
    said = fails(download, claim, data, run_id=world.run)
    assert "the data of block thursday at s3://private/thursday.parquet cannot be read: " in said
    assert said.startswith("DataUnreadable: ")
    assert not Path(data.path).exists()


def test_half_a_file_at_rest(world, s3, fails):
    path = s3.folder / "private" / "thursday.parquet"
    path.write_bytes(path.read_bytes()[:300])
    said = fails(download, world.allocate(), world.artifact("data"), run_id=world.run)
    assert "it is no whole Parquet file" in said


def test_a_store_that_does_not_answer(world, behind, monkeypatch, fails):
    claim = world.allocate()
    behind.silent = True
    behind.in_front().use(monkeypatch)
    impatient = {"config_kwargs": {"read_timeout": 0.5, "retries": {"max_attempts": 0}}}
    monkeypatch.setitem(fsspec.config.conf, "s3", impatient)
    said = fails(download, claim, world.artifact("data"), run_id=world.run)
    assert f"its server {behind.url} did not answer in time" in said
    assert said.startswith("DataUnreadable: ")


def test_a_paid_result_that_cannot_be_written_says_where_and_why(world, s3, monkeypatch, fails):
    spent, made = consumed(world), model(world)
    s3.use(monkeypatch, AWS_SECRET_ACCESS_KEY="another-secret")
    said = fails(upload, spent, made, run_id=world.run, uri="s3://results/model")
    assert "the result cannot be written to s3://results/model: access is denied" in said
    s3.use(monkeypatch)
    upload(spent, made, run_id=world.run, uri="s3://results/model")
    assert (s3.folder / "results" / "model").read_text() == "weights"
