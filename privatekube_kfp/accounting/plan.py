"""A pipeline's plan: its steps by name, and what each of them does to the data.

One claim allocates the whole plan and each step consumes its own part, so the price of a plan is
exactly the sum of its parts: once every step has consumed, nothing is left over and nothing was
missing. That holds where a part is infinite too. The sum is then a number at or above `INFINITE`,
which never fits any capacity, and from which the parts can be taken away again.

Authors write plans as JSON (`plan_from_json`) or in Python (`Plan.of`, `Plan.split`); components
and the CLI carry them, ledgers keep them with the claim.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from itertools import accumulate, pairwise

from privatekube_kfp.accounting.mechanisms import (
    EpsilonDelta,
    Mechanism,
    PureEpsilon,
    mechanism_from_json,
    shown,
)
from privatekube_kfp.core.budget import (
    DELTA_DIGITS,
    EPSILON_DIGITS,
    Accounting,
    Budget,
    format_amount,
    parse_decimal,
    parse_delta,
    parse_epsilon,
)
from privatekube_kfp.core.errors import Invalid, Reason

MAX_PLAN_STEPS = 64
WHOLE = "all"
_SMALLEST_SHARE = Decimal("1e-9")
_WIDE = Context(prec=200)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True)
class Step:
    """One named step of a plan."""

    name: str
    mechanism: Mechanism

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise Invalid(
                Reason.INVALID_PLAN,
                f"step name {shown(self.name)} must be 1 to 63 lower-case letters, digits or"
                " dashes, and begin and end with a letter or digit",
            )
        if not isinstance(self.mechanism, Mechanism):
            raise Invalid(
                Reason.INVALID_PLAN,
                f"step {self.name!r} is the {type(self.mechanism).__name__}"
                f" {shown(self.mechanism)}, not a mechanism",
            )

    def price(self, accounting: Accounting) -> Budget:
        try:
            return self.mechanism.price(accounting)
        except Invalid as refusal:
            raise _at_step(self.name, refusal) from None

    def to_json(self) -> dict[str, object]:
        return {"name": self.name} | self.mechanism.to_json()


@dataclass(frozen=True)
class Plan:
    """Named steps in order; together, what one claim asks of every block it binds."""

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if not self.steps:
            raise Invalid(Reason.INVALID_PLAN, "the plan has no steps; name at least one")
        if len(self.steps) > MAX_PLAN_STEPS:
            raise Invalid(
                Reason.INVALID_PLAN,
                f"the plan has {len(self.steps)} steps; at most {MAX_PLAN_STEPS} are allowed",
            )
        seen: set[str] = set()
        for step in self.steps:
            if step.name in seen:
                raise Invalid(Reason.INVALID_PLAN, f"step {step.name!r} is named twice")
            seen.add(step.name)

    @classmethod
    def of(cls, steps: Mapping[str, Mechanism] | Mechanism) -> Plan:
        """A plan of these steps in this order; of one mechanism, a single step named `all`."""
        named = {WHOLE: steps} if isinstance(steps, Mechanism) else steps
        return cls(tuple(Step(name, mechanism) for name, mechanism in named.items()))

    @classmethod
    def split(cls, epsilon: str, shares: Mapping[str, str], delta: str = "0") -> Plan:
        """A total divided among steps by percentages, which must add up to exactly 100.

        No unit is lost or made up: the parts add up to the total.
        """
        cuts = _cuts(shares)
        epsilons = _divide(parse_epsilon(epsilon), cuts)
        deltas = _divide(parse_delta(delta), cuts)
        steps = []
        for name, part, failure in zip(shares, epsilons, deltas, strict=True):
            if not part:
                raise Invalid(
                    Reason.INVALID_PLAN,
                    f"step {name!r} would get nothing of epsilon {epsilon}: its share of"
                    f" {shares[name]}% is below the smallest unit 1e-{EPSILON_DIGITS}",
                )
            steps.append(Step(name, _epsilon_delta(part, failure)))
        return cls(tuple(steps))

    def parts(self, accounting: Accounting) -> dict[str, Budget]:
        """What each step costs, by name."""
        return {step.name: step.price(accounting) for step in self.steps}

    def price(self, accounting: Accounting) -> Budget:
        """What the whole plan costs: the exact sum of its parts."""
        return sum(self.parts(accounting).values(), start=accounting.zero())

    def to_json(self) -> dict[str, object]:
        return {"steps": [step.to_json() for step in self.steps]}


def plan_from_json(value: object) -> Plan:
    """A plan as `Plan.to_json` writes it, or one bare mechanism; strict both ways."""
    if isinstance(value, Mapping) and "mechanism" in value:
        return Plan.of(mechanism_from_json(value))
    if not isinstance(value, Mapping) or "steps" not in value:
        raise Invalid(
            Reason.INVALID_PLAN,
            "a plan is an object with 'steps', a list of named mechanisms, or one mechanism"
            f" with its 'mechanism', not the {type(value).__name__} {shown(value)}",
        )
    for key in value:
        if key != "steps":
            raise Invalid(Reason.INVALID_PLAN, f"unknown key {shown(key)}; a plan has steps")
    steps = value["steps"]
    if not isinstance(steps, list):
        raise Invalid(
            Reason.INVALID_PLAN,
            f"steps must be a list of named mechanisms, not the {type(steps).__name__}"
            f" {shown(steps)}",
        )
    return Plan(tuple(_step_from_json(step, place) for place, step in enumerate(steps, start=1)))


def _step_from_json(value: object, place: int) -> Step:
    if not isinstance(value, Mapping) or "name" not in value:
        raise Invalid(
            Reason.INVALID_PLAN,
            f"step {place} must be an object with a name and a mechanism, not the"
            f" {type(value).__name__} {shown(value)}",
        )
    rest = {key: part for key, part in value.items() if key != "name"}
    try:
        return Step(value["name"], mechanism_from_json(rest))
    except Invalid as refusal:
        raise _at_step(value["name"], refusal) from None


def _at_step(name: object, refusal: Invalid) -> Invalid:
    return Invalid(refusal.reason, f"step {shown(name)}: {refusal.message}")


def _cuts(shares: Mapping[str, str]) -> list[Fraction]:
    """The running totals of the shares, as fractions of the whole."""
    if not shares:
        raise Invalid(Reason.INVALID_PLAN, "no shares given; name each step and its percentage")
    parsed = {name: parse_decimal(share, f"share of {name!r}") for name, share in shares.items()}
    for name, share in parsed.items():
        if not _SMALLEST_SHARE <= share <= 100:
            raise Invalid(
                Reason.INVALID_PLAN,
                f"share {shares[name]!r} of {name!r} must be a percentage above 0"
                f" (at least {_SMALLEST_SHARE:e}) and at most 100",
            )
    totals = list(accumulate(parsed.values(), _WIDE.add))
    if totals[-1] != 100:
        raise Invalid(
            Reason.INVALID_PLAN,
            f"the shares add up to {totals[-1]:f} percent; they must add up to exactly 100",
        )
    return [Fraction(total) / 100 for total in totals]


def _divide(total: int, cuts: Iterable[Fraction]) -> list[int]:
    """Whole units between successive cuts, each within one unit of its exact share."""
    marks = [0, *(int(total * cut) for cut in cuts)]
    return [upper - lower for lower, upper in pairwise(marks)]


def _epsilon_delta(epsilon: int, delta: int) -> Mechanism:
    text = format_amount(epsilon, EPSILON_DIGITS)
    if not delta:
        return PureEpsilon(text)
    return EpsilonDelta(text, format_amount(delta, DELTA_DIGITS))
