"""A claim as a page for the Kubeflow UI."""

from __future__ import annotations

from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.claim import Claim, Kind
from privatekube_kfp.core.per_block import PerBlock

_MOST_BLOCKS = 20


def report_on(claim: Claim) -> str:
    """What the claim was granted and has spent, as Markdown."""
    blocks = claim.bound()
    lines = [
        f"# Claim {claim.name}",
        "",
        f"**{claim.phase}** on {_blocks(len(blocks))} of stream `{claim.stream}`.",
        "",
        "| per block | granted | spent | given back | left |",
        "|---|---:|---:|---:|---:|",
    ]
    totals = [claim.total(kind) for kind in (Kind.ALLOCATE, Kind.CONSUME, Kind.RELEASE)]
    for budget, names in totals[0].groups:
        columns = [budget, *(_on(total, names[0], budget) for total in totals[1:])]
        columns.append(columns[0] - columns[1] - columns[2])
        amounts = [column.to_json() for column in columns]
        for label in budget.accounting.labels:
            shown = label if not budget.accounting.is_renyi else f"order {label}"
            lines.append(f"| {shown} | {' | '.join(str(amount[label]) for amount in amounts)} |")
    lines += ["", "Bound blocks:", "", *(f"* `{name}`" for name in blocks[:_MOST_BLOCKS])]
    if len(blocks) > _MOST_BLOCKS:
        lines.append(f"* and {len(blocks) - _MOST_BLOCKS} more")
    return "\n".join(lines) + "\n"


def _on(total: PerBlock, block: str, like: Budget) -> Budget:
    return dict(total.items()).get(block, like.accounting.zero())


def _blocks(count: int) -> str:
    return f"{count} block" if count == 1 else f"{count} blocks"
