"""The options that say which blocks a claim asks for."""

from __future__ import annotations

from collections.abc import Callable

import click

from privatekube_kfp.cli.errors import reading_the_command_line
from privatekube_kfp.cli.options import with_options
from privatekube_kfp.cli.values import BLOCK_NAME, TIME, USERS, WHOLE
from privatekube_kfp.core.selection import Selection

_OPTIONS = {
    "block": click.option(
        "--block", type=BLOCK_NAME, multiple=True, help="This block; give it once per block."
    ),
    "start": click.option("--start", type=TIME, help="Blocks with data from TIME on."),
    "end": click.option("--end", type=TIME, help="Blocks with data before TIME."),
    "users": click.option("--users", type=USERS, help="Blocks with data of these user indexes."),
    "last": click.option("--last", type=WHOLE, help="The newest N blocks that match."),
    "at_least": click.option("--at-least", type=WHOLE, help="Refuse if fewer than N blocks match."),
    "at_most": click.option("--at-most", type=WHOLE, help="Take the newest N if more match."),
}


def selection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options to a command, which gets what they say as `selection`."""
    return with_options(command, _OPTIONS, "selection", _selection)


def _selection(
    block: tuple[str, ...],
    start: int | None,
    end: int | None,
    users: tuple[int, int] | None,
    last: int | None,
    at_least: int | None,
    at_most: int | None,
) -> Selection:
    if block and (at_least is not None or at_most is not None):
        raise click.UsageError("--at-least and --at-most are for ranges of blocks, not --block.")
    if not block and all(value is None for value in (start, end, users, last)):
        raise click.UsageError(
            "Which blocks? Give --block, or a range: --start and --end, --users, or --last."
        )
    with reading_the_command_line():
        return Selection(
            names=block,
            start=start,
            end=end,
            users=users,
            last=last,
            at_least=1 if at_least is None else at_least,
            at_most=at_most,
        )
