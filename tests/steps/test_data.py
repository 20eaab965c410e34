"""Where private data come in, and where results go out."""

import builtins
import json
import os
from hashlib import sha256
from pathlib import Path

import fsspec
import pyarrow
import pyarrow.parquet
import pytest

from privatekube_kfp.steps.claims import consume, release
from privatekube_kfp.steps.data import download, upload
from tests.steps.conftest import Artifact


@pytest.fixture
def opened(monkeypatch, world):
    """The files of private data that anybody opens or looks for."""
    touched = []

    def watch(module, name):
        real = getattr(module, name)

        def look(path, *args, **kwargs):
            if str(path).endswith(".parquet"):
                touched.append(str(path))
            return real(path, *args, **kwargs)

        monkeypatch.setattr(module, name, look)

    watch(builtins, "open")
    watch(os, "stat")
    watch(os, "open")
    return touched


def fetch(world, claim, run=None):
    data = world.artifact("data")
    download(claim, data, run_id=run or world.run)
    return data


def spend(world, claim):
    consumed, report = world.artifact("consumed"), world.artifact("report")
    consume(claim, consumed, report, run_id=world.run)
    return consumed.travelled()


# Download


def test_only_the_bound_blocks_are_read_oldest_first(world):
    data = fetch(world, world.allocate())
    table = pyarrow.parquet.read_table(data.path)
    assert table["day"].to_pylist() == ["tuesday"] * 3 + ["wednesday"] * 3
    digest = sha256(b"tuesday\nwednesday").hexdigest()
    assert data.metadata == {"claim": "run-1.claim", "stream": "clicks", "blocks_sha256": digest}


def test_nothing_is_read_before_the_claim_is_looked_up(world, fails, opened):
    """The watch sees what a good download opens, and nothing of a refused one."""
    claim = world.allocate()
    fetch(world, claim)
    assert any("tuesday" in path for path in opened)
    opened.clear()
    release(run_id="run-1")
    assert "AlreadyReleased: " in fails(fetch, world, claim)
    assert opened == []


def test_a_consumed_claim_reads_nothing_more(world, fails):
    claim = world.allocate()
    spend(world, claim)
    assert "is Consumed: data are read only while it is Allocated" in fails(fetch, world, claim)


def test_another_runs_claim_reads_nothing(world, fails, opened):
    claim = world.allocate()
    assert "is not one of run run-2" in fails(fetch, world, claim, run="run-2")
    assert opened == []


def test_downloading_again_gives_the_same(world):
    claim = world.allocate()
    first = Path(fetch(world, claim).path).read_bytes()
    assert Path(fetch(world, claim).path).read_bytes() == first


def test_two_claims_do_not_share_an_output(world, fails):
    one, two = world.allocate(), world.allocate(claim_name="two", epsilon="0.1")
    data = Path(fetch(world, one).path)
    before = data.read_bytes()
    assert "two tasks share their output" in fails(fetch, world, two)
    assert data.read_bytes() == before


def test_a_folder_of_files_is_one_block(world):
    folder = world.folder / "week"
    folder.mkdir()
    for part in ("b", "a"):
        pyarrow.parquet.write_table(pyarrow.table({"x": [part]}), folder / f"{part}.parquet")
    (folder / "_SUCCESS").touch()
    world.ledger.create_block("week", "clicks", data_source=f"file://{folder}")
    data = fetch(world, world.allocate(last_blocks=0, block_names=["week"]))
    assert pyarrow.parquet.read_table(data.path)["x"].to_pylist() == ["a", "b"]


COLUMNS = {"user": pyarrow.int64(), "day": pyarrow.string()}


def empty(world, *days):
    """Days on which nothing happened."""
    for day in days:
        table = pyarrow.schema(COLUMNS).empty_table()
        pyarrow.parquet.write_table(table, world.folder / f"{day}.parquet")


@pytest.mark.parametrize(
    ("days", "left"),
    [
        (["wednesday"], ["tuesday"] * 3),
        (["tuesday"], ["wednesday"] * 3),
        (["tuesday", "wednesday"], []),
    ],
    ids=["the last", "the first", "all"],
)
def test_blocks_in_whose_time_nothing_happened(world, days, left):
    empty(world, *days)
    data = fetch(world, world.allocate())
    table = pyarrow.parquet.read_table(data.path)
    assert table["day"].to_pylist() == left
    assert table.schema.equals(pyarrow.schema(COLUMNS))
    assert data.metadata["blocks_sha256"] == sha256(b"tuesday\nwednesday").hexdigest()


