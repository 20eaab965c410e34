"""Tables of every format come out as the same rows; what cannot be read is counted and told."""

import csv
import gzip
import io
import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.data.sample import reviews
from privatekube_kfp.data.tables import (
    AMAZON_CSV_2014,
    AMAZON_CSV_2018,
    COLUMNS,
    BadRow,
    BadRows,
    Layout,
    Source,
    files,
    layout_named,
    sizes,
)
from tests.often import times

ONE = datetime(2018, 1, 1, tzinfo=UTC)
SECONDS = 1514764800
"""The same moment."""
SECRET = "Sophie"
"""What is in a row, and must be in no message."""


@pytest.fixture
def write(tmp_path):
    """Writes a file: bytes or text as they are, a table as Parquet; gzipped if its name says so."""

    def write(name, content):
        path = tmp_path / name
        if isinstance(content, pa.Table):
            pq.write_table(content, path)
        else:
            content = content.encode() if isinstance(content, str) else content
            path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


def read(path, layout=COLUMNS, skip=0, limit=None):
    """All rows as dictionaries, and the counts of bad ones."""
    source, bad = Source(path, layout), BadRows(limit)
    rows, end = [], skip
    for batch, bytes_read, rows_read in source.batches(skip, bad):
        batch.validate(full=True)
        assert batch.schema == source.schema
        assert batch.num_rows <= sizes.MOST_ROWS
        assert 0 <= bytes_read <= source.size
        assert rows_read >= end
        end = rows_read
        rows += batch.to_pylist()
    assert all(row["user"] and row["time"] for row in rows)
    return rows, bad.counts


def refused(path, layout=COLUMNS):
    """The sentence and the reason with which a file is refused, while it is opened or read."""
    with pytest.raises(PrivateKubeError) as caught:
        for _ in Source(path, layout).batches(bad=BadRows(None)):
            pass
    assert SECRET not in caught.value.message
    return caught.value.message, caught.value.reason


def lines(*objects):
    return "".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in objects)


# One table in every format


GOOD = [
    {"user": "ann", "timestamp": SECONDS, "text": "fine, really"},
    {"user": "bob", "timestamp": SECONDS + 1, "text": 'two\nlines "quoted"'},
    {"user": "zoë", "timestamp": SECONDS + 2, "text": ""},
]


def in_format(name, rows):
    if ".parquet" in name:
        return pa.Table.from_pylist(rows)
    if "json" in name:
        return lines(*rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


NAMES = ["t.parquet", "t.csv", "t.csv.gz", "t.json", "t.jsonl", "t.JSONL.gz", "t.ndjson"]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_rows_from_every_format(write, name):
    path = write(name, in_format(name.lower(), GOOD))
    rows, bad = read(path)
    assert rows == [
        {"user": row["user"], "time": ONE + timedelta(seconds=n), "text": row["text"]}
        for n, row in enumerate(GOOD)
    ]
    assert bad == {}
    source = Source(str(path))
    assert source.schema.names == ["user", "time", "text"]
    assert source.schema.types == [pa.string(), pa.timestamp("us", "UTC"), pa.string()]
    assert source.size == path.stat().st_size
    *_, last = source.batches()
    assert (last.bytes_read, last.rows_read) == (source.size, 3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("skip", range(5))
def test_reading_goes_on_where_it_stopped(write, name, skip):
    path = write(name, in_format(name.lower(), GOOD))
    whole, _ = read(path)
    assert read(path, skip=skip)[0] == whole[skip:]


def test_an_object_store():
    files = fsspec.filesystem("memory")
    for name in NAMES:
        content = in_format(name.lower(), GOOD)
        with files.open(f"/bucket/{name}", "wb") as target:
            if isinstance(content, pa.Table):
                pq.write_table(content, target)
            else:
                target.write(content.encode())
        assert len(read(f"memory://bucket/{name}")[0]) == 3
    assert refused("memory://bucket/none.csv") == (
        "memory://bucket/none.csv cannot be read: there is nothing there",
        Reason.DATA_UNREADABLE,
    )


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "user": CELLS.filter(bool),
            "timestamp": st.integers(-(10**9), 10**10),
            "text": CELLS,
        }
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.json"])
@given(rows=ROWS, block=st.sampled_from([512, 4096, 2**20]))
@settings(
    deadline=None,
    max_examples=times(30),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_what_is_written_is_read(write, monkeypatch, name, rows, block):
    monkeypatch.setattr(sizes, "BLOCK", block)
    found, bad = read(write(name, in_format(name, rows)))
    assert bad == {}
    assert [row["user"] for row in found] == [row["user"] for row in rows]
    assert [int(row["time"].timestamp()) for row in found] == [row["timestamp"] for row in rows]
    if name != "t.csv":
        assert [row["text"] for row in found] == [row["text"] for row in rows]


def test_the_fingerprint(write):
    path = write("t.csv", "user,timestamp\na,1\n")
    first = Source(path).fingerprint
    assert first == Source(path).fingerprint
    assert first != Source(path, Layout(time_unit="ms")).fingerprint
    path.chmod(0o600)
    assert first == Source(path).fingerprint
    os.utime(path, (1, 1))
    assert first != Source(path).fingerprint
    with fsspec.open("memory://f.csv", "wb") as target:
        target.write(path.read_bytes())
    in_memory = Source("memory://f.csv").fingerprint
    assert in_memory == Source("memory://f.csv").fingerprint
    with fsspec.open("memory://f.csv", "wb") as target:
        target.write(path.read_bytes())
    assert in_memory != Source("memory://f.csv").fingerprint


def test_secrets_in_an_address_are_not_shown():
    shown = files.without_secrets
    assert shown("https://me:pass@host/a.csv?sig=x#f") == "https://host/a.csv"
    assert shown("s3://bucket/a.csv") == "s3://bucket/a.csv"
    assert shown("/a/b?c.csv") == "/a/b?c.csv"
    assert shown("c:\\a.csv") == "c:\\a.csv"


# Layouts


def test_what_is_kept_renamed_and_added(write):
    rows = [{"uid": 7, "ms": 1000, "b": "x", "a": "y", "c": "z"}]
    layout = Layout(
        user="uid",
        time="ms",
        time_unit="ms",
        keep=("a", "bee"),
        rename=(("b", "bee"),),
        constants=(("category", "books"),),
    )
    for name in NAMES:
        found, _ = read(write(name, in_format(name.lower(), rows)), layout)
        moment = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
        assert found == [{"user": "7", "time": moment, "a": "y", "bee": "x", "category": "books"}]
        assert list(found[0]) == ["user", "time", "a", "bee", "category"]


def test_amazon_reviews(write):
    of_2014 = {
        "reviewerID": "A1",
        "asin": "0000013714",
        "reviewerName": SECRET,
        "helpful": [0, 0],
        "reviewText": "I bought this",
        "overall": 5.0,
        "summary": "Heavenly",
        "unixReviewTime": SECONDS,
        "reviewTime": "01 1, 2018",
    }
    of_2018 = {
        "overall": 4,
        "verified": True,
        "reviewTime": "01 1, 2018",
        "reviewerID": "A2",
        "asin": "B0",
        "style": {"Format:": " Hardcover"},
        "unixReviewTime": SECONDS,
        "vote": "2",
        "image": ["https://a"],
    }
    rows, bad = read(write("Books_5.json.gz", lines(of_2014, of_2018)), layout_named("amazon-json"))
    assert rows == [
        {
            "user": "A1",
            "time": ONE,
            "product": "0000013714",
            "text": "I bought this",
            "rating": 5.0,
            "summary": "Heavenly",
        },
        {
            "user": "A2",
            "time": ONE,
            "product": "B0",
            "text": None,
            "rating": 4.0,
            "summary": None,
        },
    ]
    assert bad == {}
    for content, layout in (
        (f"A1,B0,5.0,{SECONDS}\n", AMAZON_CSV_2014),
        (f"B0,A1,5.0,{SECONDS}\n", AMAZON_CSV_2018),
    ):
        rows, _ = read(write("ratings.csv", content), layout)
        assert rows == [{"user": "A1", "time": ONE, "product": "B0", "rating": 5.0}]


def test_a_layout_by_name():
    assert layout_named("columns") == Layout()
    assert layout_named("amazon-csv-2014") is AMAZON_CSV_2014
    with pytest.raises(Invalid, match="there is no layout 'amazon': there are columns, amazon-"):
        layout_named("amazon")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"user": "timestamp"}, "cannot be both"),
        ({"time_unit": "h"}, "is no unit of time"),
        ({"format": "xml"}, "is no format"),
        ({"keep": ("a", "a")}, "a is kept twice"),
        ({"keep": ("timestamp",)}, "kept in any case"),
        ({"keep": ("time",)}, "cannot be called time"),
        ({"rename": (("a", "b"), ("a", "c"))}, "a is renamed twice"),
        ({"rename": (("a", "c"), ("b", "c"))}, "c is added or renamed to twice"),
        ({"rename": (("user", "c"),)}, "cannot be renamed"),
        ({"rename": (("a", "user"),)}, "cannot be called user"),
        ({"constants": (("a", "1"), ("a", "2"))}, "twice"),
        ({"constants": (("time", "1"),)}, "cannot be called time"),
        ({"types": (("a", "float"),)}, "is no type for a: text, integer"),
        ({"header": ("a", "a")}, "a is in the header twice"),
    ],
)
def test_layouts_that_make_no_sense(settings, problem):
    with pytest.raises(Invalid, match=problem) as caught:
        Layout(**settings)
    assert caught.value.reason is Reason.INVALID_REQUEST


