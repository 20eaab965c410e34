"""Reports as HTML pages that fit Kubeflow's panel of about 450 by 600 pixels.

Kubeflow shows an HTML artifact in a sandboxed iframe: styles and SVG work, nothing can be loaded.
So a page is one file without scripts, links or images. Whatever is handed in, names of blocks and
categories included, is text and escaped here; only what these functions return is HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite, isnan
from typing import NewType

Html = NewType("Html", str)
"""A part of a page: HTML already, and made by a function of this module."""

WIDTH = 420
"""Of a picture, in the units of its viewBox: about the pixels of the panel."""
MOST_ROWS = 20
"""How many blocks, categories or requests a page lists; the rest is summed up."""
MOST_LABELS = 30
_LONGEST = 64
_LONGEST_TEXT = 2000

GOOD, LIGHT, BAD, HELD, OTHERS = "#0b6e4f", "#8cc9ae", "#b3402a", "#d99a1c", "#aab4bf"
INK, QUIET, LINE = "#1d2733", "#5b6775", "#e4e8ee"
_STYLE = f"""
*{{box-sizing:border-box}}
body{{font:14px/1.45 system-ui,sans-serif;color:{INK};max-width:430px;margin:0 auto;padding:8px 6px;
overflow-wrap:anywhere}}
h1{{font-size:17px;margin:0 0 2px}}h2{{font-size:14px;margin:18px 0 4px}}p{{margin:4px 0}}
.state{{font-size:22px;font-weight:600;line-height:1.2;margin:4px 0}}
.quiet{{color:{QUIET};font-size:12px}}
.good{{color:{GOOD}}}.bad{{color:{BAD}}}
table{{border-collapse:collapse;width:100%;font-size:13px}}
td,th{{padding:2px 6px 2px 0;text-align:left;vertical-align:top;font-weight:400}}
th{{color:{QUIET};font-size:12px}}.n{{text-align:right}}tr+tr{{border-top:1px solid {LINE}}}
.numbers td{{border:0;font-size:19px;font-weight:600;padding:0 6px 0 0;line-height:1.2}}
.numbers{{margin-bottom:6px}}.numbers tr{{border:0}}
.matrix{{overflow-x:auto}}.matrix td,.matrix th{{font-size:11px;padding:1px 3px}}
details{{margin:10px 0}}summary{{cursor:pointer;color:{QUIET};font-size:12px}}
svg{{display:block;width:100%;height:auto}}svg text{{font:11px system-ui,sans-serif;fill:{INK}}}
svg .quiet{{fill:{QUIET};font-size:11px}}
""".replace("\n", "")


def page(title: str, *parts: Html) -> str:
    """The file of a report."""
    name, body = _text(title), "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{name}</title><style>{_STYLE}</style></head>\n"
        f"<body>\n<h1>{name}</h1>\n{body}\n</body></html>\n"
    )


# Text


def state(text: str, *, good: bool | None = None) -> Html:
    """What a page says in one word or number."""
    kind = {True: " good", False: " bad", None: ""}[good]
    return Html(f'<p class="state{kind}">{_text(text)}</p>')


def heading(text: str) -> Html:
    return Html(f"<h2>{_text(text)}</h2>")


def paragraph(text: str, *, quiet: bool = False) -> Html:
    return Html(f"<p{_QUIET if quiet else ''}>{_text(text)}</p>")


_QUIET = ' class="quiet"'


def numbers(named: Mapping[str, str]) -> Html:
    """A few numbers beside each other, each below what it is."""
    heads = "".join(f"<th>{_text(name)}</th>" for name in named)
    cells = "".join(f"<td>{_text(number)}</td>" for number in named.values())
    return Html(f'<table class="numbers"><tr>{heads}</tr><tr>{cells}</tr></table>')


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: int = 0) -> Html:
    """Rows of texts; the last `right` columns are numbers."""
    first = len(heads) - right

    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if n >= first else ''}>{_text(text)}</{tag}>"
            for n, text in enumerate(texts)
        )

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    top = f"<tr>{cells('th', heads)}</tr>" if any(heads) else ""
    return Html(f"<table>{top}{lines}</table>")


def facts(said: Mapping[str, str]) -> Html:
    """Names and what they are."""
    return table(("", ""), said.items())


def fold(summary: str, *parts: Html) -> Html:
    """What few want to see, behind one line."""
    return Html(f"<details><summary>{_text(summary)}</summary>{''.join(parts)}</details>")


# Pictures


@dataclass(frozen=True)
class Segment:
    """A part of a bar: how much of the whole, from 0 to 1."""

    share: float
    colour: str
    name: str


@dataclass(frozen=True)
class Row:
    """A bar with its name on the left above it and what it amounts to on the right."""

    name: str
    note: str
    segments: Sequence[Segment]


def stacked_bars(rows: Sequence[Row], legend: Mapping[str, str]) -> Html:
    """One bar for each row, divided; the legend names the colours that are there."""
    seen = {part.colour for row in rows for part in row.segments if part.share > 0}
    named = {name: colour for name, colour in legend.items() if colour in seen}
    columns = 2 if max(map(len, named), default=0) > 18 or len(named) > 3 else 3
    step, top = 34, 18 * -(-len(named) // columns)
    lines = []
    for number, (name, colour) in enumerate(named.items()):
        x, y = (WIDTH // columns) * (number % columns), 18 * (number // columns)
        lines.append(
            f'<rect x="{x}" y="{y + 2}" width="10" height="10" fill="{colour}"/>'
            f'<text class="quiet" x="{x + 15}" y="{y + 11}">{_text(name)}</text>'
        )
    for number, row in enumerate(rows):
        y = top + number * step
        lines.append(
            f'<text x="0" y="{y + 13}">{_text(_short(row.name, 42))}</text>'
            f'<text x="{WIDTH}" y="{y + 13}" text-anchor="end">{_text(row.note)}</text>'
            f'<rect x="0" y="{y + 18}" width="{WIDTH}" height="10" fill="{LINE}"/>'
        )
        at = 0.0
        for part in row.segments:
            width = WIDTH * min(max(_finite(part.share), 0.0), 1.0 - at / WIDTH)
            if width > 0:
                # What is there must be seen, however little it is.
                lines.append(
                    f'<rect x="{min(at, WIDTH - 1.5):.1f}" y="{y + 18}" height="10"'
                    f' width="{max(width, 1.5):.1f}" fill="{part.colour}">'
                    f"<title>{_text(part.name)}</title></rect>"
                )
            at += width
    return _picture(top + step * len(rows), lines, "; ".join(f"{r.name}: {r.note}" for r in rows))


def counts(values: Mapping[str, float], error: float | None) -> Html:
    """A bar for each count, with its error on either side; the rest is summed up."""
    listed = dict(list(values.items())[:MOST_ROWS])
    step, left, right = 22, 120, 78
    reach = _finite(error or 0.0)
    most = max((_finite(value) + reach for value in listed.values()), default=0.0) or 1.0
    wide = WIDTH - left - right
    lines = []
    for number, (name, value) in enumerate(listed.items()):
        y, size, shown = number * step, _finite(value), number_in_words(value)
        end = left + wide * max(size, 0.0) / most
        low, high = (left + wide * max(0.0, at) / most for at in (size - reach, size + reach))
        lines.append(
            f'<text x="{left - 6}" y="{y + 14}" text-anchor="end">{_text(_short(name, 19))}</text>'
            f'<rect x="{left}" y="{y + 4}" width="{end - left:.1f}" height="13" fill="{LIGHT}"/>'
            f'<text x="{WIDTH}" y="{y + 14}" text-anchor="end">{_text(shown)}</text>'
        )
        if reach:
            lines.append(
                f'<path d="M{low:.1f} {y + 10.5}H{high:.1f}M{low:.1f} {y + 7}v7M{high:.1f}'
                f' {y + 7}v7" stroke="{INK}" fill="none"/>'
            )
    picture = _picture(step * len(listed), lines, f"{len(listed)} counts")
    if len(values) > len(listed):
        more = len(values) - len(listed)
        picture = Html(picture + paragraph(f"and {more:,} more, in the result", quiet=True))
    return picture


def curve(points: Sequence[tuple[float, float, float]]) -> Html:
    """Shares between 0 and 1 over epochs, each with its margin on either side."""
    height, left, right, foot = 150, 34, 8, 20
    last = max(epoch for epoch, _, _ in points) or 1.0

    def place(epoch: float, share: float) -> tuple[float, float]:
        across = left + (WIDTH - left - right) * epoch / last
        return across, 6 + (height - foot - 6) * (1 - min(max(share, 0.0), 1.0))

    lines = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        _, y = place(0, share)
        lines.append(
            f'<path d="M{left} {y:.1f}H{WIDTH - right}" stroke="{LINE}"/>'
            f'<text class="quiet" x="{left - 4}" y="{y + 4:.1f}" text-anchor="end">'
            f"{share:.0%}</text>"
        )
    path = " ".join("{:.1f},{:.1f}".format(*place(epoch, share)) for epoch, share, _ in points)
    lines.append(f'<polyline points="{path}" fill="none" stroke="{GOOD}" stroke-width="2"/>')
    every = -(-len(points) // 15)
    for number, (epoch, share, margin) in enumerate(points):
        x, y = place(epoch, share)
        low, high = place(epoch, share - margin)[1], place(epoch, share + margin)[1]
        lines.append(
            f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{GOOD}" opacity=".45"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{GOOD}"><title>epoch {epoch:.1f}:'
            f" {share:.1%} ± {100 * margin:.1f}</title></circle>"
        )
        if number % every == 0:
            lines.append(
                f'<text class="quiet" x="{x:.1f}" y="{height - 5}" text-anchor="middle">'
                f"{round(epoch, 1):g}</text>"
            )
    return _picture(height, lines, "accuracy over epochs")


def matrix(labels: Sequence[str], cells: Sequence[Sequence[int]]) -> Html:
    """A confusion matrix: columns have the numbers that rows begin with."""
    if len(labels) > MOST_LABELS:
        return paragraph(
            f"{len(labels)} labels are too many to show here; the artifact classification has all.",
            quiet=True,
        )
    most = max((cell for row in cells for cell in row), default=0) or 1
    heads = "".join(f"<th class=n>{number}</th>" for number in range(1, len(labels) + 1))
    lines = []
    for number, (label, row) in enumerate(zip(labels, cells, strict=True), start=1):
        counted = "".join(
            f'<td class=n style="background:rgba(11,110,79,{0.55 * max(cell, 0) / most:.2f})">'
            f"{cell}</td>"
            for cell in row
        )
        lines.append(f"<tr><td>{number} {_text(_short(label, 14))}</td>{counted}</tr>")
    return Html(
        f'<div class="matrix"><table><tr><th></th>{heads}</tr>{"".join(lines)}</table></div>'
    )


def number_in_words(value: float | None) -> str:
    """A number, or what it is instead of one."""
    if value is None or isnan(value):
        return "not known"
    if not isfinite(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _picture(height: int, lines: Iterable[str], label: str) -> Html:
    return Html(
        f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img"'
        f' aria-label="{_text(_short(label, 200))}">{"".join(lines)}</svg>'
    )


def _text(text: str) -> str:
    """Escaped; of what is absurdly long, the beginning."""
    shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    return escape("".join(c if c.isprintable() else " " for c in shown))


def _short(text: str, most: int = _LONGEST) -> str:
    """A long name without its middle: names of blocks differ at their ends."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[-end:]}"


def _finite(value: float) -> float:
    return float(value) if isfinite(value) else 0.0
