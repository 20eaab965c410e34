"""`privatekube demo`, which is what `make run` runs, on few reviews."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import in_own_process

pytestmark = pytest.mark.slow
TOP = Path(__file__).parents[2]
SMALL = ("--rows", "1500", "--epochs", "1", "--json", "-q")


def test_from_reviews_to_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TOP)
    demo = ("demo", "--folder", str(tmp_path / "shop"), *SMALL)
    first = in_own_process(*demo)
    assert first.returncode == 0, first.stderr
    told = json.loads(first.stdout)
    assert set(told["accuracy"]) == {
        "with epsilon 1",
        "without privacy",
        "always the commonest",
    }
    assert told["accuracy"]["without privacy"] > told["accuracy"]["always the commonest"]
    before, after = told["left"]["before"], told["left"]["after"]
    assert set(before.values()) == {10.0}
    assert all(8.9999 < left < 9.001 for left in after.values())
    assert "Accuracy over epochs" in Path(told["report"]).read_text()
    assert (Path(told["model"]) / "model.json").exists()
    second = in_own_process(*demo)
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["left"]["before"] == after


def test_elsewhere_there_is_nothing_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = in_own_process("demo")
    assert result.returncode == 1
    assert "run it from the top of a checkout" in result.stderr
    assert not list(tmp_path.iterdir())