@pytest.mark.parametrize("name", NAMES)
def test_columns_that_are_not_there(write, name):
    path = write(name, in_format(name.lower(), GOOD))
    for layout, missing in [
        (Layout(user="who"), "who"),
        (Layout(time="when"), "when"),
        (Layout(user="who", time="when", keep=("text",)), "who, when"),
        (Layout(keep=("text", "rating")), "rating"),
        (Layout(rename=(("overall", "rating"),)), "overall"),
    ]:
        assert refused(path, layout) == (
            f"{path} has no column {missing}. Its columns are user, timestamp, text",
            Reason.WRONG_COLUMNS,
        )
    sentence, reason = refused(path, Layout(user="text"))
    assert (sentence, reason) == (
        f"{path} would have two columns user; rename one of them, or leave it out",
        Reason.WRONG_COLUMNS,
    )
    assert "two columns text" in refused(path, Layout(constants=(("text", "x"),)))[0]
    assert len(read(path, Layout(user="text", rename=(("user", "name"),)))[0]) == 2


def test_types_that_the_layout_declares(write):
    rows = [{"user": "a", "timestamp": 1, "n": "5", "f": "2.5", "b": "true", "t": "x"}]
    layout = Layout(types=(("n", "integer"), ("f", "number"), ("b", "boolean")))
    for name in ("t.csv", "t.parquet"):
        (row,), _ = read(write(name, in_format(name, rows)), layout)
        assert (row["n"], row["f"], row["b"], row["t"]) == (5, 2.5, True, "x")
    text = "user,timestamp,f\na,1,2.5\na,1,\na,1,much\n"
    rows, bad = read(write("t.csv", text), Layout(types=(("f", "number"),)))
    assert [row["f"] for row in rows] == [2.5, None]
    assert bad == {BadRow.WRONG_TYPE: 1}


# Users and times


def one_time(write, value, kind=None, **how):
    """What becomes of a time in Parquet."""
    array = pa.array([value], kind)
    table = pa.table({"user": ["a"], "timestamp": array})
    rows, bad = read(write("t.parquet", table), Layout(**how))
    return rows[0]["time"] if rows else next(iter(bad))


@pytest.mark.parametrize(
    ("value", "kind", "how"),
    [
        (SECONDS, pa.int64(), {}),
        (SECONDS, pa.int32(), {}),
        (SECONDS, pa.uint32(), {}),
        (SECONDS, pa.uint64(), {}),
        (SECONDS * 1000, pa.int64(), {"time_unit": "ms"}),
        (SECONDS * 10**6, pa.int64(), {"time_unit": "us"}),
        (float(SECONDS), pa.float64(), {}),
        (Decimal(SECONDS), pa.decimal128(20, 2), {}),
        (datetime(2018, 1, 1), pa.timestamp("s"), {}),
        (datetime(2018, 1, 1), pa.timestamp("ms"), {"time_unit": "us"}),
        (datetime(2018, 1, 1), pa.timestamp("us"), {}),
        (datetime(2018, 1, 1), pa.timestamp("ns"), {}),
        (ONE, pa.timestamp("ns", "Europe/Berlin"), {}),
        (ONE, pa.timestamp("ms", "America/New_York"), {}),
        (date(2018, 1, 1), pa.date32(), {}),
        (date(2018, 1, 1), pa.date64(), {}),
        ("2018-01-01", pa.large_string(), {}),
        ("2018-01-01", pa.dictionary(pa.int8(), pa.string()), {}),
    ],
)
def test_times_of_every_type(write, value, kind, how):
    assert one_time(write, value, kind, **how) == ONE


