"""Draws the dashboard's picture in the documentation: `python -m tests.monitoring.draw_dashboard`.

The panels and their queries are those of dashboard.json; the data are a simulated day, asked of
a real Prometheus. Grafana itself draws nicer, but is no part of this.
"""

import argparse
import re
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter, HourLocator
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, MultipleLocator, NullLocator
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.monitoring import day
from tests.monitoring.dashboard import ROOT, Query, dashboard, queries
from tests.monitoring.prometheus import Prometheus, find_or_fetch, prometheus

PICTURE = ROOT / "docs/images/dashboard.png"
TITLES = "Panels"

_WINDOW = "20m"
_COLORS = {
    "red": "#e0544c",
    "orange": "#f2994a",
    "yellow": "#f2c94c",
    "green": "#6fbf73",
    "gray": "#c4c8cc",
    "purple": "#a56cc1",
}
_OTHERS = ["#5794f2", "#f2994a", "#6fbf73", "#e0544c", "#a56cc1", "#f2c94c", "#3fb6b2", "#8f8f8f"]

Lines = dict[str, list[tuple[float, float]]]


def draw(to: Path) -> list[str]:
    """Write the picture; return the titles of what is in it."""
    with tempfile.TemporaryDirectory(prefix="privatekube-dashboard-") as folder:
        text, data = Path(folder) / "day.txt", Path(folder) / "data"
        with text.open("w") as file:
            file.writelines(day.samples())
        subprocess.run(
            [find_or_fetch().promtool, "tsdb", "create-blocks-from", "openmetrics", text, data],
            check=True,
            capture_output=True,
        )
        # Prometheus knows when something it scrapes is gone; of imported data it does not, and
        # would show the old leader's last words beside the new leader's for 5 minutes.
        forgetting = f"--query.lookback-delta={day.STEP - 1}s"
        with prometheus([], data=data, arguments=[forgetting]) as running:
            return _draw(running, to)


def _draw(running: Prometheus, to: Path) -> list[str]:
    asked: dict[str, list[Query]] = {}
    for query in queries(day.STREAMS, _WINDOW):
        asked.setdefault(query.panel, []).append(query)
    panels = list(_panels(asked))
    rows = max(box["y"] + box["h"] for _, _, box in panels)
    figure = pyplot.figure(figsize=(14, rows * 0.38), facecolor="white")
    grid = figure.add_gridspec(rows, 24, left=0.04, right=0.985, top=0.975, bottom=0.03)
    for title, panel, box in panels:
        rows_of_it = slice(box["y"], box["y"] + box["h"] - 2)
        axes = figure.add_subplot(grid[rows_of_it, box["x"] : box["x"] + box["w"] - 1])
        axes.set_title(title, fontsize=10, fontweight="bold", loc="left")
        _draw_panel(axes, panel, _lines(running, asked[title]))
    to.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(to, dpi=80)
    pyplot.close(figure)
    # Few colors are enough, and a fifth of the bytes.
    with Image.open(to) as image:
        small = image.convert("RGB").quantize(64)
    titles = [title for title, _, _ in panels]
    # Kept in the file, so that a test can tell whether the picture is of this dashboard.
    text = PngInfo()
    text.add_text(TITLES, "\n".join(titles))
    small.save(to, optimize=True, pnginfo=text)
    return titles


def _panels(asked: dict[str, list[Query]]) -> Any:
    """Each panel with its title and place; one that is repeated, side by side."""
    for panel in dashboard()["panels"]:
        box = panel["gridPos"]
        titles = [panel["title"]]
        if panel.get("repeat") == "stream":
            titles = [panel["title"].replace("$stream", stream) for stream in day.STREAMS]
        width = box["w"] // len(titles)
        for place, title in enumerate(titles):
            assert title in asked
            yield title, panel, box | {"w": width, "x": box["x"] + place * width}


def _lines(running: Prometheus, asked: list[Query]) -> Lines:
    """The series of a panel by what its legend says."""
    found: Lines = {}
    for query in asked:
        end = day.START + 24 * 3600
        for labels, values in running.query_range(query.expr, day.START, end, 300):
            name = re.sub(r"\{\{(\w+)\}\}", lambda match, of=labels: of[match[1]], query.legend)
            found[name] = values
    if not found:
        raise ValueError(f"there is nothing to show in {asked[0].panel}")
    return found


