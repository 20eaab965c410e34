"""Reports as a person sees them in Kubeflow's panel, whatever they are made of."""

from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest

from privatekube_kfp.core.budget import INFINITE, basic, renyi
from privatekube_kfp.core.claim import Claim, Kind, Request, Response
from privatekube_kfp.core.errors import Reason
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.steps import pages
from privatekube_kfp.steps.report import (
    StreamFacts,
    final_metrics,
    final_report,
    report_on_allocation,
    report_on_spending,
    report_on_statistic,
)
from tests.steps.pages_seen import Page

HOSTILE = '"><script>alert(1)</script><b>&amp;\x00\ud800'
LONG = "x" * 5000


def claim_of(granted, blocks=("monday",), name="run-1.claim"):
    request = Request(
        "allocate", Kind.ALLOCATE, {}, 0, tuple(blocks), (("all", granted),), deadline=None
    )
    amounts = PerBlock.uniform(granted, blocks)
    answer = Response("allocate", True, Reason.ALLOCATED, "granted", 0, amounts)
    return Claim(name, "clicks", "run-1", 0, [request], {"allocate": answer})


def stream_of(capacity, records=(), name="clicks"):
    blocks = {record.block.name: record for record in records}
    return StreamFacts(name, "event", "1", "1e-7", capacity, blocks)


def table_of(value, error=3.0, **more):
    return {
        "statistic": "reviews_per_category",
        "value": value,
        "error95": error,
        "error95Each": error,
        "unit": {"semantic": "event", "rows": 1},
        "bounds": {},
        "noise": "laplace",
        "parts": [{"name": "count", "sensitivity": 1, "scale": 2.0}],
        "claim": "run-1.claim",
        "step": "all",
        **more,
    }


def test_a_claim_fits_the_panel(world):
    world.allocate()
    claim = world.claim()
    records = [world.ledger.block(name) for name in claim.bound()]
    stream = stream_of(world.ledger.stream("clicks").capacity, records)
    for page in (
        report_on_allocation(claim, stream),
        report_on_spending(claim, stream),
        final_report("run-1", [claim], {"clicks": stream}),
    ):
        seen = Page(page)
        assert seen.fits()
        assert "2 blocks, such as tuesday" in seen.lines


@pytest.mark.parametrize("text", [HOSTILE, LONG])
def test_names_are_text_however_hostile(world, text):
    claim = claim_of(basic("0.5"), [text], name=text)
    claim.responses["allocate"] = Response(
        "allocate", True, Reason.ALLOCATED, text, 0, claim.responses["allocate"].amounts
    )
    record = world.ledger.block("monday")
    stream = StreamFacts(text, text, text, text, basic("1"), {text: record})
    reports = [
        report_on_allocation(claim, stream),
        final_report(text, [claim], {"clicks": stream}),
        final_report(text, [claim], {}),
        report_on_statistic(table_of({text: 5}, claim=text, step=text, noise=text), basic("1")),
        pages.page(text, pages.matrix([text, "b"], [[1, 2], [3, 4]]), pages.facts({text: text})),
    ]
    for page in reports:
        page.encode()
        seen = Page(page)
        assert seen.fits()
        assert "b" not in seen.tags
        assert len(page) < 100_000
    if text is HOSTILE:
        assert '"><script>alert(1)</script><b>&amp;' in Page(reports[0]).text


def test_ten_thousand_blocks_are_a_small_page(world):
    names = [f"block-{n:05d}" for n in range(10_000)]
    monday = world.ledger.block("monday")
    claim = claim_of(basic("0.25"), names)
    # As if each had lost something else before.
    records = {}
    for number, name in enumerate(names):
        spent = basic(f"0.{number:05d}1")
        budget = replace(monday.budget, allocated=basic("0.25"), consumed=spent)
        records[name] = replace(monday, budget=budget)
    stream = StreamFacts("clicks", "event", "1", "1e-7", basic("1"), records)
    page = final_report("run-1", [claim], {"clicks": stream})
    assert len(page.encode()) < 100_000
    seen = Page(page)
    assert seen.fits()
    assert "claim run-1.claim: Allocated, on 10000 blocks of stream clicks" in seen.lines
    assert sum(line.startswith("block-") for line in seen.lines) == pages.MOST_ROWS
    assert any(line.startswith("and 9980 more blocks, at least ") for line in seen.lines)
    metrics = final_metrics([claim], {"clicks": stream})
    assert metrics["blocks"] == 10_000
    assert len(metrics) < 20


def test_an_infinite_amount_is_shown_and_no_metric():
    """A mechanism without a bound at some orders: a metric that is no number fails a task."""
    orders = renyi(["2", "64"])
    claim = claim_of(orders.budget((10**12, INFINITE)))
    stream = stream_of(orders.budget((2 * 10**12, 5 * 10**12)))
    seen = Page(report_on_allocation(claim, stream))
    assert ["order 64", "∞", "0", "0", "∞"] in seen.rows
    assert ["order 2", "1", "0", "0", "1"] in seen.rows
    assert final_metrics([claim], {"clicks": stream})["renyi_order"] == 2
    nothing_usable = stream_of(orders.budget((0, 5 * 10**12)))
    assert Page(report_on_allocation(claim, nothing_usable)).fits()
    metrics = final_metrics([claim], {"clicks": nothing_usable})
    assert all(abs(value) < inf for value in metrics.values())


@pytest.mark.parametrize("odd", [nan, inf, -inf])
def test_odd_numbers_of_statistics(odd):
    one = Page(report_on_statistic(table_of(odd, odd), basic("0.1")))
    many = Page(report_on_statistic(table_of({"a": odd, "b": 2}, odd), basic("0.1")))
    for seen in (one, many):
        assert seen.fits()
        assert "nan" not in seen.text
        assert "inf" not in seen.text


def test_counts_have_bars_with_errors():
    seen = Page(report_on_statistic(table_of({"books": 40, "toys": 10}, 5), basic("0.1")))
    assert seen.fits()
    bars = [w for w in seen.widths if w < 420]
    assert len(bars) == 2
    assert bars[0] == pytest.approx(4 * bars[1], rel=0.01)
    assert seen.tags.count("path") == 2
    assert {"books", "40"} <= set(seen.lines)


def test_a_table_of_many_is_summed_up():
    page = report_on_statistic(table_of({f"category-{n}": n for n in range(10_000)}), basic("1"))
    assert len(page) < 100_000
    assert "and 9,980 more, in the result" in Page(page).lines


def test_a_matrix_of_eleven_labels_fits():
    labels = [f"a long name of a label {n}" for n in range(11)]
    page = pages.page("Matrix", pages.matrix(labels, [[1234] * 11] * 11))
    seen = Page(page)
    assert seen.fits()
    assert seen.rows[0] == ["", *map(str, range(1, 12))]
    assert len(pages.page("m", pages.matrix(["x"] * 900, [[1] * 900] * 900))) < 100_000


def test_a_page_is_utf8_whatever_the_locale(world, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    world.allocate()
    assert "→" in Path(world.artifact("report").path).read_bytes().decode()