@pytest.mark.parametrize(
    "text",
    [
        "2018-01-01",
        "2018-01-01T00:00",
        "2018-01-01 00:00:00",
        "2018-01-01T00:00:00Z",
        "2018-01-01T02:00:00+02:00",
        "2018-01-01T02:00:00+0200",
        "2017-12-31T19:00-05",
        "2018-01-01T00:00:00.000000Z",
        "2018-01-01T00:00:00.000000999Z",
        f" {SECONDS} ",
        f"{SECONDS}.0",
        "1.5147648e9",
    ],
)
def test_times_in_text(write, text):
    for name in ("t.parquet", "t.csv", "t.json"):
        path = write(name, in_format(name, [{"user": "a", "timestamp": text}]))
        assert read(path)[0] == [{"user": "a", "time": ONE}]


BAD_TIMES = [
    "soon",
    "2018-13-01",
    "2018-02-30",
    "2018-01-01T25:00",
    "2018-01-01T00:00:61Z",
    "2018-01-01T00:00+99:00",
    "0000-01-01",
    "9999-12-31T23:59:59-01:00",
    "0x5a4a8f80",
    "+5",
    "1_000",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "253402300800",
    "-62135596801",
    "9" * 18,
    "9" * 19,
    "9" * 400,
    "\u0661",
]


@pytest.mark.parametrize("text", BAD_TIMES)
def test_times_in_text_that_are_none(write, text):
    for name in ("t.parquet", "t.csv", "t.json"):
        rows = [{"user": "a", "timestamp": text}, {"user": "b", "timestamp": "5"}]
        found, bad = read(write(name, in_format(name, rows)))
        assert ([row["user"] for row in found], bad) == (["b"], {BadRow.BAD_TIME: 1})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (math.nan, pa.float64()),
        (math.inf, pa.float64()),
        (-math.inf, pa.float32()),
        (1e300, pa.float64()),
        (253402300800.0, pa.float64()),
        (253402300800, pa.int64()),
        (2**63 - 1, pa.int64()),
        (-(2**63), pa.int64()),
        (2**64 - 1, pa.uint64()),
        (2**62, pa.timestamp("ms")),
        (2**63 - 1, pa.timestamp("us")),
        (-(2**63), pa.timestamp("ms", "UTC")),
        (2**31 - 1, pa.date32()),
    ],
)
def test_times_that_do_not_fit(write, value, kind):
    array = pa.array([value, None], kind if pa.types.is_primitive(kind) else None)
    table = pa.table({"user": ["a", "b"], "timestamp": array})
    _, bad = read(write("t.parquet", table))
    assert bad == {BadRow.BAD_TIME: 1, BadRow.NO_TIME: 1}


def test_the_first_and_the_last_moment(write):
    for seconds in (-62135596800, 253402300799, -1, 0):
        moment = one_time(write, seconds, pa.int64())
        assert moment == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    assert one_time(write, 0.000001, pa.float64()).microsecond == 1
    assert one_time(write, 1514764800.123456, pa.float64()).microsecond == 123456


@given(st.datetimes(timezones=st.just(UTC)))
@settings(
    deadline=None,
    max_examples=times(30),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_moment_as_text_or_number(write, moment):
    since = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert one_time(write, moment.isoformat()) == moment
    assert one_time(write, since, time_unit="us") == moment
    assert one_time(write, since, pa.timestamp("us", "UTC")) == moment


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, -5, None]), ["1", "-5"]),
        (pa.array([2**64 - 1], pa.uint64()), [str(2**64 - 1)]),
        (pa.array(["a", "", None]), ["a"]),
        (pa.array(["a", "", None], pa.large_string()), ["a"]),
        (pa.array(["a", "", None]).dictionary_encode(), ["a"]),
        (pa.array(["b", "b", "c"]).dictionary_encode(), ["b", "b", "c"]),
        (pa.array([b"a", b"", None]), ["a"]),
        (pa.nulls(2), []),
    ],
)
def test_users_of_every_type(write, values, expected):
    table = pa.table({"user": values, "timestamp": [5] * len(values)})
    rows, bad = read(write("t.parquet", table))
    assert [row["user"] for row in rows] == expected
    left_out = len(values) - len(expected)
    assert bad == ({BadRow.NO_USER: left_out} if left_out else {})


@pytest.mark.parametrize("kind", [pa.float64(), pa.bool_(), pa.decimal128(5), pa.date32()])
def test_users_that_are_none(write, kind):
    table = pa.table({"user": pa.nulls(1, kind), "timestamp": [5]})
    sentence, reason = refused(write("t.parquet", table))
    assert f"column user of {write('t.parquet', table)} is {kind}" in sentence
    assert reason is Reason.WRONG_COLUMNS


@pytest.mark.parametrize("kind", [pa.bool_(), pa.binary(), pa.time32("s"), pa.list_(pa.int64())])
def test_columns_that_are_no_times(write, kind):
    table = pa.table({"user": ["a"], "timestamp": pa.nulls(1, kind)})
    assert refused(write("t.parquet", table))[1] is Reason.WRONG_COLUMNS


def test_a_row_has_one_reason(write):
    rows = [{"user": None, "timestamp": None}, {"user": "", "timestamp": "x"}]
    rows += [{"user": "a", "timestamp": "x"}, {"user": "a", "timestamp": "1"}]
    for name in ("t.parquet", "t.json"):
        found, bad = read(write(name, in_format(name, rows)))
        assert (len(found), bad) == (1, {BadRow.NO_USER: 2, BadRow.BAD_TIME: 1})


# Bad rows


def test_too_many_bad_rows(write):
    good = {"user": "a", "timestamp": 1}
    rows = [good, {"user": "", "timestamp": 1}, good, {"user": SECRET, "timestamp": "x"}, good]
    path = write("t.jsonl", lines(*rows))
    assert read(path, limit=2)[1] == {BadRow.NO_USER: 1, BadRow.BAD_TIME: 1}
    with pytest.raises(PrivateKubeError) as caught:
        read(path, limit=1)
    assert caught.value.reason is Reason.TOO_MANY_BAD_ROWS
    assert caught.value.message == (
        f"more than 1 rows are bad: 1 no user, first at {path}, line 2;"
        f" 1 bad time, first at {path}, line 4"
    )


