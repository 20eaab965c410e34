"""A pod's own connection to its cluster, which is all that a task of a pipeline needs.

The Kubernetes client knows every kind of object there is and every way to log in, and to import it
takes as long as all else that a task imports. A pod has one way: files with a token and a
certificate.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import urllib3

from privatekube_kfp import __version__
from privatekube_kfp.core.errors import LedgerError, Reason

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_KEPT = 60.0
_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


def reached_directly(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a pod talks to its API server without a proxy; proxies are left to the client."""
    return not any(environment.get(name) for name in _PROXIES)


class PodConnection:
    """To the API server that the environment names, as the service account that is mounted.

    The kubelet renews the token, so it is read again once a minute.
    """

    def __init__(
        self,
        *,
        connections: int,
        account: Path = ACCOUNT,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        host = environment.get("KUBERNETES_SERVICE_HOST", "")
        port = environment.get("KUBERNETES_SERVICE_PORT", "")
        if not host or not port:
            raise _unusable("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
        if not (account / "ca.crt").is_file():
            raise _unusable(f"there is no {account / 'ca.crt'}")
        name = f"[{host}]" if ":" in host else host
        pool = urllib3.PoolManager(
            maxsize=connections, cert_reqs="CERT_REQUIRED", ca_certs=str(account / "ca.crt")
        )
        self.configuration: Any = SimpleNamespace(host=f"https://{name}:{port}")
        self.rest_client: Any = SimpleNamespace(pool_manager=pool)
        self.default_headers = {"User-Agent": f"privatekube/{__version__}"}
        self._account = account
        self._token = self._read_token()
        self._read_at = time.monotonic()

    def update_params_for_auth(
        self, headers: dict[str, str], queries: list[Any], auth_settings: list[str]
    ) -> None:
        if time.monotonic() - self._read_at > _TOKEN_KEPT:
            self._token, self._read_at = self._read_token(), time.monotonic()
        headers["authorization"] = f"Bearer {self._token}"

    def close(self) -> None:
        self.rest_client.pool_manager.clear()

    def _read_token(self) -> str:
        try:
            token = (self._account / "token").read_text().strip()
        except OSError as error:
            raise _unusable(f"its token cannot be read: {error.strerror}") from error
        if not token:
            raise _unusable("its token is empty")
        return token


def _unusable(why: str) -> LedgerError:
    return LedgerError(
        Reason.CLUSTER_UNREACHABLE, f"the pod's service account cannot be used: {why}"
    )
