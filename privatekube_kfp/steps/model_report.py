"""A trained model as a page for people: how good it is, how it came along, what it cost.

It is shown after Consume, and made of what was released alone. One file, no scripts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from privatekube_kfp.accounting import Mechanism
from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.claim import Claim
from privatekube_kfp.dp.folders import Point, ReadyModel
from privatekube_kfp.steps import pages
from privatekube_kfp.steps.pages import Html
from privatekube_kfp.steps.report import StreamFacts, claim_parts

_HELD_OUT = {"event": "reviews", "user": "users", "user-time": "users in a block"}


@dataclass(frozen=True)
class ModelShown:
    """What there is to tell of a model."""

    model: ReadyModel
    accuracy: float | None
    margin: float
    labels: Sequence[str]
    table: Sequence[Sequence[int]]
    claim: Claim
    stream: StreamFacts
    steps: Mapping[str, tuple[Mechanism, Budget]]


def report_on_model(shown: ModelShown) -> str:
    """The page, as HTML."""
    about = shown.model.about
    name = about.model if about.model == "linear" else about.model.upper()
    known = shown.accuracy is not None and shown.margin < 1
    return pages.page(
        f"{about.task.capitalize()} {name}",
        pages.state(accuracy_in_words(shown.accuracy, shown.margin), good=True if known else None),
        pages.paragraph(
            f"of held-out {_HELD_OUT[about.semantic]} are classified correctly; ± is the error by"
            " noise, in 95 of 100 runs. Everything on this page is differentially private."
        ),
        *_curve(shown.model.curve),
        *_privacy(shown),
        pages.heading("Confusion matrix"),
        pages.paragraph(
            "Rows are true labels, columns predicted ones, by the same numbers. The counts have"
            " noise: small ones say little.",
            quiet=True,
        ),
        pages.matrix(shown.labels, shown.table),
        *_facts(shown),
    )


def accuracy_in_words(accuracy: float | None, margin: float) -> str:
    """Such as `61.3% (± 1.2)`: how far off it may be by its noise, in 95 of 100 runs."""
    if accuracy is None or margin >= 1:
        return "not known: too much noise for so few"
    return f"{accuracy:.1%} (± {100 * margin:.1f})"


def _curve(points: Sequence[Point]) -> list[Html]:
    """Accuracy over epochs; nothing if it was not validated on the way."""
    known = [
        (point.epoch, point.accuracy, point.margin)
        for point in points
        if point.accuracy is not None and point.margin < 1
    ]
    if not known:
        return []
    return [
        pages.heading("Accuracy over epochs"),
        pages.curve(known),
        pages.paragraph(
            "Lines show the error of each validation by itself, in 95 of 100 runs.", quiet=True
        ),
    ]


def _privacy(shown: ModelShown) -> list[Html]:
    """What was granted and what was spent, of every block."""
    steps = []
    for name, (mechanism, price) in shown.steps.items():
        said = ", ".join(f"{key} {value}" for key, value in mechanism.to_json().items())
        steps.append((name, said, price.brief()))
    ran = shown.model.spent[-1].get("steps")
    planned = shown.model.planned.get("steps")
    return [
        pages.heading("Privacy"),
        *claim_parts(shown.claim, shown.stream),
        pages.paragraph("What is left of the claim is given back when the run ends.", quiet=True),
        pages.fold("Steps of the plan", pages.table(("step", "was planned as", "price"), steps)),
        pages.paragraph(f"Training took {ran} of {planned} planned steps."),
    ]


def _facts(shown: ModelShown) -> list[Html]:
    model = shown.model
    said = {
        "words": model.about.words,
        "trained parameters": f"{sum(array.size for array in model.weights.values()):,}",
        "trained with": model.trainer,
        "claim": shown.claim.name,
    }
    return [pages.heading("The model"), pages.facts({k: str(v) for k, v in said.items()})]
