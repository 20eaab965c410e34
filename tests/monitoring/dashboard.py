"""The dashboard and the alerts as Grafana and Prometheus read them, and what they should show.

`check_dashboard` takes any Prometheus, whatever it scrapes: the exporter of the tests here, or a
real scheduler with the numbers that are expected of it.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.monitoring.prometheus import Prometheus, Result

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "scheduler/monitoring"

Expectation = Callable[[Result], str | None]
"""What is wrong with a result, or None."""


@dataclass(frozen=True)
class Query:
    """One query of one panel, with Grafana's variables filled in."""

    panel: str
    legend: str
    expr: str

    @property
    def key(self) -> tuple[str, str]:
        return self.panel, self.legend


def dashboard() -> dict[str, Any]:
    return dict(json.loads((FOLDER / "dashboard.json").read_text()))


def alert_rules() -> dict[str, Any]:
    """The content of a rules file: what the operator hands to Prometheus."""
    return dict(yaml.safe_load((FOLDER / "alerts.yaml").read_text())["spec"])


def alerts() -> dict[str, dict[str, Any]]:
    """Every alert by name."""
    return {rule["alert"]: rule for group in alert_rules()["groups"] for rule in group["rules"]}


def queries(streams: Sequence[str], window: str = "10m") -> list[Query]:
    """All queries as Grafana sends them with these streams selected.

    A panel that is repeated for each stream has its queries once for each.
    """
    found = []
    for panel in dashboard()["panels"]:
        repeated = panel.get("repeat") == "stream"
        for stream in streams if repeated else [f"({'|'.join(streams)})"]:
            filled = {"$stream": stream, "$__rate_interval": window}
            found += [
                Query(
                    *(_fill(text, filled) for text in (panel["title"], target["legendFormat"])),
                    _fill(target["expr"], filled),
                )
                for target in panel["targets"]
            ]
    return found


def _fill(text: str, variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        text = text.replace(name, value)
    if "$" in text:
        raise ValueError(f"a variable that nobody fills in: {text}")
    return text


def metric_names(expr: str) -> set[str]:
    """The names of our own metrics in a query."""
    return set(re.findall(r"\bprivatekube_\w+", expr))


def labelled(result: Result) -> dict[str, float]:
    """A result by its labels, as in `phase=Active,stream=ads`."""
    return {
        ",".join(
            f"{name}={value}" for name, value in sorted(labels.items()) if name != "__name__"
        ): number
        for labels, number in result
    }


def exactly(expected: Mapping[str, float]) -> Expectation:
    """The very series with the very values, but for the rounding of floats."""
    return between({labels: (value, value) for labels, value in expected.items()})


def between(expected: Mapping[str, tuple[float, float]]) -> Expectation:
    """The very series, with values in these ranges."""

    def check(result: Result) -> str | None:
        found = labelled(result)
        same = found.keys() == expected.keys() and all(
            least <= found[labels] <= most
            or math.isclose(found[labels], least, rel_tol=1e-9)
            or math.isclose(found[labels], most, rel_tol=1e-9)
            for labels, (least, most) in expected.items()
        )
        return None if same else f"expected {dict(expected)}, found {found}"

    return check


def check_dashboard(
    prometheus: Prometheus,
    streams: Sequence[str],
    expected: Mapping[tuple[str, str], Expectation],
    at: float | None = None,
    window: str = "10m",
) -> None:
    """Every query of every panel returns what is expected, by title and legend.

    A query without an expectation is an error, and so is an expectation without a query.
    """
    asked = queries(streams, window)
    assert {query.key for query in asked} == expected.keys()
    wrong = {
        f"{query.panel}, {query.legend}: {query.expr}": difference
        for query in asked
        if (difference := expected[query.key](prometheus.query(query.expr, at)))
    }
    assert not wrong, json.dumps(wrong, indent=2)


def check_alerts(
    prometheus: Prometheus, firing: Mapping[str, Expectation], at: float | None = None
) -> None:
    """The expressions of these alerts return what is expected, and those of all others nothing."""
    known = alerts()
    assert firing.keys() <= known.keys()
    wrong = {
        name: difference
        for name, rule in known.items()
        if (difference := firing.get(name, exactly({}))(prometheus.query(rule["expr"], at)))
    }
    assert not wrong, json.dumps(wrong, indent=2)
