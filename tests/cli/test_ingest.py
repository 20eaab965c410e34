"""`privatekube ingest` as a person at a terminal, or a nightly job, sees it."""

import gzip
import json

import pytest

from privatekube_kfp.cli import ingest as ingest_command
from privatekube_kfp.core.unlocking import format_duration
from privatekube_kfp.data import settings
from privatekube_kfp.data.counter import DEFAULT_CONFIDENCE
from privatekube_kfp.data.settings import DAY
from privatekube_kfp.data.tables import DEFAULT_LIMIT, LAYOUTS
from tests.cli.running import at_a_terminal

UNTIL = ("--until", "2018-01-11")
FIRST = ("--start", "2018-01-01", *UNTIL)


@pytest.fixture
def reviews(run):
    run.ok("sample", "reviews.parquet", "--rows", "2000", "--days", "10")
    run.ok("stream", "create", "s", "--epsilon", "10", "--delta", "1e-7", "--unlock-at-once")
    return run


def test_people_see_what_happened(reviews):
    said = reviews.ok("ingest", "reviews.parquet", "--stream", "s", "--to", "store", *FIRST)
    assert said.out == (
        "stream s: 10 new blocks, whole until 2018-01-11T00:00:00Z\n"
        "\n"
        "For whoever may see the data:\n"
        "rows read  2000\n"
        "added      2000\n"
    )
    assert said.err.splitlines() == [
        "reading ...",
        "sorting by blocks ...",
        "writing blocks ...",
        "registering blocks ...",
    ]
    blocks = reviews.json("block", "list")["blocks"]
    assert len(blocks) == 10


def test_programs_get_the_public_part_and_the_true_one_apart(run):
    run.ok("sample", "reviews.parquet", "--rows", "5000", "--days", "10")
    run.ok(
        *("stream", "create", "s", "--epsilon", "10", "--delta", "1e-7", "--unlock-at-once"),
        *("--semantic", "user", "--counter-epsilon", "5"),
    )
    said = run.json(
        "ingest", "reviews.parquet", "--stream", "s", "--to", "store", *FIRST, "--group-size", "100"
    )
    assert set(said) == {"stream", "until", "newBlocks", "users", "rows"}
    assert said["newBlocks"] > 1
    assert said["users"]["atLeast"] <= said["users"]["estimate"] <= said["users"]["atMost"]
    assert said["rows"]["added"] == said["rows"]["read"] == 5000
    shown = run.json("stream", "show", "s")
    assert shown["count"]["lowerBound"] == said["users"]["atLeast"]


def test_what_is_left_out_is_told(reviews, workplace):
    rows = [
        {"reviewerID": "A1", "unixReviewTime": 1514800000, "reviewText": "fine", "overall": 5.0},
        {"reviewerID": "A1", "unixReviewTime": 1514800000, "reviewText": "fine", "overall": 5.0},
        {"reviewerID": "A2", "unixReviewTime": 1514700000, "reviewText": "early", "overall": 4.0},
        {"reviewerID": "A3", "unixReviewTime": 1520000000, "reviewText": "late", "overall": 3.0},
        {"reviewerID": "A4", "unixReviewTime": 0, "reviewText": "never", "overall": 2.0},
        {"reviewerID": "", "unixReviewTime": 1514800000, "reviewText": "nobody", "overall": 1.0},
    ]
    lines = [json.dumps({"asin": "B1", "summary": "", **row}) for row in rows]
    with gzip.open(workplace / "Books_5.json.gz", "wt") as file:
        file.write("\n".join([*lines, '{"reviewerID": "A5",', ""]))
    said = reviews.ok(
        *("ingest", "Books_5.json.gz", "--stream", "s", "--to", "store", *FIRST),
        *("--layout", "amazon-json", "--constant", "category=books"),
    )
    told = dict(line.split("  ", 1) for line in said.out.splitlines() if "  " in line)
    told = {name: value.strip() for name, value in told.items()}
    assert told["added"] == "1"
    assert told["there before"] == "1"
    assert told["before the start"] == "1"
    assert told["for later"] == "1"
    assert told["bad"].startswith("1 malformed, first at Books_5.json.gz, line 7")
    assert "1 no user" in told["bad"]
    assert "1 absurd time" in told["bad"]
    assert "nobody" not in said.out


@pytest.mark.parametrize(
    ("args", "code", "match"),
    [
        (("missing.parquet", "--to", "x", *FIRST), 1, "there is nothing there"),
        (("reviews.parquet", "--to", "x", *UNTIL), 1, "say from when on the stream is"),
        (("reviews.parquet", "--to", "x", *FIRST, "--user", "who"), 1, "no column who"),
        (("reviews.parquet", "--to", "ledger.db", *FIRST), 1, "cannot be used: "),
        (("reviews.parquet", "--to", "x", *FIRST, "--per-user", "3"), 1, "protects single events"),
        (("reviews.parquet", "--to", "x", "--start", "2018-13-01"), 2, "not a date or time"),
        (("reviews.parquet", "--to", "x", *FIRST, "--constant", "books"), 2, "category=books"),
        (("reviews.parquet", "--to", "x", *FIRST, "--layout", "tape"), 2, "'tape' is not one of"),
        (("reviews.parquet", *FIRST), 2, "Missing option '--to'"),
        (("--to", "x", *FIRST), 2, "Missing argument 'SOURCE...'"),
        (("", "--to", "x", *FIRST), 2, "'' must be printable text"),
    ],
)
def test_refusals_are_a_sentence(reviews, args, code, match):
    said = reviews("ingest", "--stream", "s", *args)
    assert said.code == code
    assert match in said.err
    assert "Traceback" not in said.err
    assert reviews.json("block", "list")["blocks"] == []


def test_help_says_what_the_library_does():
    """Written down a second time there, so that help need not wait for pyarrow."""
    assert tuple(LAYOUTS) == ingest_command._LAYOUTS
    options = {option.name: option for option in ingest_command.ingest.params}
    assert options["max_bad_rows"].default == DEFAULT_LIMIT
    for name, default in (
        ("interval", format_duration(DAY)),
        ("group_size", settings.DEFAULT_GROUP_SIZE),
        ("per_user_per_day", settings.DEFAULT_PER_USER_PER_DAY),
        ("per_user", settings.DEFAULT_PER_USER),
        ("confidence", DEFAULT_CONFIDENCE),
    ):
        assert f"[default: {default}]" in options[name].help


def test_an_unknown_stream(reviews):
    said = reviews("ingest", "reviews.parquet", "--stream", "other", "--to", "x", *FIRST)
    assert said.code == 1
    assert "there is no stream 'other'" in said.err


def test_a_terminal_gets_a_bar(reviews):
    code, out, shown = at_a_terminal(
        "ingest", "reviews.parquet", "--stream", "s", "--to", "store", *FIRST
    )
    assert code == 0
    assert out.startswith("stream s: 10 new blocks")
    assert b"reading" in shown
    assert b"100%" in shown
