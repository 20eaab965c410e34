"""Points in time: microseconds inside, ISO 8601 in UTC for people and on the wire."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

from privatekube_kfp.core.errors import Invalid, Reason

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO = re.compile(
    r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?)?", re.A
)


def system_clock() -> int:
    """The wall clock, in microseconds."""
    return time.time_ns() // 1_000


def parse_time(text: str, name: str = "time") -> int:
    """'2026-11-16' or '2026-11-16T08:30:00Z'; UTC unless it says otherwise."""
    try:
        if not isinstance(text, str) or not _ISO.fullmatch(text):
            raise ValueError
        moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise Invalid(
            Reason.INVALID_REQUEST, f"{name} {text!r} is not in the years 1 to 9999 in UTC"
        ) from None
    except ValueError:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"{name} {text!r} is not a date or time; write it like 2026-11-16 or"
            " 2026-11-16T08:30:00Z",
        ) from None
    return (moment - _EPOCH) // timedelta(microseconds=1)


def format_time(microseconds: int) -> str:
    moment = _EPOCH + timedelta(microseconds=microseconds)
    shown = moment.isoformat(timespec="microseconds" if moment.microsecond else "seconds")
    return shown.replace("+00:00", "Z")
