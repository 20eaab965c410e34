"""Which blocks a claim asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.stream import Block

MAX_BLOCKS = 100_000
MAX_USER = 10**15


@dataclass(frozen=True)
class Selection:
    """Blocks by name, or those that hold data of a time range and a user range, newest first.

    Ranges see active blocks only: an exhausted or retired block is no longer a resource. Named
    blocks are taken at their word: what they cannot give is refused, never left out.
    A time range is half-open, in microseconds; a user range includes both ends.
    """

    names: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    users: tuple[int, int] | None = None
    last: int | None = None
    at_least: int = 1
    at_most: int | None = None

    def __post_init__(self) -> None:
        ranged = any(x is not None for x in (self.start, self.end, self.users, self.last))
        if bool(self.names) == ranged:
            raise _invalid(
                "select blocks either by name or by a range (times, users, the last n),"
                f" not {'both' if ranged else 'neither'}"
            )
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise _invalid(f"block {twice} is named twice")
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise _invalid("the time range is empty: its start is not before its end")
        if self.users is not None:
            check_users(self.users)
        for name, count in (("last", self.last), ("at most", self.at_most)):
            if count is not None and not 1 <= count <= MAX_BLOCKS:
                raise _invalid(f"{name} {count} blocks: it must be from 1 to {MAX_BLOCKS}")
        most = self.at_most or MAX_BLOCKS
        if not 1 <= self.at_least <= min(most, self.last or most):
            raise _invalid(f"at least {self.at_least} blocks: more than at most, or below 1")

    def choose(
        self, blocks: Mapping[str, Block], is_active: Callable[[str], bool]
    ) -> tuple[str, ...]:
        """The chosen blocks' names, oldest data first; refused when too few match."""
        if self.names:
            for name in self.names:
                if name not in blocks:
                    raise Invalid(Reason.UNKNOWN_BLOCK, f"there is no block {name!r} in the stream")
                if blocks[name].retired:
                    raise Invalid(Reason.NO_MATCHING_BLOCKS, f"block {name} is retired")
            return self.names
        newest_first = sorted(
            filter(self._holds, blocks.values()), key=lambda block: block.newest_last, reverse=True
        )
        most = min(self.last or MAX_BLOCKS, self.at_most or MAX_BLOCKS)
        active = (block.name for block in newest_first if is_active(block.name))
        chosen = tuple(islice(active, most))[::-1]
        if len(chosen) < self.at_least:
            raise Invalid(
                Reason.NO_MATCHING_BLOCKS,
                f"{len(chosen)} active blocks match the selection; at least {self.at_least} must",
            )
        return chosen

    def _holds(self, block: Block) -> bool:
        if self.start is not None and (block.end is None or block.end <= self.start):
            return False
        if self.end is not None and (block.start is None or block.start >= self.end):
            return False
        if self.users is None:
            return True
        low, high = self.users
        return block.users is not None and block.users[0] <= high and low <= block.users[1]


def check_users(users: tuple[int, int]) -> None:
    """Refuse a range of user indexes that is empty or out of bounds."""
    first, last = users
    if not 0 <= first <= last <= MAX_USER:
        raise _invalid(f"the user range {first}-{last} must rise, from 0 to {MAX_USER} at most")


def _invalid(message: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, message)