def test_all_sorts_of_columns_can_be_empty(world):
    kinds = {
        "when": pyarrow.timestamp("us", "UTC"),
        "words": pyarrow.list_(pyarrow.string()),
        "kind": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        "more": pyarrow.struct({"a": pyarrow.decimal128(9, 2)}),
    }
    path = world.folder / "none.parquet"
    pyarrow.parquet.write_table(pyarrow.schema(kinds).empty_table(), path)
    world.ledger.create_block("none", "clicks", data_source=str(path))
    data = fetch(world, world.allocate(last_blocks=0, block_names=["none"]))
    assert pyarrow.parquet.read_table(data.path).equals(pyarrow.parquet.read_table(path))


def test_a_folder_of_files_that_are_partly_empty(world):
    folder = world.folder / "week"
    folder.mkdir()
    for part, values in (("a", []), ("b", [1]), ("c", [])):
        table = pyarrow.table({"x": pyarrow.array(values, pyarrow.int64())})
        pyarrow.parquet.write_table(table, folder / f"{part}.parquet")
    world.ledger.create_block("week", "clicks", data_source=str(folder))
    data = fetch(world, world.allocate(last_blocks=0, block_names=["week"]))
    assert pyarrow.parquet.read_table(data.path)["x"].to_pylist() == [1]


def test_an_empty_block_has_the_columns_of_the_others_too(world, fails):
    table = pyarrow.schema({"other": pyarrow.int64()}).empty_table()
    pyarrow.parquet.write_table(table, world.folder / "wednesday.parquet")
    assert "its columns differ from those before it" in fails(fetch, world, world.allocate())


def test_other_stores(world):
    store = fsspec.filesystem("memory")
    with store.open("/private/one.parquet", "wb") as opened:
        pyarrow.parquet.write_table(pyarrow.table({"x": [1, 2]}), opened)
    world.ledger.create_block("far", "clicks", data_source="memory://private/one.parquet")
    data = fetch(world, world.allocate(last_blocks=0, block_names=["far"]))
    assert pyarrow.parquet.read_table(data.path)["x"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda path: path.unlink(), "there is nothing there"),
        (lambda path: path.write_bytes(b"PAR1 but not really"), "cannot be read: "),
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), "cannot be read: "),
        (lambda path: path.write_bytes(b""), "cannot be read: "),
        (
            lambda path: pyarrow.parquet.write_table(pyarrow.table({"other": [1]}), path),
            "its columns differ from those before it",
        ),
    ],
    ids=["gone", "no Parquet", "cut short", "empty", "other columns"],
)
def test_data_that_cannot_be_read(world, fails, harm, why):
    claim = world.allocate()
    harm(world.folder / "wednesday.parquet")
    sentence = fails(fetch, world, claim)
    assert "the data of block wednesday at" in sentence
    assert why in sentence
    assert "DataUnreadable: " in sentence
    assert world.epsilons("wednesday") == ("0.4", "0")
    assert not Path(world.artifact("data").path).exists()
    assert list(Path(world.folder, "artifacts").glob("*.partial")) == []


@pytest.mark.parametrize("source", [None, "nosuchstore://x", "/nowhere/at/all"])
def test_a_block_without_data(world, fails, source):
    world.ledger.create_block("hollow", "clicks", data_source=source)
    claim = world.allocate(last_blocks=0, block_names=["hollow"])
    sentence = fails(fetch, world, claim)
    assert "block hollow" in sentence
    assert "DataUnreadable: " in sentence


# Upload


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"weights")
    return Artifact(str(path))


def put(world, claim, artifact, uri):
    upload(claim, artifact, run_id=world.run, uri=str(uri))


def test_a_result_leaves_once_its_claim_is_consumed(world, model, tmp_path):
    target = tmp_path / "published" / "model.bin"
    put(world, spend(world, world.allocate()), model, target)
    assert target.read_bytes() == b"weights"
    note = json.loads(target.with_name("model.bin.claim.json").read_text())
    assert (note["claim"], note["run"], note["complete"]) == ("run-1.claim", "run-1", True)
    assert sorted(p.name for p in target.parent.iterdir()) == ["model.bin", "model.bin.claim.json"]


def test_nothing_leaves_before_that(world, model, fails, tmp_path):
    target = tmp_path / "model"
    claim = world.allocate()
    assert "NotConsumed: " in fails(put, world, claim, model, target)
    release(run_id="run-1")
    retried = fails(put, world, claim, model, target)
    assert "NotConsumed: " in retried
    assert "was released: what it held is given back" in retried
    assert "start a new run instead" in retried
    assert list(tmp_path.glob("model*")) == [Path(model.path)]


