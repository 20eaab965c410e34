"""Ingest as its users see it: incremental, idempotent, late data, and what it refuses."""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from itertools import pairwise

import pytest

from privatekube_kfp.accounting import Plan, PureEpsilon
from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.data import store as store_module
from privatekube_kfp.data.ingest import ingest
from privatekube_kfp.data.store import Store
from privatekube_kfp.data.tables import BadRows
from privatekube_kfp.ledger.memory import MemoryLedger
from privatekube_kfp.ledger.requests import AllocateRequest
from tests.data.world import (
    DAY,
    NOW,
    START,
    arrivals,
    bytes_of,
    contents,
    numbers,
    row,
    stream_of,
    table,
    take_in,
)

GROUPS = {"event": {}, "user": {"group_size": 60}, "user-time": {"group_size": 60}}
SEMANTICS = list(GROUPS)


@pytest.fixture
def ledger():
    return MemoryLedger()


def names(ledger):
    return [record.block.name for record in ledger.blocks("s")]


# Blocks


def test_event_blocks_are_intervals(ledger, tmp_path):
    ledger.create_stream(stream_of("event"))
    rows = [row("a", 0), row("b", 0.5), row("a", 2, text="later")]
    report = take_in(ledger, table(tmp_path / "in.parquet", rows), tmp_path / "store", until=3)
    assert names(ledger) == ["s-2018-01-01", "s-2018-01-02", "s-2018-01-03"]
    assert report.new_blocks == tuple(names(ledger))
    block = ledger.block("s-2018-01-03").block
    assert (block.start, block.end, block.users) == (START + 2 * DAY, START + 3 * DAY, None)
    assert block.data_source == f"file://{tmp_path}/store/blocks/s-2018-01-03.parquet"
    held = contents(tmp_path / "store")
    assert [r["user"] for r in held["s-2018-01-01"]] == ["a", "b"]
    assert held["s-2018-01-02"] == []
    assert list(held["s-2018-01-03"][0]) == ["user", "time", "rating", "text"]
    assert report.rows["added"] == 3
    assert report.count is None


def test_user_blocks_are_groups_that_the_count_says_are_there(ledger, tmp_path):
    ledger.create_stream(stream_of("user"))
    report = take_in(
        ledger,
        table(tmp_path / "in.parquet", arrivals()),
        tmp_path / "store",
        until=30,
        group_size=60,
    )
    records = ledger.blocks("s")
    assert len(records) > 5
    ends = [record.block.users for record in records]
    assert all(before[1] < after[0] for before, after in pairwise(ends))
    assert ends[-1][1] < report.count.lower <= 30 * 40
    held = contents(tmp_path / "store")
    # The open group has data, and nobody can ask for it.
    assert set(held) - set(names(ledger)) == {f"s-u{len(records):05d}"}
    # All of a user's data are in one block, where their index is one of its own.
    seen = {}
    for name, rows in held.items():
        indexes = {r["user"]: r["user_index"] for r in rows}
        assert sorted(indexes.values()) == list(range(len(indexes)))
        for user in indexes:
            assert seen.setdefault(user, name) == name
        first = list(dict.fromkeys(r["user"] for r in rows))
        assert [indexes[user] for user in first] == sorted(indexes.values())
    for record in records:
        first, last = record.block.users
        assert len({r["user"] for r in held[record.block.name]}) >= last - first + 1 >= 60


def test_user_time_blocks_are_both(ledger, tmp_path):
    ledger.create_stream(stream_of("user-time"))
    rows = arrivals()
    take_in(
        ledger, table(tmp_path / "in.parquet", rows), tmp_path / "store", until=30, group_size=60
    )
    held = contents(tmp_path / "store")
    groups = {}
    for record in ledger.blocks("s"):
        block = record.block
        groups.setdefault(block.users, []).append((block.start, block.end))
        for r in held[block.name]:
            assert block.start <= r["time"].timestamp() * 10**6 < block.end
    assert len(groups) > 5
    for users, periods in groups.items():
        # From the group's first day until today, without gaps, whether there are data or not.
        assert periods[-1][1] == START + 30 * DAY, users
        assert all(a[1] == b[0] for a, b in pairwise(periods))
    assert sum(map(len, held.values())) == len(rows)


