"""`privatekube ledger`: the ledger itself."""

from __future__ import annotations

import sys

import click

from privatekube_kfp.cli.errors import Failure
from privatekube_kfp.cli.options import InOrder, json_option, ledger_option
from privatekube_kfp.cli.output import say
from privatekube_kfp.cli.session import Session
from privatekube_kfp.core.errors import Reason


@click.group(cls=InOrder)
def ledger() -> None:
    """Check a ledger, and mend its clock."""


@ledger.command(short_help="Derive every number again, and compare.")
@ledger_option
@json_option
@click.pass_obj
def verify(session: Session) -> None:
    """Derive every number of the ledger again from its claims, and compare.

    Says OK and exits with 0, or shows the first difference and exits with 1.

    \b
    Example:
      privatekube ledger verify
    """
    with session.ledger() as opened:
        verdict = opened.verify()
    counted = (
        f"{_count(verdict.streams, 'stream')}, {_count(verdict.blocks, 'block')},"
        f" {_count(verdict.claims, 'claim')}"
    )
    document = {
        "ok": verdict.ok,
        "streams": verdict.streams,
        "blocks": verdict.blocks,
        "claims": verdict.claims,
        "difference": verdict.difference,
    }
    if verdict.difference is not None:
        raise Failure(
            Reason.LEDGER_INCONSISTENT,
            f"the ledger does not add up ({counted}): {verdict.difference}",
            details=document,
        )
    session.answer(document, lambda: say(f"OK: {counted}"))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@ledger.command("reset-clock", short_help="Take this machine's clock for right.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@ledger_option
@json_option
@click.pass_obj
def reset_clock(session: Session, yes: bool) -> None:
    """Take this machine's clock for right, although the ledger was written at a later time.

    For a ledger that refuses with ClockWentBack because its last writer's clock was ahead. What
    has been unlocked or timed out by the wrong clock stays so.

    \b
    Example:
      privatekube ledger reset-clock --yes
    """
    from privatekube_kfp.ledger.sqlite import SqliteLedger

    with session.ledger() as opened:
        if not isinstance(opened, SqliteLedger):
            raise Failure("Unsupported", "this ledger has no clock of its own to reset")
        if not yes and not _confirmed():
            raise Failure("NotConfirmed", "nothing was changed; give --yes to go ahead unasked")
        opened.reset_clock()
    session.answer({"reset": True}, lambda: say("the ledger takes this machine's clock for right"))


def _confirmed() -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    return click.confirm("Is this machine's clock right, and the ledger's wrong?", err=True)
