"""The order of the checks: what others rest on comes first, so that one cause gives one finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from privatekube_kfp.doctor import (
    access,
    definitions,
    images,
    kubeflow,
    pods,
    schedulers,
    server,
    storage,
    streams,
    tasks,
)
from privatekube_kfp.doctor.cluster import ACCOUNTS, NAMESPACES, Cluster, NoCluster
from privatekube_kfp.doctor.findings import Commands, Finding, Unknown, is_well, wrong
from privatekube_kfp.doctor.probe import Outcome, Outcomes
from privatekube_kfp.doctor.reach import Reach
from privatekube_kfp.ledger.kubernetes.api import WORKFLOWS, Object
from privatekube_kfp.settings import Settings
from privatekube_kfp.settings.applying import image_of


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
    settings: Settings = field(default_factory=Settings)
    endpoint: str | None = None
    token: str | None = None
    inside: bool = False
    """Whether the doctor runs in a pod of the cluster."""
    in_pod: bool = False
    """Whether to try places in a pod that is started for it."""


def examine(setup: Setup, connect: Callable[[], Cluster], commands: Commands) -> Iterator[Finding]:
    """All findings, one after the other as they are made."""
    reach = Reach(setup.inside)
    try:
        cluster = connect()
        reach = Reach(setup.inside, _namespaces(cluster))
        account = tasks.look(cluster, setup.namespace, setup.account)
        yield from _examine_cluster(setup, cluster, account, commands)
        if account.namespace_is_there is not False:
            yield from _examine_pipelines(setup, cluster, account, reach, commands)
    except NoCluster as error:
        reach = Reach(setup.inside)  # It is not asked again.
        yield wrong("cluster", "NoCluster", str(error), commands.kubectl("cluster-info"))
    if setup.endpoint is not None:
        yield from kubeflow.check(kubeflow.look(setup.endpoint, setup.token), reach)


def _namespaces(cluster: Cluster) -> Callable[[str], bool]:
    def has(name: str) -> bool:
        found = cluster.get(NAMESPACES, name)
        return found is not None and not isinstance(found, Unknown)

    return has


def _examine_cluster(
    setup: Setup, cluster: Cluster, account: tasks.AccountFacts, commands: Commands
) -> Iterator[Finding]:
    """What is installed, and whether it works."""
    about = server.look(cluster)
    yield from server.check(about)

    defined = definitions.look(cluster, setup.manifests, about.minor)
    roles = access.look_at_roles(cluster, setup.manifests)
    rights = access.Rights(cluster)
    scheduler = schedulers.look(cluster, setup.manifests, setup.scheduler_namespace, rights)
    if _is_nothing_installed(defined, roles, scheduler):
        said = "PrivateKube is not installed in this cluster"
        yield wrong("installation", "NotInstalled", said, commands.install())
        yield from tasks.check(account, commands)
        return

    yield from definitions.check(defined, commands)
    install = schedulers.install_again(scheduler.chosen, setup.version, commands)
    of_roles = access.check_roles(roles, install)
    yield from of_roles
    # Without these it cannot work, whatever else is wrong with it.
    if not defined.missing and access.SCHEDULER_ROLE not in roles.missing:
        yield from schedulers.check(scheduler, setup.version, commands)
    yield from schedulers.check_workflows(cluster.served(WORKFLOWS.group, WORKFLOWS.version))

    yield from tasks.check(account, commands)
    if account.usable is not None and is_well(of_roles):
        found = access.look_at_rights(cluster, setup.manifests, account.usable, rights)
        yield from access.check_rights(found, commands)
    if not defined.missing:
        yield from streams.check(streams.look(cluster))


def _examine_pipelines(
    setup: Setup,
    cluster: Cluster,
    account: tasks.AccountFacts,
    reach: Reach,
    commands: Commands,
) -> Iterator[Finding]:
    """What settings say of tasks, against what there is."""
    settings, namespace = setup.settings, setup.namespace
    secrets = tasks.look_at_secrets(cluster, settings, namespace)
    runs_as = account.usable.name if account.usable is not None else None
    for_images = {name: secrets.stored[name] for name in secrets.for_images}
    found = images.look(cluster, settings, setup.version, namespace, for_images)

    def pull(image: str) -> str:
        return commands.pull(image, namespace, runs_as, secrets.for_images)

    yield from images.check(found, setup.version, pull)
    if not settings.source:
        return
    of_secrets = tasks.check_secrets(secrets, commands)
    yield from of_secrets
    if not is_well(of_secrets):
        return  # Without its secrets, no task can write anywhere.
    find_out = None
    if setup.in_pod:
        results, root = _look_from_pod(setup, cluster, runs_as)
    else:
        upload = settings.of_task("upload", ours=True)
        variables = storage.environment_of_task(upload, secrets.stored)
        identity = cluster.get(ACCOUNTS, runs_as, namespace) if runs_as else None
        results, root = storage.look(settings, variables, identity, reach)
        find_out = commands.doctor_in_cluster(namespace, runs_as or "NAME", settings.source)
    yield from storage.check_results(results, settings, namespace, commands, find_out)
    in_vain = (results.outcome, root.outcome) == (Outcome.UNREACHABLE,) * 2
    if settings.pipeline_root and not in_vain:
        yield from storage.check_root(root, settings, find_out)


def _look_from_pod(
    setup: Setup, cluster: Cluster, runs_as: str | None
) -> tuple[storage.PlaceFacts, storage.PlaceFacts]:
    settings = setup.settings
    places = {k: uri for k, uri in storage.places_of(settings).items() if storage.can_be_tried(uri)}
    found: Outcomes | Unknown = {}
    if runs_as is None:
        found = Unknown("whom tasks run as is not known; name it with --service-account")
    elif places:
        image = image_of(f"privatekube/python:{setup.version}", settings.images)
        options = settings.of_task("upload", ours=True)
        pod = pods.pod_of(setup.namespace, runs_as, image, settings.images, options, places)
        found = pods.try_places(cluster, pod)
    return storage.look_from_pod(settings, found)


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
