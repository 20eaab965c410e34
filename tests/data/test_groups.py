"""Groups of users: closed by the published count, and never empty of whom they say they have."""

import random

import pytest

from privatekube_kfp.accounting import Counter
from privatekube_kfp.data.counter import Count, UserCounter
from privatekube_kfp.data.groups import Group, Groups


def count(lower, upper, day=1):
    return Count(day, (lower + upper) // 2, lower, upper)


def test_a_group_closes_once_it_surely_has_enough():
    groups = Groups(10)
    groups.end_period(0, count(9, 14))
    assert groups.closed == []
    groups.end_period(1, count(11, 16))
    assert groups.closed == [Group(0, 0, 1, 11)]
    assert groups.closed[0].users == (0, 10)
    # 16 users at most were there before the second; it has 10 of its own when 26 are there.
    groups.end_period(2, count(25, 30))
    assert len(groups.closed) == 1
    groups.end_period(3, count(26, 31))
    assert groups.closed[1] == Group(2, 16, 3, 26)
    assert groups.opened == [0, 2, 4]


def test_groups_are_remembered():
    groups = Groups(10)
    groups.end_period(0, count(11, 16))
    again = Groups.from_json(10, groups.to_json())
    assert again.closed == groups.closed
    assert again.opened == groups.opened


@pytest.mark.slow
def test_no_group_is_without_its_users_more_often_than_stated():
    """10,000 streams at 0.9: a group says which users it surely has, counted as they appeared.

    Were the bounds too tight, more than 1 stream in 10 would have a block without its users.
    """
    rng = random.Random(3)
    streams = failed = closed = 0
    for _ in range(10_000):
        counted, groups = UserCounter(Counter("2", 16), "0.9", rng.randrange), Groups(4)
        totals = [0]
        for period in range(15):
            new = rng.randrange(12)
            totals.append(totals[-1] + new)
            groups.end_period(period, counted.end_day(period + 1, new))
        wrong = False
        for group in groups.closed:
            closed += 1
            first, last = group.users
            wrong |= first < totals[group.opened] or last >= totals[group.closed + 1]
        failed += wrong
        streams += 1
    assert closed > streams
    assert failed <= 0.1 * streams
    assert failed > 0, "nothing ever failed: the bounds are wider than they say"
