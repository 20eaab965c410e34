"""Tries places in a process: `python -m privatekube_kfp.doctor.probe 20 write s3://bucket/folder`.

In one of its own, so that it has the environment that tasks would have and no other, and can be
ended when an object store does not answer: on this machine, or in a pod. Writes as Allocate does
before it asks for budget, or only looks, for so many seconds at each place; prints one JSON object
a place.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from types import FrameType

from privatekube_kfp.data.places import (
    is_slow,
    is_unreachable,
    lacks_credentials,
    try_writing,
)

SECONDS = 20.0
"""For each place, unless told otherwise."""
TERMINATION_LOG = "/dev/termination-log"
"""In a pod, Kubernetes keeps in its status what is written there: 4,096 bytes."""
_MOST_MEMORY = 4 << 30
_LONGEST = 300


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


Outcomes = dict[str, tuple[Outcome, str]]
"""By action, how it went and what was said."""


def main(words: list[str]) -> None:
    _bound_memory()
    os.environ.setdefault("AWS_MAX_ATTEMPTS", "2")
    seconds = float(words[0])
    lines = []
    for action, uri in zip(words[1::2], words[2::2], strict=True):
        outcome, said = _try(action, uri, seconds)
        lines.append(json.dumps({"action": action, "outcome": outcome, "said": said}))
        print(lines[-1], flush=True)
    with suppress(OSError), open(TERMINATION_LOG, "r+", encoding="utf-8") as file:
        file.write("\n".join(lines))
    sys.stdout.flush()
    # At once: whatever still waits for an object store does so in threads.
    os._exit(0)


def command(python: str, places: Mapping[str, str], seconds: float = SECONDS) -> list[str]:
    """The command that tries places, by what to do there."""
    words = [word for pair in places.items() for word in pair]
    return [python, "-m", "privatekube_kfp.doctor.probe", f"{seconds:g}", *words]


def outcomes(lines: Sequence[str]) -> Outcomes:
    """What it printed, read again."""
    found = {}
    for line in lines:
        with suppress(ValueError, TypeError, KeyError):
            answer = json.loads(line)
            found[str(answer["action"])] = Outcome(answer["outcome"]), str(answer["said"])
    return found


def _bound_memory() -> None:
    """An object store may answer with gigabytes, and clients keep an answer whole."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _MOST_MEMORY if hard == resource.RLIM_INFINITY else min(_MOST_MEMORY, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _try(action: str, uri: str, seconds: float) -> tuple[Outcome, str]:
    def end(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"no answer within {seconds:g} s")

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        if action == "write":
            try_writing(f"{uri.rstrip('/')}/doctor")
        else:
            import fsspec

            files, path = fsspec.core.url_to_fs(uri)
            files.info(path.split("/")[0])
    except Exception as error:  # Whatever the packages of all object stores raise.
        return _outcome(error), _said(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return Outcome.DONE, ""


def _outcome(error: BaseException) -> Outcome:
    chain = list(_chain(error))
    if any(map(lacks_credentials, chain)):
        return Outcome.NO_CREDENTIALS
    if isinstance(error, ImportError) or "Protocol not known" in str(error):
        return Outcome.NO_PACKAGE
    if isinstance(error, PermissionError):
        return Outcome.REFUSED
    if isinstance(error, FileNotFoundError):
        return Outcome.ABSENT
    if any(is_unreachable(each) or is_slow(each) for each in chain):
        return Outcome.UNREACHABLE
    return Outcome.FAILED


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _said(error: BaseException) -> str:
    said = " ".join(str(error).split())
    return (said or type(error).__name__)[:_LONGEST]


if __name__ == "__main__":
    main(sys.argv[1:])
