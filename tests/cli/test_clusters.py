"""Naming a cluster that is not there, or is none: one sentence, whoever asks."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import KUBECONFIG

TOP = Path(__file__).parents[2]


def failed(run, ledger="kubernetes"):
    result = run("stream", "list", "--ledger", ledger, "--json")
    assert result.code == 1
    error = result.json["error"]
    assert result.err == f"privatekube: {error['message']} ({error['reason']})\n"
    assert error["reason"] == "ClusterUnreachable"
    return error["message"]


def test_no_kubeconfig(run, no_cluster):
    assert failed(run) == "there is no kubeconfig ~/.kube/config; name one in KUBECONFIG"


@pytest.mark.parametrize("text", ["", "[]", "{", "just text", "clusters: 1", "\0"])
@pytest.mark.parametrize("ledger", ["kubernetes", "kubernetes://somewhere"])
def test_no_kubeconfig_in_the_file(run, no_cluster, monkeypatch, text, ledger):
    (no_cluster / "broken").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(no_cluster / "broken"))
    assert failed(run, ledger).startswith(f"{no_cluster / 'broken'} cannot be used: ")


@pytest.mark.parametrize("ledger", ["kubernetes://?context=there", "kubernetes://n?context=there"])
def test_no_such_context(run, no_cluster, monkeypatch, ledger):
    (no_cluster / "good").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(no_cluster / "good"))
    assert "there" in failed(run, ledger)


@pytest.mark.parametrize("ledger", ["kubernetes:", "kubernetes://n/x", "kubernetes://n?as=me"])
def test_no_address(run, no_cluster, ledger):
    result = run("stream", "list", "--ledger", ledger)
    assert result.code == 1
    assert "is not the address of a ledger" in result.err


def test_a_scheduler_says_so_too(tmp_path):
    (tmp_path / "broken").write_text("just text")
    done = subprocess.run(
        [sys.executable, "-m", "scheduler", f"--kubeconfig={tmp_path / 'broken'}"],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"scheduler: {tmp_path / 'broken'} cannot be used: ")
    assert "\n" not in done.stderr.rstrip("\n")