def test_counting_bad_rows():
    bad = BadRows(10)
    bad.add(BadRow.MALFORMED, 0, "nowhere")
    assert (bad.counts, bad.first, bad.total) == ({}, {}, 0)
    bad.add(BadRow.MALFORMED, 2, "a, line 1")
    bad.add("malformed", 3, "b, line 1")
    assert (bad.counts, bad.first) == ({"malformed": 5}, {"malformed": "a, line 1"})
    bad.restore({"absurd time": 4, "something else": 100})
    assert bad.counts == {"absurd time": 4}
    with pytest.raises(PrivateKubeError, match="more than 10 rows are bad: 4 absurd time; 7 no us"):
        bad.add(BadRow.NO_USER, 7, "c")
    with pytest.raises(ValueError, match="strange"):
        bad.add("strange", 1, "c")


def test_bad_rows_that_were_passed_over_are_not_counted_again(write):
    path = write("t.csv", "user,timestamp\na,1\nb\nc,x\nd,4\ne\nf,6\n")
    rows, bad = read(path)
    assert [row["user"] for row in rows] == ["a", "d", "f"]
    assert bad == {BadRow.MALFORMED: 2, BadRow.BAD_TIME: 1}
    expected = [
        (["a", "d", "f"], {BadRow.MALFORMED: 2, BadRow.BAD_TIME: 1}),
        (["d", "f"], {BadRow.MALFORMED: 2, BadRow.BAD_TIME: 1}),
        (["d", "f"], {BadRow.MALFORMED: 1, BadRow.BAD_TIME: 1}),
        (["d", "f"], {BadRow.MALFORMED: 1}),
        (["f"], {BadRow.MALFORMED: 1}),
        (["f"], {}),
        ([], {}),
    ]
    for skip, (users, counts) in enumerate(expected):
        rows, bad = read(path, skip=skip)
        assert ([row["user"] for row in rows], bad) == (users, counts)


# Parquet


def test_parquet_columns_of_every_type(write):
    values = {
        "user": ["a"],
        "timestamp": [1],
        "large": pa.array(["x"], pa.large_string()),
        "view": pa.array(["x"], pa.string_view()),
        "few": pa.array(["x"]).dictionary_encode(),
        "none": pa.nulls(1),
        "tiny": pa.array([1], pa.int8()),
        "raw": pa.array([b"\xff"]),
        "list": pa.array([[1]]),
        "struct": pa.array([{"a": 1}]),
        "moment": pa.array([ONE]),
    }
    path = write("t.parquet", pa.table(values))
    schema = Source(path).schema
    assert schema.names[2:] == ["large", "view", "few", "none", "tiny", "raw", "moment"]
    assert schema.types[2:6] == [pa.string()] * 4
    (row,), _ = read(path, Layout(keep=("large", "view", "few", "none", "list", "struct")))
    del row["user"], row["time"]
    assert row == {"large": "x", "view": "x", "few": "x", "none": None} | {
        "list": [1],
        "struct": {"a": 1},
    }
    declared = Layout(keep=("list",), types=(("list", "text"),))
    assert refused(path, declared)[1] is Reason.WRONG_COLUMNS


@pytest.mark.parametrize("group", [1, 7, 100, 1000])
def test_row_groups_of_any_size(tmp_path, monkeypatch, group):
    monkeypatch.setattr(sizes, "MOST_ROWS", 64)
    table = pa.table({"user": [f"u{n}" for n in range(500)], "timestamp": range(500)})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, row_group_size=group)
    whole, _ = read(path)
    assert [row["user"] for row in whole] == table["user"].to_pylist()
    for skip in (1, 63, 64, 65, 100, 499, 500, 501):
        assert read(path, skip=skip)[0] == whole[skip:]
    for _, _, rows_read in Source(path).batches():
        assert read(path, skip=rows_read)[0] == whole[rows_read:]


def test_row_groups_that_are_passed_over_are_not_decoded(tmp_path):
    path = tmp_path / "t.parquet"
    text = ["x" * 1000 + str(n) for n in range(1000)]
    table = pa.table({"user": text, "timestamp": range(1000)})
    pq.write_table(table, path, row_group_size=100, compression="none", use_dictionary=False)
    damaged = bytearray(path.read_bytes())
    where = damaged.index(b"x" * 100)
    damaged[4:where] = b"\xff" * (where - 4)
    path.write_bytes(damaged)
    assert refused(path)[1] is Reason.DATA_UNREADABLE
    assert len(read(path, skip=100)[0]) == 900


def test_large_rows_come_few_at_once(write, monkeypatch):
    monkeypatch.setattr(sizes, "MOST_BYTES", 100_000)
    one_value = ["y" * 10_000] * 200
    other = [f"{n}" * 3000 for n in range(200)]
    table = pa.table({"user": ["u"] * 200, "timestamp": range(200), "a": one_value, "b": other})
    for name in ("t.parquet", "t.csv"):
        path = write(name, table if name == "t.parquet" else in_format(name, table.to_pylist()))
        batches = [batch for batch, _, _ in Source(path).batches()]
        assert sum(batch.num_rows for batch in batches) == 200
        assert max(batch.nbytes for batch in batches) < 150_000


def test_parquet_text_that_is_no_text(write):
    text = pa.array([b"a", b"\xff", b"b", b"c"]).view(pa.string())
    user = pa.array([b"u", b"v", b"w", b"\xc3"]).view(pa.string())
    table = pa.table({"user": user, "timestamp": [1] * 4, "text": text})
    rows, bad = read(write("t.parquet", table))
    assert ([row["user"] for row in rows], bad) == (["u", "w"], {BadRow.MALFORMED: 2})
    binary = table.set_column(0, "user", user.view(pa.binary())).select(["user", "timestamp"])
    assert read(write("t.parquet", binary))[1] == {BadRow.MALFORMED: 1}


def test_files_that_are_not_parquet(write, tmp_path):
    whole = write("t.parquet", pa.table({"user": ["a"], "timestamp": [1]})).read_bytes()
    for content in (b"", b"PAR1", b"user,timestamp\nSophie,1\n" * 9, whole[:-10], whole[:100]):
        sentence, reason = refused(write("u.parquet", content))
        assert reason is Reason.DATA_UNREADABLE
        assert sentence.startswith(f"{tmp_path}/u.parquet cannot be read: ")


def test_parquet_without_rows(write):
    table = pa.table({"user": pa.array([], pa.string()), "timestamp": pa.array([], pa.int64())})
    assert read(write("t.parquet", table)) == ([], {})
    pq_path = write("u.parquet", pa.table({}))
    assert refused(pq_path)[1] is Reason.WRONG_COLUMNS


