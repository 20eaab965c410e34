"""Places at fsspec URIs: what is the same for all of them, and what goes wrong there, in words."""

from __future__ import annotations

import errno
import re
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

RESULTS_VARIABLE = "PRIVATEKUBE_RESULTS"
"""Says to Allocate and Upload where the results of their pipeline go."""
UPLOADS_VARIABLE = "PRIVATEKUBE_UPLOADS"
"""Says to Allocate which uploads will follow, a JSON list: URIs, or "" for the place of results."""

_OF_STORES = ("botocore", "aiobotocore", "aiohttp", "gcsfs", "google", "adlfs", "azure", "fsspec")
_NO_CREDENTIALS = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "DefaultCredentialsError",
    "NoAuthTokensError",
)
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


# Whether a place can be written to


def try_writing(uri: str) -> str | None:
    """Do what Upload will do at a URI, with a small file beside it that nobody needs.

    Raises whatever the place does. Upload deletes nothing, so it need not be allowed to: what is
    returned is the file, if it cannot be deleted again.
    """
    # Here, since most tasks need it for nothing else.
    import fsspec

    files, path = fsspec.core.url_to_fs(uri)
    if is_local(files):
        _try_writing_here(Path(path).absolute())
        return None
    files.exists(f"{path}.claim.json")
    probe = f"{path}.privatekube-probe-{uuid.uuid4().hex}"
    files.pipe_file(probe, b"Written to prove that results can be written. Delete it.\n")
    with suppress(Exception):
        files.rm_file(probe)
        return None
    return probe


def _try_writing_here(target: Path) -> None:
    """In the nearest folder that there is: Upload makes the others."""
    folder = next(place for place in target.parents if place.exists())
    with tempfile.TemporaryFile(dir=folder):
        pass


# What goes wrong there


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
    if lacks_credentials(error):
        return f"there are no credentials for it; {_CREDENTIALS}"
    if isinstance(error, FileNotFoundError):
        # Of a file the error has the name; what else it says is a sentence.
        return said if " " in said and error.filename is None else "there is nothing there"
    if (isinstance(error, PermissionError) and error.errno is None) or status in (401, 403):
        return f"access is denied ({said}); the credentials must allow it: {_CREDENTIALS}"
    if is_slow(error):
        return f"its server{_address(said)} did not answer in time"
    if is_unreachable(error):
        return f"its server{_address(said)} cannot be reached; {_ENDPOINT}"
    if name in _CUT_OFF:
        return f"its server broke off in the middle ({said})"
    if status in (429, 500, 502, 503, 504) or getattr(error, "errno", None) == errno.EBUSY:
        return f"its server is overloaded or out of order ({said}); try again later"
    if isinstance(error, ImportError):
        missing = getattr(error, "name", None) or said
        return f"the image has no {missing}, which such a place needs ({said})"
    return said


def lacks_credentials(error: BaseException) -> bool:
    """Whether an object store's client found no credentials to send."""
    return type(error).__name__ in _NO_CREDENTIALS


def is_slow(error: BaseException) -> bool:
    return type(error).__name__ in _SLOW or isinstance(error, TimeoutError)


def is_unreachable(error: BaseException) -> bool:
    return type(error).__name__ in _UNREACHABLE or isinstance(error, ConnectionError)


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
