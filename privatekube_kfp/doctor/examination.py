"""The order of the checks: what others rest on comes first, so that one cause gives one finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from privatekube_kfp.doctor import (
    access,
    definitions,
    kubeflow,
    schedulers,
    server,
    streams,
    tasks,
)
from privatekube_kfp.doctor.cluster import Cluster, NoCluster
from privatekube_kfp.doctor.findings import (
    Commands,
    Finding,
    Unknown,
    is_well,
    wrong,
)
from privatekube_kfp.ledger.kubernetes.api import WORKFLOWS, Object


@dataclass(frozen=True)
class Setup:
    """What is examined: the library, and what a site says about itself."""

    manifests: Sequence[Object]
    """All that `privatekube install` applies."""
    version: str
    """Of this library."""
    scheduler_namespace: str
    """Where the scheduler is installed unless told otherwise."""
    namespace: str
    """Where pipelines run."""
    account: str | None = None
    """Whom they run as, if that is known."""
    endpoint: str | None = None
    token: str | None = None


def examine(setup: Setup, connect: Callable[[], Cluster], commands: Commands) -> Iterator[Finding]:
    """All findings, one after the other as they are made."""
    try:
        yield from _examine_cluster(setup, connect(), commands)
    except NoCluster as error:
        yield wrong("cluster", "NoCluster", str(error), commands.kubectl("cluster-info"))
    if setup.endpoint is not None:
        yield from kubeflow.check(kubeflow.look(setup.endpoint, setup.token))


def _examine_cluster(setup: Setup, cluster: Cluster, commands: Commands) -> Iterator[Finding]:
    about = server.look(cluster)
    yield from server.check(about)

    defined = definitions.look(cluster, setup.manifests, about.minor)
    roles = access.look_at_roles(cluster, setup.manifests)
    rights = access.Rights(cluster)
    scheduler = schedulers.look(cluster, setup.manifests, setup.scheduler_namespace, rights)
    if _is_nothing_installed(defined, roles, scheduler):
        said = "PrivateKube is not installed in this cluster"
        yield wrong("installation", "NotInstalled", said, commands.install())
        yield from tasks.check(tasks.look(cluster, setup.namespace, setup.account), commands)
        return

    only = (
        None if isinstance(scheduler.installed, Unknown) else next(iter(scheduler.installed), None)
    )
    install = schedulers.install_again(only, setup.version, commands)
    yield from definitions.check(defined, commands)
    of_roles = access.check_roles(roles, install)
    yield from of_roles
    # Without these it cannot work, whatever else is wrong with it.
    if not defined.missing and access.SCHEDULER_ROLE not in roles.missing:
        yield from schedulers.check(scheduler, setup.version, setup.scheduler_namespace, commands)
    yield from schedulers.check_workflows(cluster.served(WORKFLOWS.group, WORKFLOWS.version))

    account = tasks.look(cluster, setup.namespace, setup.account)
    yield from tasks.check(account, commands)
    if account.usable is not None and is_well(of_roles):
        found = access.look_at_rights(cluster, setup.manifests, account.usable)
        yield from access.check_rights(found, commands)
    if not defined.missing:
        yield from streams.check(streams.look(cluster))


def _is_nothing_installed(
    defined: definitions.DefinitionFacts,
    roles: access.RoleFacts,
    scheduler: schedulers.SchedulerFacts,
) -> bool:
    return (
        len(defined.missing) == len(defined.shipped)
        and (isinstance(roles.stored, Unknown) or len(roles.missing) == len(roles.shipped))
        and (isinstance(scheduler.installed, Unknown) or not scheduler.places)
    )
