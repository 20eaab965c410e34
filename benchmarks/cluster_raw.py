"""The floor that the scheduler is measured against: the same API calls, with nothing around them.

All go through the Kubernetes client library's own `CustomObjectsApi`, as a plain script would.
Raw updates write to a twin of our claims, with the same schema under another API group, so that
no scheduler sees them. `python -m benchmarks.cluster_raw KUBECONFIG NAMESPACE` lists all claims of
a namespace and prints how long it took: a process of its own, as a scheduler that starts is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import yaml
from kubernetes.client import ApiClient, CustomObjectsApi

from benchmarks.cluster_claims import NAMESPACE, side_by_side
from privatekube_kfp.ledger.kubernetes.api import CLAIMS, GROUP, PAGE, VERSION, Object
from privatekube_kfp.ledger.kubernetes.connecting import connecting

TWIN = replace(CLAIMS, group=f"twin.{GROUP}", label="twins")
"""Claims under another group."""


def twin_definition(definition: Path) -> Mapping[str, Any]:
    """The definition of our claims, under another group and with no short names to clash."""
    twin = yaml.safe_load(definition.read_text())
    twin["metadata"] = {"name": f"{TWIN.plural}.{TWIN.group}"}
    twin["spec"]["group"] = TWIN.group
    twin["spec"]["names"].pop("shortNames")
    twin["spec"]["names"].pop("categories")
    return twin


class RawClaims:
    """Claims that nobody schedules, and status updates of them over a few connections."""

    def __init__(self, client: ApiClient, connections: int) -> None:
        self._api = CustomObjectsApi(client)
        self._connections = connections

    def create(self, claims: Sequence[Object]) -> list[Object]:
        """Create them without their statuses; returns what to send to write these."""
        return side_by_side(self._connections, self._create, claims)

    def _create(self, claim: Object) -> Object:
        spec = {key: value for key, value in claim.items() if key != "status"}
        made = self._api.create_namespaced_custom_object(
            TWIN.group,
            TWIN.version,
            NAMESPACE,
            TWIN.plural,
            {**spec, "apiVersion": TWIN.api_version},
        )
        kept = ("name", "namespace", "uid", "resourceVersion")
        return {
            "apiVersion": TWIN.api_version,
            "kind": TWIN.kind,
            "metadata": {key: made["metadata"][key] for key in kept},
            "status": claim["status"],
        }

    def write(self, claim: Object) -> None:
        self._api.replace_namespaced_custom_object_status(
            TWIN.group, TWIN.version, NAMESPACE, TWIN.plural, claim["metadata"]["name"], claim
        )

    def write_all(self, claims: Sequence[Object]) -> float:
        """Seconds in which all of their statuses are written, over all connections."""
        began = perf_counter()
        side_by_side(self._connections, self.write, claims)
        return perf_counter() - began


def list_claims(client: ApiClient, namespace: str) -> tuple[int, float]:
    """How many claims there are, and the seconds it takes to list them page by page."""
    api = CustomObjectsApi(client)
    began = perf_counter()
    found, more = 0, ""
    while True:
        page = api.list_namespaced_custom_object(
            GROUP, VERSION, namespace, CLAIMS.plural, limit=PAGE, _continue=more
        )
        found += len(page["items"])
        more = page["metadata"].get("continue", "")
        if not more:
            return found, perf_counter() - began


if __name__ == "__main__":
    print(*list_claims(connecting(sys.argv[1])(), sys.argv[2]))
