"""The scheduler: installed once, running, leading, of this version, and allowed to do its work.

A scheduler is known by its Lease. Two Deployments that contend for one Lease are one scheduler
with more replicas; two Leases that are both renewed are two schedulers that fight over every
stream.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from privatekube_kfp.doctor.access import (
    SCHEDULER_ROLE,
    Account,
    Right,
    Rights,
    in_words,
    rights_of,
)
from privatekube_kfp.doctor.cluster import DEPLOYMENTS, PODS, Cluster
from privatekube_kfp.doctor.findings import (
    Commands,
    Finding,
    Unknown,
    ok,
    unchecked,
    warning,
    wrong,
)
from privatekube_kfp.doctor.images import VERSION, Waiting, waiting
from privatekube_kfp.doctor.registries import reference
from privatekube_kfp.ledger.kubernetes.api import LEASES, VERSION_ANNOTATION, WORKFLOWS, Object

CHECK = "scheduler"
NAME = "privatekube-scheduler"

_LABEL = f"app.kubernetes.io/name={NAME}"
_LONGEST_WAIT = 20.0


class Place(NamedTuple):
    """Where a Lease is."""

    namespace: str
    lease: str


@dataclass(frozen=True)
class Lead:
    """A Lease: who leads, and whether it still does."""

    place: Place
    holder: str
    is_renewed: bool
    version: str | None


@dataclass(frozen=True)
class Installed:
    """A Deployment of the scheduler."""

    name: str
    place: Place
    image: str
    account: str
    wanted: int
    ready: int
    trouble: str | None
    """Why it makes no pods, in Kubernetes' words."""

    def __str__(self) -> str:
        return f"deployment {self.name} in namespace {self.place.namespace}"


@dataclass(frozen=True)
class SchedulerFacts:
    installed: list[Installed] | Unknown
    leads: list[Lead] | Unknown
    waits: list[Waiting] = field(default_factory=list)
    """Why the pods of the only scheduler do not start."""
    lacks: list[Right] | Unknown = field(default_factory=list)
    """What the only scheduler may not do, and must."""

    @property
    def chosen(self) -> Installed | None:
        """The Deployment to speak of: of several on one Lease, the one that works."""
        if isinstance(self.installed, Unknown) or not self.installed:
            return None
        return max(self.installed, key=lambda each: (each.wanted > 0, each.ready))

    @property
    def places(self) -> list[Place]:
        """The Leases of all schedulers that run or are meant to."""
        found = []
        if not isinstance(self.installed, Unknown):
            found += [each.place for each in self.installed if each.wanted]
        if not isinstance(self.leads, Unknown):
            found += [each.place for each in self.leads if each.is_renewed]
        return list(dict.fromkeys(found))


# Looking


def look(
    cluster: Cluster, manifests: Sequence[Object], namespace: str, rights: Rights
) -> SchedulerFacts:
    """Look in all namespaces, and where that is not allowed in the one that is usual."""
    within: str | None = None
    found = cluster.list(DEPLOYMENTS, labels=_LABEL)
    if isinstance(found, Unknown):
        within = namespace
        found = cluster.list(DEPLOYMENTS, namespace, labels=_LABEL)
    installed = found if isinstance(found, Unknown) else [_installed(each) for each in found]
    leads = _leads(cluster, [] if isinstance(installed, Unknown) else installed, within)
    facts = SchedulerFacts(installed, leads)
    only = facts.chosen
    if only is None or len(facts.places) > 1:
        return facts
    pods = cluster.list(PODS, only.place.namespace, labels=_LABEL)
    waits = [] if isinstance(pods, Unknown) else waiting(pods)
    lacks = rights.lacking(
        Account(only.place.namespace, only.account), _needed(manifests, only.place)
    )
    return SchedulerFacts(installed, leads, waits, lacks)


def _installed(deployment: Object) -> Installed:
    metadata, spec = deployment["metadata"], deployment["spec"]
    pod = spec["template"]["spec"]
    containers = pod.get("containers") or [{}]
    [container] = [each for each in containers if each.get("name") == "scheduler"] or containers[:1]
    lease = NAME
    for arg in [*(container.get("command") or []), *(container.get("args") or [])]:
        if arg.startswith("--lease-name="):
            lease = arg.partition("=")[2]
    status = deployment.get("status") or {}
    trouble = [
        str(each.get("message") or each.get("reason"))
        for each in status.get("conditions") or []
        if (each["type"], each["status"]) == ("ReplicaFailure", "True")
    ]
    wanted = spec.get("replicas")
    return Installed(
        name=metadata["name"],
        place=Place(metadata["namespace"], lease),
        image=str(container.get("image", "")),
        account=str(pod.get("serviceAccountName") or "default"),
        wanted=1 if wanted is None else int(wanted),
        ready=int(status.get("readyReplicas") or 0),
        trouble=trouble[0] if trouble else None,
    )


