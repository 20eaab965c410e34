"""The files of the dashboard and the alerts agree with the metrics, the manifests and the pages."""

import json
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from PIL import Image

from scheduler.metrics import Metrics, StreamSnapshot
from tests.docs.test_examples import headings
from tests.monitoring import day
from tests.monitoring.dashboard import FOLDER, ROOT, alert_rules, alerts, dashboard, metric_names
from tests.monitoring.draw_dashboard import PICTURE, TITLES, draw

PAGE = ROOT / "docs/monitoring.md"


@pytest.fixture(scope="module")
def families():
    """Every metric of ours by the name that a query uses, with its help and labels."""
    metrics = Metrics("1")
    metrics.show([StreamSnapshot("ads", {}, {}, 0, 0, {}, {}, 0)])
    metrics.clock_skew(0)
    metrics.requested("get", "streams", "200")
    metrics.bad_object("claims", "Unreadable")
    found = {}
    for family in metrics.registry.collect():
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        if family.name.startswith("privatekube_"):
            found[family.name + suffix] = (family.documentation, labels)
    return found


def test_every_metric_is_documented(families):
    rows = re.findall(r"^\| `(privatekube_\w+)` \| (.*?) \|", PAGE.read_text(), re.M)
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    assert documented == {name: labels for name, (_, labels) in families.items()}


def test_every_metric_that_is_asked_for_exists(families):
    asked = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    asked += [rule["expr"] for rule in alerts().values()]
    for expr in asked:
        assert metric_names(expr.replace("_bucket", "")) <= families.keys(), expr


def test_dashboard_is_one_that_grafana_takes():
    shown = dashboard()
    assert (FOLDER / "dashboard.json").read_text() == json.dumps(shown, indent=2) + "\n"
    assert shown["uid"] == "privatekube"
    assert [variable["name"] for variable in shown["templating"]["list"]] == [
        "datasource",
        "stream",
    ]
    panels = shown["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])
        refs = [target["refId"] for target in panel["targets"]]
        assert refs
        assert len(set(refs)) == len(refs)


def test_panels_do_not_overlap():
    boxes = [panel["gridPos"] for panel in dashboard()["panels"]]
    for box in boxes:
        assert box["x"] >= 0
        assert box["x"] + box["w"] <= 24
    for one, other in combinations(boxes, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


def test_alerts_are_an_object_of_the_operator():
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    assert (rules["apiVersion"], rules["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert rules["spec"].keys() == {"groups"}


@pytest.mark.parametrize("name", alerts())
def test_every_alert_says_what_it_is_and_what_to_do(name):
    rule = alerts()[name]
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    notes = rule["annotations"]
    assert notes.keys() == {"summary", "description", "runbook"}
    assert notes["summary"].endswith(".")
    assert notes["description"].endswith(".")
    page, _, anchor = notes["runbook"].partition("#")
    assert anchor == name.lower()
    assert anchor in headings(ROOT / page)


def test_alerts_and_page_agree_on_severity():
    sections = re.findall(r"^### (PrivateKube\w+)\n\n\*(\w+)\*", PAGE.read_text(), re.M)
    assert dict(sections) == {name: rule["labels"]["severity"] for name, rule in alerts().items()}


def test_rules_for_prometheus_without_the_operator():
    """The command that the page shows makes them."""
    [command] = re.findall(r"^python3 (-c .* < scheduler/\S+) > \S+$", PAGE.read_text(), re.M)
    made = subprocess.run(
        ["bash", "-c", f"{sys.executable} {command}"], cwd=ROOT, check=True, capture_output=True
    )
    assert yaml.safe_load(made.stdout) == alert_rules()


def titles() -> list[str]:
    """The panels as they are drawn: one that is repeated, once for each stream."""
    return [
        panel["title"].replace("$stream", stream)
        for panel in dashboard()["panels"]
        for stream in (day.STREAMS if panel.get("repeat") else [""])
    ]


def test_the_picture_is_of_this_dashboard():
    with Image.open(PICTURE) as picture:
        assert picture.info[TITLES].splitlines() == titles(), (
            "draw it again: python -m tests.monitoring.draw_dashboard"
        )
    assert PICTURE.stat().st_size < 150_000


@pytest.mark.server
def test_every_panel_can_be_drawn(programs, tmp_path: Path):
    assert draw(tmp_path / "dashboard.png") == titles()
