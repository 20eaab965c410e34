"""`privatekube doctor`: what is wrong with a set-up, and which command mends it."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from typing import TYPE_CHECKING

import click

from privatekube_kfp import __version__
from privatekube_kfp.cli.errors import DONE, REFUSED, needing
from privatekube_kfp.cli.install import NAMESPACE, manifests, read_namespace
from privatekube_kfp.cli.options import json_option
from privatekube_kfp.cli.output import say
from privatekube_kfp.cli.pipelines import settings_option
from privatekube_kfp.cli.session import Session
from privatekube_kfp.cli.submit import ENDPOINT_VARIABLE, read_endpoint, read_token
from privatekube_kfp.cli.values import Value

if TYPE_CHECKING:
    from privatekube_kfp.doctor.cluster import Cluster
    from privatekube_kfp.doctor.findings import Finding

_ANSWER_SECONDS = 10.0
_LOGIN_SECONDS = 60.0


@click.command(short_help="Find what is wrong with a cluster, and what mends it.")
@click.option(
    "--namespace",
    type=Value("NAMESPACE", read_namespace),
    help="Where pipelines run.  [default: that of the kubeconfig's context]",
)
@click.option("--service-account", metavar="NAME", help="Whom tasks run as.")
@settings_option
@click.option(
    "--endpoint",
    type=Value("URL", read_endpoint),
    envvar=ENDPOINT_VARIABLE,
    help=f"Where Kubeflow Pipelines serves its API, to check it too (or set {ENDPOINT_VARIABLE}).",
)
@click.option(
    "--token-env", metavar="VARIABLE", help="The environment variable that holds a bearer token."
)
@click.option(
    "--in-cluster",
    is_flag=True,
    help="Try where results go in a pod, as a task would: it is started, and deleted again.",
)
@click.option("--kubeconfig", metavar="FILE", help="The kubeconfig to use.")
@click.option("--context", metavar="NAME", help="The context of the kubeconfig.")
@json_option
@click.pass_obj
def doctor(
    session: Session,
    namespace: str | None,
    service_account: str | None,
    settings_address: str | None,
    endpoint: str | None,
    token_env: str | None,
    in_cluster: bool,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Check a cluster and its site settings: what is wrong, and which command mends it.

    It looks at the cluster of the kubeconfig, or in a pod at the pod's own, with the rights that
    you have; what you may not read is said not to be checked. It changes nothing, but for a small
    object that it writes to where results go, and removes again.

    \b
    Examples:
      privatekube doctor
      privatekube doctor --namespace kubeflow --settings site.yaml --endpoint http://localhost:8888
      privatekube doctor --settings site.yaml --in-cluster

    Exit codes: 0 nothing is known to be wrong, whatever the warnings and what could not be checked;
    1 something is wrong; 2 usage.
    """
    with needing("kubernetes", "kubernetes", "urllib3"):
        from privatekube_kfp.core.errors import LedgerError
        from privatekube_kfp.doctor import site
        from privatekube_kfp.doctor.cluster import NoCluster
        from privatekube_kfp.doctor.examination import Setup, examine
        from privatekube_kfp.doctor.findings import Commands, is_complete, is_well
        from privatekube_kfp.ledger.kubernetes.connecting import default_namespace, is_in_pod

    token = read_token(token_env)
    commands = Commands(kubeconfig, context)

    @functools.cache
    def connect() -> Cluster:
        try:
            return _connect(kubeconfig, context)
        except LedgerError as error:
            raise NoCluster(error.message) from error

    found = site.look(settings_address, connect)
    settings = found.settings
    namespace = namespace or settings.namespace
    if not namespace:
        try:
            namespace = default_namespace(kubeconfig, context)
        except LedgerError:
            namespace = "default"  # Nobody asks for it: `connect` fails for the same reason.
    setup = Setup(
        manifests=manifests(),
        version=__version__,
        scheduler_namespace=NAMESPACE,
        namespace=namespace,
        account=service_account or settings.service_account or None,
        settings=settings,
        endpoint=endpoint or settings.endpoint or None,
        token=token,
        inside=is_in_pod(kubeconfig, context),
        in_pod=in_cluster,
    )
    findings = []
    checks = itertools.chain(site.check(found, settings_address), examine(setup, connect, commands))
    for finding in checks:
        findings.append(finding)
        if not session.as_json:
            _show(finding)
    well = is_well(findings)
    session.answer(
        {
            "ok": well,
            "complete": is_complete(findings),
            "findings": [_document(each) for each in findings],
        },
        lambda: say(_summary(findings)),
    )
    return DONE if well else REFUSED


def _connect(kubeconfig: str | None, context: str | None) -> Cluster:
    from privatekube_kfp.doctor.cluster import Cluster, NoCluster
    from privatekube_kfp.doctor.deadlines import within
    from privatekube_kfp.ledger.kubernetes.api import Api
    from privatekube_kfp.ledger.kubernetes.connecting import connecting

    def connect() -> tuple[Api, str]:
        api = Api(connecting(kubeconfig, context), patience=0.0, answer_within=_ANSWER_SECONDS)
        return api, api.host

    try:
        # A kubeconfig may name a command to log in with, which can take for ever.
        return Cluster(*within(_LOGIN_SECONDS, connect))
    except TimeoutError:
        said = f"the kubeconfig's login command did not end within {_LOGIN_SECONDS:g} s"
        raise NoCluster(said) from None


def _show(finding: Finding) -> None:
    say(f"{finding.level:<9}  {finding.check:<13}  {finding.message}")
    if finding.mend:
        say(f"{'':<9}  {'':<13}  run: {finding.mend}")


def _summary(findings: list[Finding]) -> str:
    counted = Counter(str(finding.level) for finding in findings)
    counted["warning" if counted["warning"] == 1 else "warnings"] = counted.pop("warning", 0)
    worst_first = ("wrong", "warning", "warnings", "unchecked", "ok")
    return ", ".join(f"{counted[level]} {level}" for level in worst_first if counted[level])


def _document(finding: Finding) -> dict[str, object]:
    return {
        "check": finding.check,
        "level": finding.level,
        "reason": finding.reason,
        "message": finding.message,
        "mend": finding.mend,
    }
