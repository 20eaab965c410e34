"""Who may do what: asked of the API server, role by role, as the roles we ship say.

Not by reading bindings: what an account may do is what the server says that it may do, whichever
way it was given. An administrator can ask that of anybody, whoever administers a namespace can ask
it of anybody for that namespace, and everybody can ask it of oneself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from privatekube_kfp.doctor.cluster import (
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    Cluster,
)
from privatekube_kfp.doctor.findings import Commands, Finding, Unknown, ok, unchecked, wrong
from privatekube_kfp.ledger.kubernetes.api import Object, Resource

RUNNER_ROLE = "privatekube-pipeline-runner"
READER_ROLE = "privatekube-budget-reader"
SCHEDULER_ROLE = "privatekube-scheduler"

_AUTHORIZATION = ("authorization.k8s.io", "v1")
_OF_ANYBODY = Resource(
    *_AUTHORIZATION,
    "subjectaccessreviews",
    "SubjectAccessReview",
    namespaced=False,
    label="reviews",
)
_WITHIN = Resource(
    *_AUTHORIZATION,
    "localsubjectaccessreviews",
    "LocalSubjectAccessReview",
    namespaced=True,
    label="reviews",
)
_OF_ONESELF = Resource(
    *_AUTHORIZATION,
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
    label="reviews",
)
_WHO_AM_I = Resource(
    "authentication.k8s.io",
    "v1",
    "selfsubjectreviews",
    "SelfSubjectReview",
    namespaced=False,
    label="reviews",
)


@dataclass(frozen=True)
class Account:
    """A service account."""

    namespace: str
    name: str

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    def __str__(self) -> str:
        return f"service account {self.name} in namespace {self.namespace}"


@dataclass(frozen=True)
class Right:
    """To do one thing to one kind of object, in one namespace or everywhere."""

    group: str
    resource: str
    verb: str
    namespace: str | None
    name: str | None = None

    def attributes(self) -> Object:
        resource, _, sub = self.resource.partition("/")
        said = {
            "group": self.group,
            "resource": resource,
            "subresource": sub,
            "verb": self.verb,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {key: value for key, value in said.items() if value}


def rights_of(role: Object, namespace: str | None = None) -> Iterator[Right]:
    """All that a role gives, one by one."""
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames") or [None]:
                        yield Right(group, resource, verb, namespace, name)


def in_words(rights: Sequence[Right]) -> str:
    """Rights as a phrase: `create and get privacyclaims, get pods`."""
    verbs: dict[str, list[str]] = {}
    for right in rights:
        verbs.setdefault(right.resource, []).append(right.verb)
    return ", ".join(f"{_and(found)} {resource}" for resource, found in verbs.items())


def _and(words: Sequence[str]) -> str:
    return " and ".join([*([", ".join(words[:-1])] if len(words) > 1 else []), words[-1]])


class Rights:
    """Asks the server what an account may do, in the way that is open to whoever asks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._way: Resource | None = None
        answer = cluster.review(_WHO_AM_I, _object(_WHO_AM_I, {}))
        self.me: str | None = None
        if not isinstance(answer, Unknown):
            self.me = answer["status"]["userInfo"]["username"]

    def lacking(self, account: Account, rights: Sequence[Right]) -> list[Right] | Unknown:
        """Those of the rights that the account has not."""
        found = []
        for right in rights:
            allowed = self._ask(account, right)
            if isinstance(allowed, Unknown):
                return allowed
            if not allowed:
                found.append(right)
        return found

    def _ask(self, account: Account, right: Right) -> bool | Unknown:
        asked: Object = {"resourceAttributes": right.attributes()}
        if account.user == self.me:
            return _allowed(self._cluster.review(_OF_ONESELF, _object(_OF_ONESELF, asked)))
        asked |= {
            "user": account.user,
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{account.namespace}",
                "system:authenticated",
            ],
        }
        answer = _allowed(self._cluster.review(_OF_ANYBODY, _object(_OF_ANYBODY, asked)))
        if isinstance(answer, Unknown) and right.namespace:
            review = _object(_WITHIN, asked, right.namespace)
            answer = _allowed(self._cluster.review(_WITHIN, review))
        if isinstance(answer, Unknown):
            return Unknown(f"you may not ask what {account} may do")
        return answer


def _object(kind: Resource, spec: Object, namespace: str | None = None) -> Object:
    metadata = {"namespace": namespace} if namespace else {}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def _allowed(answer: Object | Unknown) -> bool | Unknown:
    return answer if isinstance(answer, Unknown) else bool(answer["status"].get("allowed"))