def test_columns_of_one_name(write):
    twice = pa.table([["a"], [1], ["x"], ["y"]], ["user", "timestamp", "x", "x"])
    files = {
        "t.parquet": twice,
        "t.csv": "user,timestamp,x,x\na,1,x,y\n",
    }
    for name, content in files.items():
        path = write(name, content)
        assert refused(path) == (f"{path} has several columns x", Reason.WRONG_COLUMNS)
        assert read(path, Layout(keep=()))[0] == [
            {"user": "a", "time": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}
        ]
    path = write("u.csv", "user,timestamp,user\na,1,b\n")
    assert refused(path)[1] is Reason.WRONG_COLUMNS


# CSV


@pytest.mark.parametrize(
    "content",
    [
        "user,timestamp,text\na,1,x\nb,2,y\n",
        "user,timestamp,text\na,1,x\nb,2,y",
        "user,timestamp,text\r\na,1,x\r\nb,2,y\r\n",
        "\ufeffuser,timestamp,text\na,1,x\nb,2,y\n",
        '\ufeff"user",timestamp,text\na,1,x\nb,2,y\n',
        "\n\nuser,timestamp,text\n\na,1,x\n\n\nb,2,y\n\n",
        'user,timestamp,text\n"a","1","x"\nb,2,y\n',
    ],
)
def test_csv_however_it_is_written(write, content):
    rows, bad = read(write("t.csv", content))
    assert [(row["user"], row["text"]) for row in rows] == [("a", "x"), ("b", "y")]
    assert bad == {}


def test_csv_values_stay_text(write):
    path = write("t.csv", "user,timestamp,zip\n007,1,01234\nNULL,2,nan\n")
    rows, _ = read(path)
    assert [(row["user"], row["zip"]) for row in rows] == [("007", "01234"), ("NULL", "nan")]


def test_csv_rows_that_are_none(write):
    content = (
        b"user,timestamp,text\n"
        b"a,1,x\n"
        b"too,few\n"
        b"b,2,y\n"
        b"t\xffo,many,of,them\n"
        b"c,3,\xff\xfe\n"
        b"d,4,n\0ul\n"
        b"\0\0\0\0\0\0\n"
        b",5,z\n"
        b"e,,z\n"
        b"f,6,\xe4\xb8\n"
        b"g,7,\xe4\xb8\xad\n"
    )
    for name in ("t.csv", "t.csv.gz"):
        path = write(name, content)
        rows, bad = read(path)
        assert [row["user"] for row in rows] == ["a", "b", "g"]
        assert rows[-1]["text"] == "中"
        assert bad == {BadRow.MALFORMED: 6, BadRow.NO_USER: 1, BadRow.NO_TIME: 1}
    tally = BadRows(None)
    for _ in Source(path).batches(bad=tally):
        pass
    assert tally.first == {
        BadRow.MALFORMED: f"{path}, row 2",
        BadRow.NO_USER: f"{path}, row 8",
        BadRow.NO_TIME: f"{path}, row 9",
    }


