"""How good a model is, for a step of the plan; and showing it, once all of it is paid for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from privatekube_kfp.accounting import Mechanism, mechanism_from_json
from privatekube_kfp.core.budget import Accounting, Budget
from privatekube_kfp.core.claim import Claim, Kind
from privatekube_kfp.core.errors import PrivateKubeError, Reason
from privatekube_kfp.dp import planning
from privatekube_kfp.dp.folders import load_examples, load_model
from privatekube_kfp.steps.data import make_sure_it_consumed
from privatekube_kfp.steps.model_report import ModelShown, report_on_model
from privatekube_kfp.steps.needs import check_torch
from privatekube_kfp.steps.paying import (
    make_sure_it_belongs,
    payment_for,
    steps_of,
    untold,
)
from privatekube_kfp.steps.report import StreamFacts
from privatekube_kfp.steps.run import (
    Artifact,
    claim_of_artifact,
    in_a_sentence,
    ledger_of_run,
    write_page,
)

_ACCURACY_AND_TABLE = (1, 1)
"""How the step is divided."""


class ConfusionMatrix(Artifact, Protocol):
    """As much of Kubeflow's classification metrics as is used."""

    def log_confusion_matrix(self, categories: list[str], matrix: list[list[int]]) -> None: ...


@in_a_sentence
def dp_evaluate(
    claim: Artifact,
    examples: Artifact,
    model: Artifact,
    evaluation: Artifact,
    *,
    run_id: str,
    plan_step: str = planning.EVALUATE,
) -> list[Mapping[str, object]]:
    """The model's accuracy on the users that were held out; all that was run, for Consume.

    A crash leaves no evaluation, or the whole one.
    """
    check_torch("dp_evaluate")
    from privatekube_kfp.dp.evaluation import confusion, evaluate
    from privatekube_kfp.dp.restoring import data_for, trained_model

    ready, trained = load_examples(examples.path), load_model(model.path)
    with ledger_of_run() as ledger:
        paying = payment_for(ledger, claim, run_id, plan_step)
    make_sure_it_belongs(paying.claim, "examples", ready.about.claim)
    make_sure_it_belongs(paying.claim, "model's data", trained.about.claim)
    parts = planning.divided(paying.mechanism, _ACCURACY_AND_TABLE)
    paying.covers("the evaluation", _price(parts, paying.stream.accounting))
    with untold("an evaluation"):
        restored = trained_model(trained, ready.vectors)
        held_out = data_for(restored, ready.about, ready.held_out)
        labels = len(ready.about.labels)
        found = evaluate(restored, held_out, parts[0], classes=labels)
        table = confusion(restored, held_out, parts[1], labels)
    spent = [*trained.spent, *(part.to_json() for part in parts)]
    said = {
        "claim": paying.claim.name,
        "accuracy": found.accuracy,
        "margin": found.margin,
        "right": found.right,
        "wrong": found.wrong,
        "labels": list(ready.about.labels),
        "table": table,
        "spent": spent,
    }
    target = Path(evaluation.path)
    partial = target.with_name(f"{target.name}.partial")
    partial.write_text(json.dumps(said, indent=2, allow_nan=False) + "\n")
    partial.replace(target)
    evaluation.metadata.update(claim=paying.claim.name)
    print(f"evaluated with Laplace noise, for {paying.granted.brief()}")
    return spent


@in_a_sentence
def show_model(
    claim: Artifact,
    model: Artifact,
    evaluation: Artifact,
    metrics: Artifact,
    classification: ConfusionMatrix,
    report: Artifact,
    *,
    run_id: str,
) -> None:
    """Show a model's accuracy and cost to everybody, once all that it cost is consumed."""
    with ledger_of_run() as ledger:
        known = claim_of_artifact(ledger, claim, run_id)
        make_sure_it_consumed(known, claim)
        stream = StreamFacts.of(ledger.stream(known.stream))
    trained, found = load_model(model.path), json.loads(Path(evaluation.path).read_text())
    make_sure_it_belongs(known, "model's data", trained.about.claim)
    make_sure_it_belongs(known, "results", found.get("claim"))
    mechanisms = [mechanism_from_json(said) for said in found["spent"]]
    if trained.looked_by in known.consumed_steps():
        mechanisms.append(steps_of(known)[trained.looked_by][0])
    _make_sure_it_paid(known, _price(mechanisms, stream.capacity.accounting))
    table = [[max(0, round(cell)) for cell in row] for row in found["table"]]
    classification.log_confusion_matrix(found["labels"], table)
    if found["accuracy"] is not None and found["margin"] < 1:
        metrics.metadata["accuracy"] = round(found["accuracy"], 4)
        metrics.metadata["margin"] = round(found["margin"], 4)
    shown = ModelShown(
        trained,
        found["accuracy"],
        found["margin"],
        found["labels"],
        table,
        known,
        stream,
        steps_of(known),
    )
    write_page(report, report_on_model(shown))
    print(f"{trained.about.task} {trained.about.model}: shown, for claim {known.name}")


def _price(parts: Sequence[Mechanism], accounting: Accounting) -> Budget:
    return sum((part.price(accounting) for part in parts), start=accounting.zero())


def _make_sure_it_paid(claim: Claim, cost: Budget) -> None:
    """On every block, what was run must be consumed."""
    spent = dict(claim.total(Kind.CONSUME).items())
    for block in claim.bound():
        consumed = spent.get(block, cost.accounting.zero())
        if not consumed.covers(cost):
            raise PrivateKubeError(
                Reason.NOT_CONSUMED,
                f"claim {claim.name} has consumed {consumed.brief()} on block {block}; the model"
                f" and its evaluation cost {cost.brief()}",
            )
