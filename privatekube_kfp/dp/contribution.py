"""How much one protected unit can add to a statistic.

Neighbouring data differ by one unit, all of it: a row under event semantics, all rows of a user
under user, a user's rows in one block under user-time. Of each unit only its first rows count, in
the order in which they are stored, so what is kept of one does not depend on any other. That is
what makes the bound a bound: without the unit all other kept rows are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.bounds import Ints, Mask, within_bounds
from privatekube_kfp.data.settings import DAY, DEFAULT_PER_USER, DEFAULT_PER_USER_PER_DAY
from privatekube_kfp.ledger.streams import Semantic

Period = tuple[int | None, int | None]


@dataclass(frozen=True)
class Unit:
    """What is protected, and how many rows of one are counted: in all, and of each day (UTC)."""

    semantic: Semantic = Semantic.EVENT
    rows: int = 1
    per_day: int = 1

    def kept(self, users: Ints, times: Ints, blocks: Ints) -> Mask:
        """Which rows count, of rows by these users, at these times, in these blocks."""
        if self.semantic is Semantic.EVENT:
            return np.ones(len(users), bool)
        whose = (users, blocks) if self.semantic is Semantic.USER_TIME else (users,)
        return within_bounds(whose, times, per_day=self.per_day, in_all=self.rows)

    def to_json(self) -> dict[str, object]:
        if self.semantic is Semantic.EVENT:
            return {"semantic": self.semantic.value, "rows": 1}
        return {"semantic": self.semantic.value, "rows": self.rows, "rowsPerDay": self.per_day}


def unit_of(
    semantic: Semantic,
    *,
    per_user_per_day: int | None = None,
    per_user: int | None = None,
    periods: Iterable[Period] = (),
) -> Unit:
    """The unit of a stream of this semantic.

    Args:
        semantic: The stream's.
        per_user_per_day: Rows of a user that count, of each day; 20 unless given.
        per_user: Rows of a unit that count, in all; 100 unless given.
        periods: The times of the blocks that are read. Under user-time a unit has the days of one
            of them, which may allow for fewer rows in all.
    """
    if semantic is Semantic.EVENT:
        if per_user_per_day or per_user:
            raise _invalid("rows per user are bounded where users are protected; here rows are")
        return Unit()
    per_day = _positive("per_user_per_day", per_user_per_day or DEFAULT_PER_USER_PER_DAY)
    rows = _positive("per_user", per_user or DEFAULT_PER_USER)
    days = [_days(*period) for period in periods] if semantic is Semantic.USER_TIME else []
    if days and None not in days:
        rows = min(rows, per_day * max(day for day in days if day is not None))
    return Unit(semantic, rows, min(per_day, rows))


def _days(start: int | None, end: int | None) -> int | None:
    """How many days, from midnight to midnight, a period touches."""
    if start is None or end is None:
        return None
    return (end - 1) // DAY - start // DAY + 1


def _positive(name: str, value: int) -> int:
    if type(value) is not int or value < 1:
        raise _invalid(f"{name} {value!r} must be a whole number above 0")
    return value


def _invalid(message: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, message)