@pytest.mark.parametrize("said", ["consume", "allocate", "release", None, 7, "consume-train"])
def test_an_artifact_that_only_says_it_is_consumed(world, model, fails, tmp_path, said):
    claim = world.allocate()
    claim.metadata["consumed"] = said
    assert "NotConsumed: " in fails(put, world, claim, model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_denied_consume_lets_nothing_out(world, model, fails, tmp_path):
    claim = world.allocate()
    consumed, report = world.artifact("consumed"), world.artifact("report")
    reported = [{"mechanism": "pure", "epsilon": "0.9"}]
    fails(consume, claim, consumed, report, run_id="run-1", amounts=reported, name="x")
    claim.metadata["consumed"] = "consume-amount-x"
    assert "NotConsumed: " in fails(put, world, claim, model, tmp_path / "out")


def test_a_retry_writes_the_same_again(world, model, tmp_path):
    consumed = spend(world, world.allocate())
    for _ in range(2):
        put(world, consumed, model, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"weights"


def test_one_claim_publishes_one_result_at_a_place(world, model, fails, tmp_path):
    consumed = spend(world, world.allocate())
    put(world, consumed, model, tmp_path / "out")
    Path(model.path).write_bytes(b"other weights")
    assert "AlreadyPublished: " in fails(put, world, consumed, model, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"weights"


def test_what_a_crash_leaves_can_be_finished_by_the_same_only(world, model, tmp_path, monkeypatch):
    from privatekube_kfp.steps import data

    consumed = spend(world, world.allocate())

    def die(source, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as crashing:
        crashing.setattr(data, "_replace", die)
        with pytest.raises(KeyboardInterrupt):
            put(world, consumed, model, tmp_path / "out")
    note = tmp_path / "out.claim.json"
    assert json.loads(note.read_text())["complete"] is False
    assert not (tmp_path / "out").exists()
    put(world, consumed, model, tmp_path / "out")
    assert json.loads(note.read_text())["complete"] is True
    assert (tmp_path / "out").read_bytes() == b"weights"


def test_a_later_run_replaces_it(world, model, tmp_path):
    put(world, spend(world, world.allocate()), model, tmp_path / "out")
    Path(model.path).write_bytes(b"other weights")
    world.run = "run-2"
    put(world, spend(world, world.allocate(run_id="run-2")), model, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"other weights"


def test_a_folder_leaves_whole(world, tmp_path):
    folder = tmp_path / "saved"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "a").write_text("a")
    (folder / "b").write_text("b")
    consumed = spend(world, world.allocate())
    for _ in range(2):
        put(world, consumed, Artifact(str(folder)), tmp_path / "out")
    files = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*")}
    assert files == {"b", "inner", "inner/a"}


def test_uploading_to_other_stores(world, model):
    consumed = spend(world, world.allocate())
    put(world, consumed, model, "memory://published/model")
    store = fsspec.filesystem("memory")
    assert store.cat_file("/published/model") == b"weights"
    assert json.loads(store.cat_file("/published/model.claim.json"))["claim"] == "run-1.claim"
    Path(model.path).write_bytes(b"other")
    with pytest.raises(SystemExit, match="AlreadyPublished"):
        put(world, consumed, model, "memory://published/model")
    assert store.cat_file("/published/model") == b"weights"


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("", "nobody says where results go"),
        ("nosuchstore://x", "cannot be written to nosuchstore://x"),
        ("/dev/null/out", "cannot be written to /dev/null/out"),
    ],
)
def test_a_place_that_cannot_be_written(world, model, fails, uri, why):
    assert why in fails(put, world, spend(world, world.allocate()), model, uri)


def test_a_result_that_is_not_there(world, fails, tmp_path):
    consumed = spend(world, world.allocate())
    assert "there is nothing at" in fails(put, world, consumed, Artifact("/none"), tmp_path / "o")


def test_a_data_source_that_leads_nowhere(world, fails):
    loop = world.folder / "loop.parquet"
    loop.symlink_to(loop)
    world.ledger.create_block("looped", "clicks", data_source=str(loop))
    claim = world.allocate(last_blocks=0, block_names=["looped"])
    sentence = fails(fetch, world, claim)
    assert "the data of block looped at" in sentence
    assert "DataUnreadable: " in sentence