@given(
    rows=st.lists(
        st.sampled_from(["a,1", "b,2", "", "bad", "c,x", "d,4,5", '"e\n",5']), max_size=60
    ),
    block=st.sampled_from([32, 64, 4096]),
    most=st.sampled_from([2, 7, 1000]),
    skip=st.integers(0, 60),
)
@settings(
    deadline=None,
    max_examples=times(100),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_every_place_in_a_csv_file_can_be_gone_on_from(write, monkeypatch, rows, block, most, skip):
    monkeypatch.setattr(sizes, "BLOCK", block)
    monkeypatch.setattr(sizes, "MOST_ROWS", most)
    path = write("t.csv", "user,timestamp\n" + "\n".join(rows))
    whole, counts = read(path)
    kept = [row for row in rows if row]
    users = {"a,1": "a", "b,2": "b", '"e\n",5': "e\n"}
    assert [row["user"] for row in whole] == [users[row] for row in kept if row in users]
    assert sum(counts.values()) == sum(row not in users for row in kept)
    places = []
    for batch, _, rows_read in Source(path).batches(bad=BadRows(None)):
        places.append((rows_read, places[-1][1] + batch.num_rows if places else batch.num_rows))
    for rows_read, so_far in places[: len(places) // 2 + 1][-1:]:
        assert read(path, skip=rows_read)[0] == whole[so_far:]
    assert not places or places[-1] == (len(kept), len(whole))
    good = [users[row] for row in kept[skip:] if row in users]
    found, bad = read(path, skip=skip)
    assert [row["user"] for row in found] == good
    assert sum(bad.values()) == len(kept[skip:]) - len(good)


def test_a_quote_that_is_not_closed(write):
    rest = f"{SECRET},3,z\n" * 50
    # In the last column, it would take the rest of the file into one good row.
    sentence, reason = refused(write("t.csv", f'user,timestamp,text\na,1,x\nb,2,"y\n{rest}'))
    assert "a quote is not closed" in sentence
    assert reason is Reason.DATA_UNREADABLE
    # Elsewhere it makes one bad row of the rest: all its lines are counted.
    path = write("t.csv", f'user,timestamp,text\na,1,x\n"b,2,y\n{rest}')
    assert read(path)[1] == {BadRow.MALFORMED: 51}
    # A quote in the middle of a value is nothing special.
    rows, bad = read(write("t.csv", 'user,timestamp,text\na,1,5" wide\nb,2,y\n'))
    assert (len(rows), bad) == (2, {})


def test_a_quote_that_goes_on_for_too_long(write, monkeypatch):
    monkeypatch.setattr(sizes, "BLOCK", 1000)
    monkeypatch.setattr(sizes, "LONGEST_LINE", 20_000)
    head = "user,timestamp,text\n" + "a,1,x\n" * 300
    long = write("t.csv", head + f'b,2,"{SECRET * 2000}"\nc,3,y\n')
    rows, _ = read(long)
    assert [row["user"] for row in rows] == ["a"] * 300 + ["b", "c"]
    sentence, _ = refused(write("u.csv", head + f'b,2,"{SECRET * 20_000}"\nc,3,y\n'))
    assert "does not end: a quote is not closed, or it is" in sentence


def test_csv_without_the_line_of_names(write):
    path = write("t.csv", f"{SECRET},5\nann,6\n")
    sentence, reason = refused(path)
    assert sentence.startswith(
        f"the first line of {path} names none of the columns timestamp, user"
    )
    assert reason is Reason.WRONG_COLUMNS
    rows, _ = read(path, Layout(header=("user", "timestamp")))
    assert [row["user"] for row in rows] == [SECRET, "ann"]
    assert (
        "a header is for CSV files"
        in refused(
            write("t.json", '{"user": "a", "timestamp": 1}'), Layout(header=("user", "timestamp"))
        )[0]
    )


def test_csv_with_only_the_line_of_names(write):
    assert read(write("t.csv", "user,timestamp\n")) == ([], {})
    assert read(write("t.csv", "user,timestamp")) == ([], {})


# JSON lines


@pytest.mark.parametrize(
    "content",
    [
        '{"user": "a", "timestamp": 1}\n{"user": "b", "timestamp": 2}\n',
        '{"user": "a", "timestamp": 1}\n{"user": "b", "timestamp": 2}',
        '{"user": "a", "timestamp": 1}\r\n{"user": "b", "timestamp": 2}\r\n',
        '\ufeff{"user": "a", "timestamp": 1}\n{"user": "b", "timestamp": 2}\n',
        '\n\r\n{"user": "a", "timestamp": 1}\n \t\n{"user": "b", "timestamp": 2}\n\n',
        '  {"user": "a", "timestamp": 1}  \n\t{"user": "b", "timestamp": 2}\n',
        '{"timestamp": "1", "user": "a"}\n{"timestamp": 2.0, "user": "b"}\n',
    ],
)
def test_json_however_it_is_written(write, content):
    rows, bad = read(write("t.json", content))
    assert [(row["user"], row["time"].second) for row in rows] == [("a", 1), ("b", 2)]
    assert bad == {}


BAD_LINES = {
    "null": BadRow.MALFORMED,
    "[]": BadRow.MALFORMED,
    "5": BadRow.MALFORMED,
    '"text"': BadRow.MALFORMED,
    '{"user": "x", "timestamp": 1': BadRow.MALFORMED,
    '{"user": "x", "timestamp": 1}}': BadRow.MALFORMED,
    '{"user": "x", "timestamp": 1}, ': BadRow.MALFORMED,
    '{"user": "x", "timestamp": 1}{"user": "y", "timestamp": 1}': BadRow.MALFORMED,
    '{"user": "x"} null {"user": "y"}': BadRow.MALFORMED,
    "{'user': 'x', 'timestamp': 1}": BadRow.MALFORMED,
    '{"user": "x", "timestamp": 01}': BadRow.MALFORMED,
    '{"user": "x", "timestamp": Infinity}': BadRow.MALFORMED,
    '{"user": "x", "user": "y", "timestamp": 1}': BadRow.MALFORMED,
    '{"user": "\\ud800", "timestamp": 1}': BadRow.MALFORMED,
    '{"user": "tab\there", "timestamp": 1}': BadRow.MALFORMED,
    '{"user": "\ufdd0\ufdef", "timestamp": 1}': BadRow.MALFORMED,
    "{}": BadRow.NO_USER,
    '{"user": null, "timestamp": 1}': BadRow.NO_USER,
    '{"user": "", "timestamp": 1}': BadRow.NO_USER,
    '{"user": "x"}': BadRow.NO_TIME,
    '{"user": "x", "timestamp": null}': BadRow.NO_TIME,
    '{"user": "x", "timestamp": ""}': BadRow.NO_TIME,
    '{"user": "x", "timestamp": NaN}': BadRow.BAD_TIME,
    '{"user": "x", "timestamp": true}': BadRow.BAD_TIME,
    '{"user": "x", "timestamp": [1]}': BadRow.BAD_TIME,
    '{"user": "x", "timestamp": 1e300}': BadRow.BAD_TIME,
    '{"user": "x", "timestamp": 1e999}': BadRow.BAD_TIME,
    '{"user": "x", "timestamp": 99999999999999999999}': BadRow.BAD_TIME,
    '{"user": 1.5, "timestamp": 1}': BadRow.WRONG_TYPE,
    '{"user": true, "timestamp": 1}': BadRow.WRONG_TYPE,
    '{"user": ["x"], "timestamp": 1}': BadRow.WRONG_TYPE,
    '{"user": "x", "timestamp": 1, "text": 5}': BadRow.WRONG_TYPE,
    '{"user": "x", "timestamp": 1, "text": ["x"]}': BadRow.WRONG_TYPE,
    '{"user": "x", "timestamp": 1, "n": 1.5}': BadRow.WRONG_TYPE,
    '{"user": "x", "timestamp": 1, "n": true}': BadRow.WRONG_TYPE,
    '{"user": "x", "timestamp": 1, "n": 9223372036854775808}': BadRow.WRONG_TYPE,
    '{"user": "x", "timestamp": 1, "f": "1"}': BadRow.WRONG_TYPE,
    '{"user": "x", "timestamp": 1, "f": 1.7976931348623159e308}': BadRow.WRONG_TYPE,
    '{"user": "x", "timestamp": 1, "b": 1}': BadRow.WRONG_TYPE,
}
GOOD_LINE = '{"user": "a", "timestamp": 1, "text": "t", "n": 1, "f": 1.5, "b": true}'
GOOD_LINES = [
    GOOD_LINE,
    '{"user": 5, "timestamp": 1}',
    '{"user": 18446744073709551616, "timestamp": 1}',
    '{"user": "a", "timestamp": 1.5}',
    '{"user": "a", "timestamp": "2018-01-01"}',
    '{"user": "a", "timestamp": "1.5"}',
    '{"user": "a", "timestamp": -0}',
    '{"timestamp": 1, "\\u0075ser": "\\u0061"}',
    '{"user": "\\ud83d\\ude00", "timestamp": 1}',
    '{"user": "zo\u00eb", "timestamp": 1, "text": "\\u0000"}',
    '{"user": "a", "timestamp": 1, "f": 5}',
    '{"user": "a", "timestamp": 1, "f": NaN}',
    '{"user": "a", "timestamp": 1, "f": 123456789012345678901234567890}',
    '{"user": "a", "timestamp": 1, "text": null, "n": null, "b": null}',
    '{"user": "a", "timestamp": 1, "other": {"a": [null, {}]}}',
    '{"user": "a", "timestamp": 1, "other": 1, "other": 2}',
    '{"user": "a", "timestamp": 1, "other": 1e999}',
    '{"user": "a", "timestamp": 1, "text": "}\\n{"}',
]
DECLARED = Layout(
    types=(("text", "text"), ("n", "integer"), ("f", "number"), ("b", "boolean")),
    keep=("text", "n", "f", "b"),
)


@pytest.mark.parametrize("line", BAD_LINES)
def test_json_lines_that_are_no_rows(write, line):
    content = f"{GOOD_LINE}\n\n{line}\n{GOOD_LINE}\n"
    for last in ("\n", ""):
        path = write("t.json", content + line + last)
        tally = BadRows(None)
        batches = Source(path, DECLARED).batches(bad=tally)
        rows = [row for read in batches for row in read.batch.to_pylist()]
        assert [row["user"] for row in rows] == ["a", "a"]
        assert tally.counts == {BAD_LINES[line]: 2}
        assert tally.first == {BAD_LINES[line]: f"{path}, line 3"}


@pytest.fixture
def alone(write):
    """What becomes of each good line by itself."""
    rows = {}
    for line in GOOD_LINES:
        (rows[line],), _ = read(write("one.json", f"{GOOD_LINE}\n{line}"), DECLARED, skip=1)
    return rows


@given(
    chosen=st.lists(st.sampled_from([*BAD_LINES, *GOOD_LINES, ""]), max_size=30),
    block=st.sampled_from([200, 1000, 2**20]),
    most=st.sampled_from([2, 1000]),
    end=st.sampled_from(["\n", "\r\n"]),
    skip=st.integers(0, 30),
)
@settings(
    deadline=None,
    max_examples=times(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_line_means_the_same_among_any_others(
    write, alone, monkeypatch, chosen, block, most, end, skip
):
    """Whether its block was parsed at once or line by line, and wherever reading began."""
    monkeypatch.setattr(sizes, "BLOCK", block)
    monkeypatch.setattr(sizes, "MOST_ROWS", most)
    # Most of the first users and times must be some.
    path = write("many.json", (GOOD_LINE + end) * 31 + end.join(chosen))
    kept = [line for line in chosen if line][skip:]
    rows, bad = read(path, DECLARED, skip=skip + 31)
    expected = [alone[line] for line in kept if line in alone]
    assert repr(rows) == repr(expected)
    assert bad == Counter(BAD_LINES[line] for line in kept if line in BAD_LINES)


@pytest.mark.parametrize("line", GOOD_LINES)
def test_json_lines_that_are_rows(write, line):
    rows, bad = read(write("t.json", f"{GOOD_LINE}\n{line}\n"), DECLARED)
    assert (len(rows), bad) == (2, {})
    assert rows[1]["user"] == str(json.loads(line)["user"])


def test_a_first_line_that_pyarrow_crashes_on(write):
    """In a process of its own, should it ever."""
    path = write("t.json", f"null\n{GOOD_LINE}\n")
    program = (
        "import sys; from privatekube_kfp.data.tables import Source\n"
        "print(sum(read.batch.num_rows for read in Source(sys.argv[1]).batches()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (0, "1\n")


def test_json_bytes_that_are_no_text(write):
    good = GOOD_LINE.encode() + b"\n"
    for bad in (b"\xff", b"\0", b"\xed\xa0\x80", b"\xe4\xb8"):
        line = b'{"user": "x' + bad + b'", "timestamp": 1}\n'
        rows, counts = read(write("t.json.gz", good + line + good))
        assert (len(rows), counts) == (2, {BadRow.MALFORMED: 1})
    assert read(write("t.json", good + b"\xe4\xb8"))[1] == {BadRow.MALFORMED: 1}
    assert read(write("t.json", good + b"\0" * 10_000 + good))[1] == {BadRow.MALFORMED: 1}


def test_json_types_come_from_the_first_rows(write):
    rows = [
        {"user": 1, "timestamp": 1, "a": 1, "b": 1, "c": None, "d": None, "e": [1]},
        {"user": 2, "timestamp": 2, "a": 2.5, "b": 2, "c": True, "d": None, "e": [2]},
        {"user": 3, "timestamp": 3, "b": "three", "f": "new"},
    ]
    path = write("t.json", lines(*rows))
    schema = Source(path).schema
    assert dict(zip(schema.names[2:], schema.types[2:], strict=True)) == {
        "a": pa.float64(),
        "b": pa.int64(),
        "c": pa.bool_(),
        "d": pa.string(),
        "f": pa.string(),
    }
    found, bad = read(path)
    assert [row["user"] for row in found] == ["1", "2"]
    assert bad == {BadRow.WRONG_TYPE: 1}


def test_fields_that_come_later_are_left_out_unless_their_type_is_known(write, monkeypatch):
    monkeypatch.setattr(sizes, "BLOCK", 200)
    first, later = {"user": "a", "timestamp": 1}, {"user": "a", "timestamp": 1, "late": 5}
    path = write("t.json", lines(*[first] * 20, later))
    assert Source(path).schema.names == ["user", "time"]
    assert len(read(path)[0]) == 21
    for layout in (
        Layout(types=(("late", "integer"),)),
        Layout(keep=("late",), types=(("late", "integer"),)),
    ):
        assert [row["late"] for row in read(path, layout)[0]] == [None] * 20 + [5]
    assert refused(path, Layout(keep=("late",)))[1] is Reason.WRONG_COLUMNS


def test_nested_fields_as_json_text(write):
    row = {"user": "a", "timestamp": 1, "helpful": [1, 2], "style": {"é": "x"}}
    path = write("t.json", lines(row, {"user": "b", "timestamp": 1, "helpful": "no"}))
    found, bad = read(path, Layout(keep=("style", "help"), rename=(("helpful", "help"),)))
    assert [json.loads(row["help"]) for row in found] == [[1, 2], "no"]
    assert [row["style"] and json.loads(row["style"]) for row in found] == [{"é": "x"}, None]
    assert bad == {}


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"user": 1.5, "timestamp": 1}, "field user of"),
        ({"user": ["a"], "timestamp": 1}, "field user of"),
        ({"user": "a", "timestamp": True}, "field timestamp of"),
        ({"user": "a", "timestamp": {}}, "field timestamp of"),
    ],
)
def test_json_fields_that_are_no_users_and_times(write, row, what):
    sentence, reason = refused(write("t.json", lines(row)))
    assert sentence.startswith(what)
    assert reason is Reason.WRONG_COLUMNS


def test_a_line_that_is_too_long(write, monkeypatch):
    monkeypatch.setattr(sizes, "BLOCK", 1000)
    monkeypatch.setattr(sizes, "LONGEST_LINE", 20_000)

    def line(user, length):
        return {"user": user, "timestamp": 1, "text": "x" * length}

    few = line("a", 10)
    content = lines(few, few, line("b", 15_000), few, line("c", 50_000), few, line("d", 30_000))
    for end in (None, -1):
        path = write("t.json", content[:end])
        rows, bad = read(path)
        assert [row["user"] for row in rows] == ["a", "a", "b", "a", "a"]
        assert bad == {BadRow.MALFORMED: 2}
    tally = BadRows(None)
    for _ in Source(path).batches(bad=tally):
        pass
    assert tally.first == {BadRow.MALFORMED: f"{path}, line 5"}
    assert [row["user"] for row in read(path, skip=4)[0]] == ["a"]


def test_deep_nesting(write):
    deep = '{"user": "b", "timestamp": 1, "x": ' + "[" * 100_000 + "]" * 100_000 + "}"
    path = write("t.json", f"{GOOD_LINE}\n{deep}\n{GOOD_LINE}\n")
    rows, bad = read(path, Layout(keep=("text",)))
    assert len(rows) + sum(bad.values()) == 3


# Files that are not what they seem


def test_a_compressed_file_that_is_cut_short(write):
    rows = [{"user": f"u{n * 7919 % 100_003}", "timestamp": n} for n in range(50_000)]
    for name in ("t.csv.gz", "t.json.gz"):
        path = write(name, in_format(name, rows))
        whole = path.read_bytes()
        for cut in (len(whole) // 2, len(whole) - 4):
            path.write_bytes(whole[:cut])
            sentence, reason = refused(path)
            assert sentence == (
                f"{path} cannot be read: it is cut short: its compressed data end in the middle."
                " What was read of it so far may be half a table"
            )
            assert reason is Reason.DATA_UNREADABLE
        damaged = bytearray(whole)
        damaged[len(whole) // 2 :] = b"Sophie" * (len(whole) // 12)
        for content in (damaged, whole + b"Sophie"):
            path.write_bytes(content)
            assert "its compressed data" in refused(path)[0]
        path.write_bytes(whole + whole)
        assert Source(path).size == 2 * len(whole)


def test_several_compressed_parts_are_one_file(write):
    path = write("t.json.gz", lines(*GOOD))
    path.write_bytes(path.read_bytes() * 2)
    assert len(read(path)[0]) == 6


def test_compression_is_told_by_the_contents(write):
    path = write("t.json", gzip.compress(lines(*GOOD).encode()))
    assert len(read(path)[0]) == 3
    path.rename(path.with_name("u.json.gz")).write_text(lines(*GOOD))
    assert len(read(path.with_name("u.json.gz"))[0]) == 3


@pytest.mark.parametrize("name", ["t.csv", "t.json", "t.csv.gz", "t.json.gz"])
@pytest.mark.parametrize("content", [b"", b"\n", b"\xef\xbb\xbf", b"\r\n\r\n"])
def test_an_empty_file(write, name, content):
    path = write(name, content)
    assert refused(path) == (f"{path} cannot be read: it is empty", Reason.DATA_UNREADABLE)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"PAR1....", "it is Parquet"),
        (b"PK\x03\x04....", "ZIP"),
        (b"\x28\xb5\x2f\xfd....", "zstd"),
        (b"BZh9....", "bzip2"),
        (b"\xfd7zXZ\0....", "xz"),
        ("\ufeffuser,timestamp".encode("utf-16-le"), "UTF-16"),
        ("\ufeffuser,timestamp".encode("utf-16-be"), "UTF-16"),
    ],
)
def test_other_kinds_of_files(write, content, why):
    for name in ("t.csv", "t.json", "t.json.gz"):
        sentence, reason = refused(write(name, content))
        assert why in sentence
        assert reason is Reason.DATA_UNREADABLE


