"""Amounts of budget over several blocks: what a claim asks for, holds, spends or gives back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from privatekube_kfp.core.budget import Accounting, Budget
from privatekube_kfp.core.errors import Invalid, Reason


@dataclass(frozen=True)
class PerBlock:
    """A budget for each of some blocks, kept as groups of blocks with one budget.

    A claim over 500 blocks mostly wants the same of each: grouping keeps it one small value in
    memory, in a row of a table and in an object of the Kubernetes API.
    """

    groups: tuple[tuple[Budget, tuple[str, ...]], ...] = ()

    @staticmethod
    def uniform(budget: Budget, blocks: Iterable[str]) -> PerBlock:
        names = tuple(blocks)
        return PerBlock(((budget, names),)) if names else PerBlock()

    @staticmethod
    def of(budgets: Mapping[str, Budget]) -> PerBlock:
        """Grouped by equal budgets, in the order in which they first appear."""
        groups: dict[Budget, list[str]] = {}
        for block, budget in budgets.items():
            groups.setdefault(budget, []).append(block)
        return PerBlock(tuple((budget, tuple(names)) for budget, names in groups.items()))

    @property
    def blocks(self) -> tuple[str, ...]:
        return tuple(block for _, names in self.groups for block in names)

    def items(self) -> Iterator[tuple[str, Budget]]:
        for budget, names in self.groups:
            for block in names:
                yield block, budget

    @property
    def is_zero(self) -> bool:
        return all(budget.is_zero for budget, _ in self.groups)

    def __add__(self, other: PerBlock) -> PerBlock:
        total = dict(self.items())
        for block, budget in other.items():
            total[block] = total[block] + budget if block in total else budget
        return PerBlock.of(total)

    def __sub__(self, other: PerBlock) -> PerBlock:
        """What is left; `other` must name no block that is not here."""
        if not other.groups:
            return self
        left = dict(self.items())
        for block, budget in other.items():
            left[block] = left[block] - budget
        return PerBlock.of(left)

    def first_not_covering(self, other: PerBlock) -> str | None:
        """The first block of which `other` asks more than this holds, if any."""
        held = dict(self.items())
        for block, budget in other.items():
            if block not in held or not held[block].covers(budget):
                return block
        return None

    def to_json(self) -> list[dict[str, object]]:
        return [
            {"blocks": list(names), "budget": budget.to_json()} for budget, names in self.groups
        ]

    @staticmethod
    def from_json(accounting: Accounting, value: object) -> PerBlock:
        groups: list[tuple[Budget, tuple[str, ...]]] = []
        for group in value if isinstance(value, list) else [None]:
            if not isinstance(group, dict) or set(group) != {"blocks", "budget"}:
                raise Invalid(
                    Reason.INVALID_BUDGET,
                    f"amounts per block are a list of blocks and their budget, not {value!r}",
                )
            groups.append((accounting.parse(group["budget"]), tuple(group["blocks"])))
        return PerBlock(tuple(groups))


NOTHING = PerBlock()
