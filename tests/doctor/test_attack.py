"""Clusters that are empty, closed, slow, huge or none at all: one sentence each, and in time."""

import json
import socket
import threading

import pytest
import yaml

from privatekube_kfp.cli import main
from tests.cli.running import KUBECONFIG
from tests.doctor.bed import ACCOUNT, KUBEFLOW
from tests.kubernetes.control_plane.cluster import ControlPlane

server = pytest.mark.server


def run(capsys, *args):
    capsys.readouterr()
    code = main(["doctor", "--json", "--settings", "none", *args])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def only(document):
    [found] = document["findings"][1:]  # the first is about settings
    return found


# No cluster


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    account = "privatekube_kfp.ledger.kubernetes.connecting._POD_ACCOUNT"
    monkeypatch.setattr(account, tmp_path / "none")
    return tmp_path


def test_no_kubeconfig(nowhere, capsys):
    code, document, err = run(capsys)
    assert (code, err) == (1, "")
    assert (only(document)["check"], only(document)["reason"]) == ("cluster", "NoCluster")
    assert only(document)["message"].startswith("there is no kubeconfig")


@pytest.mark.parametrize("text", ["", "[]", "{", "clusters: 1", "\0", "\N{SNOWMAN}" * 1000])
def test_kubeconfig_of_garbage(nowhere, capsys, text):
    (nowhere / "garbage").write_text(text)
    code, document, err = run(capsys, "--kubeconfig", "garbage")
    assert (code, err) == (1, "")
    assert only(document)["reason"] == "NoCluster"
    assert "garbage cannot be used: " in only(document)["message"]
    assert "\n" not in only(document)["message"]


def test_nobody_listens(nowhere, capsys):
    (nowhere / "good").write_text(KUBECONFIG)
    code, document, err = run(capsys, "--kubeconfig", "good")
    assert (code, err) == (1, "")
    assert only(document)["message"].startswith(
        "no answer from the API server at https://127.0.0.1:1: "
    )
    assert only(document)["mend"] == "kubectl --kubeconfig good cluster-info"


def listening(answer):
    """A server on this machine that answers each connection with bytes, or never."""
    listener = socket.create_server(("127.0.0.1", 0))
    held = []

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)
            if answer:
                connection.recv(65536)
                connection.sendall(answer)
                connection.close()

    threading.Thread(target=serve, daemon=True).start()
    return listener, held


def kubeconfig_of(folder, port):
    config = yaml.safe_load(KUBECONFIG)
    config["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{port}"
    (folder / "config").write_text(yaml.safe_dump(config))
    return "--kubeconfig", "config"


def test_api_server_that_hangs(nowhere, capsys, monkeypatch):
    monkeypatch.setattr("privatekube_kfp.cli.doctor._ANSWER_SECONDS", 0.5)
    listener, held = listening(b"")
    with listener:
        code, document, err = run(capsys, *kubeconfig_of(nowhere, listener.getsockname()[1]))
    assert (code, err) == (1, "")
    assert only(document)["reason"] == "NoCluster"
    assert "Read timed out" in only(document)["message"]
    assert len(held) == 1, "it is asked once, not once for each check"
    for each in held:
        each.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n<html></html>\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull",
        b"garbage\r\n\r\n",
    ],
)
def test_what_answers_is_no_api_server(nowhere, capsys, answer):
    listener, _ = listening(answer)
    with listener:
        code, document, err = run(capsys, *kubeconfig_of(nowhere, listener.getsockname()[1]))
    assert (code, err) == (1, "")
    assert only(document)["reason"] == "NoCluster"


def test_credentials_that_nobody_knows(nowhere, capsys):
    answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}"
    listener, _ = listening(answer)
    with listener:
        code, document, _ = run(capsys, *kubeconfig_of(nowhere, listener.getsockname()[1]))
    assert code == 1
    assert only(document)["message"].endswith("does not accept your credentials")


@pytest.mark.parametrize(
    "args",
    [("--namespace", "No_Good"), ("--endpoint", ""), ("--token-env", "NOT_SET"), ("--no-such",)],
)
def test_usage(nowhere, capsys, args):
    assert main(["doctor", *args]) == 2


