"""The command line to run, and a pipeline to run it on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import Run
from tests.lint.cases import CASES
from tests.lint.compiling import compiled


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


@pytest.fixture(scope="session")
def clean_text() -> str:
    """A compiled pipeline with nothing wrong, and nothing to warn of."""
    return compiled(CASES["seven_steps"].pipeline)


@pytest.fixture(scope="session")
def bad_text() -> str:
    """A compiled pipeline with two findings, and two more in a strict check."""
    return compiled(CASES["ordinary_release"].pipeline)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def clean(folder: Path, clean_text: str) -> str:
    (folder / "clean.yaml").write_text(clean_text)
    return "clean.yaml"


@pytest.fixture
def bad(folder: Path, bad_text: str) -> str:
    (folder / "bad.yaml").write_text(bad_text)
    return "bad.yaml"
