"""Who goes first: the policies that order waiting claims.

A policy is one rank per claim, computed once when it arrives; smaller goes first, and arrival
breaks ties. The pool grants in that order whatever still fits, so a policy never sees budgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from privatekube_kfp.core.errors import Invalid, Reason

Rank = tuple[int, ...]

# Two different shares d/c and d'/c' with capacities below 2**53 differ by more than 2**-106, so
# shares scaled by 2**107 and floored compare exactly as the fractions do.
SHARE_SCALE_BITS = 107


def exact_share(demand: tuple[int, ...], capacity: tuple[int, ...]) -> int:
    """The largest part of a block that a demand takes at any usable order, exactly comparable.

    Zero where no order is usable: such a block can never serve anybody.
    """
    shares = ((d << SHARE_SCALE_BITS) // c for d, c in zip(demand, capacity, strict=True) if c > 0)
    return max(shares, default=0)


class Policy(Protocol):
    """Orders waiting claims."""

    @property
    def name(self) -> str: ...

    def rank(self, shares: Mapping[int, int]) -> Rank:
        """A claim's rank, from the shares that it asks for: share -> on how many blocks."""


class Dpf:
    """Dominant Private-block Fairness: the smallest dominant share first, then the second, ..."""

    name = "dpf"

    def rank(self, shares: Mapping[int, int]) -> Rank:
        """The sorted share vector, run-length encoded: equal shares as (share, count).

        Encoded vectors compare as the vectors do, with blocks not asked for as shares of zero.
        """
        return tuple(
            number
            for share in sorted(shares, reverse=True)
            if share
            for number in (share, shares[share])
        )


class Fcfs:
    """First come, first served."""

    name = "fcfs"

    def rank(self, shares: Mapping[int, int]) -> Rank:
        return ()


POLICIES: dict[str, Policy] = {policy.name: policy for policy in (Dpf(), Fcfs())}


def policy_named(name: str) -> Policy:
    try:
        return POLICIES[name]
    except KeyError:
        known = ", ".join(POLICIES)
        raise Invalid(
            Reason.INVALID_STREAM, f"unknown policy {name!r}; known policies: {known}"
        ) from None
