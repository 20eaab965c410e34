"""Settings in a ConfigMap, so that a cluster says itself how pipelines run on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import urllib3
from kubernetes import client

from privatekube_kfp.core.errors import LedgerError, PrivateKubeError, Reason
from privatekube_kfp.ledger.kubernetes.connecting import configuration

T = TypeVar("T")
KEY = "privatekube.yaml"
_NAME_ONE = "name one in KUBECONFIG"
_SECONDS = 30


def read_config_map(namespace: str, name: str) -> str:
    """The settings text of a ConfigMap."""
    found = _asking(
        "read",
        namespace,
        name,
        lambda api: api.read_namespaced_config_map(name, namespace, _request_timeout=_SECONDS),
    )
    text = (found.data or {}).get(KEY)
    if text is None:
        raise PrivateKubeError(
            Reason.UNKNOWN_OBJECT, f"ConfigMap {namespace}/{name} has no key {KEY}"
        )
    return str(text)


def write_config_map(namespace: str, name: str, text: str) -> None:
    """Make the ConfigMap say these settings, whether it is there or not."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "privatekube"}},
        "data": {KEY: text},
    }

    def write(api: Any) -> None:
        try:
            api.create_namespaced_config_map(namespace, body, _request_timeout=_SECONDS)
        except client.ApiException as error:
            if error.status != 409:
                raise
            api.patch_namespaced_config_map(name, namespace, body, _request_timeout=_SECONDS)

    _asking("write", namespace, name, write)


def _asking(verb: str, namespace: str, name: str, ask: Callable[[Any], T]) -> T:
    settings = configuration(name_one=_NAME_ONE)
    settings.retries = urllib3.Retry(total=2, backoff_factor=0.2)
    with client.ApiClient(settings) as connection:
        try:
            return ask(client.CoreV1Api(connection))
        except client.ApiException as error:
            raise _refusal(error, verb, namespace, name) from None
        except urllib3.exceptions.HTTPError as error:
            why = getattr(error, "reason", None) or error
            said = str(why).rpartition(">: ")[2] or str(why)
            raise LedgerError(
                Reason.CLUSTER_UNREACHABLE, f"{settings.host} cannot be reached: {said}"
            ) from None


def _refusal(error: Any, verb: str, namespace: str, name: str) -> PrivateKubeError:
    what = f"ConfigMap {namespace}/{name}"
    if error.status == 404 and verb == "read":
        return PrivateKubeError(
            Reason.UNKNOWN_OBJECT,
            f"there is no {what}: publish one with"
            f" privatekube settings publish configmap:{namespace}/{name}",
        )
    if error.status == 404:
        return PrivateKubeError(Reason.UNKNOWN_OBJECT, f"there is no namespace {namespace}")
    if error.status in (401, 403):
        return PrivateKubeError(
            Reason.CLUSTER_REFUSED,
            f"the cluster does not let you {verb} {what}: ask for a Role that may get, create and"
            " patch configmaps there",
        )
    said = f"{error.status} {error.reason or ''}".strip()
    return PrivateKubeError(Reason.CLUSTER_REFUSED, f"{what}: the cluster answers {said}")
