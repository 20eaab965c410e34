"""Site settings: what differs from cluster to cluster, in one file, apart from pipelines.

`schema` says what a settings file can say, `reading` finds and reads one, `applying` writes it into
a compiled pipeline. Whoever needs a setting asks here; nothing else reads the file.
"""

from privatekube_kfp.data.places import RESULTS_VARIABLE
from privatekube_kfp.settings.applying import Applied, apply_settings
from privatekube_kfp.settings.reading import (
    FILE_NAME,
    SETTINGS_VARIABLE,
    find_settings,
    read_settings,
    settings_from_text,
)
from privatekube_kfp.settings.schema import COMPONENTS, IMAGES, InvalidSettings, Settings

__all__ = [
    "COMPONENTS",
    "FILE_NAME",
    "IMAGES",
    "RESULTS_VARIABLE",
    "SETTINGS_VARIABLE",
    "Applied",
    "InvalidSettings",
    "Settings",
    "apply_settings",
    "find_settings",
    "read_settings",
    "settings_from_text",
]
