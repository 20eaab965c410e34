"""A stream and its blocks: how a guarantee is enforced, and the portions of data it covers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from privatekube_kfp.core.budget import Accounting, Budget
from privatekube_kfp.core.policy import Policy
from privatekube_kfp.core.unlocking import Unlocking


class BlockPhase(StrEnum):
    """Whether a block can still be asked for. Its record stays in every case."""

    ACTIVE = "Active"
    EXHAUSTED = "Exhausted"
    RETIRED = "Retired"


@dataclass(frozen=True)
class Stream:
    """What the core needs to know of a stream.

    `capacity` is what each block gets: the stream's guarantee under its accounting, less what
    the user counter costs.
    """

    name: str
    accounting: Accounting
    capacity: Budget
    unlocking: Unlocking
    policy: Policy


@dataclass(frozen=True)
class Block:
    """A portion of a stream. Times are microseconds; a user range includes both ends."""

    name: str
    stream: str
    created: int
    start: int | None = None
    end: int | None = None
    users: tuple[int, int] | None = None
    data_source: str | None = None
    retired: bool = False

    @property
    def newest_last(self) -> tuple[int, int, str]:
        """Sorts blocks by the data they hold, then by creation."""
        data = self.end if self.end is not None else self.users[1] if self.users else self.created
        return (data, self.created, self.name)
