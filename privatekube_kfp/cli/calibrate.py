"""`privatekube calibrate`: from noise to epsilon, and from epsilon to noise."""

from __future__ import annotations

import click

from privatekube_kfp.accounting import (
    DpSgd,
    Gaussian,
    Laplace,
    Mechanism,
    dp_sgd_noise,
    epsilon_of,
    gaussian_sigma,
    laplace_epsilon,
    laplace_scale,
)
from privatekube_kfp.accounting.mechanisms import parameter
from privatekube_kfp.cli.errors import reading_the_command_line
from privatekube_kfp.cli.options import InOrder, json_option
from privatekube_kfp.cli.output import print_facts, short
from privatekube_kfp.cli.session import Session
from privatekube_kfp.cli.values import DELTA, EPSILON, WHOLE, Value


@click.group(cls=InOrder)
def calibrate() -> None:
    """From noise to epsilon, and from epsilon to noise.

    Give the one, get the other; answers are on the safe side: no less noise, no less epsilon than
    is true. The sensitivity is 1.
    """


def _noise(name: str) -> Value:
    return Value(name.upper(), lambda text: parameter(text, name))


_epsilon_option = click.option("--epsilon", type=EPSILON, help="Find the noise for this epsilon.")
_delta_option = click.option("--delta", type=DELTA, required=True, help="At this delta.")


@calibrate.command()
@click.option("--scale", type=_noise("scale"), help="Find the epsilon of this noise.")
@_epsilon_option
@json_option
@click.pass_obj
def laplace(session: Session, scale: str | None, epsilon: str | None) -> None:
    """Laplace noise: its scale, or its epsilon.

    \b
    Examples:
      privatekube calibrate laplace --epsilon 0.1
      privatekube calibrate laplace --scale 10
    """
    _one_of("--scale", scale, epsilon)
    with reading_the_command_line():
        if scale is None:
            assert epsilon is not None
            scale = laplace_scale(epsilon)
        else:
            epsilon = laplace_epsilon(scale)
        mechanism = Laplace(epsilon)
    _answer(session, {"scale": scale, "epsilon": epsilon}, mechanism)


@calibrate.command(short_help="Gaussian noise: its sigma, or its epsilon.")
@click.option("--sigma", type=_noise("sigma"), help="Find the epsilon of this noise.")
@_epsilon_option
@_delta_option
@json_option
@click.pass_obj
def gaussian(session: Session, sigma: str | None, epsilon: str | None, delta: str) -> None:
    """Gaussian noise: its standard deviation sigma, or its epsilon at a delta.

    \b
    Examples:
      privatekube calibrate gaussian --epsilon 1 --delta 1e-9
      privatekube calibrate gaussian --sigma 6.5 --delta 1e-9
    """
    _one_of("--sigma", sigma, epsilon)
    with reading_the_command_line():
        if sigma is None:
            assert epsilon is not None
            sigma = gaussian_sigma(epsilon, delta)
        else:
            epsilon = epsilon_of(Gaussian(sigma), delta)
        mechanism = Gaussian(sigma, delta)
    _answer(session, {"sigma": sigma, "epsilon": epsilon, "delta": delta}, mechanism)


@calibrate.command("dp-sgd", short_help="DP-SGD: its noise multiplier, or its epsilon.")
@click.option("--noise", type=_noise("noise"), help="Find the epsilon of this noise multiplier.")
@_epsilon_option
@_delta_option
@click.option("--rate", type=_noise("rate"), required=True, help="Probability of each row.")
@click.option("--steps", type=WHOLE, required=True, help="How many gradient steps.")
@json_option
@click.pass_obj
def dp_sgd(
    session: Session, noise: str | None, epsilon: str | None, delta: str, rate: str, steps: int
) -> None:
    """DP-SGD: its noise multiplier, or its epsilon at a delta.

    \b
    Examples:
      privatekube calibrate dp-sgd --epsilon 1 --delta 1e-5 --rate 0.01 --steps 1000
      privatekube calibrate dp-sgd --noise 1.1 --delta 1e-5 --rate 0.01 --steps 1000
    """
    _one_of("--noise", noise, epsilon)
    with reading_the_command_line():
        if noise is None:
            assert epsilon is not None
            noise = dp_sgd_noise(epsilon, delta, rate, steps)
        else:
            epsilon = epsilon_of(DpSgd(noise, rate, steps), delta)
        mechanism = DpSgd(noise, rate, steps, delta)
    found: dict[str, str | int | None] = {
        "noise": noise,
        "rate": rate,
        "steps": steps,
        "epsilon": epsilon,
        "delta": delta,
    }
    _answer(session, found, mechanism)


def _one_of(noise: str, given: str | None, epsilon: str | None) -> None:
    if (given is None) == (epsilon is None):
        raise click.UsageError(f"Give {noise} to find the epsilon, or --epsilon to find the noise.")


def _answer(session: Session, found: dict, mechanism: Mechanism) -> None:
    session.answer(
        found | {"mechanism": mechanism.to_json()},
        lambda: print_facts([(name, short(str(value))) for name, value in found.items()]),
    )
