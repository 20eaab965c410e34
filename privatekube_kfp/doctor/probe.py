"""Tries places in a process: `python -m privatekube_kfp.doctor.probe write s3://bucket/folder`.

In one of its own, so that it has the environment that tasks would have and no other, and can be
ended when an object store does not answer. Writes one empty object and removes it again, or only
looks; prints one JSON object a place.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from enum import StrEnum


class Outcome(StrEnum):
    """How it went."""

    DONE = "done"
    NO_PACKAGE = "no-package"
    """This installation cannot speak to that kind of place."""
    NO_CREDENTIALS = "no-credentials"
    REFUSED = "refused"
    ABSENT = "absent"
    """There is no such bucket, or no such folder."""
    UNREACHABLE = "unreachable"
    FAILED = "failed"


_NO_CREDENTIALS = ("NoCredentials", "PartialCredentials", "DefaultCredentials", "NoAuthTokens")
_UNREACHABLE = ("EndpointConnection", "ConnectTimeout", "ConnectionError", "ClientConnector")


def main(words: list[str]) -> None:
    for action, uri in zip(words[::2], words[1::2], strict=True):
        outcome, said = _try(action, uri)
        print(json.dumps({"action": action, "outcome": outcome, "said": said}), flush=True)


def _try(action: str, uri: str) -> tuple[Outcome, str]:
    try:
        import fsspec

        files, path = fsspec.core.url_to_fs(uri)
        if action == "write":
            mark = f"{path.rstrip('/')}/.privatekube-doctor-{uuid.uuid4().hex}"
            files.pipe_file(mark, b"")
            files.rm_file(mark)
        else:
            files.ls(path.split("/")[0])
    except Exception as error:  # Whatever the packages of all object stores raise.
        return _outcome(error), _said(error)
    return Outcome.DONE, ""


def _outcome(error: BaseException) -> Outcome:
    chain = list(_chain(error))
    names = " ".join(type(each).__name__ for each in chain)
    if any(name in names for name in _NO_CREDENTIALS):
        return Outcome.NO_CREDENTIALS
    if isinstance(error, ImportError) or "Protocol not known" in str(error):
        return Outcome.NO_PACKAGE
    if isinstance(error, PermissionError):
        return Outcome.REFUSED
    if isinstance(error, FileNotFoundError):
        return Outcome.ABSENT
    if any(name in names for name in _UNREACHABLE) or isinstance(error, TimeoutError):
        return Outcome.UNREACHABLE
    return Outcome.FAILED


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _said(error: BaseException) -> str:
    said = " ".join(str(error).split())
    return (said or type(error).__name__)[:300]


if __name__ == "__main__":
    main(sys.argv[1:])
