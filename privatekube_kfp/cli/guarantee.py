"""The options that declare a guarantee and how it is accounted for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import click

from privatekube_kfp.accounting import (
    DEFAULT_DAYS,
    DEFAULT_ORDERS,
    Classic,
    Conversion,
    Counter,
    Weighted,
    block_capacity,
)
from privatekube_kfp.cli.errors import reading_the_command_line
from privatekube_kfp.cli.options import with_options
from privatekube_kfp.cli.values import CONVERSION, DELTA, EPSILON, ORDERS, WEIGHTS, WHOLE
from privatekube_kfp.core.budget import BASIC, Accounting, Budget, renyi

_OPTIONS = {
    "epsilon": click.option("--epsilon", type=EPSILON, help="The stream's epsilon, such as 10."),
    "delta": click.option(
        "--delta", type=DELTA, help="The stream's delta, such as 1e-7; 0 unless given."
    ),
    "accounting": click.option(
        "--accounting",
        type=click.Choice(["basic", "renyi"]),
        help="How budget adds up; basic, unless orders, a conversion or weights are given.",
    ),
    "orders": click.option(
        "--orders", type=ORDERS, help=f"Renyi orders; {','.join(DEFAULT_ORDERS)} unless given."
    ),
    "conversion": click.option(
        "--conversion",
        type=CONVERSION,
        metavar="classic|weighted",
        help="From the guarantee to a capacity at each order; classic unless weights are given."
        " Weighted gives more budget.",
    ),
    "weights": click.option(
        "--weights", type=WEIGHTS, help="Each order's part of delta, for the weighted conversion."
    ),
    "counter_epsilon": click.option(
        "--counter-epsilon",
        type=EPSILON,
        help="What the DP user counter takes from every block (user and user-time streams).",
    ),
    "counter_days": click.option(
        "--counter-days",
        type=WHOLE,
        help=f"For how many days it counts, a power of two; {DEFAULT_DAYS} unless given.",
    ),
}


@dataclass(frozen=True)
class Guarantee:
    """What a stream promises, and how that is accounted for."""

    epsilon: str
    delta: str
    accounting: Accounting
    conversion: Conversion | None
    counter: Counter | None

    def capacity(self) -> Budget:
        return block_capacity(
            self.epsilon, self.delta, self.accounting, self.conversion, self.counter
        )


def guarantee_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options to a command, which gets what they say as `guarantee` (None if nothing)."""
    return with_options(command, _OPTIONS, "guarantee", _guarantee)


def _guarantee(
    epsilon: str | None,
    delta: str | None,
    accounting: str | None,
    orders: Accounting | None,
    conversion: Conversion | None,
    weights: dict[str, str] | None,
    counter_epsilon: str | None,
    counter_days: int | None,
) -> Guarantee | None:
    said = (delta, accounting, orders, conversion, weights, counter_epsilon, counter_days)
    if epsilon is None:
        if any(value is not None for value in said):
            raise click.UsageError("Missing option '--epsilon': the stream's epsilon.")
        return None
    for_renyi = {"--orders": orders, "--conversion": conversion, "--weights": weights}
    needs_renyi = [name for name, value in for_renyi.items() if value is not None]
    if accounting == "basic" and needs_renyi:
        raise click.UsageError(
            f"{needs_renyi[0]} is for Renyi accounting; leave it out, or give --accounting renyi."
        )
    if counter_days is not None and counter_epsilon is None:
        raise click.UsageError("--counter-days needs --counter-epsilon.")
    with reading_the_command_line():
        counter = None
        if counter_epsilon is not None:
            counter = Counter(
                counter_epsilon, DEFAULT_DAYS if counter_days is None else counter_days
            )
        if accounting != "renyi" and not needs_renyi:
            return Guarantee(epsilon, delta or "0", BASIC, None, counter)
        accounted = orders or renyi(DEFAULT_ORDERS)
        return Guarantee(
            epsilon, delta or "0", accounted, _conversion(conversion, weights), counter
        )


def _conversion(conversion: Conversion | None, weights: dict[str, str] | None) -> Conversion:
    if weights is None:
        return conversion or Classic()
    if isinstance(conversion, Classic):
        raise click.UsageError("--weights is for --conversion weighted; classic takes none.")
    return Weighted(weights)
