"""The root command, and the one place where a run of the command line ends.

Command groups are loaded when they are named: help and usage errors answer without waiting for
numpy. Whatever a command raises ends here as one sentence (or one JSON object) and an exit code.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from privatekube_kfp import __version__
from privatekube_kfp.cli.errors import BROKEN_PIPE, DONE, Failure, ReaderGone, failure_of
from privatekube_kfp.cli.options import InOrder, json_option, ledger_option
from privatekube_kfp.cli.output import print_json, write
from privatekube_kfp.cli.session import Session

PROGRAM = "privatekube"

_COMMANDS = {
    "demo": "Train a model with a budget, on reviews that nobody wrote.",
    "stream": "Declare data streams and the guarantee to enforce on each.",
    "block": "Add blocks to a stream, and see where their budget is.",
    "ingest": "Bring tables into a stream's private blocks.",
    "claim": "Ask for budget, spend it, give it back.",
    "ledger": "Check a ledger, and mend its clock.",
    "account": "Price a plan, and see how often it fits in one block.",
    "calibrate": "From noise to epsilon, and from epsilon to noise.",
    "simulate": "See what another policy would do, and the paper's evaluation.",
    "vectors": "Fetch real word vectors.",
    "sample": "Write reviews that nobody wrote, to try things with.",
    "lint": "Prove that a compiled pipeline keeps to the placement protocol.",
    "compile": "Compile pipelines to YAML, and check them.",
    "run": "Run a pipeline on this machine.",
    "submit": "Run a pipeline on a Kubeflow cluster.",
    "settings": "See what differs from cluster to cluster, and what it means.",
    "install": "Install into a Kubernetes cluster.",
    "doctor": "Find what is wrong with a cluster, and what mends it.",
}


class _LazyGroup(InOrder):
    """Loads a command's module when the command is named; the list of commands loads none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"privatekube_kfp.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


def _show_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    if ctx.ensure_object(Session).as_json:
        print_json({"version": __version__})
    else:
        write(f"{PROGRAM} {__version__}\n")
    ctx.exit()


@click.group(
    cls=_LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@ledger_option
@json_option
def cli() -> None:
    """Privacy budgets of data streams: who may spend how much, on which data.

    A ledger holds the budgets. Name it with --ledger or PRIVATEKUBE_LEDGER, for example
    sqlite:///ledger.db; `stream create` makes the file.

    \b
    Example:
      export PRIVATEKUBE_LEDGER=sqlite:///ledger.db
      privatekube stream create clicks --epsilon 1 --delta 1e-7 --unlock-pipelines 10
      privatekube block create monday --stream clicks
      privatekube claim allocate train --stream clicks --block monday --epsilon 0.1
      privatekube claim consume train

    Exit codes: 0 done, 1 refused or failed, 2 usage, 130 interrupted.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # started with standard output closed
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    # Known before the options are read, so that an error in reading them is JSON too.
    words = args[: args.index("--")] if "--" in args else args
    session = Session(as_json="--json" in words)
    try:
        try:
            result = cli.main(args, prog_name=PROGRAM, obj=session, standalone_mode=False)
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            return _report(failure, session.as_json)
        sys.stdout.flush()
        return result if isinstance(result, int) else DONE
    except ReaderGone:
        _give_up_stdout()
        return BROKEN_PIPE


def _report(failure: Failure, as_json: bool) -> int:
    """Tell what went wrong: a sentence on standard error, and with --json an object on output."""
    if failure.help_text:
        click.echo(failure.help_text, err=True)
    else:
        click.echo(f"{PROGRAM}: {failure.sentence}", err=True)
        if failure.hint:
            click.echo(failure.hint, err=True)
    if as_json and failure.on_output:
        error = {"reason": failure.reason, "message": failure.message}
        print_json({"error": error} | failure.details)
        sys.stdout.flush()
    elif not failure.on_output:
        _give_up_stdout()
    return failure.code


def _give_up_stdout() -> None:
    """Nobody reads our output: let the interpreter's last flush go nowhere."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
