"""Units follow the semantic, are bounded, and nobody's depends on anybody else."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.settings import DAY
from privatekube_kfp.dp.architectures import architecture
from privatekube_kfp.dp.embeddings import stand_in
from privatekube_kfp.dp.examples import examples, labels_of, times_of
from privatekube_kfp.dp.units import Units, held_out, numbered, units_of
from privatekube_kfp.ledger.streams import Semantic

PRODUCT, SENTIMENT = architecture("product", "linear"), architecture("sentiment", "linear")


def _as_sets(units: Units) -> list[list[int]]:
    return [units.rows_of(np.array([unit]))[0].tolist() for unit in range(units.count)]


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_units_by_semantic() -> None:
    users, times, periods = _ints(7, 3, 7, 7, 3), _ints(0, 0, 1, DAY, 2), _ints(0, 0, 0, 1, 0)
    units = {s: _as_sets(units_of(s, users, times, periods)) for s in Semantic}
    assert units[Semantic.EVENT] == [[0], [1], [2], [3], [4]]
    assert units[Semantic.USER] == [[1, 4], [0, 2, 3]]
    assert units[Semantic.USER_TIME] == [[1, 4], [0, 2], [3]]


def test_user_time_must_know_the_blocks() -> None:
    with pytest.raises(Invalid, match="which block each row is in"):
        units_of(Semantic.USER_TIME, _ints(1), _ints(0))


def test_a_unit_is_bounded_by_day_and_in_all() -> None:
    users = np.zeros(200, np.int64)
    days = np.arange(200) // 40
    (rows,) = _as_sets(units_of(Semantic.USER, users, days * DAY))
    assert len(rows) == 100
    assert np.bincount(days[rows]).tolist() == [20, 20, 20, 20, 20]
    (rows,) = _as_sets(units_of(Semantic.USER, users, days * DAY, per_day=2, per_user=7))
    assert rows == [0, 1, 40, 41, 80, 81, 120]
    assert units_of(Semantic.EVENT, users, days * DAY).count == 200


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 1)), max_size=40))
def test_without_a_user_everybody_elses_unit_is_the_same(rows) -> None:
    def of(rows: list[tuple[int, int, int, int]]) -> set[tuple[int, ...]]:
        names, users, days, periods = np.array(rows, np.int64).reshape(-1, 4).T
        units = units_of(semantic, users, days * DAY, periods, per_day=2, per_user=3)
        return {tuple(names[unit]) for unit in _as_sets(units)}

    named = [(name, *row) for name, row in enumerate(rows)]
    for semantic in (Semantic.USER, Semantic.USER_TIME):
        gone = of(named) - of([row for row in named if row[1] != 0])
        assert all(rows[name][0] == 0 for unit in gone for name in unit)
        assert len(gone) <= (1 if semantic is Semantic.USER else 2)


def test_rows_of_chosen_units() -> None:
    units = Units(_ints(5, 6, 7, 8), _ints(0, 2, 2, 4))
    rows, unit = units.rows_of(_ints(2, 0))
    assert rows.tolist() == [7, 8, 5, 6]
    assert unit.tolist() == [0, 0, 1, 1]
    assert [part.tolist() for part in units.rows_of(_ints())] == [[], []]


def test_users_are_held_out_by_name_alone() -> None:
    users, names = numbered([f"U{i % 500}" for i in range(1000)])
    out = held_out(users, names, 20)
    assert 50 < out[:500].sum() < 150
    assert (out[:500] == out[500:]).all()
    fewer, their_names = numbered([f"U{i}" for i in range(100, 500)])
    assert (held_out(fewer, their_names, 20) == out[100:500]).all()
    assert not held_out(users, names, 0).any()
    with pytest.raises(Invalid, match="101 percent"):
        held_out(users, names, 101)


def _table(**columns: list[object]) -> pa.Table:
    count = len(next(iter(columns.values())))
    plain = {"user": ["u"] * count, "timestamp": [0] * count, "text": ["good"] * count}
    return pa.table(plain | columns)


def test_rows_without_a_known_label_are_left_out() -> None:
    table = _table(category=["toys", "never seen", None, "books"], text=["a", "b", "c", None])
    made = examples(table, PRODUCT, stand_in(), Semantic.EVENT, categories=["books", "toys"])
    assert made.labels.tolist() == [1, 0]
    assert made.left_out == 2
    assert made.ids[0].any()
    assert not made.ids[1].any()
    table = _table(rating=[1, 3, 4, 5, 0, None, 6])
    assert labels_of(table, SENTIMENT, ()).tolist() == [0, 0, 1, 1, -1, -1, -1]
    ratings = _table(rating=["5.0", "2"])
    assert labels_of(ratings, SENTIMENT, ()).tolist() == [1, 0]


def test_rows_lie_in_the_order_of_their_units() -> None:
    table = _table(user=["a", "b", "a"], rating=[5, 1, 5])
    made = examples(table, SENTIMENT, stand_in(), Semantic.USER)
    assert made.labels.tolist() == [1, 1, 0]
    assert made.units.offsets.tolist() == [0, 2, 3]
    only = np.array([False, True, True])
    made = examples(table, SENTIMENT, stand_in(), Semantic.USER, only=only)
    assert (made.labels.tolist(), made.left_out) == ([1, 0], 0)


def test_no_rows_are_no_units() -> None:
    table = _table(category=["never seen"])
    for semantic in (Semantic.EVENT, Semantic.USER):
        made = examples(table, PRODUCT, stand_in(), semantic, categories=["books", "toys"])
        assert made.units.count == 0
        assert made.ids.shape == (0, 75)


def test_times_of_ingested_and_of_raw_reviews() -> None:
    assert times_of(_table(rating=[1])).tolist() == [0]
    time = pa.array([1_500_000], pa.timestamp("us", "UTC"))
    assert times_of(pa.table({"time": time})).tolist() == [1_500_000]


@pytest.mark.parametrize(
    ("table", "row", "categories", "sentence"),
    [
        (_table(rating=[1]), PRODUCT, ["a", "b"], "no column 'category'; there are user,"),
        (_table(category=["a"]), SENTIMENT, [], "no column 'rating'"),
        (_table(category=["a"]), PRODUCT, list("abcdefghijkl"), "2 to 11 different.*12 were given"),
        (_table(category=["a"]), PRODUCT, ["a", "a"], "2 to 11 different categories"),
        (_table(category=["a"]), PRODUCT, ["a", 2.0], "texts such as books, not 2.0"),
        (_table(category=["a"]), PRODUCT, ["a", ["b"]], "texts such as books, not \\['b'\\]"),
        (_table(rating=["five"]), SENTIMENT, [], "ratings that are no numbers"),
        (_table(rating=[5], user=[None]), SENTIMENT, [], "rows without a user"),
    ],
)
def test_tables_that_cannot_be_learnt_from(table, row, categories, sentence) -> None:
    with pytest.raises(Invalid, match=sentence) as caught:
        examples(table, row, stand_in(), Semantic.USER, categories=categories)
    assert caught.value.reason in (Reason.WRONG_COLUMNS, Reason.INVALID_REQUEST)
