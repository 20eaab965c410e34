"""`privatekube account`: what a plan costs on a stream, and how often that fits in a block."""

from __future__ import annotations

import click

from privatekube_kfp.accounting import Plan, how_often
from privatekube_kfp.cli.errors import reading_the_command_line
from privatekube_kfp.cli.guarantee import Guarantee, guarantee_options
from privatekube_kfp.cli.mechanisms import priced_mechanism_options
from privatekube_kfp.cli.options import json_option, ledger_option
from privatekube_kfp.cli.output import print_table, say, short
from privatekube_kfp.cli.session import Session
from privatekube_kfp.cli.values import STREAM_NAME
from privatekube_kfp.core.budget import INFINITE, Budget


@click.command(short_help="Price a plan, and see how often it fits in one block.")
@guarantee_options
@click.option("--stream", type=STREAM_NAME, help="Price on this stream of the ledger instead.")
@priced_mechanism_options
@ledger_option
@json_option
@click.pass_obj
def account(
    session: Session, guarantee: Guarantee | None, stream: str | None, plan: Plan | None
) -> None:
    """Price a mechanism or a plan, and count how often it fits in one fresh block.

    The block is one of a stream that promises --epsilon and --delta; no ledger is needed. With
    --stream it is one of that stream of the ledger.

    \b
    Examples:
      privatekube account --epsilon 10 --delta 1e-7 --orders 2,3,4,5,6,8,16,32,64 --gaussian 6.5
      privatekube account --epsilon 10 --delta 1e-7 --epsilon-delta 1,1e-9
      privatekube account --epsilon 10 --delta 1e-7 --accounting renyi --conversion weighted \\
          --dp-sgd 1.1,0.01,1000
      privatekube account --stream reviews --plan plan.json
    """
    if plan is None:
        raise click.UsageError(
            "What to price? Give --pure, --epsilon-delta, --laplace, --gaussian, --dp-sgd"
            " or --plan."
        )
    if (guarantee is None) == (stream is None):
        raise click.UsageError(
            "Price on what? Give the guarantee (--epsilon and the like) or --stream, one of them."
        )
    if guarantee is not None:
        conversion = guarantee.conversion
        with reading_the_command_line():
            capacity = guarantee.capacity()
    else:
        assert stream is not None
        with session.ledger() as ledger:
            record = ledger.stream(stream)
        conversion, capacity = record.spec.conversion, record.capacity
    steps = plan.parts(capacity.accounting)
    price = plan.price(capacity.accounting)
    fits = how_often(capacity, price)
    each = _fits_at_each(capacity, price)
    best = _decisive(each, renyi=capacity.accounting.is_renyi)
    document: dict[str, object] = {
        "fits": fits,
        "accounting": capacity.accounting.name,
        "conversion": conversion.name if conversion else None,
        "bestOrder": best if capacity.accounting.is_renyi else None,
        "capacity": capacity.to_json(),
        "price": price.to_json(),
        "steps": {step: budget.to_json() for step, budget in steps.items()},
        "fitsAt": each,
    }
    session.answer(document, lambda: _show(capacity, price, steps, each, best, fits))


def _fits_at_each(capacity: Budget, price: Budget) -> dict[str, int | None]:
    """How often the price fits at each order or component; None where it asks for nothing."""
    return {
        label: (0 if cost >= INFINITE else max(0, room) // cost) if cost else None
        for label, room, cost in zip(
            capacity.accounting.labels, capacity.amounts, price.amounts, strict=True
        )
    }


def _decisive(each: dict[str, int | None], *, renyi: bool) -> str:
    """The order that serves best, or the component that runs out first."""
    counts = {label: count for label, count in each.items() if count is not None}
    choose = max if renyi else min
    return choose(counts, key=lambda label: counts[label])


def _show(
    capacity: Budget,
    price: Budget,
    steps: dict[str, Budget],
    each: dict[str, int | None],
    best: str,
    fits: int,
) -> None:
    accounting = capacity.accounting
    rooms, costs = capacity.to_json(), price.to_json()
    remark = "best" if accounting.is_renyi else "runs out first"
    rows = [
        (
            label,
            short(rooms[label]),
            short(costs[label]),
            "" if each[label] is None else str(each[label]),
            f"<- {remark}" if label == best and fits else "",
        )
        for label in accounting.labels
    ]
    titles = [">ORDER" if accounting.is_renyi else "", ">CAPACITY", ">PRICE", ">FITS", ""]
    print_table(titles, rows)
    if len(steps) > 1:
        say("")
        where = f" AT ORDER {best}" if accounting.is_renyi else ""
        parts = [(step, short(budget.to_json()[best])) for step, budget in steps.items()]
        print_table(["STEP", f">PRICE{where}"], parts)
    times = "once" if fits == 1 else f"{fits} times"
    say(f"\nfits {times} in one block" if fits else "\ndoes not fit in one block")