def _leads(
    cluster: Cluster, installed: Sequence[Installed], within: str | None
) -> list[Lead] | Unknown:
    found = cluster.list(LEASES, within, fields=f"metadata.name={NAME}")
    if isinstance(found, Unknown):
        return found
    leases = {Place(each["metadata"]["namespace"], NAME): each for each in found}
    for place in {each.place for each in installed} - leases.keys():
        lease = cluster.get(LEASES, place.lease, place.namespace)
        if isinstance(lease, Unknown):
            return lease
        if lease is not None:
            leases[place] = lease
    return [_lead(cluster, place, lease) for place, lease in leases.items()]


def _lead(cluster: Cluster, place: Place, lease: Object) -> Lead:
    """Whether it is renewed; where its time says no, by waiting for as long as it lasts.

    The time is by the clock of whoever leads, which may be off.
    """
    spec = lease.get("spec") or {}
    lasts = float(spec.get("leaseDurationSeconds") or 15)
    holder = str(spec.get("holderIdentity") or "")
    renewed = _time(spec.get("renewTime"))
    is_renewed = renewed is not None and (cluster.now() - renewed).total_seconds() <= lasts
    if holder and not is_renewed:
        waited, step = 0.0, min(0.5, lasts / 2)
        while waited < min(lasts, _LONGEST_WAIT) and not is_renewed:
            cluster.sleep(step)
            waited += step
            now = cluster.get(LEASES, place.lease, place.namespace)
            is_renewed = isinstance(now, dict) and now.get("spec") != spec
    noted = (lease["metadata"].get("annotations") or {}).get(VERSION_ANNOTATION)
    return Lead(place, holder, bool(holder) and is_renewed, noted)


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None


def _needed(manifests: Sequence[Object], place: Place) -> list[Right]:
    found: list[Right] = []
    for each in manifests:
        if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", SCHEDULER_ROLE):
            found += rights_of(each)
        elif each["kind"] == "Role":
            found += rights_of(each, place.namespace)
    return found


# Judging


def check(facts: SchedulerFacts, version: str, commands: Commands) -> list[Finding]:
    """One finding for what keeps the scheduler from working; else what its state is."""
    if isinstance(facts.installed, Unknown):
        return [unchecked(CHECK, facts.installed)]
    if len(facts.places) > 1:
        return [_several(facts, commands)]
    only = facts.chosen
    if only is None:
        return [_none(facts, version, commands)]
    broken = _not_running(only, facts, version, commands)
    if broken is not None:
        return [broken]
    found = _rights(only, facts, commands) + _version(only, facts, version, commands)
    if only.ready < only.wanted:
        said = f"of {only.wanted} replicas of {only}, {only.ready} are ready"
        why = commands.kubectl("-n", only.place.namespace, "describe", "pods", "-l", _LABEL)
        found.append(warning(CHECK, "SchedulerNoStandby", said, why))
    if isinstance(facts.leads, Unknown):
        found.append(unchecked(CHECK, facts.leads))
    return found or [ok(CHECK, f"{only}, version {version}, led by {_holder(facts, only)}")]


def install_again(only: Installed | None, version: str, commands: Commands) -> str:
    """The command that installs without moving the scheduler, or taking its image away."""
    if only is None:
        return commands.install()
    usual_namespace = only.place.namespace == "privatekube-system"
    repository = reference(only.image).repository
    return commands.install(
        None if usual_namespace else only.place.namespace,
        None if repository == "privatekube/scheduler" else f"{repository}:{version}",
    )


def _several(facts: SchedulerFacts, commands: Commands) -> Finding:
    assert not isinstance(facts.installed, Unknown)
    places = facts.places
    keep = _kept(facts)
    [gone, *_] = [place for place in places if place != keep]
    found = [each for each in facts.installed if each.place == gone]
    mend = (
        commands.kubectl("-n", gone.namespace, "delete", "deployment", found[0].name)
        if found
        else commands.kubectl("-n", gone.namespace, "get", "lease", gone.lease, "-o", "yaml")
    )
    where = " and ".join(f"{each.lease} in namespace {each.namespace}" for each in places)
    said = f"{len(places)} schedulers work on this cluster, each with a Lease of its own: {where}"
    return wrong(CHECK, "SchedulersMany", said, mend)


def _kept(facts: SchedulerFacts) -> Place:
    """Which of several schedulers to keep: one that is installed and runs, in the usual place.

    Not by who leads at the moment: schedulers that fight over a stream give up their terms in turn.
    """
    installed = [] if isinstance(facts.installed, Unknown) else facts.installed
    ready = [each.place for each in installed if each.ready]
    there = [each.place for each in installed]
    return min(
        facts.places,
        key=lambda place: (
            place not in there,
            place not in ready,
            place.namespace != "privatekube-system",
        ),
    )


