"""Draws experiments: for each a picture, and one page that shows them beside the paper's words."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from privatekube_kfp.simulator.experiments import Experiment
from privatekube_kfp.simulator.grid import Row

_COLOURS = {
    "dpf": "#1f5fa8",
    "fair-first": "#1b8a5a",
    "dpack": "#8d5bb8",
    "weighted-dpf": "#4bacc6",
    "rr": "#c8742b",
    "fcfs": "#8a8a8a",
    "limit": "#b02a37",
}
# Mostly these are where others are, which should still be seen.
_BROKEN = {"fair-first": (0, (4, 2)), "dpack": (0, (1, 2))}
_DASHES = {"basic": "-", "classic": "-", "weighted": "--"}


def draw(experiment: Experiment, rows: Sequence[Row], folder: Path, seeds: int) -> list[Path]:
    """How many are granted and how long they wait, as PNG and as SVG."""
    several = len({row["accounting"] for row in rows}) > 1
    figure = Figure(figsize=(10.5, 4.0), layout="constrained")
    granted, delay = figure.subplots(1, 2)
    for line in dict.fromkeys(row["line"] for row in rows):
        points = [row for row in rows if row["line"] == line]
        style = _style(points[0], several)
        _draw_line(granted, points, "granted", "granted_deviation", style | {"label": line})
        if points[0]["policy"] != "limit":
            _draw_line(delay, points, "delay_mean", "delay_deviation", style)
    for axes, title in ((granted, "Pipelines granted"), (delay, "Mean delay, seconds")):
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel(experiment.along, fontsize=9)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        if experiment.logarithmic:
            axes.set_xscale("log")
        if experiment.logarithmic and axes is granted:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
    granted.legend(fontsize=8, frameon=False)
    spread = f"means of {seeds} seeds, and their deviation" if seeds > 1 else "one seed"
    figure.suptitle(f"{experiment.title} ({spread})", fontsize=11, x=0.01, ha="left")
    paths = [folder / f"{experiment.name}.{ending}" for ending in ("png", "svg")]
    # Without the time of drawing and names drawn by lot: the same results give the same files.
    with rc_context({"svg.hashsalt": "privatekube"}):
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
            figure.savefig(path, dpi=130, metadata=metadata)
    return paths


def _style(row: Row, several: bool) -> dict[str, Any]:
    policy = row["policy"].removesuffix("-n").removesuffix("-t")
    dashes: Any = _DASHES[row["accounting"]]
    if policy in _BROKEN:
        dashes = _BROKEN[policy]
    elif row["policy"].endswith("-t") or (several and row["accounting"] == "basic"):
        dashes = ":"
    return {"color": _COLOURS[policy], "linestyle": dashes, "linewidth": 1.6}


def _draw_line(axes: Any, points: list[Row], value: str, spread: str, style: Row) -> None:
    known = [row for row in points if row[value] is not None]
    if not known:
        return
    if known[0]["at"] is None:
        axes.axhline(known[0][value], **style)
        low, high = (known[0][value] + sign * known[0][spread] for sign in (-1, 1))
        axes.axhspan(low, high, color=style["color"], alpha=0.08, linewidth=0)
        return
    along = [row["at"] for row in known]
    deviation = [row[spread] for row in known]
    axes.errorbar(
        along, [row[value] for row in known], yerr=deviation, marker=".", capsize=2, **style
    )


def page(drawn: Iterable[tuple[Experiment, Sequence[Row]]], seeds: int) -> str:
    """A page for a browser, that stands beside the pictures."""
    over = f"{seeds} seeds each" if seeds > 1 else "one seed each"
    sections = "\n".join(_section(experiment, rows) for experiment, rows in drawn)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>The paper's evaluation, simulated</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #222 }}
body {{ max-width: 62rem; margin: 2rem auto; padding: 0 1rem }}
img {{ width: 100% }}
h1 {{ font-size: 1.5rem }} h2 {{ font-size: 1.15rem; margin-top: 2.5rem }}
dt {{ font-weight: 600; margin-top: .6rem }} dd {{ margin: 0 }}
</style>
<h1>The paper's evaluation, simulated</h1>
<p>By the scheduler's own core under a virtual clock, over {over}.</p>
{sections}
</html>
"""


def _section(experiment: Experiment, rows: Sequence[Row]) -> str:
    found = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in findings(rows))
    return f"""<h2>{html.escape(experiment.title)}</h2>
<img src="{experiment.name}.svg" alt="{html.escape(experiment.title)}">
<dl><dt>The paper says</dt><dd>{html.escape(experiment.says)}</dd>
<dt>Here</dt><dd><ul>{found}</ul></dd></dl>"""


def findings(rows: Sequence[Row]) -> list[str]:
    """The peak of each line, in a sentence."""
    sentences = []
    for line in dict.fromkeys(row["line"] for row in rows):
        points = [row for row in rows if row["line"] == line]
        best = max(points, key=lambda row: float(row["granted"]))
        where = "" if best["at"] is None else f" at {best['at']}"
        deviation = f" ± {best['granted_deviation']:,.0f}" if best["granted_deviation"] else ""
        most = "at most" if best["policy"] == "limit" else "up to" if best["at"] is not None else ""
        number = f"{best['granted']:,.0f}{deviation}"
        sentences.append(f"{line}: {' '.join(word for word in (most, number) if word)}{where}")
    return sentences
