"""Places at fsspec URIs: what is the same for all of them, and what goes wrong there, in words."""

from __future__ import annotations

import errno
import re
from typing import Any

RESULTS_VARIABLE = "PRIVATEKUBE_RESULTS"
"""Says to Allocate and Upload where the results of their pipeline go."""
UPLOADS_VARIABLE = "PRIVATEKUBE_UPLOADS"
"""Says to Allocate which uploads will follow, a JSON list: URIs, or "" for the place of results."""

_OF_STORES = ("botocore", "aiobotocore", "aiohttp", "gcsfs", "google", "adlfs", "azure", "fsspec")
_UNREACHABLE = (
    "EndpointConnectionError",
    "ConnectionClosedError",
    "ConnectTimeoutError",
    "ConnectionError",
    "ClientConnectorError",
    "ServerDisconnectedError",
    "ProxyConnectionError",
    "SSLError",
)
_SLOW = ("ReadTimeoutError", "FSTimeoutError", "TimeoutError", "ServerTimeoutError")
_CUT_OFF = ("ClientPayloadError", "IncompleteReadError", "ResponseStreamingError")
_SERVER = re.compile(r"https?://[^/\"'\s?]+")
_CREDENTIALS = (
    "name a secret that has them under `secrets` in privatekube.yaml, as AWS_ACCESS_KEY_ID and"
    " AWS_SECRET_ACCESS_KEY"
)
_ENDPOINT = "AWS_ENDPOINT_URL, under `env` in privatekube.yaml, says where an S3 server is"


def is_local(files: Any) -> bool:
    """Whether a file system is this machine's own, where files can be renamed and locked."""
    protocol = files.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else tuple(protocol))


def in_one_line(error: BaseException) -> str:
    """What a file system says."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(said).splitlines()[0]


def is_of_a_place(error: BaseException) -> bool:
    """Whether an error is a file system's or an object store's, and not a mistake of ours."""
    if isinstance(error, OSError | ImportError | ValueError | TimeoutError):
        return True
    return type(error).__module__.partition(".")[0] in _OF_STORES


def why_it_fails(error: BaseException) -> str:
    """Why a place cannot be used and what mends it, as a part of a sentence.

    Object stores' clients need not be installed, so their errors are known by name.
    """
    name, status = type(error).__name__, _status(error)
    said = in_one_line(error)
    if name in ("NoCredentialsError", "PartialCredentialsError"):
        return f"there are no credentials for it; {_CREDENTIALS}"
    if isinstance(error, FileNotFoundError):
        # Of a file the error has the name; what else it says is a sentence.
        return said if " " in said and error.filename is None else "there is nothing there"
    if (isinstance(error, PermissionError) and error.errno is None) or status in (401, 403):
        return f"access is denied ({said}); the credentials must allow it: {_CREDENTIALS}"
    if name in _SLOW or isinstance(error, TimeoutError):
        return f"its server{_address(said)} did not answer in time"
    if name in _UNREACHABLE or isinstance(error, ConnectionError):
        return f"its server{_address(said)} cannot be reached; {_ENDPOINT}"
    if name in _CUT_OFF:
        return f"its server broke off in the middle ({said})"
    if status in (429, 500, 502, 503, 504) or getattr(error, "errno", None) == errno.EBUSY:
        return f"its server is overloaded or out of order ({said}); try again later"
    if isinstance(error, ImportError):
        missing = getattr(error, "name", None) or said
        return f"the image has no {missing}, which such a place needs ({said})"
    return said


def _address(said: str) -> str:
    """The server that an error names, without the rest of the request."""
    found = _SERVER.search(said)
    return f" {found[0]}" if found else f" ({said})" if said else ""


def _status(error: BaseException) -> int | None:
    """The HTTP status that an object store has answered with, if it is known."""
    for one in (error, error.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if isinstance(status, int):
                return status
        if isinstance(status := getattr(one, "status", None), int):
            return status
    return None
