"""Which conditions of a pipeline can never hold together.

Kubeflow compiles If, Elif and Else to conditions such as `!(x == 'a') && x == 'b'`. Only what is
plain to see counts: a comparison and its negation, or one input equal to two different things.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

_EQUALS = re.compile(
    r"(?P<what>[^&|=!<>]*<\d+>[^&|=!<>]*) == (?P<literal>'[^']*'|\"[^\"]*\"|[\w.+-]+)"
)


def contradict(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether not all of some conditions and all of the others can hold."""
    parts = [part for condition in some for part in _parts(condition)]
    other_parts = [part for condition in others for part in _parts(condition)]
    return any(_opposed(*pair) for pair in product(parts, other_parts))


def _parts(condition: str) -> list[str]:
    """The comparisons that must all hold: split at && outside of brackets and quotes.

    A condition of another shape than Kubeflow's own has none that could be relied on.
    """
    if "||" in condition or "\\" in condition or "inputs." in condition:
        return []
    found = [""]
    depth, quote = 0, ""
    for letter in condition:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter == "(") - (letter == ")")
        found[-1] += letter
        if not quote and depth == 0 and found[-1].endswith("&&"):
            found[-1] = found[-1][:-2]
            found.append("")
    return [part.strip() for part in found]


def _opposed(one: str, other: str) -> bool:
    if one == f"!({other})" or other == f"!({one})":
        return True
    first, second = _EQUALS.fullmatch(one), _EQUALS.fullmatch(other)
    if not first or not second or first["what"] != second["what"]:
        return False
    return _differ(first["literal"], second["literal"])


def _differ(one: str, other: str) -> bool:
    if one[0] in "'\"" and other[0] in "'\"":
        return one[1:-1] != other[1:-1]
    if {one, other} == {"true", "false"}:
        return True
    try:
        return float(one) != float(other)
    except ValueError:
        return False
