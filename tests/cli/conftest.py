"""A ledger to work on, and the command line to do it with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from privatekube_kfp.cli import main
from tests.cli.running import Run


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, with a ledger named and not yet made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRIVATEKUBE_LEDGER", "sqlite:///ledger.db")
    for variable in ("FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nowhere in a cluster, with no kubeconfig; a folder to put one into."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    account = "privatekube_kfp.ledger.kubernetes.connecting._POD_ACCOUNT"
    monkeypatch.setattr(account, tmp_path / "none")
    return tmp_path


@pytest.fixture(scope="session")
def _basic_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "ledger.db"
    address = ("--ledger", f"sqlite:///{path}")
    declared = ("--epsilon", "1", "--delta", "1e-7", "--unlock-pipelines", "1")
    assert main([*address, "stream", "create", "s", *declared]) == 0
    assert main([*address, "block", "create", "b1", "--stream", "s"]) == 0
    return path


@pytest.fixture
def basic(run: Run, workplace: Path, _basic_ledger: Path) -> Run:
    """A ledger with a Basic stream `s` of epsilon 1, unlocked by the first pipeline, block `b1`."""
    shutil.copy(_basic_ledger, workplace / "ledger.db")
    return run
