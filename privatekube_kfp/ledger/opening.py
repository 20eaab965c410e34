"""Which ledger: the one place that reads where budgets live."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from urllib.parse import parse_qsl, urlsplit

from privatekube_kfp.core.errors import LedgerError, Reason
from privatekube_kfp.ledger.ledger import Ledger
from privatekube_kfp.ledger.sqlite import SqliteLedger
from privatekube_kfp.ledger.times import system_clock

LEDGER_VARIABLE = "PRIVATEKUBE_LEDGER"
IN_A_POD = "KUBERNETES_SERVICE_HOST"
"""A variable that every pod has."""
_SQLITE = "sqlite:///"
_KUBERNETES = "kubernetes"


def open_ledger(
    address: str | None,
    *,
    create: bool = False,
    source: str = "--ledger",
    clock: Callable[[], int] = system_clock,
) -> Ledger:
    """Open the ledger at an address: `sqlite:///ledger.db`, or `kubernetes`.

    A ledger is always named, never assumed: a pod that fell back to a ledger of its own would
    spend the same budget again. `sqlite:///name` is relative to the working directory, and
    `sqlite:////name`, with four slashes, is absolute. `kubernetes` is the cluster of the pod or
    of the kubeconfig, and its namespace; `kubernetes://NAMESPACE?context=NAME` names either.

    Args:
        address: Where the ledger is.
        create: Make an SQLite ledger if there is none yet.
        source: Where the address was read, for the error message.
        clock: The time in microseconds.
    """
    if not address:
        raise LedgerError(
            Reason.LEDGER_MISSING,
            f"no ledger named: give --ledger or set {LEDGER_VARIABLE}, for example"
            " sqlite:///ledger.db or kubernetes",
        )
    if address == _KUBERNETES or address.startswith(f"{_KUBERNETES}://"):
        return _open_cluster(address, source, clock)
    path = address.removeprefix(_SQLITE)
    if path == address or not path or "?" in path:
        raise _no_address(address, source)
    return SqliteLedger(path, create=create, clock=clock)


def _open_cluster(address: str, source: str, clock: Callable[[], int]) -> Ledger:
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.path not in ("", "/", _KUBERNETES) or parts.fragment or options.keys() - {"context"}:
        raise _no_address(address, source)
    if find_spec("kubernetes") is None:
        raise LedgerError(
            Reason.LEDGER_MISSING,
            "the ledger in a cluster needs the Kubernetes client; install it with"
            " pip install 'privatekube-kfp[kubernetes]'",
        )
    from privatekube_kfp.ledger.kubernetes.api import Api
    from privatekube_kfp.ledger.kubernetes.connecting import connecting, default_namespace
    from privatekube_kfp.ledger.kubernetes.ledger import KubernetesLedger

    context = options.get("context") or None
    name_one = "name one in KUBECONFIG"
    namespace = parts.netloc or default_namespace(context=context, name_one=name_one)
    api = Api(connecting(context=context, name_one=name_one), patience=15.0)
    return KubernetesLedger(api, namespace, clock=clock)


def _no_address(address: str, source: str) -> LedgerError:
    return LedgerError(
        Reason.LEDGER_MISSING,
        f"{source} {address!r} is not the address of a ledger; write it like"
        " sqlite:///ledger.db (relative), sqlite:////data/ledger.db (absolute), kubernetes or"
        " kubernetes://my-namespace",
    )
