"""`privatekube block`: blocks of a stream and where their budget is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from privatekube_kfp.cli.describe import amount_rows, block_json, list_amounts, list_order
from privatekube_kfp.cli.options import InOrder, json_option, ledger_option
from privatekube_kfp.cli.output import moment, print_facts, print_table, say
from privatekube_kfp.cli.session import Session
from privatekube_kfp.cli.values import BLOCK_NAME, STREAM_NAME, TIME, USERS, WORDS
from privatekube_kfp.ledger.times import format_time

if TYPE_CHECKING:
    from privatekube_kfp.ledger.ledger import BlockRecord


@click.group(cls=InOrder)
def block() -> None:
    """Add blocks to a stream, see where their budget is, take them out of use."""


@block.command()
@click.argument("name", type=BLOCK_NAME)
@click.option("--stream", type=STREAM_NAME, required=True, help="The stream it is a part of.")
@click.option("--start", type=TIME, help="Its data begins here, such as 2026-11-16, ...")
@click.option("--end", type=TIME, help="... and ends before this time.")
@click.option("--users", type=USERS, help="The user indexes it holds, both ends included.")
@click.option("--data-source", type=WORDS, metavar="URI", help="Where its data is.")
@ledger_option
@json_option
@click.pass_obj
def create(
    session: Session,
    name: str,
    stream: str,
    start: int | None,
    end: int | None,
    users: tuple[int, int] | None,
    data_source: str | None,
) -> None:
    """Add the block NAME to a stream, with the stream's full capacity.

    Adding the very same block again does nothing.

    \b
    Examples:
      privatekube block create monday --stream clicks --start 2026-11-16 --end 2026-11-17
      privatekube block create users-0 --stream users --users 0-99 --data-source s3://data/users-0
    """
    if (start is None) != (end is None):
        raise click.UsageError("--start and --end go together.")
    if start is not None and end is not None and start >= end:
        raise click.UsageError(
            f"--start {format_time(start)} must be before --end {format_time(end)}."
        )
    with session.ledger() as ledger:
        record = ledger.create_block(
            name, stream, start=start, end=end, users=users, data_source=data_source
        )
    session.answer(
        block_json(record), lambda: say(f"block {name} of stream {stream}: {record.phase}")
    )


@block.command("list")
@click.option("--stream", type=STREAM_NAME, help="Of this stream only.")
@ledger_option
@json_option
@click.pass_obj
def list_blocks(session: Session, stream: str | None) -> None:
    """List blocks and where their budget is, oldest data first.

    Amounts are epsilons. Under Renyi accounting they are those at the order that has most left;
    `block show` shows all orders.

    \b
    Example:
      privatekube block list --stream clicks
    """
    with session.ledger(tend=True) as ledger:
        records = ledger.blocks(stream)
    session.answer(
        {"blocks": [block_json(record) for record in records]}, lambda: _print_blocks(records)
    )


def _print_blocks(records: Sequence[BlockRecord]) -> None:
    titles = ["NAME", "STREAM", "PHASE", ">CAPACITY", ">LOCKED", ">UNLOCKED", ">ALLOCATED"]
    rows = [
        [record.block.name, record.block.stream, str(record.phase), *list_amounts(record.budget)]
        for record in records
    ]
    if any(record.budget.capacity.accounting.is_renyi for record in records):
        titles.insert(3, ">ORDER")
        for row, record in zip(rows, records, strict=True):
            row.insert(3, list_order(record.budget))
    print_table([*titles, ">CONSUMED"], rows)


@block.command()
@click.argument("name", type=BLOCK_NAME)
@ledger_option
@json_option
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show the block NAME and where all of its budget is.

    \b
    Example:
      privatekube block show monday
    """
    with session.ledger(tend=True) as ledger:
        record = ledger.block(name)
    held, budget = record.block, record.budget

    def for_people() -> None:
        print_facts(
            [
                ("block", held.name),
                ("stream", held.stream),
                ("phase", str(record.phase)),
                ("created", moment(held.created)),
                ("start", "" if held.start is None else format_time(held.start)),
                ("end", "" if held.end is None else format_time(held.end)),
                ("users", "" if held.users is None else f"{held.users[0]}-{held.users[1]}"),
                ("data source", held.data_source or ""),
                ("arrivals", str(budget.arrivals)),
            ]
        )
        columns = [
            ("CAPACITY", budget.capacity),
            ("LOCKED", budget.locked),
            ("UNLOCKED", budget.unlocked),
            ("ALLOCATED", budget.allocated),
            ("CONSUMED", budget.consumed),
        ]
        titles, rows = amount_rows(budget.capacity.accounting, columns)
        say("")
        print_table(titles, rows)

    session.answer(block_json(record), for_people)


@block.command()
@click.argument("name", type=BLOCK_NAME)
@ledger_option
@json_option
@click.pass_obj
def retire(session: Session, name: str) -> None:
    """Take the block NAME out of use, for good.

    Whoever waits for it is refused. What claims hold of it they may still use; its record stays.

    \b
    Example:
      privatekube block retire monday
    """
    with session.ledger() as ledger:
        record = ledger.retire_block(name)
    session.answer(block_json(record), lambda: say(f"block {name}: {record.phase}"))
