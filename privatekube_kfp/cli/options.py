"""Options that many commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import click

from privatekube_kfp.cli.session import Session


class InOrder(click.Group):
    """Lists its commands in the order in which they are defined: that of their use."""

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        # Without a command: a usage error that shows the help, in every version of click.
        super().__init__(name, **(settings | {"no_args_is_help": False}))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _note_ledger(ctx: click.Context, _: click.Parameter, address: str | None) -> None:
    if address is not None:
        ctx.ensure_object(Session).ledger_address = address


def _note_json(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        ctx.ensure_object(Session).as_json = True


ledger_option = click.option(
    "--ledger",
    metavar="ADDRESS",
    expose_value=False,
    callback=_note_ledger,
    help="The ledger: sqlite:///ledger.db, kubernetes, ... (or set PRIVATEKUBE_LEDGER).",
)

json_option = click.option(
    "--json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_note_json,
    show_default=False,
    help="Print one JSON document.",
)


def with_options(
    command: Callable[..., None],
    options: Mapping[str, Callable[..., Any]],
    argument: str,
    read: Callable[..., object],
) -> Callable[..., None]:
    """Adds options to a command, which gets what `read` makes of them as one argument."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        said = {name: kwargs.pop(name) for name in options}
        command(*args, **{argument: read(**said)}, **kwargs)

    for option in reversed(list(options.values())):
        wrapper = option(wrapper)
    return wrapper
