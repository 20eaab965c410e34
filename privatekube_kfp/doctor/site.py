"""The site settings: whether there are any, and whether they can be followed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from privatekube_kfp.core.errors import PrivateKubeError
from privatekube_kfp.doctor.cluster import CONFIG_MAPS, Cluster, NoCluster
from privatekube_kfp.doctor.findings import Finding, Unknown, ok, unchecked, wrong
from privatekube_kfp.settings import Settings, find_settings, settings_from_text
from privatekube_kfp.settings.reading import config_map_of

CHECK = "settings"
_CONFIG_MAP = "configmap:"
_KEY = "privatekube.yaml"


@dataclass(frozen=True)
class SettingsFacts:
    settings: Settings
    """Empty where there are none, or none that can be followed."""
    problem: str | Unknown | None = None
    absent: str | None = None
    """The address of a ConfigMap that is not there."""


def look(address: str | None, connect: Callable[[], Cluster]) -> SettingsFacts:
    """The settings at an address, else those that hold in the working directory.

    A ConfigMap is read from the cluster that is examined, whichever that is.
    """
    try:
        if address is None or not address.startswith(_CONFIG_MAP):
            return SettingsFacts(find_settings(address))
        namespace, name = config_map_of(address)
        found = connect().get(CONFIG_MAPS, name, namespace)
        if isinstance(found, Unknown):
            return SettingsFacts(Settings(), found)
        if found is None:
            said = f"there is no ConfigMap {name} in namespace {namespace}"
            return SettingsFacts(Settings(), said, absent=address)
        text = (found.get("data") or {}).get(_KEY)
        if text is None:
            said = f"ConfigMap {name} in namespace {namespace} has no key {_KEY}"
            return SettingsFacts(Settings(), said, absent=address)
        return SettingsFacts(settings_from_text(text, address))
    except NoCluster as error:
        return SettingsFacts(Settings(), Unknown(str(error)))
    except PrivateKubeError as error:
        return SettingsFacts(Settings(), error.message)


def check(facts: SettingsFacts, address: str | None) -> list[Finding]:
    if isinstance(facts.problem, Unknown):
        return [unchecked(CHECK, facts.problem)]
    if facts.absent is not None:
        mend = f"privatekube settings publish {facts.absent} --settings FILE"
        return [wrong(CHECK, "SettingsMissing", str(facts.problem), mend)]
    if facts.problem is not None:
        named = f" --settings {address}" if address else ""
        mend = f"privatekube settings show{named}"
        return [wrong(CHECK, "SettingsInvalid", facts.problem, mend)]
    if facts.settings.source:
        return [ok(CHECK, facts.settings.source)]
    return [ok(CHECK, "none: what is built in")]
