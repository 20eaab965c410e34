"""The options that say what a pipeline runs: one mechanism, or a plan of named steps."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

import click

from privatekube_kfp.accounting import (
    DpSgd,
    EpsilonDelta,
    Gaussian,
    Laplace,
    Mechanism,
    Plan,
    PureEpsilon,
    plan_from_json,
)
from privatekube_kfp.cli.errors import reading_the_command_line
from privatekube_kfp.cli.options import with_options
from privatekube_kfp.cli.values import DELTA, EPSILON, Value, read_whole
from privatekube_kfp.core.errors import Invalid, Reason

_MOST_BYTES = 1 << 20


def _invalid(message: str) -> Invalid:
    return Invalid(Reason.INVALID_PLAN, message)


def _fields(text: str, names: str) -> list[str]:
    fields = text.split(",")
    if len(fields) != len(names.split(",")):
        raise _invalid(f"{text!r} must be {names}, separated by commas")
    return fields


def _dp_sgd(text: str) -> DpSgd:
    noise, rate, steps = _fields(text, "NOISE,RATE,STEPS")
    return DpSgd(noise, rate, read_whole(steps))


def _epsilon_delta(text: str) -> Mechanism:
    epsilon, delta = _fields(text, "EPS,DELTA")
    return EpsilonDelta(epsilon, delta)


def _plan(text: str) -> Plan:
    """A plan given in place, in a file, or on standard input."""
    return plan_from_json(_read_json(text if text.lstrip().startswith("{") else _read_file(text)))


def _read_file(path: str) -> str:
    if not path:
        raise _invalid("it is empty; name a file, give JSON, or - for standard input")
    try:
        if path == "-":
            content = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with open(path, "rb") as file:
                content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise _invalid(f"{path} is longer than {_MOST_BYTES} bytes; no plan is")
        return content.decode("utf-8")
    except OSError as error:
        raise _invalid(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _invalid(f"{path} is not text in UTF-8") from error


def _read_json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_without_repeats)
    except RecursionError:
        raise _invalid("the JSON is nested too deeply to be a plan") from None
    except ValueError as error:
        raise _invalid(f"it is not JSON: {error}") from error


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _invalid(f"the key {twice!r} is there twice")
    return found


_LAPLACE = click.option(
    "--laplace", type=Value("EPS", Laplace), help="Laplace noise of scale 1/EPS at sensitivity 1."
)
_GAUSSIAN = click.option(
    "--gaussian",
    type=Value("SIGMA", Gaussian),
    help="Gaussian noise of deviation SIGMA at sensitivity 1.",
)
_DP_SGD = click.option(
    "--dp-sgd",
    type=Value("NOISE,RATE,STEPS", _dp_sgd),
    help="DP-SGD: noise multiplier, sample rate and number of steps, such as 1.1,0.01,1000.",
)
_PLAN = click.option(
    "--plan",
    type=Value("FILE|JSON|-", _plan),
    help="A plan of named steps as JSON: in a file, in place, or on standard input.",
)

_OF_A_CLAIM = {
    "epsilon": click.option(
        "--epsilon", type=EPSILON, help="Anything that is EPS-DP, or with --delta (EPS, DELTA)-DP."
    ),
    "delta": click.option(
        "--delta",
        type=DELTA,
        help="The delta of --epsilon; on a basic stream also of --gaussian and --dp-sgd.",
    ),
    "laplace": _LAPLACE,
    "gaussian": _GAUSSIAN,
    "dp_sgd": _DP_SGD,
    "plan": _PLAN,
}
_TO_PRICE = {
    "pure": click.option("--pure", type=Value("EPS", PureEpsilon), help="Anything that is EPS-DP."),
    "epsilon_delta": click.option(
        "--epsilon-delta",
        type=Value("EPS,DELTA", _epsilon_delta),
        help="Anything that is (EPS, DELTA)-DP; basic accounting only.",
    ),
    "laplace": _LAPLACE,
    "gaussian": _GAUSSIAN,
    "dp_sgd": _DP_SGD,
    "plan": _PLAN,
    "mechanism_delta": click.option(
        "--mechanism-delta",
        type=DELTA,
        help="The delta at which basic accounting prices --gaussian and --dp-sgd.",
    ),
}


def claim_mechanism_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds what a claim asks for or spends; the command gets it as `plan` (None if nothing)."""
    return with_options(command, _OF_A_CLAIM, "plan", _claimed)


def priced_mechanism_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds what `account` prices; there --epsilon and --delta are the stream's."""
    return with_options(command, _TO_PRICE, "plan", _priced)


def _claimed(
    epsilon: str | None, delta: str | None, **others: Mechanism | Plan | None
) -> Plan | None:
    with reading_the_command_line():
        if epsilon is None:
            return _one_plan({"epsilon": None} | others, "--delta", delta)
        pure = delta is None or delta == "0"
        plain = PureEpsilon(epsilon) if pure else EpsilonDelta(epsilon, delta or "0")
        return _one_plan({"epsilon": plain} | others, "--delta", None)


def _priced(mechanism_delta: str | None, **mechanisms: Mechanism | Plan | None) -> Plan | None:
    with reading_the_command_line():
        return _one_plan(mechanisms, "--mechanism-delta", mechanism_delta)


def _one_plan(
    mechanisms: Mapping[str, Mechanism | Plan | None], delta_option: str, delta: str | None
) -> Plan | None:
    """The one that was given; `delta` is of Gaussian noise or DP-SGD."""
    given = {name: value for name, value in mechanisms.items() if value is not None}
    if len(given) > 1:
        first, second, *_ = (f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"Give {first} or {second}, not both.")
    mechanism = next(iter(given.values()), None)
    if delta is not None:
        if not isinstance(mechanism, Gaussian | DpSgd):
            also = "--epsilon, " if "epsilon" in mechanisms else ""
            raise click.UsageError(f"{delta_option} goes with {also}--gaussian or --dp-sgd only.")
        mechanism = replace(mechanism, delta=delta)
    if mechanism is None or isinstance(mechanism, Plan):
        return mechanism
    return Plan.of(mechanism)
