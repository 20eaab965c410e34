"""Where site settings are: a file, a ConfigMap of a cluster, or none.

They are named by `--settings`, else by PRIVATEKUBE_SETTINGS; else it is the file `privatekube.yaml`
in the working directory or the nearest folder above it, up to the home folder (outside of it, up to
the root). Whatever is named must be there: nothing is fallen back to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privatekube_kfp.settings.schema import InvalidSettings, Settings, settings_of

FILE_NAME = "privatekube.yaml"
SETTINGS_VARIABLE = "PRIVATEKUBE_SETTINGS"
CONFIG_MAP_NAME = "privatekube-settings"
NONE = "none"
"""An address that means no settings, though there may be a file."""
_CONFIG_MAP = "configmap:"
_LONGEST = 1 << 20


def find_settings(
    named: str | None = None, environment: Mapping[str, str] = os.environ
) -> Settings:
    """The settings that hold here; those of nobody where there are none."""
    address = named or environment.get(SETTINGS_VARIABLE) or None
    if address is None:
        found = _file_above(Path.cwd())
        return Settings() if found is None else read_settings(str(found))
    return read_settings(address)


def read_settings(address: str) -> Settings:
    """The settings at an address: a file, `configmap:NAMESPACE/NAME`, or `none`."""
    if address == NONE:
        return Settings()
    if address.startswith(_CONFIG_MAP):
        return _of_cluster(*config_map_of(address), address)
    path = Path(address)
    try:
        with path.open() as file:
            text = file.read(_LONGEST + 1)
    except UnicodeDecodeError:
        raise InvalidSettings(f"{address} is not text: settings are a YAML file") from None
    except OSError as error:
        raise InvalidSettings(
            f"the settings {address} cannot be read: {error.strerror or error}"
        ) from None
    if len(text) > _LONGEST:
        raise InvalidSettings(
            f"{address} is longer than {_LONGEST:,} characters: no settings are, nor would a"
            " ConfigMap hold them"
        )
    return settings_from_text(text, address)


def settings_from_text(text: str, source: str) -> Settings:
    # Here, since most commands read none.
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key that is there twice: YAML would keep the last and say nothing."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[str] = set()
            for key, _ in node.value:
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} is there twice", key.start_mark
                    )
                if isinstance(key.value, str):
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        documents = [one for one in yaml.load_all(text, Loader) if one is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        where = f"line {mark.line + 1}: " if mark else ""
        raise InvalidSettings(f"{source}: {where}{problem}") from None
    except (RecursionError, ValueError) as error:
        raise InvalidSettings(f"{source} is not YAML: {error}") from None
    if len(documents) > 1:
        raise InvalidSettings(f"{source} has {len(documents)} YAML documents; settings are one")
    return settings_of(documents[0] if documents else {}, source)


def config_map_of(address: str) -> tuple[str, str]:
    """The namespace and name in `configmap:NAMESPACE/NAME`, or `configmap:NAMESPACE`."""
    namespace, _, name = address.removeprefix(_CONFIG_MAP).partition("/")
    name = name or CONFIG_MAP_NAME
    if not namespace or "/" in name:
        raise InvalidSettings(
            f"{address!r} does not name a ConfigMap; write it like configmap:kubeflow or"
            f" configmap:kubeflow/{CONFIG_MAP_NAME}"
        )
    return namespace, name


def _file_above(folder: Path) -> Path | None:
    """The nearest settings file; one above must be the user's own or the administrator's.

    In a folder that others can write to, such as /tmp, they could put one above ours.
    """
    home = Path.home()
    for place in (folder, *folder.parents):
        path = place / FILE_NAME
        if path.is_file():
            if place != folder and path.stat().st_uid not in (os.getuid(), 0):
                raise InvalidSettings(
                    f"{path} belongs to another user: name it with --settings {path} to use it,"
                    f" or --settings {NONE} to go without"
                )
            return path
        if place == home:
            break
    return None


# In a cluster


def _of_cluster(namespace: str, name: str, address: str) -> Settings:
    from privatekube_kfp.settings.cluster import read_config_map

    return settings_from_text(read_config_map(namespace, name), address)
