"""A trained model as a page for people: how good it is, how it came along, what it cost.

It is shown after Consume, and made of what was released alone. One file, no scripts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from privatekube_kfp.accounting import Mechanism
from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.claim import Claim, Kind
from privatekube_kfp.dp.folders import Point, ReadyModel
from privatekube_kfp.steps.report import UNITS, blocks_in_words

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2733; max-width: 46em; margin: 2em auto;
       padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0; } h2 { font-size: 1.1em; margin-top: 2em; }
.large { font-size: 3em; font-weight: 600; color: #0b6e4f; margin: .2em 0; line-height: 1.2; }
.quiet { color: #667; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { padding: .25em .7em; text-align: right; }
td:first-child, th:first-child { text-align: left; } tr + tr { border-top: 1px solid #e4e8ee; }
.bar { display: inline-block; width: 12em; height: .8em; background: #e4e8ee; }
.bar i { display: block; height: 100%; background: #c8553d; }
.labels td, .labels th { font-size: .8em; padding: .15em .4em; }
svg { max-width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: #667; }
"""
_WIDTH, _HEIGHT, _EDGE = 560, 220, 40


@dataclass(frozen=True)
class ModelShown:
    """What there is to tell of a model."""

    model: ReadyModel
    accuracy: float | None
    margin: float
    labels: Sequence[str]
    table: Sequence[Sequence[int]]
    claim: Claim
    steps: Mapping[str, tuple[Mechanism, Budget]]


def report_on_model(shown: ModelShown) -> str:
    """The page, as HTML."""
    about = shown.model.about
    title = (
        f"{about.task.capitalize()} {about.model.upper() if about.model != 'linear' else 'linear'}"
    )
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="large">{accuracy_in_words(shown.accuracy, shown.margin)}</p>',
        f"<p>of held-out {_HELD_OUT[about.semantic]} are told right: differentially private, like"
        " all on this page.</p>",
        *_curve(shown.model.curve),
        *_privacy(shown),
        *_labels(shown.labels, shown.table),
        *_facts(shown),
    ]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f"</title><style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


_HELD_OUT = {"event": "reviews", "user": "users", "user-time": "users in a block"}


def accuracy_in_words(accuracy: float | None, margin: float) -> str:
    """Such as `61.3% (± 1.2)`: how far off it may be by its noise, in 95 of 100 runs."""
    if accuracy is None or margin >= 1:
        return "not known: too much noise for so few"
    return f"{accuracy:.1%} (± {100 * margin:.1f})"


def _curve(points: Sequence[Point]) -> list[str]:
    """Accuracy over epochs; nothing if nobody looked."""
    known = [
        (point.epoch, point.accuracy, point.margin)
        for point in points
        if point.accuracy is not None and point.margin < 1
    ]
    if not known:
        return []
    last = max(epoch for epoch, _, _ in known)
    places = [
        (
            _EDGE + (_WIDTH - 2 * _EDGE) * epoch / last,
            _HEIGHT - _EDGE + (2 * _EDGE - _HEIGHT) * accuracy,
            epoch,
            accuracy,
            margin,
        )
        for epoch, accuracy, margin in known
    ]
    lines = [
        "<h2>Accuracy over epochs</h2>",
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Accuracy over epochs">',
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _HEIGHT - _EDGE + (2 * _EDGE - _HEIGHT) * share
        lines += [
            f'<path d="M{_EDGE} {y:.1f}H{_WIDTH - _EDGE}" stroke="#e4e8ee"/>',
            f'<text x="{_EDGE - 6}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>',
        ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, *_ in places)
    lines.append(f'<polyline points="{path}" fill="none" stroke="#0b6e4f" stroke-width="2"/>')
    for x, y, epoch, accuracy, margin in places:
        lines += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#0b6e4f"><title>epoch {epoch:.1f}:'
            f" {accuracy_in_words(accuracy, margin)}</title></circle>",
            f'<text x="{x:.1f}" y="{_HEIGHT - _EDGE + 16}" text-anchor="middle">{epoch:.0f}</text>',
        ]
    return [*lines, "</svg>"]


def _privacy(shown: ModelShown) -> list[str]:
    """What was granted and what was spent, of every block."""
    claim = shown.claim
    spent = dict(claim.total(Kind.CONSUME).items())
    lines = [
        "<h2>Privacy</h2>",
        f"<p>Granted and spent on each of {blocks_in_words(len(claim.bound()))} of stream"
        f" {escape(claim.stream)}; protected is {UNITS[shown.model.about.semantic]}. What is not"
        " spent is given back when the run ends.</p>",
        "<table><tr><th></th><th>granted</th><th>spent</th><th></th></tr>",
    ]
    for granted, blocks in claim.total(Kind.ALLOCATE).groups:
        used = spent.get(blocks[0], granted.accounting.zero())
        before, after = granted.to_json(), used.to_json()
        for label, whole, part in zip(
            granted.accounting.labels, granted.amounts, used.amounts, strict=True
        ):
            share = min(1.0, part / whole) if whole > 0 else 0.0
            name = f"order {label}" if granted.accounting.is_renyi else label
            lines.append(
                f"<tr><td>{name}</td><td>{before[label]}</td><td>{after[label]}</td>"
                f'<td><span class="bar"><i style="width: {share:.1%}"></i></span></td></tr>'
            )
    lines += ["</table>", "<table><tr><th>step</th><th>was planned as</th><th>price</th></tr>"]
    for name, (mechanism, price) in shown.steps.items():
        said = ", ".join(f"{key} {value}" for key, value in mechanism.to_json().items())
        lines.append(
            f"<tr><td>{escape(name)}</td><td>{escape(said)}</td><td>{escape(price.brief())}</td></tr>"
        )
    ran = shown.model.spent[-1].get("steps")
    planned = shown.model.planned.get("steps")
    return [*lines, "</table>", f"<p>Training took {ran} of {planned} planned steps.</p>"]


def _labels(labels: Sequence[str], table: Sequence[Sequence[int]]) -> list[str]:
    """What each label was taken for, darker where it is more."""
    most = max((cell for row in table for cell in row), default=0) or 1
    heads = "".join(f"<th>{escape(label)}</th>" for label in labels)
    lines = [
        "<h2>What was taken for what</h2>",
        '<p class="quiet">Rows are true, columns predicted. The counts have noise: small ones say'
        " little.</p>",
        f'<table class="labels"><tr><th></th>{heads}</tr>',
    ]
    for label, row in zip(labels, table, strict=True):
        cells = "".join(
            f'<td style="background: rgba(11, 110, 79, {0.6 * cell / most:.2f})">{cell}</td>'
            for cell in row
        )
        lines.append(f"<tr><td>{escape(label)}</td>{cells}</tr>")
    return [*lines, "</table>"]


def _facts(shown: ModelShown) -> list[str]:
    model = shown.model
    facts = {
        "words": model.about.words,
        "trained parameters": f"{sum(array.size for array in model.weights.values()):,}",
        "trained with": model.trainer,
        "claim": shown.claim.name,
    }
    rows = "".join(f"<tr><td>{k}</td><td>{escape(str(v))}</td></tr>" for k, v in facts.items())
    return ["<h2>What it is</h2>", f"<table>{rows}</table>"]
