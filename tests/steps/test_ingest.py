"""Ingest as a step: data come in, and nothing of them into what Kubeflow shows."""

import re
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from privatekube_kfp.accounting import Counter
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.streams import Semantic, StreamSpec
from privatekube_kfp.ledger.times import format_time, system_clock
from privatekube_kfp.steps import ingest as module
from privatekube_kfp.steps.data import download
from privatekube_kfp.steps.ingest import ingest

DAY = 86_400
START = 1_514_764_800  # 2018-01-01
ROWS = 4567
SECRET = "xyzzy"
"""Is in every row of every test's data."""


def rows(count=ROWS, days=3):
    return [
        {
            "user": f"{SECRET}-{n}",
            "timestamp": START + n * days * DAY // count,
            "text": f"{SECRET} {n}",
        }
        for n in range(count)
    ]


@pytest.fixture
def reviews(world):
    """The streams to ingest into; `clicks` has blocks from elsewhere."""
    for semantic in ("event", "user", "user-time"):
        counter = None if semantic == "event" else Counter("1", 64)
        world.ledger.create_stream(
            StreamSpec(
                semantic,
                "10",
                "1e-7",
                ByPipelines(1),
                semantic=Semantic(semantic),
                counter=counter,
            )
        )
    return world


@pytest.fixture
def table(tmp_path):
    def write(rows, name="in.parquet"):
        path = tmp_path / name
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return str(path)

    return write


def take_in(world, source, stream="event", **more):
    """The step's outputs, and its report."""
    report = world.artifact("report")
    said = {
        "sources": [source] if isinstance(source, str) else source,
        "to": str(world.folder / "store" / stream),
        "start": "2018-01-01",
        "until": "2018-01-04",
        **more,
    }
    outputs = ingest(report, stream=stream, **said)
    assert report.metadata == {}
    return outputs, Path(report.path).read_text()


def names(world, stream="event"):
    return [record.block.name for record in world.ledger.blocks(stream)]


def test_what_comes_out(reviews, table, capsys):
    (until, blocks), report = take_in(reviews, table(rows()))
    assert until == "2018-01-04T00:00:00Z"
    assert names(reviews) == ["event-2018-01-01", "event-2018-01-02", "event-2018-01-03"]
    assert blocks == 3
    assert capsys.readouterr().out == f"stream event: 3 new blocks, whole until {until}\n"
    assert report == (
        "# Stream event\n\n"
        f"**3 new blocks**. All data are there until {until}.\n\n"
        "New blocks:\n\n"
        "* `event-2018-01-01`\n* `event-2018-01-02`\n* `event-2018-01-03`\n"
    )


@pytest.mark.parametrize("stream", ["user", "user-time"])
def test_users_are_told_as_they_were_published(reviews, table, capsys, stream):
    (_, blocks), report = take_in(reviews, table(rows()), stream)
    count = reviews.ledger.stream(stream).count
    assert blocks == len(names(reviews, stream)) > 0
    about = f"about {count.estimate}, from {count.lower} to {count.upper} with confidence"
    assert about in capsys.readouterr().out
    told = f"About {count.estimate} users: from {count.lower} to {count.upper}, with confidence"
    assert f"{told} {count.confidence}." in report
    published = (count.estimate, count.lower, count.upper)
    assert str(ROWS) not in report or ROWS in published


def test_empty_texts_and_zeros_are_what_was_not_given(reviews, table):
    """Settings of the first time hold for the next."""
    source = table(rows())
    take_in(
        reviews,
        source,
        "user",
        interval="1d",
        group_size=700,
        per_user=7,
        per_user_per_day=3,
        confidence="0.99",
    )
    nothing = {"start": "", "interval": "", "group_size": 0, "per_user": 0, "per_user_per_day": 0}
    (until, _), _ = take_in(reviews, source, "user", until="2018-01-05", confidence="", **nothing)
    assert until == "2018-01-05T00:00:00Z"


def test_without_until_all_periods_that_are_over(reviews, table):
    (until, _), _ = take_in(reviews, table(rows()), until="", interval="1000d")
    ends = [record.block.end for record in reviews.ledger.blocks("event")]
    assert names(reviews)[:2] == ["event-2018-01-01", "event-2020-09-27"]
    assert until == format_time(ends[-1])
    assert ends[-1] <= system_clock() < ends[-1] + 1000 * DAY * 1_000_000


def test_the_layout_can_be_said(reviews, tmp_path):
    path = tmp_path / "raw.txt"
    path.write_text(f"who,when,what,more\n{SECRET},{START * 1000},good,x\n")
    take_in(
        reviews,
        str(path),
        user_column="who",
        time_column="when",
        time_unit="ms",
        keep=["what"],
        constants={"category": "books"},
        format="csv",
    )
    block = pyarrow.parquet.read_table(tmp_path / "store/event/blocks/event-2018-01-01.parquet")
    assert block.drop_columns("time").to_pylist() == [
        {"user": SECRET, "what": "good", "category": "books"}
    ]


def test_a_second_time_adds_nothing(reviews, table):
    source = table(rows(100))
    take_in(reviews, source)
    before = reviews.folder / "store/event/blocks/event-2018-01-02.parquet"
    held = before.read_bytes()
    (until, blocks), report = take_in(reviews, source)
    assert (until, blocks) == ("2018-01-04T00:00:00Z", 0)
    assert "**0 new blocks**" in report
    assert before.read_bytes() == held


