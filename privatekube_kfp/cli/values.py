"""The kinds of values that options take, read by the library's own parsers.

A value is kept as text where the library wants decimal strings, in its shortest form, so that
1e-7 and 0.0000001 say the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from privatekube_kfp.accounting import conversion_from_name
from privatekube_kfp.cli.errors import MalformedValue
from privatekube_kfp.core.budget import (
    DELTA_DIGITS,
    EPSILON_DIGITS,
    Accounting,
    format_amount,
    parse_delta,
    parse_epsilon,
    renyi,
)
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.policy import check_weight
from privatekube_kfp.core.unlocking import parse_duration
from privatekube_kfp.ledger.names import check_name, check_request_id
from privatekube_kfp.ledger.times import parse_time

_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
_USERS = re.compile(r"([0-9]{1,18})-([0-9]{1,18})", re.ASCII)


class Value(click.ParamType):
    """A kind of value: what it is called in help, and how it is read."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except Invalid as error:
            if error.reason is Reason.UNSOUND_CAPACITY:
                raise
            raise MalformedValue(error, ctx=ctx, param=param) from error


def invalid(message: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, message)


def _epsilon(text: str) -> str:
    return format_amount(parse_epsilon(text), EPSILON_DIGITS)


def _delta(text: str) -> str:
    return format_amount(parse_delta(text), DELTA_DIGITS)


def _orders(text: str) -> Accounting:
    return renyi(text.split(","))


def _weights(text: str) -> dict[str, str]:
    weights: dict[str, str] = {}
    for pair in text.split(","):
        order, equals, weight = pair.partition("=")
        if not equals or order in weights:
            raise invalid(
                f"{pair!r} is not a weight of its own; write them like 3=0.5,4=0.5, each order once"
            )
        weights[order] = weight
    return weights


def read_whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise invalid(f"{text!r} is not a whole number of at most 18 digits, such as 10")
    return int(text)


def _weight(text: str) -> int:
    weight = read_whole(text)
    check_weight(weight)
    return weight


def _users(text: str) -> tuple[int, int]:
    match = _USERS.fullmatch(text)
    if not match or int(match[1]) > int(match[2]):
        raise invalid(
            f"{text!r} is not a range of user indexes; write it like 0-99, both ends included"
        )
    return int(match[1]), int(match[2])


def _timeout(text: str) -> int | str:
    return "none" if text == "none" else parse_duration(text, "timeout")


def read_words(text: str) -> str:
    """Text that a table can show: something, on one line."""
    if not text or not text.isprintable():
        raise invalid(f"{text!r} must be printable text on one line, and not empty")
    return text


EPSILON = Value("EPS", _epsilon)
DELTA = Value("DELTA", _delta)
ORDERS = Value("ORDER,...", _orders)
WEIGHTS = Value("ORDER=WEIGHT,...", _weights)
CONVERSION = Value("NAME", conversion_from_name)
DURATION = Value("DURATION", parse_duration)
TIMEOUT = Value("DURATION", _timeout)
TIME = Value("TIME", parse_time)
WHOLE = Value("N", read_whole)
WEIGHT = Value("N", _weight)
USERS = Value("FIRST-LAST", _users)
WORDS = Value("TEXT", read_words)
REQUEST_ID = Value("ID", check_request_id)
STREAM_NAME = Value("STREAM", lambda text: check_name("stream", text))
BLOCK_NAME = Value("BLOCK", lambda text: check_name("block", text))
CLAIM_NAME = Value("CLAIM", lambda text: check_name("claim", text))