@pytest.mark.parametrize(
    ("interval", "name"),
    [
        (7 * DAY, "s-2018-01-01"),
        (DAY // 24, "s-2018-01-01-0000"),
        (90 * 10**6, "s-2018-01-01-000000"),
    ],
)
def test_blocks_are_named_by_when_they_begin(ledger, tmp_path, interval, name):
    ledger.create_stream(stream_of("event"))
    source = table(tmp_path / "in.parquet", [row("a", 0)])
    ingest(
        ledger,
        "s",
        [source],
        str(tmp_path / "store"),
        start=START,
        interval=interval,
        until=START + interval,
        clock=lambda: NOW,
    )
    assert names(ledger) == [name]


def bound(ledger, claim, **selection):
    """The blocks that a claim gets which asks for a range."""
    plan = Plan.of(PureEpsilon("0.01"))
    request = AllocateRequest("a", "s", Selection(**selection), plan, timeout=0)
    assert ledger.submit(claim, request).done
    return set(ledger.claim(claim).bound())


def test_what_claims_select_follows_the_semantic(tmp_path):
    """Time, users as far as the count says they are there, or both; and nothing beyond."""
    source = table(tmp_path / "in.parquet", arrivals())
    days = {"start": START + 3 * DAY, "end": START + 5 * DAY}
    for semantic in SEMANTICS:
        ledger = MemoryLedger()
        ledger.create_stream(stream_of(semantic))
        report = take_in(ledger, source, tmp_path / semantic, until=30, **GROUPS[semantic])
        blocks = [record.block for record in ledger.blocks("s")]
        if semantic != "user":
            expected = {b.name for b in blocks if b.start in (days["start"], days["start"] + DAY)}
            assert bound(ledger, "time", **days) == expected
        if semantic == "event":
            continue
        some = {"users": (0, blocks[0].users[1])}
        assert bound(ledger, "users", **some) == {b.name for b in blocks if b.users[0] == 0}
        if semantic == "user-time":
            both = bound(ledger, "both", **some, **days)
            assert both == {"s-u00000-2018-01-04", "s-u00000-2018-01-05"}
        # All that may be asked for is below the lower bound, and above it there is nothing.
        everybody = {"users": (0, report.count.lower - 1)}
        assert bound(ledger, "everybody", **everybody) == {b.name for b in blocks}
        with pytest.raises(Invalid) as caught:
            bound(ledger, "beyond", users=(report.count.lower, 10**9))
        assert caught.value.reason is Reason.NO_MATCHING_BLOCKS


# Again and again


@pytest.mark.parametrize("semantic", SEMANTICS)
def test_the_same_file_twice_adds_nothing(ledger, tmp_path, semantic):
    ledger.create_stream(stream_of(semantic))
    source = table(tmp_path / "in.parquet", arrivals())
    take_in(ledger, source, tmp_path / "store", until=30, **GROUPS[semantic])
    before, told = contents(tmp_path / "store"), numbers(ledger)
    files = {n: d for n, d in bytes_of(tmp_path / "store").items() if n.startswith("blocks/")}
    again = take_in(ledger, source, tmp_path / "store", until=30)
    assert again.rows["added"] == 0
    assert again.rows["duplicates"] == len(arrivals())
    assert again.new_blocks == ()
    assert contents(tmp_path / "store") == before
    assert {n: d for n, d in bytes_of(tmp_path / "store").items() if n in files} == files
    assert numbers(ledger) == told


@pytest.mark.parametrize(
    "semantic", ["event", "user", pytest.param("user-time", marks=pytest.mark.slow)]
)
def test_day_by_day_is_the_same_as_all_at_once(tmp_path, semantic):
    rows = arrivals()
    once, daily = MemoryLedger(), MemoryLedger()
    once.create_stream(stream_of(semantic))
    daily.create_stream(stream_of(semantic))
    take_in(
        once, table(tmp_path / "all.parquet", rows), tmp_path / "once", until=30, **GROUPS[semantic]
    )
    for day in range(30):
        of_day = [r for r in rows if (r["timestamp"] - START // 10**6) // 86_400 == day]
        source = table(tmp_path / f"{day}.parquet", of_day)
        report = take_in(daily, source, tmp_path / "daily", until=day + 1, **GROUPS[semantic])
        assert report.rows["added"] == len(of_day)
    assert contents(tmp_path / "daily") == contents(tmp_path / "once")
    count, blocks = numbers(once)
    assert numbers(daily)[0] == count
    assert [b[:4] for b in numbers(daily)[1]] == [b[:4] for b in blocks]


def test_rows_of_days_that_are_not_over_are_for_later(ledger, tmp_path):
    ledger.create_stream(stream_of("event"))
    source = table(tmp_path / "in.parquet", [row("a", day) for day in range(4)])
    report = take_in(ledger, source, tmp_path / "store", until=3)
    assert (report.rows["added"], report.rows["later"]) == (3, 1)
    assert take_in(ledger, source, tmp_path / "store", until=4).rows["added"] == 1
    assert len(names(ledger)) == 4


def test_budgets_stay_when_data_are_added(ledger, tmp_path):
    from privatekube_kfp.ledger.requests import ConsumeRequest
    from tests.contract.world import ask

    ledger.create_stream(stream_of("user"))
    rows = arrivals(days=20)
    place = tmp_path / "store"
    take_in(ledger, table(tmp_path / "a.parquet", rows), place, until=20, group_size=60)
    assert ledger.submit("c", ask("2", "s-u00000")).done
    assert ledger.submit("c", ConsumeRequest("consume")).done
    spent = ledger.block("s-u00000").budget
    rows_before = len(contents(place)["s-u00000"])
    more = [row("u0-3", 20, text="news"), row("somebody new", 20)]
    take_in(ledger, table(tmp_path / "b.parquet", more), place, until=21)
    assert len(contents(place)["s-u00000"]) == rows_before + 1
    assert ledger.block("s-u00000").budget == spent


# Late data


def test_a_late_event_is_in_the_block_of_its_day(ledger, tmp_path):
    ledger.create_stream(stream_of("event"))
    take_in(ledger, table(tmp_path / "a.parquet", [row("a", 0)]), tmp_path / "store", until=5)
    late = take_in(
        ledger, table(tmp_path / "b.parquet", [row("b", 1)]), tmp_path / "store", until=5
    )
    assert late.new_blocks == ()
    assert [r["user"] for r in contents(tmp_path / "store")["s-2018-01-02"]] == ["b"]


@pytest.mark.parametrize("semantic", ["user", "user-time"])
def test_who_comes_late_is_in_the_group_that_is_open(ledger, tmp_path, semantic):
    """Their data are of the first day; they themselves were never seen before today."""
    ledger.create_stream(stream_of(semantic))
    place = tmp_path / "store"
    rows = arrivals(days=20)
    take_in(ledger, table(tmp_path / "a.parquet", rows), place, until=20, group_size=60)
    before = contents(place)
    late = table(tmp_path / "b.parquet", [row("late", 0), row("u0-3", 0, text="late")])
    told = take_in(ledger, late, place, until=20)
    after = contents(place)
    grown = {name for name in after if after[name] != before.get(name, [])}
    of_late = {name for name in grown if any(r["user"] == "late" for r in after[name])}
    if semantic == "user":
        assert grown == {"s-u00000", max(after)}
        assert of_late == {max(after)}
    else:
        # Older than their group: in its first block.
        assert "s-u00000-2018-01-01" in grown
        (block,) = of_late
        assert block == min(n for n in after if n.startswith(block.rsplit("-", 3)[0]))
    # They are counted with the next day, once.
    assert told.count == ledger.stream("s").count
    again = take_in(ledger, late, place, until=21)
    assert again.count.estimate - told.count.estimate in range(-3, 5)
    assert again.rows["added"] == 0


# What it refuses


def refused(reason, match, ledger, *args, **kwargs):
    with pytest.raises(PrivateKubeError, match=match) as caught:
        take_in(ledger, *args, **kwargs)
    assert caught.value.reason is reason
    return caught.value


def test_it_is_told_from_when_on(ledger, tmp_path):
    ledger.create_stream(stream_of("event"))
    source = table(tmp_path / "in.parquet", [row("a", 0)])
    refused(Reason.INVALID_REQUEST, "say from when on", ledger, source, tmp_path / "s", start=None)


def test_a_stream_that_has_not_begun(ledger, tmp_path):
    ledger.create_stream(stream_of("event"))
    source = table(tmp_path / "in.parquet", [row("a", 0)])
    refused(
        Reason.INVALID_REQUEST, "which is to come", ledger, source, tmp_path / "s", start=NOW + DAY
    )


@pytest.mark.parametrize("semantic", SEMANTICS)
def test_nothing_in_nothing_but_blocks_out(ledger, tmp_path, semantic):
    """Periods pass, whether or not there are data; without users there are no groups of them."""
    ledger.create_stream(stream_of(semantic))
    source = table(tmp_path / "in.parquet", [row("", 0), row("a", 40)])
    report = take_in(ledger, source, tmp_path / "store", until=3, **GROUPS[semantic])
    assert report.rows["added"] == 0
    assert len(names(ledger)) == (3 if semantic == "event" else 0)


def test_settings_are_for_good(ledger, tmp_path):
    ledger.create_stream(stream_of("user"))
    source = table(tmp_path / "in.parquet", arrivals(days=3))
    place = tmp_path / "store"
    take_in(ledger, source, place, until=3, group_size=60)
    for change, match in (
        ({"start": START + DAY}, "start 2018-01-01T00:00:00Z, and 2018-01-02"),
        ({"interval": 7 * DAY}, "interval 1d, and 7d"),
        ({"group_size": 61}, "group size 60, and 61"),
        ({"per_user": 3}, "per user 100, and 3"),
        ({"confidence": "0.9"}, "confidence 0.999, and 0.9"),
    ):
        refused(Reason.INVALID_REQUEST, match, ledger, source, place, until=3, **change)


def test_groups_and_bounds_are_not_for_events(ledger, tmp_path):
    ledger.create_stream(stream_of("event"))
    source = table(tmp_path / "in.parquet", [row("a", 0)])
    refused(
        Reason.INVALID_REQUEST, "protects single events", ledger, source, tmp_path / "s", per_user=3
    )


@pytest.mark.parametrize(
    ("until", "match"),
    [
        (START - DAY, "the stream begins on 2018-01-01"),
        (START + 2 * DAY, "all there until 2018-01-06"),
        (NOW + DAY, "that is not over"),
    ],
)
def test_until_neither_goes_back_nor_into_the_future(ledger, tmp_path, until, match):
    ledger.create_stream(stream_of("event"))
    source = table(tmp_path / "in.parquet", [row("a", 0)])
    take_in(ledger, source, tmp_path / "store", until=5)
    with pytest.raises(Invalid, match=match):
        ingest(ledger, "s", [source], str(tmp_path / "store"), until=until, clock=lambda: NOW)


def test_too_many_periods_at_once_are_a_slip(ledger, tmp_path):
    ledger.create_stream(stream_of("event"))
    source = table(tmp_path / "in.parquet", [row("a", 0)])
    refused(
        Reason.INVALID_REQUEST,
        "give a longer interval",
        ledger,
        source,
        tmp_path / "s",
        interval=60 * 10**6,
    )


def test_a_counter_counts_as_far_as_it_was_made_for(ledger, tmp_path):
    ledger.create_stream(stream_of("user", days=16))
    source = table(tmp_path / "in.parquet", [row("a", 0)])
    refused(Reason.INVALID_REQUEST, "made for 15 periods", ledger, source, tmp_path / "s", until=16)


def test_absurd_times_are_bad_rows(ledger, tmp_path):
    ledger.create_stream(stream_of("event"))
    rows = [row("a", 0), row("a", 0) | {"timestamp": 0}, row("a", 0) | {"timestamp": 9 * 10**9}]
    source = table(tmp_path / "in.parquet", rows)
    bad = BadRows()
    report = take_in(ledger, source, tmp_path / "store", until=1, bad_rows=bad)
    assert report.rows["added"] == 1
    assert report.rows["absurd time"] == 2
    with pytest.raises(PrivateKubeError) as caught:
        take_in(ledger, source, tmp_path / "store", until=2, bad_rows=BadRows(limit=1))
    assert caught.value.reason is Reason.TOO_MANY_BAD_ROWS


def test_past_the_limit_of_bad_rows_nothing_has_happened(ledger, tmp_path):
    ledger.create_stream(stream_of("user"))
    rows = [*arrivals(days=3), *[row("", 1)] * 5]
    with pytest.raises(PrivateKubeError, match="more than 4 rows are bad"):
        take_in(
            ledger,
            table(tmp_path / "in.parquet", rows),
            tmp_path / "store",
            until=3,
            bad_rows=BadRows(limit=4),
        )
    assert names(ledger) == []
    assert contents(tmp_path / "store") == {}
    assert ledger.stream("s").count is None


def test_what_is_before_the_start_is_left_out(ledger, tmp_path):
    ledger.create_stream(stream_of("event"))
    source = table(tmp_path / "in.parquet", [row("a", -3), row("a", 0)])
    report = take_in(ledger, source, tmp_path / "store", until=1)
    assert (report.rows["added"], report.rows["earlier"]) == (1, 1)


def test_a_stream_of_another_semantic(tmp_path):
    source = table(tmp_path / "in.parquet", arrivals(days=3))
    first, second = MemoryLedger(), MemoryLedger()
    first.create_stream(stream_of("event"))
    second.create_stream(stream_of("user"))
    take_in(first, source, tmp_path / "store", until=3)
    refused(
        Reason.INVALID_REQUEST,
        "divided for event semantic, and stream s has user now",
        second,
        source,
        tmp_path / "store",
        until=3,
    )


def test_a_ledger_that_forgot_is_not_filled_again(tmp_path):
    """Its blocks may have been spent: registering them anew would give the budget twice."""
    source = table(tmp_path / "in.parquet", [row("a", 0)])
    for_real, empty = MemoryLedger(), MemoryLedger()
    for each in (for_real, empty):
        each.create_stream(stream_of("event"))
    take_in(for_real, source, tmp_path / "store", until=1)
    refused(
        Reason.LEDGER_INCONSISTENT,
        "s-2018-01-01 was registered, and this ledger has no such block",
        empty,
        source,
        tmp_path / "store",
        until=2,
    )


def test_one_stream_is_in_one_place(ledger, tmp_path):
    ledger.create_stream(stream_of("event"))
    source = table(tmp_path / "in.parquet", [row("a", 0)])
    take_in(ledger, source, tmp_path / "store", until=1)
    refused(
        Reason.INVALID_REQUEST,
        "ingest to where its other blocks are",
        ledger,
        source,
        tmp_path / "b",
        until=1,
    )


def test_other_columns_than_before(ledger, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from privatekube_kfp.data.tables import Source

    ledger.create_stream(stream_of("event"))
    take_in(ledger, table(tmp_path / "in.parquet", [row("a", 0)]), tmp_path / "store", until=1)
    parquet.write_table(pa.table({"user": ["a"], "timestamp": [1]}), tmp_path / "b.parquet")
    refused(
        Reason.WRONG_COLUMNS,
        r"b.parquet has the columns user \(string\), time .*, and what is there has .*rating",
        ledger,
        Source(tmp_path / "b.parquet"),
        tmp_path / "store",
        until=2,
    )


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"version": 1}', '{"version": 1, "stream": 3}'])
def test_a_damaged_memory_is_no_fresh_start(ledger, tmp_path, text):
    ledger.create_stream(stream_of("event"))
    source = table(tmp_path / "in.parquet", [row("a", 0)])
    take_in(ledger, source, tmp_path / "store", until=1)
    (tmp_path / "store/ingest.json").write_text(text)
    reason = Reason.DATA_UNREADABLE
    refused(reason, r"ingest\.json (is damaged|was)", ledger, source, tmp_path / "store", until=2)


@pytest.mark.parametrize("file", ["users/000000.parquet", "blocks/s-u00000.parquet"])
def test_damaged_data_are_no_fresh_start(ledger, tmp_path, file):
    ledger.create_stream(stream_of("user"))
    source = table(tmp_path / "in.parquet", arrivals())
    place = tmp_path / "store"
    take_in(ledger, source, place, until=30, group_size=60)
    (place / file).write_bytes(b"PAR1 but not quite PAR1")
    refused(Reason.DATA_UNREADABLE, f"{file} is damaged", ledger, source, place, until=31)
    (place / file).unlink()
    refused(Reason.DATA_UNREADABLE, f"{file} is missing", ledger, source, place, until=31)


@pytest.mark.parametrize("semantic", SEMANTICS)
def test_a_place_that_forgot_is_not_filled_again(ledger, tmp_path, semantic):
    """Users would be counted once more, for no price, and be in another block than before."""
    ledger.create_stream(stream_of(semantic))
    source = table(tmp_path / "in.parquet", arrivals())
    place = tmp_path / "store"
    take_in(ledger, source, place, until=10, **GROUPS[semantic])
    shutil.copytree(place, tmp_path / "copy")
    take_in(ledger, source, place, until=20)
    expected = numbers(ledger)
    unreadable = (Reason.DATA_UNREADABLE, "restore it from a copy")
    shutil.rmtree(place)
    gone = refused(*unreadable, ledger, source, place, until=21, **GROUPS[semantic])
    assert "ingest.json is missing, and the ledger has block s-" in str(gone)
    shutil.copytree(tmp_path / "copy", place, dirs_exist_ok=True)
    old = refused(*unreadable, ledger, source, place, until=21)
    assert "ingest.json is an old copy, and the ledger has block s-" in str(old)
    assert numbers(ledger) == expected


def test_users_that_were_counted_before_there_is_a_block(ledger, tmp_path):
    ledger.create_stream(stream_of("user"))
    source = table(tmp_path / "in.parquet", arrivals())
    place = tmp_path / "store"
    take_in(ledger, source, place, until=2, group_size=1000)
    assert names(ledger) == []
    shutil.rmtree(place)
    told = r"ingest\.json is missing, and users were counted until 2018-01-03T00:00:00Z"
    refused(Reason.DATA_UNREADABLE, told, ledger, source, place, until=3, group_size=1000)


def test_two_at_once_on_one_place(ledger, tmp_path):
    ledger.create_stream(stream_of("event"))
    source = table(tmp_path / "in.parquet", [row("a", 0)])
    with Store(str(tmp_path / "store")).held():
        refused(
            Reason.IN_USE, "another ingest is at work", ledger, source, tmp_path / "store", until=1
        )
    take_in(ledger, source, tmp_path / "store", until=1)


def test_two_that_begin_at_once_end_as_one(tmp_path):
    """Whoever comes second is refused or finds the work done; the result is that of one."""
    ledger = MemoryLedger()
    ledger.create_stream(stream_of("user"))
    source = table(tmp_path / "in.parquet", arrivals())
    answers = []

    def work():
        try:
            take_in(ledger, source, tmp_path / "store", until=30, group_size=60)
            answers.append("done")
        except PrivateKubeError as error:
            answers.append(error.reason)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "done" in answers
    assert set(answers) <= {"done", Reason.IN_USE}
    alone = MemoryLedger()
    alone.create_stream(stream_of("user"))
    take_in(alone, source, tmp_path / "alone", until=30, group_size=60)
    assert contents(tmp_path / "store") == contents(tmp_path / "alone")
    assert numbers(ledger)[0] == numbers(alone)[0]


# Places


def test_an_object_store_is_held_too(tmp_path, monkeypatch):
    place = "memory://held"
    first = Store(place)
    with first.held(), pytest.raises(PrivateKubeError, match="another ingest"), Store(place).held():
        pass
    # Killed: nobody lets go. After a while it is taken over, and the first finds out.
    first._take()
    monkeypatch.setattr(store_module, "_STALE_SECONDS", 0.0)
    monkeypatch.setattr(store_module, "_SIGN_SECONDS", -1.0)
    with Store(place).held(), pytest.raises(PrivateKubeError, match="another ingest"):
        first.show_life()


_ON_A_FULL_DISK = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
from tests.data.test_ingest import ingest_here
ingest_here(*sys.argv[1:])
"""


def ingest_here(source, place):
    """In a process of its own: print how it is refused."""
    from privatekube_kfp.data.tables import Source

    ledger = MemoryLedger()
    ledger.create_stream(stream_of("event"))
    try:
        take_in(ledger, Source(source), place, until=30)
    except PrivateKubeError as error:
        print(json.dumps([error.reason, error.message, names(ledger)]))


def run_here(program, *args):
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, args)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("place", ["/sys/store", "/proc/store", "a file"])
def test_a_target_that_cannot_be_written(ledger, tmp_path, place):
    ledger.create_stream(stream_of("event"))
    (tmp_path / "a file").write_text("not a folder")
    source = table(tmp_path / "in.parquet", arrivals(days=3))
    refused(
        Reason.DATA_UNWRITABLE,
        f"{place}.* cannot be used: ",
        ledger,
        source,
        tmp_path / place,
        until=3,
    )
    assert names(ledger) == []


def test_a_target_that_becomes_read_only(ledger, tmp_path, monkeypatch):
    """In the middle: what is registered is whole, and the rest goes on when it can."""
    ledger.create_stream(stream_of("event"))
    source = table(tmp_path / "in.parquet", arrivals(days=3))
    real, writes = os.replace, []

    def replace(old, new):
        writes.append(new)
        if len(writes) > 5:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        real(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(store_module.os, "replace", replace)
        refused(
            Reason.DATA_UNWRITABLE, "Read-only file system", ledger, source, tmp_path / "s", until=3
        )
    assert names(ledger) == []
    take_in(ledger, source, tmp_path / "s", until=3)
    assert sum(map(len, contents(tmp_path / "s").values())) == len(arrivals(days=3))
    assert len(names(ledger)) == 3


def test_a_full_target(tmp_path):
    """Files cannot grow beyond 4 KiB: the first run of rows does not fit."""
    table(tmp_path / "in.parquet", arrivals())
    reason, message, blocks = run_here(_ON_A_FULL_DISK, tmp_path / "in.parquet", tmp_path / "store")
    assert reason == "DataUnwritable"
    assert "cannot be used: File too large" in message or "too large" in message
    assert blocks == []
    # And with room it goes on as if nothing had been.
    ledger = MemoryLedger()
    ledger.create_stream(stream_of("event"))
    from privatekube_kfp.data.tables import Source

    report = take_in(ledger, Source(tmp_path / "in.parquet"), tmp_path / "store", until=30)
    assert report.rows["added"] == len(arrivals())


def test_a_place_nobody_knows(ledger, tmp_path):
    ledger.create_stream(stream_of("event"))
    source = table(tmp_path / "in.parquet", [row("a", 0)])
    refused(Reason.INVALID_REQUEST, "nowhere://x", ledger, source, "nowhere://x", until=1)


def test_true_counts_stay_with_the_data(ledger, tmp_path):
    """What is published of users is the noisy count; the true one is in the private place only."""
    ledger.create_stream(stream_of("user"))
    place = tmp_path / "store"
    source = table(tmp_path / "in.parquet", arrivals())
    report = take_in(ledger, source, place, until=30, group_size=60)
    assert set(report.public()) == {"stream", "until", "newBlocks", "users"}
    kept = json.loads((place / "ingest.json").read_text())
    assert kept["counter"]["told"]["estimate"] == report.count.estimate
    assert report.count.estimate != 30 * 40
