"""What the command line says of a cluster: whose claims, and settings in a ConfigMap."""

import pytest
from kubernetes.client import CoreV1Api

from privatekube_kfp.ledger.kubernetes.api import Api
from privatekube_kfp.ledger.kubernetes.ledger import KubernetesLedger
from tests.cli.running import Run
from tests.contract.world import ask, basic_stream
from tests.scheduler.running import clean, install


@pytest.fixture
def run(capsys, control_plane, monkeypatch, tmp_path):
    """The command line, in the namespace `default` of the cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    monkeypatch.setenv("PRIVATEKUBE_LEDGER", "kubernetes")
    return Run(capsys)


@pytest.fixture
def other(control_plane, namespace):
    """A claim in a namespace of its own, which no scheduler has read."""
    install(control_plane)
    api = Api(control_plane.client)
    with KubernetesLedger(api, namespace, answer_within=0) as ledger:
        ledger.create_stream(basic_stream("clicks"))
        ledger.create_block("monday", "clicks")
        ledger.submit("train", ask("0.2", "monday", stream="clicks"))
    yield namespace
    clean(control_plane)


def test_claims_of_another_namespace_are_not_passed_over_in_silence(run, other):
    assert "no such claims in namespace default; --all-namespaces" in run.ok("claim", "list").out
    assert run.json("claim", "list") == {"claims": [], "namespace": "default"}
    for named in (("-n", other), ("--all-namespaces",)):
        (found,) = run.json("claim", "list", *named)["claims"]
        assert (found["name"], found["namespace"]) == ("train", other)
        assert found["requests"][0]["price"] is None, "no scheduler has read it"
    shown = run.ok("claim", "list", "-A").out.splitlines()
    assert [line.split()[:3] for line in shown] == [
        ["NAMESPACE", "NAME", "STREAM"],
        [other, "train", "clicks"],
    ]


def test_who_may_not_look_is_told_what_to_ask_for(run, other, control_plane, monkeypatch):
    CoreV1Api(control_plane.admin).create_namespaced_service_account(
        other, {"metadata": {"name": "nobody"}}
    )
    token = control_plane.token(other, "nobody")
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_for(token)))
    for named, mend in (
        (("-n", other), "ask for a RoleBinding to privatekube-viewer"),
        (("-A",), "ask for a ClusterRoleBinding to privatekube-viewer"),
    ):
        result = run("claim", "list", *named, "--json")
        assert result.code == 1
        assert result.json["error"]["reason"] == "ClusterRefused"
        assert mend in result.json["error"]["message"]
        assert len(result.err.splitlines()) == 1


SETTINGS = "results: s3://results\nserviceAccount: runner\n"


def test_settings_in_a_config_map(run, namespace, tmp_path):
    at = f"configmap:{namespace}"
    missing = run("settings", "show", "--settings", at)
    assert missing.code == 1
    assert f"there is no ConfigMap {namespace}/privatekube-settings: publish one" in missing.err
    (tmp_path / "privatekube.yaml").write_text(SETTINGS)
    assert f"--settings {at}" in run.ok("settings", "publish", at).out
    shown = run.json("settings", "show", "--settings", at)
    assert (shown["source"], shown["results"]) == (at, "s3://results")
    (tmp_path / "privatekube.yaml").write_text("results: s3://others\n")
    run.ok("settings", "publish", f"{at}/privatekube-settings")
    shown = run.json("settings", "show", "--settings", at)
    assert (shown["results"], shown["serviceAccount"]) == ("s3://others", None)
    (tmp_path / "privatekube.yaml").write_text("resutls: s3://others\n")
    assert "did you mean results?" in run("settings", "publish", at).err
    assert run.json("settings", "show", "--settings", at)["results"] == "s3://others"


def test_who_may_not_read_settings_is_told(run, namespace, control_plane, monkeypatch, tmp_path):
    token = control_plane.token(namespace, "default")
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_for(token)))
    (tmp_path / "privatekube.yaml").write_text(SETTINGS)
    at = f"configmap:{namespace}"
    for words in (("show", "--settings", at), ("publish", at)):
        result = run("settings", *words)
        assert result.code == 1
        assert "the cluster does not let you" in result.err
        assert "(ClusterRefused)" in result.err


def test_no_such_namespace(run, tmp_path):
    (tmp_path / "privatekube.yaml").write_text(SETTINGS)
    result = run("settings", "publish", "configmap:no-such-namespace")
    assert result.code == 1
    assert "there is no namespace no-such-namespace" in result.err
