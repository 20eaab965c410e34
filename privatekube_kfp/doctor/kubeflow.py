"""Kubeflow Pipelines, where an endpoint is named: whether it answers, and whether we tried it."""

from __future__ import annotations

import json
from dataclasses import dataclass

import urllib3

from privatekube_kfp.doctor.findings import Finding, Unknown, ok, unchecked, warning, wrong

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
        with urllib3.PoolManager() as pool:
            answer = pool.request(
                "GET",
                url,
                headers=headers,
                timeout=urllib3.Timeout(total=seconds),
                retries=False,
                redirect=False,
            )
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        return KubeflowFacts(endpoint, f"it gave no answer: {_cause(error)}")
    if answer.status in (401, 403) or 300 <= answer.status < 400:
        return KubeflowFacts(endpoint, version=Unknown("it wants to know who you are"))
    try:
        said = json.loads(answer.data)
        if answer.status != 200 or not isinstance(said, dict):
            raise ValueError
    except ValueError:
        return KubeflowFacts(
            endpoint, f"it answered {answer.status}, and not as Kubeflow Pipelines does"
        )
    tag = str(said.get("tag_name") or "")
    if not tag or tag == "unknown":
        return KubeflowFacts(endpoint)
    return KubeflowFacts(endpoint, version=tag)


def check(facts: KubeflowFacts) -> list[Finding]:
    if facts.failed is not None:
        said = f"Kubeflow Pipelines at {facts.endpoint} cannot be used: {facts.failed}"
        mend = "kubectl -n kubeflow port-forward svc/ml-pipeline 8888:8888"
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


def _cause(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    said = " ".join(str(reason or error).split())
    return said.rpartition(">: ")[2] or type(error).__name__
