"""A differentially private statistic of a claim's data, and showing it once it is paid for.

They are two steps since what Kubeflow shows it shows at once. The first writes the result to a file
and says nothing of it; between the two the claim is consumed. A first step that fails has told
nobody anything, so it costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privatekube_kfp.core.claim import Phase
from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.dp.contribution import unit_of
from privatekube_kfp.dp.statistics import calibrate
from privatekube_kfp.dp.statistics import statistic as statistic_named
from privatekube_kfp.steps.data import blocks_of_claim, make_sure_it_consumed
from privatekube_kfp.steps.paying import make_sure_it_belongs, payment_for, step_of, untold
from privatekube_kfp.steps.report import report_on_statistic
from privatekube_kfp.steps.run import (
    Artifact,
    as_said,
    claim_of_artifact,
    in_a_sentence,
    ledger_of_run,
    write_page,
)


@in_a_sentence
def dp_statistic(
    claim: Artifact,
    data: Artifact,
    result: Artifact,
    *,
    run_id: str,
    statistic: str,
    plan_step: str = "all",
    bounds: Sequence[Any] | None = None,
    categories: Sequence[str] | None = None,
    column: str = "",
    per_user_per_day: int = 0,
    per_user: int = 0,
) -> None:
    """Compute a statistic with the noise that a step of the claim's plan pays for.

    A crash leaves no result, or the whole one.
    """
    with ledger_of_run() as ledger:
        paying = payment_for(ledger, claim, run_id, plan_step)
        known, stream = paying.claim, paying.stream
        blocks = blocks_of_claim(ledger, known).values()
    make_sure_it_belongs(known, "data", data.metadata.get("claim"))
    unit = unit_of(
        stream.semantic,
        per_user_per_day=per_user_per_day,
        per_user=per_user,
        periods=[(block.start, block.end) for block in blocks],
    )
    low, high = _bounds(bounds)
    wanted = statistic_named(
        statistic, unit, low=low, high=high, categories=categories, column=column or None
    )
    planned = calibrate(wanted, paying.mechanism, stream.accounting)
    paying.covers(statistic, planned.cost)
    with untold(statistic):
        found = {**planned.run(data.path).to_json(), "claim": known.name, "step": plan_step}
    target = Path(result.path)
    partial = target.with_name(f"{target.name}.partial")
    partial.write_text(json.dumps(found, indent=2, allow_nan=False) + "\n")
    partial.replace(target)
    result.metadata.update(claim=known.name, step=plan_step, statistic=statistic)
    parts = zip(wanted.parts, planned.scales, strict=True)
    noise = ", ".join(f"{scale:g} on the {part.name}" for part, scale in parts)
    print(f"{statistic}: {planned.kind} noise of scale {noise}, for {planned.cost.brief()}")


@in_a_sentence
def show_statistic(
    claim: Artifact, result: Artifact, metrics: Artifact, report: Artifact, *, run_id: str
) -> None:
    """Show a statistic to everybody, once the step that pays for it is consumed."""
    with ledger_of_run() as ledger:
        known = claim_of_artifact(ledger, claim, run_id)
        make_sure_it_consumed(known, claim)
    found = json.loads(Path(result.path).read_text())
    make_sure_it_belongs(known, "results", found.get("claim"))
    step = found["step"]
    if step not in known.consumed_steps() and known.phase is not Phase.CONSUMED:
        raise PrivateKubeError(
            Reason.NOT_CONSUMED,
            f"claim {known.name} has not consumed its step {step!r}, which pays for the result",
        )
    _, granted = step_of(known, step)
    metrics.metadata.update(_numbers(found))
    write_page(report, report_on_statistic(found, granted))
    print(f"{found['statistic']}: shown, for {granted.brief()} of claim {known.name}")


def _bounds(given: Sequence[Any] | None) -> tuple[Any, Any]:
    """Low and high."""
    if not given:
        return None, None
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise Invalid(
            Reason.INVALID_REQUEST, f"bounds are two numbers such as [0, 200], not {given!r}"
        )
    low, high = as_said(list(given))
    return low, high


def _numbers(found: Mapping[str, Any]) -> dict[str, float]:
    """What Kubeflow shows as metrics: the value or values, and how far off they may be."""
    value = found["value"]
    numbers = dict(value) if isinstance(value, Mapping) else {"value": value}
    errors = {"error95": found["error95"], "error95_each": found.get("error95Each")}
    return {**numbers, **{name: error for name, error in errors.items() if error is not None}}
