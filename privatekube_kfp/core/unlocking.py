"""How a block's budget becomes available: in equal shares, per arriving pipeline or per interval.

A block's capacity is cut into a fixed number of shares. Amounts are integers, so the first
`capacity % shares` shares are one unit larger than the rest: every share is at least the fair
share `capacity // shares`, and all of them together are the capacity, to the unit.

Times and durations are integers in microseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from privatekube_kfp.core.errors import Invalid, Reason

MAX_SHARES = 10**9
MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_DURATION = re.compile(r"([0-9]{1,12})(us|ms|s|m|h|d|w)", re.ASCII)


def parse_duration(text: str, name: str = "duration") -> int:
    """'30d', '1h' or '1h30m' in microseconds."""
    pieces = list(_DURATION.finditer(text)) if isinstance(text, str) else []
    if not pieces or "".join(piece.group() for piece in pieces) != text:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"{name} {text!r} is not a duration; write it like 0s, 90s, 1h30m or 30d",
        )
    total = sum(int(piece.group(1)) * MICROSECONDS[piece.group(2)] for piece in pieces)
    if total > 1_000 * 365 * MICROSECONDS["d"]:
        raise Invalid(Reason.INVALID_REQUEST, f"{name} {text!r} is longer than a thousand years")
    return total


def format_duration(microseconds: int) -> str:
    """The shortest text that `parse_duration` reads back."""
    pieces = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, microseconds = divmod(microseconds, MICROSECONDS[unit])
        if count:
            pieces.append(f"{count}{unit}")
    return "".join(pieces) or "0s"


@dataclass(frozen=True)
class ByPipelines:
    """DPF-N: each of the first N pipelines that ask for a block unlocks one N-th of it."""

    pipelines: int

    def __post_init__(self) -> None:
        if not 1 <= self.pipelines <= MAX_SHARES:
            raise Invalid(
                Reason.INVALID_STREAM,
                f"unlocking by {self.pipelines} pipelines: it must be from 1 to {MAX_SHARES}",
            )

    @property
    def shares(self) -> int:
        return self.pipelines

    def to_json(self) -> dict[str, object]:
        return {"pipelines": self.pipelines}

    def __str__(self) -> str:
        return f"1/{self.pipelines} per pipeline"


@dataclass(frozen=True)
class ByTime:
    """DPF-T: each interval of a block's lifetime unlocks one share, whoever asks."""

    lifetime: int
    interval: int

    def __post_init__(self) -> None:
        lifetime, interval = format_duration(self.lifetime), format_duration(self.interval)
        if self.interval <= 0 or self.lifetime <= 0:
            raise Invalid(
                Reason.INVALID_STREAM,
                f"unlocking over {lifetime} every {interval}: both must be above zero",
            )
        if self.lifetime % self.interval:
            raise Invalid(
                Reason.INVALID_STREAM,
                f"unlocking over {lifetime} every {interval}:"
                " the lifetime must be a whole number of intervals",
            )
        if self.shares > MAX_SHARES:
            raise Invalid(
                Reason.INVALID_STREAM,
                f"unlocking over {lifetime} every {interval} makes {self.shares} shares;"
                f" at most {MAX_SHARES} are allowed",
            )

    @property
    def shares(self) -> int:
        return self.lifetime // self.interval

    def to_json(self) -> dict[str, object]:
        return {
            "lifetime": format_duration(self.lifetime),
            "interval": format_duration(self.interval),
        }

    def __str__(self) -> str:
        return f"over {format_duration(self.lifetime)} every {format_duration(self.interval)}"


@dataclass(frozen=True)
class AtOnce:
    """Everything is available from the block's creation: what FCFS assumes."""

    shares: int = 1

    def to_json(self) -> dict[str, object]:
        return {"atOnce": True}

    def __str__(self) -> str:
        return "at once"


Unlocking = ByPipelines | ByTime | AtOnce


def unlocked_amount(capacity: int, opened: int, shares: int) -> int:
    """What `opened` of `shares` shares of a capacity come to; nothing of an unusable one."""
    if capacity <= 0:
        return 0
    share, larger = divmod(capacity, shares)
    return share * opened + min(opened, larger)
