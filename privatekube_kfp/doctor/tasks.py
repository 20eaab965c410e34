"""What the pods of pipelines need: their namespace, their service account, their secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from privatekube_kfp.doctor.access import Account
from privatekube_kfp.doctor.cluster import ACCOUNTS, NAMESPACES, SECRETS, Cluster
from privatekube_kfp.doctor.findings import Commands, Finding, Unknown, ok, unchecked, wrong
from privatekube_kfp.ledger.kubernetes.api import Object
from privatekube_kfp.settings import Settings
from privatekube_kfp.settings.schema import Secret

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


# Secrets


@dataclass(frozen=True)
class SecretFacts:
    namespace: str
    wanted: Sequence[Secret]
    """By settings; one may be wanted several times, with different keys."""
    for_images: Sequence[str]
    stored: Mapping[str, Object | Unknown | None]


def look_at_secrets(cluster: Cluster, settings: Settings, namespace: str) -> SecretFacts:
    options = [
        settings.all_tasks,
        settings.tasks,
        *settings.components.values(),
        *settings.other_components.values(),
    ]
    wanted = [secret for one in options for secret in one.secrets]
    for_images = list(settings.images.pull_secrets)
    names = dict.fromkeys([*(each.name for each in wanted), *for_images])
    stored = {name: cluster.get(SECRETS, name, namespace) for name in names}
    return SecretFacts(namespace, wanted, for_images, stored)


def check_secrets(facts: SecretFacts, commands: Commands) -> list[Finding]:
    check, within = "secrets", ("-n", facts.namespace)
    if not facts.stored:
        return []
    found: list[Finding] = []
    keys: dict[str, list[str]] = {}
    for secret in facts.wanted:
        if not secret.optional:
            keys.setdefault(secret.name, []).extend(secret.env)
    for name, wanted in keys.items():
        stored = facts.stored[name]
        where = f"secret {name} in namespace {facts.namespace}"
        if isinstance(stored, Unknown):
            found.append(unchecked(check, stored))
        elif stored is None:
            values = [f"--from-literal={key}=VALUE" for key in dict.fromkeys(wanted)]
            made = values or ["--from-file=FILE"]
            mend = commands.kubectl(*within, "create", "secret", "generic", name, *made)
            said = f"settings name {where}, and there is none"
            found.append(wrong(check, "SecretMissing", said, mend))
        else:
            data = stored.get("data") or {}
            lost = [key for key in dict.fromkeys(wanted) if key not in data]
            if lost:
                change = json.dumps({"stringData": dict.fromkeys(lost, "VALUE")})
                mend = commands.kubectl(*within, "patch", "secret", name, "-p", change)
                said = f"{where} has no key {' and no '.join(lost)}, which settings name"
                found.append(wrong(check, "SecretKeyMissing", said, mend))
    for name in facts.for_images:
        stored = facts.stored[name]
        if isinstance(stored, Unknown):
            found.append(unchecked(check, stored))
        elif stored is None:
            mend = commands.kubectl(
                *within,
                *("create", "secret", "docker-registry", name, "--docker-server=REGISTRY"),
                *("--docker-username=USER", "--docker-password=PASSWORD"),
            )
            said = (
                f"settings pull images with secret {name}, and namespace {facts.namespace} has none"
            )
            found.append(wrong(check, "SecretMissing", said, mend))
    count = len(facts.stored)
    fine = f"{count} {'secret' if count == 1 else 'secrets'}, with the keys that settings name"
    return list(dict.fromkeys(found)) or [ok(check, fine)]
