"""The data of a block: rows are added once, in order, within bounds, and the same rows make the
same file."""

import random

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatekube_kfp.data import blocks as module
from privatekube_kfp.data.blocks import Added, extend
from privatekube_kfp.data.settings import Settings
from privatekube_kfp.data.store import Store
from privatekube_kfp.ledger.streams import Semantic
from tests.data.world import DAY, START
from tests.often import times

MOMENT = pa.timestamp("us", "UTC")
EVENTS = pa.schema([("user", pa.string()), ("time", MOMENT), ("n", pa.int64()), ("t", pa.string())])
USERS = EVENTS.insert(1, pa.field("user_index", pa.int64()))
EVENT = Settings(Semantic.EVENT, START)


def batches(rows, schema, size=3):
    """Rows in batches of any size, as often as they are asked for."""
    if "user_index" in schema.names:
        schema = schema.remove(schema.get_field_index("user_index"))
    table = pa.Table.from_pylist(rows, schema)
    return lambda: iter(table.to_batches(max_chunksize=size))


def event(user="a", time=0, n=1, t="x"):
    return {"user": user, "time": START + time, "n": n, "t": t}


def add(place, rows, schema=EVENTS, how=EVENT, size=3):
    return extend(Store(str(place)), "blocks/b.parquet", schema, batches(rows, schema, size), how)


def stored(place):
    return parquet.read_table(place / "blocks/b.parquet").to_pylist()


def test_rows_are_added_in_the_order_in_which_they_come(tmp_path):
    assert add(tmp_path, [event(n=2), event(n=1)]) == Added(2, 0, 0)
    assert add(tmp_path, [event(n=0), event(n=3)]) == Added(2, 0, 0)
    assert [r["n"] for r in stored(tmp_path)] == [2, 1, 0, 3]


@pytest.mark.parametrize(
    "other",
    [{"user": "b"}, {"time": 1}, {"n": 2}, {"n": None}, {"t": "y"}, {"t": ""}, {"t": None}],
    ids=str,
)
def test_only_rows_that_are_the_same_in_everything_are_duplicates(tmp_path, other):
    first, second = event(), event() | other
    if "time" in other:
        second["time"] = START + 1
    rows = [first, second, first, second, second]
    assert add(tmp_path, rows) == Added(2, 3, 0)
    assert add(tmp_path, rows) == Added(0, 5, 0)


def test_what_adds_nothing_leaves_the_file_as_it_is(tmp_path):
    add(tmp_path, [event(n=n) for n in range(9)])
    path = tmp_path / "blocks/b.parquet"
    before = path.stat()
    assert add(tmp_path, [event(n=n) for n in range(9)]) == Added(0, 9, 0)
    assert path.stat().st_ino == before.st_ino


def test_a_block_without_rows_has_its_columns(tmp_path):
    assert add(tmp_path, []) == Added(0, 0, 0)
    assert parquet.read_schema(tmp_path / "blocks/b.parquet") == EVENTS


def test_pieces_of_a_text_do_not_run_together(tmp_path):
    """'1 ab' and '1a b' would be the same without their lengths."""
    schema = EVENTS.append(pa.field("u", pa.string()))
    rows = [event(t="a b") | {"u": "c"}, event(t="a") | {"u": "b c"}, event(t="a 1 b") | {"u": "c"}]
    assert add(tmp_path, rows, schema) == Added(3, 0, 0)


@settings(max_examples=times(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.integers(0, 2),
            st.one_of(st.none(), st.integers(0, 2)),
            st.one_of(st.none(), st.sampled_from(["", "x", "0", "null", "é"])),
        ),
        max_size=30,
    ),
    st.integers(0, 30),
    st.integers(1, 7),
)
def test_duplicates_are_those_that_a_set_would_find(tmp_path_factory, rows, cut, size):
    place = tmp_path_factory.mktemp("store")
    made = [event(u, time, n, t) for u, time, n, t in rows]
    parts = made[:cut], made[cut:]
    added = [add(place, part, size=size) for part in parts]
    distinct = list(dict.fromkeys(rows))
    assert sum(a.rows for a in added) == len(distinct)
    assert sum(a.duplicates for a in added) == len(rows) - len(distinct)
    assert [(r["user"], r["n"], r["t"]) for r in stored(place)] == [
        (u, n, t) for u, _, n, t in distinct
    ]


# Bounds


def mine(user, day, n):
    return {"user": f"u{user}", "time": START + day * DAY + n, "n": n, "t": "x"}


BOUNDED = Settings(Semantic.USER, START, per_user_per_day=2, per_user=5)


def test_a_users_first_rows_count(tmp_path):
    rows = [mine(user, day, n) for day in range(4) for n in range(3) for user in range(2)]
    assert add(tmp_path, rows, USERS, BOUNDED) == Added(10, 0, 14)
    kept = stored(tmp_path)
    for user in range(2):
        assert [r["n"] for r in kept if r["user_index"] == user] == [0, 1, 0, 1, 0]
    # Once more, and another day: everything is over the bounds or there already.
    assert add(tmp_path, rows, USERS, BOUNDED) == Added(0, 10, 14)
    assert add(tmp_path, [mine(0, 9, 7)], USERS, BOUNDED) == Added(0, 0, 1)
    assert stored(tmp_path) == kept


def test_bounds_do_not_depend_on_how_rows_were_cut_into_ingests(tmp_path):
    rng = random.Random(4)
    rows = [mine(rng.randrange(3), rng.randrange(4), n) for n in range(60)]
    add(tmp_path / "once", rows, USERS, BOUNDED)
    for start in range(0, 60, 7):
        add(tmp_path / "often", rows[start : start + 7], USERS, BOUNDED)
    assert stored(tmp_path / "once") == stored(tmp_path / "often")


# The same bytes


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_same_rows_make_the_same_file_whatever_the_batches(tmp_path, size, monkeypatch):
    monkeypatch.setattr(module, "_ROWS_IN_A_GROUP", 64)
    rows = [event(f"u{n % 7}", n, n, "word " * (n % 11)) for n in range(500)]
    rows += rows[:50]
    add(tmp_path / "one", rows, size=100)
    add(tmp_path / "other", rows, size=size)
    files = [(tmp_path / name / "blocks/b.parquet").read_bytes() for name in ("one", "other")]
    assert files[0] == files[1]
    groups = parquet.ParquetFile(tmp_path / "one/blocks/b.parquet").metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [64] * 7 + [52]
