"""How a stream is declared: the guarantee, how it is accounted for, unlocked and scheduled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from privatekube_kfp.accounting import (
    Conversion,
    Counter,
    Weighted,
    block_capacity,
    conversion_from_name,
)
from privatekube_kfp.core.budget import BASIC, Accounting, Budget, renyi
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.policy import policy_named
from privatekube_kfp.core.stream import Stream
from privatekube_kfp.core.unlocking import (
    AtOnce,
    ByPipelines,
    ByTime,
    Unlocking,
    parse_duration,
)
from privatekube_kfp.ledger.names import check_name


class Semantic(StrEnum):
    """What is protected: one event, all of a user, or a user's data of one interval."""

    EVENT = "event"
    USER = "user"
    USER_TIME = "user-time"


@dataclass(frozen=True)
class StreamSpec:
    """A stream's declaration. Epsilon and delta are decimal strings, kept as they were given."""

    name: str
    epsilon: str
    delta: str
    unlocking: Unlocking
    accounting: Accounting = BASIC
    conversion: Conversion | None = None
    policy: str = "dpf"
    semantic: Semantic = Semantic.EVENT
    counter: Counter | None = None

    def __post_init__(self) -> None:
        check_name("stream", self.name)
        policy_named(self.policy)
        if self.accounting.is_renyi == (self.conversion is None):
            raise Invalid(
                Reason.INVALID_STREAM,
                f"{self.accounting.name} accounting"
                f" {'needs a' if self.accounting.is_renyi else 'has no'} conversion",
            )
        if (self.counter is not None) != (self.semantic is not Semantic.EVENT):
            raise Invalid(
                Reason.INVALID_STREAM,
                f"a stream of {self.semantic} semantic"
                f" {'has no' if self.counter else 'needs a'} user counter",
            )
        self.capacity()

    def capacity(self) -> Budget:
        """What each block gets; refused where the guarantee could not be kept."""
        return block_capacity(
            self.epsilon, self.delta, self.accounting, self.conversion, self.counter
        )

    def stream(self, capacity: Budget) -> Stream:
        return Stream(
            self.name, self.accounting, capacity, self.unlocking, policy_named(self.policy)
        )

    def to_json(self) -> dict[str, object]:
        said: dict[str, object] = {
            "name": self.name,
            "semantic": self.semantic.value,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "accounting": self.accounting.name,
            "unlocking": self.unlocking.to_json(),
            "policy": self.policy,
        }
        if self.conversion is not None:
            said["orders"] = list(self.accounting.orders)
            said["conversion"] = self.conversion.name
            if isinstance(self.conversion, Weighted) and self.conversion.weights:
                said["weights"] = dict(self.conversion.weights)
        if self.counter is not None:
            said["counter"] = {"epsilon": self.counter.epsilon, "days": self.counter.days}
        return said

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> StreamSpec:
        """Reads back what `to_json` wrote."""
        orders = said.get("orders")
        return StreamSpec(
            name=said["name"],
            epsilon=said["epsilon"],
            delta=said["delta"],
            unlocking=unlocking_from_json(said["unlocking"]),
            accounting=renyi(orders) if orders else BASIC,
            conversion=conversion(said["conversion"], said.get("weights")) if orders else None,
            policy=said["policy"],
            semantic=Semantic(said["semantic"]),
            counter=Counter(**said["counter"]) if "counter" in said else None,
        )


def conversion(name: str, weights: Mapping[str, str] | None = None) -> Conversion:
    """The conversion of this name, with explicit weights if there are any."""
    named = conversion_from_name(name)
    if weights is None:
        return named
    if not isinstance(named, Weighted):
        raise Invalid(Reason.INVALID_STREAM, f"the {name} conversion takes no weights")
    return Weighted(weights)


def unlocking_from_json(said: object) -> Unlocking:
    match said:
        case {"pipelines": int(pipelines)}:
            return ByPipelines(pipelines)
        case {"lifetime": str(lifetime), "interval": str(interval)}:
            return ByTime(parse_duration(lifetime), parse_duration(interval))
        case {"atOnce": True}:
            return AtOnce()
    raise Invalid(Reason.INVALID_STREAM, f"unknown way to unlock: {said!r}")
