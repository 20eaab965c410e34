"""Reading a cluster with whatever rights one has.

What may not be read is an `Unknown`, not an error. No answer at all ends the examination of the
cluster: `NoCluster`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from privatekube_kfp.core.errors import LedgerError
from privatekube_kfp.doctor.deadlines import within
from privatekube_kfp.doctor.findings import Unknown
from privatekube_kfp.ledger.kubernetes.api import (
    Api,
    Expired,
    Forbidden,
    NotFound,
    Object,
    Refused,
    Resource,
    Unreachable,
)

T = TypeVar("T")

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False, label="namespaces")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, label="nodes")
PODS = Resource("", "v1", "pods", "Pod", namespaced=True, label="pods")
SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True, label="secrets")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, label="config maps")
VOLUME_CLAIMS = Resource(
    "",
    "v1",
    "persistentvolumeclaims",
    "PersistentVolumeClaim",
    namespaced=True,
    label="volume claims",
)
ACCOUNTS = Resource(
    "", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, label="service accounts"
)
DEPLOYMENTS = Resource(
    "apps", "v1", "deployments", "Deployment", namespaced=True, label="deployments"
)
DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
    label="definitions",
)
CLUSTER_ROLES = Resource(
    "rbac.authorization.k8s.io",
    "v1",
    "clusterroles",
    "ClusterRole",
    namespaced=False,
    label="cluster roles",
)
CLUSTER_BINDINGS = Resource(
    "rbac.authorization.k8s.io",
    "v1",
    "clusterrolebindings",
    "ClusterRoleBinding",
    namespaced=False,
    label="cluster role bindings",
)
ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io",
    "v1",
    "rolebindings",
    "RoleBinding",
    namespaced=True,
    label="role bindings",
)
_MOST = 5000
_SECONDS_IN_ALL = 60.0
"""For one answer, or all pages of one list."""


class NoCluster(Exception):
    """No API server answers, or what answers is none; the message is one sentence."""


class Cluster:
    """One API server, asked with the rights that the caller happens to have."""

    def __init__(
        self,
        api: Api,
        host: str,
        *,
        in_all: float = _SECONDS_IN_ALL,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._in_all = in_all
        self.host = host
        self.sleep = sleep
        self._clock = clock

    def now(self) -> datetime:
        """The time by the server's clock, as of its last answer."""
        skew = self._api.clock_skew or 0.0
        return datetime.fromtimestamp(self._clock(), UTC) - timedelta(seconds=skew)

    def about(self, path: str) -> Object | Unknown:
        """What the server says about itself; nothing where it has no such page."""
        try:
            with self._asking():
                return _object(within(self._in_all, lambda: self._api.ask(path)))
        except NotFound:
            return {}
        except Refused as refusal:
            return Unknown(f"{path}: {refusal.message}")

    def get(
        self, kind: Resource, name: str, namespace: str | None = None
    ) -> Object | Unknown | None:
        """An object; None where there is none."""

        def read() -> Object | None:
            found = self._api.find(kind, name, namespace)
            if found is not None:
                _object(_object(found)["metadata"])
            return found

        return self._read(read, f"get {kind.plural}", namespace)

    def list(
        self,
        kind: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        most: int = _MOST,
    ) -> list[Object] | Unknown:
        """The objects of a kind, the first few thousand at most; none where there is no kind."""
        selected = [("labelSelector", labels)] if labels else []
        selected += [("fieldSelector", fields)] if fields else []

        def read() -> list[Object]:
            found: list[Object] = []
            try:
                for items, _ in self._api.pages(kind, namespace, selected=selected):
                    found += items
                    if len(found) >= most:
                        break
            except (Expired, NotFound):
                pass  # The first pages will do.
            return found

        return self._read(read, f"list {kind.plural}", namespace)

    def create(self, kind: Resource, obj: Object) -> Object | Unknown:
        namespace = obj["metadata"].get("namespace")
        return self._read(lambda: self._api.create(kind, obj), f"create {kind.plural}", namespace)

    def delete(self, kind: Resource, obj: Object) -> None:
        """Delete this very object, as far as that can be done."""
        with suppress(Refused, NoCluster), self._asking():
            self._api.delete(kind, obj)

    def review(self, kind: Resource, review: Object) -> Object | Unknown:
        """Ask a question by creating an object that is not kept."""
        try:
            return self.create(kind, review)
        except NotFound:
            return Unknown(f"this server knows no {kind.kind}")

    def served(self, group: str, version: str) -> dict[str, bool] | Unknown:
        """The kinds that the server has in a group, by name, and whether each is namespaced."""
        answer = self.about(f"/apis/{group}/{version}")
        if isinstance(answer, Unknown):
            return answer
        return {
            each["name"]: bool(each.get("namespaced")) for each in answer.get("resources") or []
        }

    def _read(self, read: Callable[[], T], what: str, namespace: str | None) -> T | Unknown:
        where = f" in namespace {namespace}" if namespace else ""
        try:
            with self._asking():
                return within(self._in_all, read)
        except Forbidden:
            return Unknown(f"you may not {what}{where}")
        except Refused as refusal:
            return Unknown(f"the server refused to {what}{where}: {refusal.message}")

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except Unreachable as error:
            said = error.message.removeprefix("the cluster gave no answer: ")
            if "401 Unauthorized" in said:
                raise NoCluster(
                    f"the API server at {self.host} does not accept your credentials"
                ) from error
            raise NoCluster(f"no answer from the API server at {self.host}: {said}") from error
        except TimeoutError as error:
            raise NoCluster(
                f"no whole answer from the API server at {self.host}: {error}"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            # What it answered is no JSON, or not of the shape that Kubernetes gives.
            raise NoCluster(
                f"what answers at {self.host} is not the API server of a Kubernetes cluster"
            ) from error
        except (Refused, NotFound, Expired):
            raise
        except LedgerError as error:
            raise NoCluster(error.message) from error


def _object(answer: object) -> Object:
    """What was answered, which is to be an object and may be anything."""
    if not isinstance(answer, dict):
        raise TypeError("the answer is no object")
    return answer
