"""How a stream is divided into blocks: fixed by the first ingest, kept with the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.unlocking import MICROSECONDS, format_duration
from privatekube_kfp.data.counter import DEFAULT_CONFIDENCE
from privatekube_kfp.ledger.streams import Semantic
from privatekube_kfp.ledger.times import format_time

T = TypeVar("T", int, npt.NDArray[np.int64])

DAY = MICROSECONDS["d"]
DEFAULT_GROUP_SIZE = 1_000
DEFAULT_PER_USER_PER_DAY = 20
DEFAULT_PER_USER = 100


@dataclass(frozen=True)
class Settings:
    """Everything here is public, and none of it may depend on the data.

    `start` and `interval` (microseconds) cut time into periods: a block's, and the user counter's.
    A group has at least `group_size` users. Of a user a block takes at most `per_user` rows, and
    `per_user_per_day` rows of each day (UTC); which is nobody's business where events are what is
    protected.
    """

    semantic: Semantic
    start: int
    interval: int = DAY
    group_size: int | None = None
    per_user_per_day: int | None = None
    per_user: int | None = None
    confidence: str | None = None

    def __post_init__(self) -> None:
        if self.interval < MICROSECONDS["s"] or self.interval % MICROSECONDS["s"]:
            raise _invalid(
                f"an interval of {format_duration(self.interval)}: it must be whole seconds, one at"
                " least"
            )
        if self.start % MICROSECONDS["s"]:
            raise _invalid(f"the start {format_time(self.start)} must be at a whole second")
        for_users = ("group_size", "per_user_per_day", "per_user", "confidence")
        if self.semantic is Semantic.EVENT:
            for name in for_users:
                if getattr(self, name) is not None:
                    raise _invalid(
                        f"{name.replace('_', ' ')} is for streams of user and user-time semantic;"
                        " this one protects single events"
                    )
            return
        defaults: dict[str, object] = {
            "group_size": DEFAULT_GROUP_SIZE,
            "per_user_per_day": DEFAULT_PER_USER_PER_DAY,
            "per_user": DEFAULT_PER_USER,
            "confidence": DEFAULT_CONFIDENCE,
        }
        for name, default in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        for name in for_users[:-1]:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise _invalid(f"{name.replace('_', ' ')} {value!r} must be a whole number above 0")

    def period(self, time: T) -> T:
        """Of a time, or of many."""
        return (time - self.start) // self.interval

    def begins(self, period: int) -> int:
        """When a period begins, which is when the one before it ends."""
        return self.start + period * self.interval

    def date(self, period: int) -> str:
        """When a period begins, as it stands in the names of blocks."""
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.begins(period))
        for unit, form in (("d", "%Y-%m-%d"), ("m", "%Y-%m-%d-%H%M")):
            if not (self.start % MICROSECONDS[unit] or self.interval % MICROSECONDS[unit]):
                return moment.strftime(form)
        return moment.strftime("%Y-%m-%d-%H%M%S")

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Settings:
        return Settings(**{**value, "semantic": Semantic(value["semantic"])})

    def joined_with(self, given: Mapping[str, Any]) -> Settings:
        """These, if what is given now does not say otherwise: blocks cannot be cut anew."""
        asked = replace(self, **{name: v for name, v in given.items() if v is not None})
        for field in fields(self):
            was, wanted = getattr(self, field.name), getattr(asked, field.name)
            if was != wanted:
                show = {"start": format_time, "interval": format_duration}.get(field.name, str)
                raise _invalid(
                    f"the stream was cut with {field.name.replace('_', ' ')} {show(was)}, and"
                    f" {show(wanted)} is asked for now; what blocks hold cannot be cut anew"
                )
        return self


def _invalid(message: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, message)
