"""The custom resource definitions: there, served, and as this version of the library ships them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privatekube_kfp.doctor.cluster import DEFINITIONS, Cluster
from privatekube_kfp.doctor.findings import (
    Commands,
    Finding,
    Unknown,
    ok,
    unchecked,
    warning,
    wrong,
)
from privatekube_kfp.ledger.kubernetes.api import GROUP, VERSION, Object

CHECK = "definitions"

_RULES = "x-kubernetes-validations"
_RULES_SINCE = 25
_SCHEMA = "openAPIV3Schema"


@dataclass(frozen=True)
class DefinitionFacts:
    """What the library ships, and what the cluster has of it."""

    shipped: Sequence[Object]
    stored: Mapping[str, Object | None] | Unknown
    served: Mapping[str, bool] | Unknown
    """The kinds of our group that the API serves, which everybody may ask."""
    minor: int | None
    """Of Kubernetes 1."""

    @property
    def missing(self) -> list[str]:
        """The names of definitions that are not there."""
        if not isinstance(self.stored, Unknown):
            return [name for name, stored in self.stored.items() if stored is None]
        if isinstance(self.served, Unknown):
            return []
        return [
            each["metadata"]["name"]
            for each in self.shipped
            if each["spec"]["names"]["plural"] not in self.served
        ]


def look(cluster: Cluster, manifests: Sequence[Object], minor: int | None) -> DefinitionFacts:
    shipped = [each for each in manifests if each["kind"] == DEFINITIONS.kind]
    stored: dict[str, Object | None] = {}
    unknown = None
    for each in shipped:
        name = each["metadata"]["name"]
        found = cluster.get(DEFINITIONS, name)
        if isinstance(found, Unknown):
            unknown = found
            break
        stored[name] = found
    return DefinitionFacts(shipped, unknown or stored, cluster.served(GROUP, VERSION), minor)


def check(facts: DefinitionFacts, commands: Commands) -> list[Finding]:
    mend = commands.install_definitions()
    if facts.missing:
        said = f"the cluster has no definition {' and none '.join(facts.missing)}"
        return [wrong(CHECK, "DefinitionMissing", said, mend)]
    if isinstance(facts.stored, Unknown):
        return [unchecked(CHECK, facts.stored)]
    found = []
    for shipped in facts.shipped:
        name = shipped["metadata"]["name"]
        stored = facts.stored[name]
        assert stored is not None
        found += _compare(name, shipped, stored, facts.minor, mend)
    return found or [ok(CHECK, f"{len(facts.shipped)} definitions, as this version ships them")]


def _compare(
    name: str, shipped: Object, stored: Object, minor: int | None, mend: str
) -> list[Finding]:
    if stored["metadata"].get("deletionTimestamp"):
        said = f"definition {name} is being deleted, and with it every object of its kind"
        return [wrong(CHECK, "DefinitionDeleted", said, mend)]
    if not _is_established(stored):
        said = f"the API server does not serve definition {name}: {_why_not(stored)}"
        return [wrong(CHECK, "DefinitionNotServed", said, mend)]
    keeps_rules = minor is None or minor >= _RULES_SINCE
    lost = [
        path
        for path in lacking(shipped["spec"], stored["spec"])
        if keeps_rules or not path.endswith(_RULES)
    ]
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        said = f"definition {name} is not that of this version: it lacks {_short(lost[0])}{more}"
        return [wrong(CHECK, "DefinitionOld", said, mend)]
    added = [path for path in lacking(stored["spec"], shipped["spec"]) if f".{_SCHEMA}." in path]
    if added:
        said = (
            f"definition {name} is of a newer version than this library: it has"
            f" {_short(added[0])} too"
        )
        upgrade = "pip install --upgrade privatekube-kfp"
        return [warning(CHECK, "DefinitionNewer", said, upgrade)]
    return []


def lacking(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """The paths of what is wanted and is not found so; descriptions may differ."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            if key == "description" and isinstance(value, str):
                continue
            if key not in found:
                yield f"{path}.{key}"
            else:
                yield from lacking(value, found[key], f"{path}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, (ours, theirs) in enumerate(zip(wanted, found, strict=True)):
            yield from lacking(ours, theirs, f"{path}.{number}")
    elif wanted != found:
        yield path


def _short(path: str) -> str:
    """A path as people name a field: the way through the schema left out."""
    if path.endswith(_RULES) or f".{_RULES}." in path:
        path, rules = path.partition(f".{_RULES}")[0], "the rules of "
    else:
        rules = ""
    inside = path.partition(f".{_SCHEMA}")[2]
    names = [each for each in inside.split(".") if each not in ("", "properties", "items")]
    return rules + (".".join(names) or path.lstrip("."))


def _is_established(definition: Object) -> bool:
    return _condition(definition, "Established") == "True"


def _condition(definition: Object, type_: str) -> str | None:
    for each in definition.get("status", {}).get("conditions") or []:
        if each["type"] == type_:
            return str(each["status"])
    return None


def _why_not(definition: Object) -> str:
    for each in definition.get("status", {}).get("conditions") or []:
        if each["status"] == "False" and each.get("message"):
            return str(each["message"])
    return "it is not established yet"
