"""Kubeflow Pipelines, where an endpoint is named: whether it answers, and whether we tried it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from privatekube_kfp.doctor.findings import Finding, Unknown, ok, unchecked, warning, wrong
from privatekube_kfp.doctor.reach import Reach
from privatekube_kfp.doctor.web import NoAnswer, ask

CHECK = "kubeflow"
TRIED = "2.17"
"""The version that pipelines of this library were run on."""
_HEALTH = "/apis/v2beta1/healthz"
_SECONDS = 10.0
_NO_VERSION = Unknown("it does not tell its version")


@dataclass(frozen=True)
class KubeflowFacts:
    endpoint: str
    failed: str | None = None
    """Why there was no answer, or none of Kubeflow's."""
    version: str | Unknown = _NO_VERSION


def look(endpoint: str, token: str | None = None, seconds: float = _SECONDS) -> KubeflowFacts:
    url = endpoint.rstrip("/") + _HEALTH
    headers = {"Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        answer = ask("GET", url, headers, seconds)
    except NoAnswer as error:
        return KubeflowFacts(endpoint, f"it gave no answer: {error}")
    if answer.status in (401, 403) or 300 <= answer.status < 400:
        return KubeflowFacts(endpoint, version=Unknown("it wants to know who you are"))
    try:
        said = json.loads(answer.body)
        if answer.status != 200 or not isinstance(said, dict):
            raise ValueError
    except (ValueError, RecursionError):
        return KubeflowFacts(
            endpoint, f"it answered {answer.status}, and not as Kubeflow Pipelines does"
        )
    tag = str(said.get("tag_name") or "")
    if not tag or tag == "unknown":
        return KubeflowFacts(endpoint)
    return KubeflowFacts(endpoint, version=tag)


def check(facts: KubeflowFacts, reach: Reach) -> list[Finding]:
    if facts.failed is not None:
        mend = "kubectl -n kubeflow port-forward svc/ml-pipeline 8888:8888"
        host = urlsplit(facts.endpoint).hostname or ""
        if not reach.inside and reach.is_of_cluster(host):
            why = f"{facts.endpoint}: {host} can be reached from inside the cluster only"
            return [unchecked(CHECK, Unknown(why, from_here=True), mend)]
        said = f"Kubeflow Pipelines at {facts.endpoint} cannot be used: {facts.failed}"
        return [wrong(CHECK, "KubeflowUnreachable", said, mend)]
    if isinstance(facts.version, Unknown):
        why = f"Kubeflow Pipelines answers at {facts.endpoint}, but {facts.version.why}"
        return [unchecked(CHECK, Unknown(why))]
    if not facts.version.lstrip("v").startswith(f"{TRIED}."):
        said = (
            f"Kubeflow Pipelines {facts.version} was not tried with this version of the library;"
            f" {TRIED} was"
        )
        return [warning(CHECK, "KubeflowNotTried", said)]
    return [ok(CHECK, f"Kubeflow Pipelines {facts.version} at {facts.endpoint}")]
