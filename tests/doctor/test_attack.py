"""Clusters that are empty, closed, slow, huge or none at all: one sentence each, and in time."""

import contextlib
import json
import os
import socket
import socketserver
import threading

import pytest
import yaml

from privatekube_kfp.cli import main
from privatekube_kfp.doctor import kubeflow, storage
from privatekube_kfp.doctor.cluster import Cluster, NoCluster
from privatekube_kfp.doctor.findings import Unknown
from privatekube_kfp.doctor.probe import Outcome
from privatekube_kfp.doctor.reach import Reach
from privatekube_kfp.doctor.registries import ask_registry
from privatekube_kfp.ledger.kubernetes.api import Api
from privatekube_kfp.ledger.kubernetes.connecting import connecting
from privatekube_kfp.settings import settings_from_text
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


# Login commands


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo garbage; echo woe >&2", "failed to decode process output"),
        ("echo '[]'", "malformed response"),
        ("echo 'log in anew' >&2; exit 3", "process returned 3. log in anew"),
        (None, "No such file or directory"),
    ],
)
def test_login_command_that_fails(nowhere, capsys, script, said):
    """It goes on as nobody in no case, of whom a server may say much that is beside the point."""
    listener, held = listening(b"")
    with listener:
        config = login_by(nowhere, listener.getsockname()[1], script)
        code, document, err = run(capsys, *config)
    assert (code, err, held) == (1, "", [])
    assert only(document)["reason"] == "NoCluster"
    assert only(document)["message"].startswith("config cannot be used: its login failed: ")
    assert said in only(document)["message"]


def test_login_command_that_hangs(nowhere, capsys, monkeypatch):
    monkeypatch.setattr("privatekube_kfp.cli.doctor._LOGIN_SECONDS", 0.5)
    os.mkfifo(nowhere / "pipe")
    code, document, err = run(capsys, *login_by(nowhere, 1, "cat pipe"))
    assert (code, err) == (1, "")
    assert only(document)["message"] == "the kubeconfig's login command did not end within 0.5 s"
    with (nowhere / "pipe").open("w"):
        pass  # lets it end


def login_by(folder, port, script):
    option = kubeconfig_of(folder, port)
    config = yaml.safe_load((folder / "config").read_text())
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login"}
    config["users"][0]["user"] = {"exec": command}
    (folder / "config").write_text(yaml.safe_dump(config))
    if script is not None:
        (folder / "login").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "login").chmod(0o755)
    return option


# Servers that send a byte now and then, or without end


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 9000000000\r\n\r\n"


@contextlib.contextmanager
def sending(*, first, piece, every):
    """A server that never comes to the end of its answers, however long one waits."""
    over = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(65536)
            with contextlib.suppress(OSError):
                self.request.sendall(first)
                while not over.wait(every):
                    self.request.sendall(piece)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        over.set()
        server.shutdown()
        thread.join()


SLOW = [
    pytest.param({"first": b"HTTP/1.1 200 OK\r\nX: ", "piece": b"a"}, id="header"),
    pytest.param({"first": HEAD, "piece": b" "}, id="body"),
]


@pytest.mark.parametrize("slow", SLOW)
def test_slow_kubeflow(slow):
    with sending(**slow, every=0.05) as port:
        facts = kubeflow.look(f"http://127.0.0.1:{port}", seconds=0.5)
    assert facts.failed == "it gave no answer: no answer within 0.5 s"


def test_huge_kubeflow():
    with sending(first=HEAD, piece=b" " * 100_000, every=0) as port:
        facts = kubeflow.look(f"http://127.0.0.1:{port}")
    assert facts.failed == "it gave no answer: it answers with more than 1,000,000 bytes"


@pytest.mark.parametrize("slow", SLOW[:1])
def test_slow_registry(slow):
    with sending(**slow, every=0.05) as port:
        answer = ask_registry(f"127.0.0.1:{port}/team/python:1", {}, seconds=0.5)
    assert answer == Unknown(
        f"registry 127.0.0.1:{port} cannot be reached: no answer within 0.5 s", from_here=True
    )


