"""The parts that tasks of a pipeline play in the placement protocol."""

from __future__ import annotations

from enum import StrEnum

ROLE_VARIABLE = "PRIVATEKUBE_ROLE"
"""The environment variable, on a task's container, that says its role."""
ROLE_LABEL = "privatekube.io/role"
"""The pod label, and the comment in a component's source, that say the same."""

CLAIM_TYPE = "system.PrivacyClaim"
RUN_ID = "{{$.pipeline_job_uuid}}"
"""What a compiled pipeline says where the id of its run is to be filled in."""


class Role(StrEnum):
    ALLOCATE = "allocate"
    CONSUME = "consume"
    RELEASE = "release"
    SOURCE = "source"
    SINK = "sink"
    COMPUTE = "compute"
