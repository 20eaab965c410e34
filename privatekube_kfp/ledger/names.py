"""Names that every ledger accepts, the Kubernetes one included."""

from __future__ import annotations

import re

from privatekube_kfp.core.errors import Invalid, Reason

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_REQUEST_ID = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]{0,127}", re.ASCII)


def check_name(kind: str, name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"{kind} name {name!r} must be lower-case letters, digits, '-' and '.',"
            " begin and end with a letter or digit, and have at most 253 characters",
        )
    return name


def check_request_id(id: str) -> str:
    if not isinstance(id, str) or not _REQUEST_ID.fullmatch(id):
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"request id {id!r} must be letters, digits, '-', '_' and '.', at most 128 of them",
        )
    return id