@pytest.mark.parametrize("slow", SLOW)
def test_slow_api_server(slow, nowhere):
    with sending(**slow, every=0.05) as port:
        _, config = kubeconfig_of(nowhere, port)
        api = Api(connecting(config), patience=0.0)
        with pytest.raises(NoCluster, match=r"no whole answer .* no answer within 0\.5 s"):
            Cluster(api, api.host, in_all=0.5).about("/version")


def test_deeply_nested_answer(nowhere, capsys):
    body = b"[" * 200_000
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    listener, _ = listening(answer)
    with listener:
        port = listener.getsockname()[1]
        facts = kubeflow.look(f"http://127.0.0.1:{port}")
        code, document, err = run(capsys, *kubeconfig_of(nowhere, port))
    assert facts.failed == "it answered 200, and not as Kubeflow Pipelines does"
    assert (code, err, only(document)["reason"]) == (1, "", "NoCluster")


@pytest.mark.parametrize(
    "sends", [{"piece": b" ", "every": 1}, {"piece": b" " * 10**6, "every": 0}]
)
def test_object_store_that_never_ends(sends):
    """The process that tries it ends by itself, and with little memory."""
    with sending(first=HEAD, **sends) as port:
        found = tried(f"http://127.0.0.1:{port}", Reach(inside=False), seconds=1.0)
    assert isinstance(found, Unknown)
    assert found.why == "its object store cannot be reached: no answer within 1 s"


# Proxies


def test_a_proxy_that_refuses(nowhere, capsys, monkeypatch):
    """What it says is not what a server says; a password in its address is not told."""
    listener, _ = listening(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
    with listener:
        proxy = f"http://me:hidden@127.0.0.1:{listener.getsockname()[1]}"
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        (nowhere / "good").write_text(KUBECONFIG)
        code, document, err = run(
            capsys, "--kubeconfig", "good", "--endpoint", "http://kubeflow.example:8888"
        )
        answer = ask_registry("registry.example/team/python:1", {})
    assert (code, err) == (1, "")
    said = document["findings"][-1]
    assert (said["check"], said["level"]) == ("kubeflow", "wrong")
    assert said["message"].endswith("it gave no answer: 403, by the proxy 127.0.0.1")
    assert isinstance(answer, Unknown)
    assert answer.why.endswith(", by the proxy 127.0.0.1")
    assert "hidden" not in json.dumps(document) + answer.why


def test_an_object_store_behind_a_proxy_that_refuses(monkeypatch):
    """Whether pods are refused too, nobody knows."""
    listener, _ = listening(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
    with listener:
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{listener.getsockname()[1]}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        found = tried("http://store.example:9000", Reach(inside=False))
    assert isinstance(found, Unknown)
    assert found.why.startswith("a proxy is between, which may say this: ")


@pytest.mark.parametrize("inside", [True, False])
def test_what_cannot_be_reached_is_known_to_be_wrong_only_inside(inside):
    found = tried("http://127.0.0.1:1", Reach(inside))
    assert (found is Outcome.UNREACHABLE) is inside
    assert isinstance(found, Unknown) is not inside


def tried(endpoint, reach, seconds=20.0):
    """How writing to an object store went."""
    settings = settings_from_text("results: s3://team/results", "site.yaml")
    variables = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }
    return storage.look(settings, variables, None, reach, seconds=seconds)[0].outcome


def test_a_proxy_that_is_none(nowhere, capsys, monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:1")
    (nowhere / "good").write_text(KUBECONFIG)
    code, document, err = run(
        capsys, "--kubeconfig", "good", "--endpoint", "http://ml-pipeline.kubeflow:8888"
    )
    assert (code, err) == (1, "")
    assert [each["reason"] for each in document["findings"]] == [
        None,
        "NoCluster",
        "KubeflowUnreachable",
    ]


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
