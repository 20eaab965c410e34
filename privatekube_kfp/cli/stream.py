"""`privatekube stream`: declare streams and look at them."""

from __future__ import annotations

import click

from privatekube_kfp.cli.describe import amount_rows, stream_json, users_told
from privatekube_kfp.cli.errors import reading_the_command_line
from privatekube_kfp.cli.guarantee import Guarantee, guarantee_options
from privatekube_kfp.cli.options import InOrder, json_option, ledger_option
from privatekube_kfp.cli.output import print_facts, print_table, say, short
from privatekube_kfp.cli.session import Session
from privatekube_kfp.cli.values import DURATION, STREAM_NAME, WHOLE
from privatekube_kfp.core.policy import POLICIES
from privatekube_kfp.core.unlocking import AtOnce, ByPipelines, ByTime, Unlocking
from privatekube_kfp.ledger.streams import Semantic, StreamSpec


@click.group(cls=InOrder)
def stream() -> None:
    """Declare data streams and the guarantee to enforce on each."""


@stream.command(short_help="Declare a stream and its guarantee.")
@click.argument("name", type=STREAM_NAME)
@guarantee_options
@click.option("--unlock-pipelines", type=WHOLE, help="Unlock 1/N of a block per new pipeline.")
@click.option("--unlock-lifetime", type=DURATION, help="Unlock a block over this time, ...")
@click.option("--unlock-interval", type=DURATION, help="... one equal share per interval.")
@click.option("--unlock-at-once", is_flag=True, help="Unlock a block when it is made.")
@click.option("--policy", type=click.Choice(list(POLICIES)), default="dpf", help="Who goes first.")
@click.option(
    "--semantic",
    type=click.Choice([semantic.value for semantic in Semantic]),
    default="event",
    help="What is protected: an event, a user, or a user's data of one interval.",
)
@ledger_option
@json_option
@click.pass_obj
def create(
    session: Session,
    name: str,
    guarantee: Guarantee | None,
    unlock_pipelines: int | None,
    unlock_lifetime: int | None,
    unlock_interval: int | None,
    unlock_at_once: bool,
    policy: str,
    semantic: str,
) -> None:
    """Declare the stream NAME. Makes the ledger if there is none yet.

    The guarantee cannot be changed later. Declaring the very same stream again does nothing.

    \b
    Examples:
      privatekube stream create clicks --epsilon 1 --delta 1e-7 --unlock-pipelines 100
      privatekube stream create reviews --epsilon 10 --delta 1e-7 --accounting renyi \\
          --conversion weighted --unlock-lifetime 30d --unlock-interval 1d
      privatekube stream create users --epsilon 1 --delta 1e-7 --semantic user \\
          --counter-epsilon 0.1 --policy fcfs
    """
    if guarantee is None:
        raise click.UsageError("Missing option '--epsilon': the stream's epsilon.")
    unlocking = _unlocking(
        unlock_pipelines, unlock_lifetime, unlock_interval, unlock_at_once, policy
    )
    if semantic != Semantic.EVENT and guarantee.counter is None:
        raise click.UsageError(
            f"--semantic {semantic} needs --counter-epsilon: what counting the users may take"
            " from every block, such as 0.1."
        )
    if semantic == Semantic.EVENT and guarantee.counter is not None:
        raise click.UsageError("--counter-epsilon is for --semantic user and user-time only.")
    with reading_the_command_line():
        spec = StreamSpec(
            name=name,
            epsilon=guarantee.epsilon,
            delta=guarantee.delta,
            unlocking=unlocking,
            accounting=guarantee.accounting,
            conversion=guarantee.conversion,
            policy=policy,
            semantic=Semantic(semantic),
            counter=guarantee.counter,
        )
    with session.ledger(create=True) as ledger:
        record = ledger.create_stream(spec)
    promise = f"epsilon {spec.epsilon}, delta {short(spec.delta)}"
    session.answer(
        stream_json(record),
        lambda: say(
            f"stream {name}: {promise}, {spec.accounting.name} accounting,"
            f" unlocked {spec.unlocking}, policy {policy}"
        ),
    )


def _unlocking(
    pipelines: int | None,
    lifetime: int | None,
    interval: int | None,
    at_once: bool,
    policy: str,
) -> Unlocking:
    by_time = lifetime is not None or interval is not None
    if (pipelines is not None) + by_time + at_once > 1:
        raise click.UsageError(
            "Give one way to unlock: --unlock-pipelines, --unlock-lifetime with"
            " --unlock-interval, or --unlock-at-once."
        )
    with reading_the_command_line():
        if pipelines is not None:
            return ByPipelines(pipelines)
        if by_time:
            if lifetime is None or interval is None:
                raise click.UsageError(
                    "--unlock-lifetime and --unlock-interval go together, such as 30d and 1d."
                )
            return ByTime(lifetime, interval)
    if at_once or policy == "fcfs":
        return AtOnce()
    raise click.UsageError(
        f"How does budget unlock? Policy {policy} needs --unlock-pipelines N (a share per new"
        " pipeline), or --unlock-lifetime and --unlock-interval (a share per interval), or"
        " --unlock-at-once."
    )


@stream.command("list")
@ledger_option
@json_option
@click.pass_obj
def list_streams(session: Session) -> None:
    """List the streams.

    \b
    Example:
      privatekube stream list
    """
    with session.ledger() as ledger:
        records = ledger.streams()
    rows = [
        (
            record.spec.name,
            record.spec.semantic.value,
            record.spec.epsilon,
            short(record.spec.delta),
            record.spec.accounting.name,
            str(record.spec.unlocking),
            record.spec.policy,
            str(record.blocks),
        )
        for record in records
    ]
    titles = ["NAME", "SEMANTIC", ">EPSILON", ">DELTA", "ACCOUNTING", "UNLOCKING", "POLICY"]
    session.answer(
        {"streams": [stream_json(record) for record in records]},
        lambda: print_table([*titles, ">BLOCKS"], rows),
    )


@stream.command()
@click.argument("name", type=STREAM_NAME)
@ledger_option
@json_option
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show the stream NAME and what each of its blocks gets.

    \b
    Example:
      privatekube stream show clicks
    """
    with session.ledger() as ledger:
        record = ledger.stream(name)
    spec = record.spec

    def for_people() -> None:
        counter, count = spec.counter, record.count
        print_facts(
            [
                ("stream", spec.name),
                ("semantic", spec.semantic.value),
                ("epsilon", spec.epsilon),
                ("delta", short(spec.delta)),
                ("accounting", spec.accounting.name),
                ("conversion", spec.conversion.name if spec.conversion else ""),
                ("unlocked", str(spec.unlocking)),
                ("policy", spec.policy),
                ("counter", f"epsilon {counter.epsilon}, {counter.days} days" if counter else ""),
                ("users", users_told(count) if count else ""),
                ("blocks", str(record.blocks)),
            ]
        )
        say("\neach block gets:")
        titles, rows = amount_rows(spec.accounting, [("CAPACITY", record.capacity)])
        print_table(titles, rows)

    session.answer(stream_json(record), for_people)


@stream.command()
@click.argument("name", type=STREAM_NAME)
@ledger_option
@json_option
@click.pass_obj
def delete(session: Session, name: str) -> None:
    """Delete the stream NAME, as long as it has no blocks.

    \b
    Example:
      privatekube stream delete clicks
    """
    with session.ledger() as ledger:
        ledger.delete_stream(name)
    session.answer({"name": name, "deleted": True}, lambda: say(f"stream {name} is deleted"))