def test_files_of_another_format(write):
    wrong = refused(write("t.json", f"user,timestamp\n{SECRET},1\n"))
    assert wrong[0].endswith("none of its first 2 lines is a JSON object")
    wrong = refused(write("t.json", f'[{{"user": "{SECRET}"}},\n{{"user": "b"}}]\n'))
    assert wrong[0].endswith(
        "it is one JSON list; put one object on each line, as `jq -c '.[]'` does"
    )
    wrong = refused(write("t.csv", f'{{"user": "{SECRET}", "timestamp": 1}}\n'))
    assert wrong[1] is Reason.WRONG_COLUMNS
    wrong = refused(write("t.csv", random.Random(1).randbytes(1000).replace(b"\n", b"")))
    assert wrong[1] in (Reason.WRONG_COLUMNS, Reason.DATA_UNREADABLE)
    for name in ("t", "t.txt", "t.gz", "t.xlsx"):
        sentence, reason = refused(write(name, "x"))
        assert "does not say what it is" in sentence
        assert reason is Reason.INVALID_REQUEST
    assert len(read(write("t.txt", lines(*GOOD)), Layout(format="json"))[0]) == 3


def test_files_that_are_not_there(tmp_path):
    assert refused(tmp_path / "t.csv")[0].endswith("t.csv cannot be read: there is nothing there")
    (tmp_path / "t.json").mkdir()
    assert refused(tmp_path / "t.json")[0].endswith("it is a folder; name the files in it")
    assert refused("nowhere://a/t.csv")[1] is Reason.DATA_UNREADABLE


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(13, "Permission denied", "t.csv")

    (tmp_path / "t.csv").write_text("user,timestamp\n")
    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.open", denied)
    assert refused(tmp_path / "t.csv")[0].endswith("cannot be read: Permission denied")


