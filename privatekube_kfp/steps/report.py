"""A claim, what was ingested, and a statistic, as pages for the Kubeflow UI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.claim import Claim, Kind
from privatekube_kfp.core.per_block import PerBlock

_MOST_BLOCKS = 20
UNITS = {
    "event": "each row",
    "user": "each user",
    "user-time": "what each user does in a period",
}


def report_on(claim: Claim) -> str:
    """What the claim was granted and has spent, as Markdown."""
    blocks = claim.bound()
    lines = [
        f"# Claim {claim.name}",
        "",
        f"**{claim.phase}** on {blocks_in_words(len(blocks))} of stream `{claim.stream}`.",
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
    lines += ["", "Bound blocks:", "", *_listed(blocks)]
    return "\n".join(lines) + "\n"


def report_on_ingest(public: Mapping[str, Any], blocks: Sequence[str]) -> str:
    """What anybody may know of an ingest, as Markdown; it is handed nothing else."""
    lines = [
        f"# Stream {public['stream']}",
        "",
        f"**{blocks_in_words(len(blocks), 'new ')}**. All data are there until {public['until']}.",
    ]
    if "users" in public:
        users = public["users"]
        lines += [
            "",
            f"About {users['estimate']} users: from {users['atLeast']} to {users['atMost']}, with"
            f" confidence {users['confidence']}. The count is differentially private.",
        ]
    if blocks:
        lines += ["", "New blocks:", "", *_listed(blocks)]
    return "\n".join(lines) + "\n"


def report_on_statistic(found: Mapping[str, Any], granted: Budget) -> str:
    """A statistic, its noise and its price, as Markdown."""
    value, error = found["value"], found["error95"]
    off = "not known" if error is None else f"at most {error:.4g}, in 95 of 100 runs"
    lines = [f"# {found['statistic'].replace('_', ' ').capitalize()}", ""]
    if isinstance(value, Mapping):
        lines += ["| | value |", "|---|---:|", *(f"| {k} | {v} |" for k, v in value.items())]
    else:
        lines += [f"**{value if isinstance(value, int) else f'{value:.6g}'}**"]
    unit, bounds = found["unit"], found["bounds"]
    lines += [
        "",
        f"Off by the noise: {off}. What bounds leave out is not in that.",
        "",
        "| part | sensitivity | scale of noise |",
        "|---|---:|---:|",
        *(f"| {p['name']} | {p['sensitivity']} | {p['scale']:.6g} |" for p in found["parts"]),
        "",
        f"* noise: {found['noise']}",
        f"* protected: {UNITS[unit['semantic']]}; rows of one that count: {unit['rows']}",
        *(f"* {name}: {bounds[name]}" for name in ("low", "high") if name in bounds),
        f"* spent: {granted.brief()}, of claim `{found['claim']}`, step `{found['step']}`",
    ]
    return "\n".join(lines) + "\n"


def blocks_in_words(count: int, kind: str = "") -> str:
    return f"{count} {kind}block" if count == 1 else f"{count} {kind}blocks"


def _listed(blocks: Sequence[str]) -> list[str]:
    more = [f"* and {len(blocks) - _MOST_BLOCKS} more"] if len(blocks) > _MOST_BLOCKS else []
    return [*(f"* `{name}`" for name in blocks[:_MOST_BLOCKS]), *more]


def _on(total: PerBlock, block: str, like: Budget) -> Budget:
    return dict(total.items()).get(block, like.accounting.zero())