def _none(facts: SchedulerFacts, version: str, commands: Commands) -> Finding:
    leading = [] if isinstance(facts.leads, Unknown) else facts.leads
    renewed = [each for each in leading if each.is_renewed]
    if renewed:
        said = f"no deployment, but {renewed[0].holder} leads in {renewed[0].place.namespace}"
        return ok(CHECK, said)
    said = "no scheduler is installed in this cluster, so that no claim is ever answered"
    return wrong(CHECK, "SchedulerMissing", said, install_again(None, version, commands))


def _not_running(
    only: Installed, facts: SchedulerFacts, version: str, commands: Commands
) -> Finding | None:
    within = ("-n", only.place.namespace)
    leads = facts.leads
    lead = None
    if not isinstance(leads, Unknown):
        lead = next((each for each in leads if each.place == only.place), None)
    pulls = [each for each in facts.waits if each.cannot_pull]
    if pulls:
        mend = commands.install(
            None if only.place.namespace == "privatekube-system" else only.place.namespace,
            f"REGISTRY/privatekube-scheduler:{version}",
        )
        said = f"the scheduler's image {pulls[0].image} cannot be pulled: {pulls[0].said}"
        # Replicas of before an upgrade go on.
        level = warning if only.ready else wrong
        return level(CHECK, "SchedulerImage", said, mend)
    if not only.wanted:
        said = f"{only} is scaled to 0 replicas, so that no claim is ever answered"
        mend = commands.kubectl(*within, "scale", "deployment", only.name, "--replicas=2")
        return wrong(CHECK, "SchedulerStopped", said, mend)
    if lead is not None and lead.is_renewed:
        return None
    if not only.ready:
        said = f"no replica of {only} is ready"
        if only.trouble:
            said += f": {only.trouble}"
            return wrong(CHECK, "SchedulerNotRunning", said, install_again(only, version, commands))
        if facts.waits:
            said += f": pod {facts.waits[0].pod} waits: {facts.waits[0].said}"
        mend = commands.kubectl(*within, "describe", "pods", "-l", _LABEL)
        return wrong(CHECK, "SchedulerNotRunning", said, mend)
    if isinstance(leads, Unknown):
        return None
    last = f"since {lead.holder} has stopped" if lead is not None and lead.holder else "so far"
    said = f"{only} is ready, but nobody renews Lease {only.place.lease} {last}"
    mend = commands.kubectl(*within, "rollout", "restart", "deployment", only.name)
    return wrong(CHECK, "SchedulerNotLeading", said, mend)


def _rights(only: Installed, facts: SchedulerFacts, commands: Commands) -> list[Finding]:
    if isinstance(facts.lacks, Unknown):
        return [unchecked(CHECK, facts.lacks)]
    if not facts.lacks:
        return []
    account = Account(only.place.namespace, only.account)
    said = f"{account}, the scheduler's, may not {in_words(facts.lacks)}"
    if {each.resource for each in facts.lacks} == {WORKFLOWS.plural}:
        said += ", so that it does not see when runs end"
    namespace = None if only.place.namespace == "privatekube-system" else only.place.namespace
    mend = commands.install(namespace, _own(only.image))
    return [wrong(CHECK, "SchedulerMayNot", said, mend)]


def _version(
    only: Installed, facts: SchedulerFacts, version: str, commands: Commands
) -> list[Finding]:
    """By what the leader noted in its Lease; else by the image's tag, if that is a version."""
    found = None
    if not isinstance(facts.leads, Unknown):
        noted = [each.version for each in facts.leads if each.place == only.place and each.version]
        found = noted[0] if noted else None
    if found is None:
        tag = reference(only.image).tag
        found = tag if VERSION.fullmatch(tag) else None
    if found is None or found == version:
        return []
    said = f"the scheduler is of version {found}, and this library of version {version}"
    if _numbers(found) > _numbers(version):
        mend = f"pip install privatekube-kfp=={found}"
    else:
        mend = install_again(only, version, commands)
    return [wrong(CHECK, "SchedulerVersion", said, mend)]


def _holder(facts: SchedulerFacts, only: Installed) -> str:
    if isinstance(facts.leads, Unknown):
        return "whom could not be seen"
    return next((each.holder for each in facts.leads if each.place == only.place), "nobody")


def _numbers(version: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", version)]


def _own(image: str) -> str | None:
    """The image, where it is not what `install` would set by itself."""
    return None if reference(image).repository == "privatekube/scheduler" else image


# Ends of runs


def check_workflows(served: dict[str, bool] | Unknown) -> list[Finding]:
    """Whether there is something by which the scheduler could see that a run has ended."""
    check = "workflows"
    if isinstance(served, Unknown):
        return [unchecked(check, served)]
    if WORKFLOWS.plural in served:
        return [ok(check, "the cluster has Argo's Workflows, by which ends of runs are seen")]
    said = (
        "the cluster has no Argo Workflows: claims of runs that end without a release are given"
        " back only when their lease has run out"
    )
    return [warning(check, "WorkflowsMissing", said)]