# Size


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t.parquet", "t.csv.gz", "t.json.gz"])
def test_memory_does_not_grow_with_the_file(tmp_path, name):
    """More than 100 MB of reviews, in a process that grows by less."""
    path = tmp_path / name
    (batch,) = reviews(50_000)
    if name == "t.parquet":
        pq.write_table(pa.Table.from_batches([batch] * 10), path, row_group_size=10**9)
    else:
        rows = batch.to_pylist()
        content = in_format(name, rows).encode()
        head, content = (b"", content) if "json" in name else content.split(b"\n", 1)
        with gzip.open(path, "wb", compresslevel=1) as target:
            target.write(head + b"\n")
            for _ in range(10):
                target.write(content)
    program = (
        "import resource, sys\n"
        "import pyarrow\n"
        "from privatekube_kfp.data.tables import Source\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "before, rows = peak(), 0\n"
        "for read in Source(sys.argv[1]).batches(): rows += read.batch.num_rows\n"
        "print(rows, peak() - before, pyarrow.default_memory_pool().max_memory() // 2**20)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    rows, grown, tables_grown = map(int, result.stdout.split())
    assert rows == 500_000
    assert tables_grown < 64
    # Of the rest, only Parquet's is not ours: it keeps pages that it has done with.
    assert grown < 100 or name == "t.parquet"
