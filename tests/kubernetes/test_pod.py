"""A pod's own connection to its cluster: the files that a kubelet mounts, and nothing else."""

import kubernetes.client
import pytest
import yaml

from privatekube_kfp.core.errors import LedgerError
from privatekube_kfp.ledger.kubernetes import connecting, pod
from privatekube_kfp.ledger.kubernetes.api import CLAIMS, Api
from privatekube_kfp.ledger.kubernetes.pod import PodConnection
from privatekube_kfp.ledger.opening import open_ledger
from tests.kubernetes.control_plane.certificates import Authority


@pytest.fixture
def account(control_plane, namespace, tmp_path):
    """The folder of a service account that may do nothing."""
    [cluster] = yaml.safe_load(control_plane.kubeconfig.read_text())["clusters"]
    account = {"metadata": {"name": "task"}}
    kubernetes.client.CoreV1Api(control_plane.admin).create_namespaced_service_account(
        namespace, account
    )
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "namespace").write_text(namespace)
    (folder / "token").write_text(control_plane.token(namespace, "task"))
    (folder / "ca.crt").symlink_to(cluster["cluster"]["certificate-authority"])
    return folder


@pytest.fixture
def in_pod(control_plane, account, monkeypatch):
    host, port = control_plane.server.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setattr(connecting, "_POD_ACCOUNT", account)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def test_it_is_the_service_account_that_asks(in_pod, namespace):
    with open_ledger("kubernetes") as ledger, pytest.raises(LedgerError) as refused:
        ledger.claims()
    assert f"system:serviceaccount:{namespace}:task" in refused.value.message


def test_a_renewed_token_is_taken(in_pod, account, control_plane, namespace, monkeypatch):
    api = Api(lambda: PodConnection(connections=1, account=account), patience=0.5)
    monkeypatch.setattr(pod, "_TOKEN_KEPT", -1.0)
    (account / "token").write_text("nonsense")
    with pytest.raises(LedgerError, match="does not accept the credentials"):
        api.list_all(CLAIMS, namespace)
    (account / "token").write_text(control_plane.token(namespace, "task"))
    with pytest.raises(LedgerError, match="forbidden"):
        api.list_all(CLAIMS, namespace)
    api.close()


def test_a_server_that_another_certificate_vouches_for_is_not_trusted(in_pod, account, tmp_path):
    (account / "ca.crt").unlink()
    (account / "ca.crt").symlink_to(Authority(tmp_path).own.certificate)
    api = Api(lambda: PodConnection(connections=1, account=account), patience=0.0)
    with pytest.raises(LedgerError, match="certificate verify failed"):
        api.list_all(CLAIMS)


def test_behind_a_proxy_the_client_connects(in_pod, account, monkeypatch):
    in_cluster = "kubernetes.config.incluster_config"
    monkeypatch.setattr(f"{in_cluster}.SERVICE_TOKEN_FILENAME", str(account / "token"))
    monkeypatch.setattr(f"{in_cluster}.SERVICE_CERT_FILENAME", str(account / "ca.crt"))
    assert isinstance(connecting.connecting()(), PodConnection)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert isinstance(connecting.connecting()(), kubernetes.client.ApiClient)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ("ca.crt", "there is no .*ca.crt"),
        ("token", "its token cannot be read: No such file or directory"),
    ],
)
def test_an_account_that_is_incomplete(in_pod, account, broken, sentence):
    (account / broken).unlink()
    with pytest.raises(LedgerError, match=f"service account cannot be used: {sentence}"):
        PodConnection(connections=1, account=account)
