"""Reviews in a file: of the kind that its name says, whole or not at all."""

import json

import pyarrow.parquet
import pytest

from privatekube_kfp.data.sample import reviews
from privatekube_kfp.data.tables import Source, layout_named
from tests.cli.running import at_a_terminal, digest, in_own_process

NAMES = ["r.parquet", "r.csv", "r.csv.gz", "r.json", "r.json.gz", "r.jsonl", "R.JSONL.GZ"]
FEW = ("--rows", "1000")


def rows_of(path):
    layout = layout_named("amazon-json" if "json" in path.lower() else "columns")
    return [row for read in Source(path, layout).batches() for row in read.batch.to_pylist()]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_can_be_read(run, workplace, name):
    said = run.ok("sample", name, *FEW, "--seed", "3", "--start", "2020-02-01", "--days", "10")
    assert said.out == f"{name}: 1000 reviews\n"
    assert said.err == ""
    (batch,) = reviews(1000, seed=3, start=1580515200, days=10)
    found = rows_of(name)
    for expected, row in zip(batch.to_pylist(), found, strict=True):
        assert row["time"].timestamp() == expected["timestamp"]
        for column in ("user", "product", "text"):
            assert row[column] == expected[column]
        assert float(row["rating"]) == expected["rating"]
    assert [path.name for path in workplace.iterdir()] == [name]


def test_the_same_seed_gives_the_same_file(run, workplace):
    for name in ("r.parquet", "r.csv.gz", "r.jsonl.gz"):
        run.ok("sample", name, *FEW)
        before = digest(workplace / name)
        run.ok("sample", name, *FEW, "--overwrite")
        assert digest(workplace / name) == before
        run.ok("sample", name, *FEW, "--overwrite", "--seed", "1")
        assert digest(workplace / name) != before


def test_more_than_one_batch(run):
    run.ok("sample", "r.parquet", "--rows", "120000")
    assert pyarrow.parquet.read_metadata("r.parquet").num_rows == 120_000


def test_json(run, workplace):
    said = run.json("sample", "deep/er/r.jsonl", *FEW)
    size = (workplace / "deep" / "er" / "r.jsonl").stat().st_size
    assert said == {"path": "deep/er/r.jsonl", "rows": 1000, "seed": 0, "bytes": size}
    first = json.loads((workplace / "deep/er/r.jsonl").read_text().splitlines()[0])
    assert sorted(first) == [
        "asin",
        "category",
        "overall",
        "reviewText",
        "reviewerID",
        "unixReviewTime",
    ]


def test_a_file_that_is_there_stays(run, workplace):
    path = workplace / "r.csv"
    path.write_text("mine")
    refused = run("sample", "r.csv")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "privatekube: r.csv is there already; --overwrite would replace it (AlreadyExists)\n"
    )
    assert run("sample", "r.csv", "--json").json["error"]["reason"] == "AlreadyExists"
    assert path.read_text() == "mine"
    run.ok("sample", "r.csv", *FEW, "--overwrite")
    assert len(rows_of("r.csv")) == 1000


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("r.txt",), "r.txt must end in one of .parquet, .csv, .csv.gz, .json"),
        (("r",), "must end in one of"),
        (("r.parquet.gz",), "must end in one of"),
        (("r.csv", "--rows", "0"), "--rows must be from 1 to 1000000000"),
        (("r.csv", "--rows", "1000000001"), "--rows must be from 1 to"),
        (("r.csv", "--rows", "-1"), "is not a whole number"),
        (("r.csv", "--rows", "many"), "is not a whole number"),
        (("r.csv", "--days", "0"), "--days must be from 1 to"),
        (("r.csv", "--seed", "x"), "is not a whole number"),
        (("r.csv", "--start", "soon"), "is not a date or time"),
        (("r.csv", "--start", "9999-01-01", "--days", "400"), "beyond the year 9999"),
        ((), "Missing argument 'PATH'"),
    ],
)
def test_what_cannot_be_right(run, workplace, args, problem):
    refused = run("sample", *args)
    assert (refused.code, refused.out) == (2, "")
    assert problem in refused.err
    assert list(workplace.iterdir()) == []


def test_what_goes_wrong_leaves_nothing(run, workplace, monkeypatch):
    def full(batch):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("privatekube_kfp.cli.sample._json_lines", full)
    result = run("sample", "r.json", *FEW)
    assert (result.code, result.err) == (1, "privatekube: No space left on device\n")
    assert list(workplace.iterdir()) == []
    (workplace / "file").write_text("")
    assert run("sample", "file/r.csv", *FEW).code == 1
    (workplace / "r.csv").mkdir()
    assert run("sample", "r.csv", *FEW, "--overwrite").code == 2


def test_a_bar_at_a_terminal(workplace):
    code, out, shown = at_a_terminal("sample", "r.csv", "--rows", "100000")
    assert (code, out) == (0, "r.csv: 100000 reviews\n")
    assert "reviews" in shown.decode()
    assert "100%" in shown.decode() or "50%" in shown.decode()


@pytest.mark.parametrize(
    "command",
    [("sample", "r.csv"), ("ingest", "r.csv", "--stream", "s", "--to", "x")],
    ids=lambda command: command[0],
)
def test_without_pyarrow(workplace, command):
    result = in_own_process(*command, before="sys.modules['pyarrow'] = None")
    assert result.returncode == 1
    assert "pip install 'privatekube-kfp[pipelines]'" in result.stderr
    assert list(workplace.iterdir()) == []
