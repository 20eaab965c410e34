"""The API server itself: its version, and what that version does not do."""

from __future__ import annotations

import re
from dataclasses import dataclass

from privatekube_kfp.doctor.cluster import Cluster
from privatekube_kfp.doctor.findings import Finding, Unknown, ok, unchecked, warning

CHECK = "cluster"
RULES_SINCE = 25
"""The first minor version of Kubernetes 1 that enforces the rules of definitions."""


@dataclass(frozen=True)
class ServerFacts:
    host: str
    version: str | Unknown
    """As the server writes it: v1.36.3."""

    @property
    def minor(self) -> int | None:
        match = None
        if not isinstance(self.version, Unknown):
            match = re.match(r"v?1\.(\d+)", self.version)
        return int(match[1]) if match else None


def look(cluster: Cluster) -> ServerFacts:
    answer = cluster.about("/version")
    if isinstance(answer, Unknown):
        return ServerFacts(cluster.host, answer)
    version = str(answer.get("gitVersion") or "")
    return ServerFacts(cluster.host, version or Unknown("the server does not tell its version"))


def check(facts: ServerFacts) -> list[Finding]:
    if isinstance(facts.version, Unknown):
        return [unchecked(CHECK, facts.version)]
    if facts.minor is not None and facts.minor < RULES_SINCE:
        said = (
            f"Kubernetes {facts.version.lstrip('v')} ignores the rules in our definitions, which"
            f" 1.{RULES_SINCE} and later enforce: the scheduler alone refuses what they forbid"
        )
        return [warning(CHECK, "KubernetesOld", said)]
    return [ok(CHECK, f"Kubernetes {facts.version.lstrip('v')} at {facts.host}")]
