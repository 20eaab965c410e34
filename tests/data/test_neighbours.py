"""What one event, one user or one user's day changes: the data of one block, and no other.

The same noise in both worlds: what differs then is due to the data alone, and the noise is there to
hide it.
"""

import pytest

from privatekube_kfp.ledger.memory import MemoryLedger
from tests.data.world import START, arrivals, contents, row, stream_of, table, take_in

ROWS = arrivals()


def world(tmp_path, name, semantic, rows):
    """What pipelines may read, and all that anybody sees: after one ingest of these rows."""
    ledger = MemoryLedger()
    ledger.create_stream(stream_of(semantic))
    settings = {} if semantic == "event" else {"group_size": 60}
    place = tmp_path / name
    take_in(ledger, table(tmp_path / f"{name}.parquet", rows), place, until=30, **settings)
    blocks = {r.block.name: (r.block.start, r.block.end, r.block.users) for r in ledger.blocks("s")}
    return contents(place), blocks, ledger.stream("s").count


def changed(one, other):
    assert one.keys() == other.keys()
    return {name for name in one if one[name] != other[name]}


def assert_published_alike(one, other, apart):
    """No block more or less, and no number further from the other than `apart`."""
    (_, blocks, count), (_, others, another) = one, other
    assert blocks.keys() == others.keys()
    for name, (start, end, users) in blocks.items():
        assert (start, end) == others[name][:2]
        if users is not None:
            for mine, theirs in zip(users, others[name][2], strict=True):
                assert abs(mine - theirs) <= apart
    if count is not None:
        for number in ("estimate", "lower", "upper"):
            assert abs(getattr(count, number) - getattr(another, number)) <= apart
        assert (count.confidence, count.time) == (another.confidence, another.time)


def days_of(user):
    return sorted({(r["timestamp"] - START // 10**6) // 86_400 for r in ROWS if r["user"] == user})


# Event


@pytest.mark.parametrize("at", [0, 700, len(ROWS) - 1])
def test_an_event_is_in_one_block_and_moves_nothing_that_is_published(tmp_path, at):
    with_it = world(tmp_path, "with", "event", ROWS)
    without = world(tmp_path, "without", "event", ROWS[:at] + ROWS[at + 1 :])
    assert len(changed(with_it[0], without[0])) == 1
    assert_published_alike(with_it, without, apart=0)


def test_the_only_event_of_a_day_leaves_a_block_behind(tmp_path):
    """Whether there is a block does not tell whether there is an event."""
    lonely = [r for r in ROWS if days_of("u3-1")[0] != (r["timestamp"] - START // 10**6) // 86_400]
    with_it = world(tmp_path, "with", "event", [*lonely, row("u3-1", 3)])
    without = world(tmp_path, "without", "event", lonely)
    assert changed(with_it[0], without[0]) == {"s-2018-01-04"}
    assert without[0]["s-2018-01-04"] == []
    assert_published_alike(with_it, without, apart=0)


# User


@pytest.mark.parametrize("user", ["u0-0", "u4-7", "u11-20", "u29-39"])
def test_a_user_is_in_one_block_and_moves_the_count_by_one(tmp_path, user):
    """All of a user's data, whoever it is: the first of all, the last, one in between."""
    with_them = world(tmp_path, "with", "user", ROWS)
    without = world(tmp_path, "without", "user", [r for r in ROWS if r["user"] != user])
    assert len(with_them[1]) > 5
    assert len(changed(with_them[0], without[0])) == 1
    assert_published_alike(with_them, without, apart=1)
    moved = with_them[2].estimate - without[2].estimate
    assert moved == 1


def test_a_user_more_moves_the_count_by_one(tmp_path):
    more = sorted([*ROWS, row("x", 9, 70), row("x", 20, 70)], key=lambda r: r["timestamp"])
    with_them = world(tmp_path, "with", "user", more)
    without = world(tmp_path, "without", "user", ROWS)
    assert len(changed(with_them[0], without[0])) == 1
    assert_published_alike(with_them, without, apart=1)


# User-Time


def test_a_user_day_is_in_one_block_and_moves_nothing_that_is_published(tmp_path):
    """A day on which a user came back: they are a user still, so the count stays."""
    user = next(r["user"] for r in ROWS if len(days_of(r["user"])) > 2)
    day = days_of(user)[1]
    less = [
        r
        for r in ROWS
        if not (r["user"] == user and (r["timestamp"] - START // 10**6) // 86_400 == day)
    ]
    with_it = world(tmp_path, "with", "user-time", ROWS)
    without = world(tmp_path, "without", "user-time", less)
    (block,) = changed(with_it[0], without[0])
    assert with_it[1][block][0] == START + day * 86_400 * 10**6
    assert_published_alike(with_it, without, apart=0)


@pytest.mark.parametrize("user", ["u0-0", "u11-20"])
def test_a_user_of_a_single_day_moves_the_count_by_one(tmp_path, user):
    """Who came once is gone with that day: one block, and one in the count."""
    once = [
        r for r in ROWS if r["user"] != user or r["text"].endswith(f"day {user[1:].split('-')[0]}")
    ]
    with_them = world(tmp_path, "with", "user-time", once)
    without = world(tmp_path, "without", "user-time", [r for r in once if r["user"] != user])
    assert len(changed(with_them[0], without[0])) == 1
    assert_published_alike(with_them, without, apart=1)
    assert with_them[2].estimate - without[2].estimate == 1
