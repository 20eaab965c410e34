"""What the pods of pipelines need: their namespace, their service account, their secrets."""

from __future__ import annotations

from dataclasses import dataclass

from privatekube_kfp.doctor.access import Account
from privatekube_kfp.doctor.cluster import ACCOUNTS, NAMESPACES, Cluster
from privatekube_kfp.doctor.findings import Commands, Finding, Unknown, ok, unchecked, wrong

CHECK = "account"
USUAL_ACCOUNTS = ("pipeline-runner", "default-editor")
"""Whom Kubeflow runs tasks as: in its own namespace, and in a user's profile."""


@dataclass(frozen=True)
class AccountFacts:
    namespace: str
    namespace_is_there: bool | Unknown
    account: Account | Unknown
    """Whom tasks run as, as far as it is known."""
    account_is_there: bool | Unknown = True

    @property
    def usable(self) -> Account | None:
        """The account, unless it is known not to be there."""
        if self.namespace_is_there is False or self.account_is_there is False:
            return None
        return None if isinstance(self.account, Unknown) else self.account


def look(cluster: Cluster, namespace: str, named: str | None) -> AccountFacts:
    found = cluster.get(NAMESPACES, namespace)
    is_there = found if isinstance(found, Unknown) else found is not None
    if is_there is False:
        return AccountFacts(namespace, False, Unknown(f"there is no namespace {namespace}"))
    if named is not None:
        return AccountFacts(
            namespace, is_there, Account(namespace, named), _is_there(cluster, namespace, named)
        )
    for usual in USUAL_ACCOUNTS:
        if _is_there(cluster, namespace, usual) is True:
            return AccountFacts(namespace, is_there, Account(namespace, usual))
    why = f"whom tasks in namespace {namespace} run as is not known; name it with --service-account"
    return AccountFacts(namespace, is_there, Unknown(why))


def _is_there(cluster: Cluster, namespace: str, account: str) -> bool | Unknown:
    found = cluster.get(ACCOUNTS, account, namespace)
    return found if isinstance(found, Unknown) else found is not None


def check(facts: AccountFacts, commands: Commands) -> list[Finding]:
    if facts.namespace_is_there is False:
        said = f"there is no namespace {facts.namespace}, where pipelines are to run"
        mend = commands.kubectl("create", "namespace", facts.namespace)
        return [wrong(CHECK, "NamespaceMissing", said, mend)]
    if isinstance(facts.account, Unknown):
        return [unchecked(CHECK, facts.account)]
    if isinstance(facts.account_is_there, Unknown):
        return [unchecked(CHECK, facts.account_is_there)]
    if not facts.account_is_there:
        account = facts.account
        said = f"there is no service account {account.name} in namespace {account.namespace}"
        mend = commands.kubectl("create", "serviceaccount", account.name, "-n", account.namespace)
        return [wrong(CHECK, "AccountMissing", said, mend)]
    return [ok(CHECK, f"tasks run as {facts.account}")]