# A real cluster


@server
def test_text_says_the_same(bed, capsys):
    capsys.readouterr()
    where = ("--kubeconfig", str(bed.cluster.kubeconfig), "--settings", "none")
    code = main(["doctor", *where, "--namespace", "elsewhere"])
    lines = capsys.readouterr().out.splitlines()
    assert code == 1
    [at] = [n for n, line in enumerate(lines) if line.startswith("wrong")]
    assert lines[at] == (
        "wrong      account        there is no namespace elsewhere, where pipelines are to run"
    )
    assert lines[at + 1].strip() == (
        f"run: kubectl --kubeconfig {bed.cluster.kubeconfig} create namespace elsewhere"
    )
    assert lines[-1] == "1 wrong, 7 ok"


@server
def test_a_tenant(bed):
    """Whoever may read nothing but a namespace's claims is told what was not checked."""
    bed.kubectl(f"-n {KUBEFLOW} create serviceaccount tenant")
    bed.kubectl(
        f"-n {KUBEFLOW} create rolebinding tenant --clusterrole=privatekube-viewer"
        f" --serviceaccount={KUBEFLOW}:tenant"
    )
    kubeconfig = bed.cluster.kubeconfig_for(bed.cluster.token(KUBEFLOW, "tenant"))
    report = bed.doctor(*bed.settings, kubeconfig=kubeconfig)
    assert report.code == 0
    unchecked = [each for each in report.findings if each["level"] != "ok"]
    assert {each["level"] for each in unchecked} == {"unchecked"}
    said = {each["check"]: each["message"] for each in unchecked}
    assert said["definitions"] == (
        "could not be checked: you may not get customresourcedefinitions"
    )
    assert said["scheduler"] == (
        "could not be checked: you may not list deployments in namespace privatekube-system"
    )
    assert said["account"] == (
        "could not be checked: you may not get serviceaccounts in namespace kubeflow"
    )
    assert said["rights"] == (
        "could not be checked: you may not ask what service account pipeline-runner in namespace"
        " kubeflow may do"
    )
    assert said["secrets"] == (
        "could not be checked: you may not get secrets in namespace kubeflow"
    )
    assert "results" in said


@server
def test_the_account_of_pipelines_itself(bed):
    """In a pod of its own, it can ask what it may do itself."""
    kubeconfig = bed.cluster.kubeconfig_for(bed.cluster.token(KUBEFLOW, ACCOUNT))
    report = bed.doctor(kubeconfig=kubeconfig)
    found = {each["check"]: each["level"] for each in report.findings}
    assert (found["rights"], found["streams"]) == ("ok", "ok")
    assert report.code == 0


@server
def test_token_that_has_expired(bed):
    report = bed.doctor(kubeconfig=bed.cluster.kubeconfig_for("nobodys"))
    assert report.amiss == [("cluster", "wrong", "NoCluster")]
    assert "does not accept your credentials" in report.only["message"]


@server
def test_many_objects(bed):
    """Thousands of claims and other people's leases and deployments cost nothing."""
    leases = [
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": f"node-{number}", "namespace": "default"},
        }
        for number in range(700)
    ]
    bed.cluster.apply(leases)
    assert bed.doctor().amiss == []
    bed.kubectl("-n default delete lease --all --wait=false")


@pytest.fixture(scope="module")
def empty(binaries):
    with ControlPlane(binaries) as cluster:
        yield cluster


@server
def test_empty_cluster(empty, nowhere, capsys):
    code, document, err = run(capsys, "--kubeconfig", str(empty.kubeconfig))
    assert (code, err) == (1, "")
    amiss = [(each["check"], each["reason"]) for each in document["findings"] if each["reason"]]
    assert amiss[0] == ("installation", "NotInstalled")
    assert {reason for _, reason in amiss[1:]} == {"NotChecked"}
    [found] = [each for each in document["findings"] if each["level"] == "wrong"]
    assert found["mend"] == f"privatekube install --apply --kubeconfig {empty.kubeconfig}"
