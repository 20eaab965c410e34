"""Who goes first: the policies that order waiting claims.

A policy is one rank per claim, computed once when it arrives; smaller goes first, and arrival
breaks ties. The pool grants in that order whatever still fits, so a policy never sees budgets.
From the rank that a policy names in `packs_from` on, who goes first depends on who else could
run: those claims are packed, see `packing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from privatekube_kfp.core.errors import Invalid, Reason

Rank = tuple[int, ...]

MAX_WEIGHT = 1000

# Two different shares d/c/w and d'/c'/w', with capacities below 2**53 and weights up to 1000,
# below 2**10, differ by at least 1/(c*w*c'*w'), which is more than 2**-126. So shares scaled by
# 2**127 and floored compare exactly as the fractions do. Flooring before the division by the
# weight does no harm: floor(floor(x)/w) is floor(x/w).
SHARE_SCALE_BITS = 127


def exact_share(demand: tuple[int, ...], capacity: tuple[int, ...]) -> int:
    """The largest part of a block that a demand takes at any usable order, exactly comparable.

    Zero where no order is usable: such a block can never serve anybody.
    """
    shares = ((d << SHARE_SCALE_BITS) // c for d, c in zip(demand, capacity, strict=True) if c > 0)
    return max(shares, default=0)


def within_fair_share(
    demand: tuple[int, ...], capacity: tuple[int, ...], shares: int, any_order: bool
) -> bool:
    """Whether a demand is at most one of a block's shares, at every order that can be used.

    A block grants from an order of positive capacity, or under Basic from all components.
    """
    amounts = zip(demand, capacity, strict=True)
    return all(d <= c // shares for d, c in amounts if c > 0 or not any_order)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a policy knows of a claim."""

    shares: Mapping[int, int]
    """The exact shares that it asks for: share -> on how many blocks."""
    weight: int = 1
    within_fair_share: bool = False
    """Whether it asks of each block, at every usable order, for a fair share at most."""


class Policy(Protocol):
    """Orders waiting claims."""

    @property
    def name(self) -> str: ...

    @property
    def weighs(self) -> bool:
        """Whether a claim's weight makes a difference; if not, a weight is refused."""

    @property
    def packs_from(self) -> Rank | None:
        """Claims of this rank and above are packed after all others; None: nobody is."""

    def rank(self, asked: Asked) -> Rank: ...


class Dpf:
    """Dominant Private-block Fairness: the smallest dominant share first, then the second, ..."""

    name = "dpf"
    weighs = False
    packs_from = None

    def rank(self, asked: Asked) -> Rank:
        return _share_vector(asked.shares)


class Fcfs:
    """First come, first served."""

    name = "fcfs"
    weighs = False
    packs_from = None

    def rank(self, asked: Asked) -> Rank:
        return ()


class WeightedDpf:
    """DPF of shares per weight: of two equal demands the heavier goes first."""

    name = "weighted-dpf"
    weighs = True
    packs_from = None

    def rank(self, asked: Asked) -> Rank:
        per_weight = {share // asked.weight: blocks for share, blocks in asked.shares.items()}
        return _share_vector(per_weight)


class DPack:
    """As much weight as fits: whoever takes least of what is left, for its weight, goes first."""

    name = "dpack"
    weighs = True
    packs_from: Rank = ()

    def rank(self, asked: Asked) -> Rank:
        return _share_vector(asked.shares)


class FairFirst:
    """Claims within their fair share first, as DPF has them; what they leave is packed."""

    name = "fair-first"
    weighs = True
    packs_from: Rank = (1,)

    def rank(self, asked: Asked) -> Rank:
        return (0 if asked.within_fair_share else 1, *_share_vector(asked.shares))


def _share_vector(shares: Mapping[int, int]) -> Rank:
    """The sorted share vector, run-length encoded: equal shares as (share, count).

    Encoded vectors compare as the vectors do, with blocks not asked for as shares of zero.
    """
    return tuple(
        number
        for share in sorted(shares, reverse=True)
        if share
        for number in (share, shares[share])
    )


POLICIES: dict[str, Policy] = {
    policy.name: policy for policy in (Dpf(), Fcfs(), WeightedDpf(), DPack(), FairFirst())
}


def policy_named(name: str) -> Policy:
    try:
        return POLICIES[name]
    except KeyError:
        known = ", ".join(POLICIES)
        raise Invalid(
            Reason.INVALID_STREAM, f"unknown policy {name!r}; known policies: {known}"
        ) from None


def check_weight(weight: object) -> None:
    if type(weight) is not int or not 1 <= weight <= MAX_WEIGHT:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"weight {weight!r} is not a whole number from 1 to {MAX_WEIGHT}",
        )


def check_weighs(policy: Policy, weight: int) -> None:
    """Refuse a weight that would make no difference."""
    check_weight(weight)
    if weight != 1 and not policy.weighs:
        *others, last = (other.name for other in POLICIES.values() if other.weighs)
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"weight {weight}: the stream's policy {policy.name} knows no weights, so it would"
            f" make no difference; leave it out, or use a stream of policy {', '.join(others)} or"
            f" {last}",
        )
