"""The alerts by themselves: Prometheus's own tool reads the rules and runs their unit tests."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.monitoring.dashboard import alert_rules, alerts

_TESTS = Path(__file__).with_name("alerts_test.yaml")


@pytest.fixture
def promtool(programs, tmp_path):
    """Runs promtool beside the rules and their tests."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(alert_rules(), sort_keys=False))
    (tmp_path / _TESTS.name).write_bytes(_TESTS.read_bytes())

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(programs.promtool), *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.server
def test_rules_can_be_loaded(promtool):
    done = promtool("check", "rules", "rules.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(alerts())} rules found" in done.stdout


@pytest.mark.server
def test_alerts_fire_when_they_should_and_say_what_they_should(promtool):
    done = promtool("test", "rules", _TESTS.name)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_to_fire_and_not_to_fire():
    tested = {
        (case["alertname"], bool(case["exp_alerts"]))
        for test in yaml.safe_load(_TESTS.read_text())["tests"]
        for case in test["alert_rule_test"]
    }
    assert tested == {(name, fires) for name in alerts() for fires in (True, False)}
