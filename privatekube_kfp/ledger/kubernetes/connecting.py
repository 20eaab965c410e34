"""Which cluster, and as whom: from a kubeconfig, or from inside a pod.

The ledger, the scheduler and `privatekube install` all find their cluster here. The Kubernetes
client is imported where it is needed: it takes its time, and most pods do without.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from privatekube_kfp.core.errors import LedgerError, Reason
from privatekube_kfp.ledger.kubernetes.api import Connection
from privatekube_kfp.ledger.kubernetes.pod import ACCOUNT, PodConnection, reached_directly

if TYPE_CHECKING:
    from kubernetes.client import Configuration

T = TypeVar("T")

NAME_ONE = "name one with --kubeconfig"
_POD_ACCOUNT = ACCOUNT


def connecting(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    connections: int = 8,
    name_one: str = NAME_ONE,
) -> Callable[[], Connection]:
    """A function that connects, anew each time it is called: with the credentials of then."""

    def connect() -> Connection:
        if is_in_pod(kubeconfig, context) and reached_directly():
            return PodConnection(connections=connections, account=_POD_ACCOUNT)
        from kubernetes.client import ApiClient

        settings = configuration(kubeconfig, context, name_one=name_one)
        settings.connection_pool_maxsize = connections
        client: Connection = ApiClient(settings)
        return client

    return connect


def configuration(
    kubeconfig: str | None = None, context: str | None = None, *, name_one: str = NAME_ONE
) -> Configuration:
    """How to reach the cluster, and as whom.

    A kubeconfig or a context that is named is used; otherwise a pod's own account where there
    is one, else the kubeconfig of KUBECONFIG or the home folder. `name_one` is how the caller's
    users can name another, for the error message.
    """
    from kubernetes.client import Configuration
    from kubernetes.config import incluster_config, kube_config

    settings = Configuration()
    if is_in_pod(kubeconfig, context):
        _read(
            "the pod's service account",
            lambda: incluster_config.load_incluster_config(client_configuration=settings),
        )
    else:
        source = _kubeconfig(kubeconfig, name_one)
        with _logged_errors() as errors:
            _read(
                source,
                lambda: kube_config.load_kube_config(
                    source, context=context, client_configuration=settings
                ),
            )
        if errors and not settings.api_key and not settings.cert_file:
            # The client would go on as nobody.
            raise _unusable(source, f"its login failed: {' '.join(errors[-1].split())}")
    return settings


@contextmanager
def _logged_errors() -> Iterator[list[str]]:
    """What the Kubernetes client logs in place of failing: a login command that fails."""
    said: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler, root = Handler(logging.ERROR), logging.getLogger()
    # While there is a handler, the client's messages are not printed.
    root.addHandler(handler)
    try:
        yield said
    finally:
        root.removeHandler(handler)


def default_namespace(
    kubeconfig: str | None = None, context: str | None = None, *, name_one: str = NAME_ONE
) -> str:
    """The pod's namespace, or that of the kubeconfig's context."""
    if is_in_pod(kubeconfig, context):
        return (_POD_ACCOUNT / "namespace").read_text().strip()
    from kubernetes.config import kube_config

    source = _kubeconfig(kubeconfig, name_one)
    contexts, current = _read(source, lambda: kube_config.list_kube_config_contexts(source))
    if context is not None:
        named = [each for each in contexts if each["name"] == context]
        if not named:
            raise _unusable(source, f"it has no context {context!r}")
        current = named[0]
    return str(current["context"].get("namespace") or "default")


def is_in_pod(kubeconfig: str | None, context: str | None) -> bool:
    """Whether it is a pod that asks for its own cluster."""
    return kubeconfig is None and context is None and (_POD_ACCOUNT / "token").exists()


def _kubeconfig(named: str | None, name_one: str) -> str:
    """The kubeconfigs to read: one, or several as KUBECONFIG lists them; one must be there."""
    source = named or os.environ.get("KUBECONFIG") or "~/.kube/config"
    if not any(Path(path).expanduser().is_file() for path in source.split(os.pathsep) if path):
        raise LedgerError(
            Reason.CLUSTER_UNREACHABLE, f"there is no kubeconfig {source}; {name_one}"
        )
    return source


def _read(source: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except Exception as error:  # Whatever a file that others wrote makes of its reader.
        raise _unusable(source, " ".join(str(error).split())) from error


def _unusable(source: str, why: str) -> LedgerError:
    return LedgerError(Reason.CLUSTER_UNREACHABLE, f"{source} cannot be used: {why}")