def _draw_panel(axes: Axes, panel: dict[str, Any], lines: Lines) -> None:
    config = panel["fieldConfig"]
    fixed = {
        each["matcher"]["options"]: _COLORS[each["properties"][0]["value"]["fixedColor"]]
        for each in config["overrides"]
    }
    others = iter(_OTHERS * 3)
    colors = {name: fixed.get(name) or next(others) for name in lines}
    if panel["type"] == "state-timeline":
        _draw_states(axes, lines)
    elif config["defaults"]["custom"]["stacking"]["mode"] == "normal":
        _draw_stack(axes, lines, colors)
    else:
        for name, values in lines.items():
            # A line ends where there is no data, as Grafana's does.
            gaps = [values[0], *values]
            shown = [
                (when, value if when - before <= 600 else float("nan"))
                for (before, _), (when, value) in zip(gaps, values, strict=False)
            ]
            times = [datetime.fromtimestamp(when, UTC) for when, _ in shown]
            marker = "." if len(values) < 20 else ""
            axes.plot(
                times,
                [value for _, value in shown],
                marker=marker,
                markersize=3,
                linewidth=1.2,
                color=colors[name],
                label=name,
            )
    if panel["type"] != "state-timeline":
        for step in config["defaults"]["thresholds"]["steps"][1:]:
            if config["defaults"]["custom"].get("thresholdsStyle"):
                axes.axhline(step["value"], color=_COLORS[step["color"]], linewidth=0.8, ls="--")
        _label_values(axes, config["defaults"])
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(0, -0.09),
            ncols=max(1, 94 // (6 + max(map(len, lines)))),
            fontsize=6.5,
            frameon=False,
            handlelength=1,
            columnspacing=1,
        )
    axes.set_xlim(*(datetime.fromtimestamp(day.START + s, UTC) for s in (0, 24 * 3600)))
    axes.xaxis.set_major_locator(HourLocator(byhour=range(0, 24, 4)))
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    axes.tick_params(labelsize=7, length=2)
    axes.grid(color="#eeeeee")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _draw_states(axes: Axes, lines: Lines) -> None:
    for row, values in enumerate(lines.values()):
        times = [datetime.fromtimestamp(when, UTC) for when, _ in values]
        for state, color in ((1, _COLORS["green"]), (0, _COLORS["gray"])):
            chosen = [value == state for _, value in values]
            axes.fill_between(times, row - 0.35, row + 0.35, where=chosen, step="post", color=color)
    axes.set_yticks(range(len(lines)), list(lines))


def _draw_stack(axes: Axes, lines: Lines, colors: dict[str, str]) -> None:
    whens = sorted({when for values in lines.values() for when, _ in values})
    by_time = [dict(values) for values in lines.values()]
    axes.stackplot(
        [datetime.fromtimestamp(when, UTC) for when in whens],
        [[values.get(when, 0) for when in whens] for values in by_time],
        labels=list(lines),
        colors=[colors[name] for name in lines],
        step="post",
        linewidth=0,
    )


def _label_values(axes: Axes, defaults: dict[str, Any]) -> None:
    if defaults.get("min") == 0:
        axes.set_ylim(bottom=0)
    if "max" in defaults:
        axes.set_ylim(top=defaults["max"])
    if defaults["unit"] == "percentunit":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    elif defaults["unit"] == "s":
        if defaults["custom"].get("scaleDistribution", {}).get("type") == "log":
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(FixedLocator([0.01, 0.1, 1, 10, 60, 600, 3600, 36000]))
            axes.yaxis.set_minor_locator(NullLocator())
        elif axes.get_ylim()[1] > 3600:
            axes.yaxis.set_major_locator(MultipleLocator(3600))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _seconds(value)))
    if defaults.get("decimals") == 0:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _seconds(value: float) -> str:
    for unit, seconds in (("h", 3600), ("min", 60), ("s", 1), ("ms", 0.001)):
        if abs(value) >= seconds:
            return f"{value / seconds:.3g} {unit}"
    return f"{value:.3g}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw the dashboard with the data of one day.")
    parser.add_argument("--to", type=Path, default=PICTURE, help="the file to write")
    written = parser.parse_args().to
    titles = draw(written)
    print(f"{written}: {len(titles)} panels, {written.stat().st_size / 1000:.0f} kB")
