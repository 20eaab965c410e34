"""A folder with pipelines and data in it, and the command line to run them with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Run
from tests.local.world import DATA, World


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[World]:
    """An empty folder to work in, with no ledger named, and the manifests `data.yaml` in it."""
    monkeypatch.chdir(tmp_path)
    for variable in ("PRIVATEKUBE_LEDGER", "FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "data.yaml").write_text(DATA)
    made = World(tmp_path, Run(capsys))
    yield made
    made.close()
