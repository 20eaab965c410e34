"""The parts that tasks of a pipeline play in the placement protocol."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

ROLE_VARIABLE = "PRIVATEKUBE_ROLE"
"""The environment variable, on a task's container, that says its role."""
ROLE_LABEL = "privatekube.io/role"
"""The pod label, and the comment in a component's source, that say the same."""

CLAIM_TYPE = "system.PrivacyClaim"
RUN_ID = "{{$.pipeline_job_uuid}}"
"""What a compiled pipeline says where the id of its run is to be filled in."""


_COMMENT = re.compile(rf"^[ \t]*#[ \t]*{re.escape(ROLE_LABEL)}:[ \t]*(\S+)", re.MULTILINE)


def roles_in_source(command: Iterable[object]) -> list[str]:
    """The roles that comments in a container's command say, as every component of ours does."""
    return [role for word in command for role in _COMMENT.findall(str(word))]


class Role(StrEnum):
    INGEST = "ingest"
    ALLOCATE = "allocate"
    CONSUME = "consume"
    RELEASE = "release"
    SOURCE = "source"
    SINK = "sink"
    COMPUTE = "compute"