def test_what_is_ingested_can_be_read_with_a_claim(reviews, table):
    """Also a block in whose time nothing happened."""
    take_in(reviews, table(rows(days=2)))
    claim = reviews.allocate(stream="event", last_blocks=2)
    data = reviews.artifact("data")
    download(claim, data, run_id=reviews.run)
    read = pyarrow.parquet.read_table(data.path)
    assert read.column_names == ["user", "time", "text"]
    assert read.num_rows == sum(row["timestamp"] >= START + DAY for row in rows(days=2)) > 0


# What is not told


@pytest.fixture
def refused(reviews, fails, capfd):
    """The sentence of a step that fails, which is also all that it says."""

    def run(source, stream="event", **more):
        capfd.readouterr()
        sentence = fails(take_in, reviews, source, stream, **more)
        said = capfd.readouterr()
        assert said.out + said.err == ""
        assert SECRET not in sentence
        assert not Path(reviews.artifact("report").path).exists()
        return sentence

    return run


SEE = "; run `privatekube ingest` where the data are to see"


def test_how_many_rows_are_bad_is_not_told(refused, table):
    bad = [dict(row, user=None) if n % 100 == 17 else row for n, row in enumerate(rows())]
    assert refused(table(bad), max_bad_rows=30) == (
        f"TooManyBadRows: more rows are bad than the limit of 30{SEE} which"
    )
    assert "the limit of 0;" in refused(table(bad), max_bad_rows=0)


def test_columns_are_not_told(refused, table, tmp_path):
    """A file without a line of names has a person's row there."""
    path = tmp_path / "no-header.csv"
    path.write_text(f"{SECRET},user,5\n")
    sentence = refused(str(path))
    expected = f"source 1 of 1 has other columns than it must have{SEE} which"
    assert sentence == f"WrongColumns: {expected}"
    path = tmp_path / "keys.jsonl"
    path.write_text(f'{{"user": "a", "{SECRET}": 1}}\n')
    assert "source 2 of 2 has other columns" in refused([table(rows(3)), str(path)])


@pytest.mark.parametrize("when", ["at once", "later"])
def test_columns_that_differ_are_not_told(reviews, refused, table, tmp_path, when):
    path = tmp_path / "keys.jsonl"
    path.write_text(f'{{"user": "a", "timestamp": {START}, "{SECRET}": 1}}\n')
    sources = [table(rows(3)), str(path)]
    if when == "later":
        take_in(reviews, sources.pop(0))
        Path(reviews.artifact("report").path).unlink()
    sentence = refused(sources)
    assert "one of the sources, or what was brought in before, has other columns" in sentence
    assert "WrongColumns: " in sentence


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("damaged.parquet", b"PAR1" + SECRET.encode() * 9),
        ("lines.jsonl", SECRET.encode() + b"\n" * 4567),
        ("lines.jsonl.gz", b"\x1f\x8b" + SECRET.encode()),
        ("empty.csv", b""),
        ("quote.csv", f'user,timestamp\n{SECRET},{START}\n{SECRET},"{START}\n\n'.encode()),
    ],
)
def test_what_cannot_be_read_is_not_told(refused, tmp_path, name, contents):
    (tmp_path / name).write_bytes(contents)
    sentence = refused(str(tmp_path / name))
    assert re.fullmatch(
        r"DataUnreadable: (source 1 of 1|one of the sources, or what was brought in before,)"
        rf" cannot be read{SEE} why",
        sentence,
    )


def test_what_the_store_says_is_told(refused, tmp_path):
    sentence = refused(str(tmp_path / "none.parquet"))
    assert sentence.endswith("none.parquet cannot be read: there is nothing there")


def test_what_nobody_thought_of_is_not_told(refused, table, monkeypatch):
    def break_down(*args, **kwargs):
        raise pyarrow.ArrowInvalid(f"In row 17: {SECRET}")

    monkeypatch.setattr(module, "bring_in", break_down)
    sentence = refused(table(rows(3)))
    assert "could not be worked on (ArrowInvalid, at test_ingest.py:" in sentence
    assert f"{SEE} why" in sentence


# What makes no sense


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"start": "yesterday"}, "start 'yesterday' is not a date or time"),
        ({"until": "soon"}, "until 'soon' is not a date or time"),
        ({"until": "2999-01-01"}, "that is not over"),
        ({"interval": "daily"}, "interval 'daily' is not a duration"),
        ({"start": ""}, "say from when on the stream is"),
        ({"layout": "other"}, "there is no layout 'other'"),
        ({"time_unit": "h"}, "'h' is no unit of time"),
        ({"format": "xml"}, "'xml' is no format"),
        ({"group_size": 5}, "group size is for streams of user and user-time semantic"),
        ({"stream": "user", "per_user": -1}, "per user -1 must be a whole number above 0"),
        ({"stream": "user", "confidence": "sure"}, "confidence 'sure'"),
        ({"max_bad_rows": -1}, "max_bad_rows is -1; it must be 0 or more"),
        ({"constants": {"year": 2018}}, "constants must hold texts, and none that is empty"),
        ({"keep": ["text", 7]}, "keep must hold texts, and none that is empty"),
        ({"sources": [""]}, "sources must hold texts, and none that is empty"),
        ({"sources": []}, "no source was given"),
        ({"to": ""}, "no place was given for the data"),
        ({"stream": "none"}, "UnknownStream: "),
        ({"stream": "clicks"}, "stream clicks has block"),
    ],
    ids=str,
)
def test_what_makes_no_sense(refused, table, said, why):
    assert why in refused(table(rows(3)), **said)