# Roles


@dataclass(frozen=True)
class RoleFacts:
    """The cluster roles for people and pipelines: shipped, and as the cluster has them."""

    shipped: Sequence[Object]
    stored: dict[str, Object | None] | Unknown

    @property
    def missing(self) -> list[str]:
        if isinstance(self.stored, Unknown):
            return []
        return [name for name, stored in self.stored.items() if stored is None]


def look_at_roles(cluster: Cluster, manifests: Sequence[Object]) -> RoleFacts:
    shipped = [each for each in manifests if each["kind"] == CLUSTER_ROLES.kind]
    stored: dict[str, Object | None] = {}
    for each in shipped:
        name = each["metadata"]["name"]
        found = cluster.get(CLUSTER_ROLES, name)
        if isinstance(found, Unknown):
            return RoleFacts(shipped, found)
        stored[name] = found
    return RoleFacts(shipped, stored)


def check_roles(facts: RoleFacts, install: str) -> list[Finding]:
    check = "roles"
    if isinstance(facts.stored, Unknown):
        return [unchecked(check, facts.stored)]
    if facts.missing:
        said = f"the cluster has no ClusterRole {' and none '.join(facts.missing)}"
        return [wrong(check, "RoleMissing", said, install)]
    old = []
    for shipped in facts.shipped:
        name = shipped["metadata"]["name"]
        stored = facts.stored[name]
        assert stored is not None
        lost = [each for each in rights_of(shipped) if each not in _given(stored)]
        if lost:
            said = f"ClusterRole {name} is not that of this version: it does not let"
            old.append(wrong(check, "RoleOld", f"{said} {in_words(lost)}", install))
    return old or [ok(check, f"{len(facts.shipped)} cluster roles, as this version ships them")]


def _given(role: Object) -> set[Right]:
    rules = [rule for rule in role.get("rules") or [] if "resources" in rule]
    return set(rights_of({"rules": rules}))


# The account of pipelines


@dataclass(frozen=True)
class Lacking:
    """What an account lacks of a role, and the binding that could give it."""

    role: str
    rights: list[Right] | Unknown
    binding: str
    """The name that the binding has, or would have."""
    is_there: bool = False
    """Whether there is such a binding, of this role, for others."""


@dataclass(frozen=True)
class RightsFacts:
    """What the account of pipelines lacks of each of the two roles that it needs."""

    account: Account
    lacking: list[Lacking]


def look_at_rights(
    cluster: Cluster, manifests: Sequence[Object], account: Account, rights: Rights
) -> RightsFacts:
    roles = {each["metadata"]["name"]: each for each in manifests if each["kind"] == "ClusterRole"}
    found = []
    for role, kind, binding, namespace in (
        (RUNNER_ROLE, ROLE_BINDINGS, RUNNER_ROLE, account.namespace),
        (READER_ROLE, CLUSTER_BINDINGS, f"{READER_ROLE}-{account.namespace}", None),
    ):
        lacks = rights.lacking(account, list(rights_of(roles[role], namespace)))
        is_there = False
        if lacks and not isinstance(lacks, Unknown):
            bound = cluster.get(kind, binding, namespace)
            if isinstance(bound, dict):
                is_there = bound["roleRef"]["name"] == role
                binding = binding if is_there else f"{binding}-{account.name}"
        found.append(Lacking(role, lacks, binding, is_there))
    return RightsFacts(account, found)


def check_rights(facts: RightsFacts, commands: Commands) -> list[Finding]:
    check, account = "rights", facts.account
    found = []
    for each in facts.lacking:
        if isinstance(each.rights, Unknown):
            found.append(unchecked(check, each.rights))
        elif each.rights:
            reason = "MayNotClaim" if each.role == RUNNER_ROLE else "MayNotRead"
            said = f"{account} may not {in_words(each.rights)}"
            found.append(wrong(check, reason, said, _binding(each, account, commands)))
    return list(dict.fromkeys(found)) or [
        ok(check, f"{account} may claim budget, and read streams and blocks")
    ]


def _binding(lacking: Lacking, account: Account, commands: Commands) -> str:
    kind, within = "clusterrolebinding", []
    if lacking.role == RUNNER_ROLE:
        kind, within = "rolebinding", ["-n", account.namespace]
    whom = f"--serviceaccount={account.namespace}:{account.name}"
    if lacking.is_there:
        return commands.kubectl("set", "subject", kind, lacking.binding, *within, whom)
    role = f"--clusterrole={lacking.role}"
    return commands.kubectl("create", kind, lacking.binding, *within, role, whom)
