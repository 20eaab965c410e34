"""Where results go, and the proof that they can, before any budget is asked for.

A result that cannot be written is paid for all the same. So Allocate writes and deletes a small
file where its run's uploads will go, and does nothing else if that fails.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping

from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.data.places import (
    RESULTS_VARIABLE,
    UPLOADS_VARIABLE,
    is_of_a_place,
    try_writing,
    why_it_fails,
)
from privatekube_kfp.ledger.opening import IN_A_POD

_SET_IT = (
    "write `results: s3://...` into privatekube.yaml and submit the pipeline again, or give the"
    " upload a uri"
)
_OF_A_POD = ("/gcs", "/minio", "/s3", "/tmp", "/.cache", "/.config", "/.local", "/kfp-launcher")
"""Folders that Kubeflow mounts into a pod, and that go with it."""


def place_of_result(
    uri: str, name: str, run_id: str, environment: Mapping[str, str] = os.environ
) -> str:
    """Where an upload goes: to its URI, or by its name to the run's folder at the site's place."""
    if not uri:
        place = environment.get(RESULTS_VARIABLE)
        if not place:
            raise Invalid(Reason.INVALID_REQUEST, f"nobody says where results go: {_SET_IT}")
        uri = f"{_of_run(place, run_id)}/{_as_file_name(name)}"
    _refuse_what_a_pod_loses(uri, environment)
    return uri


def prove_writable(results: str, run_id: str, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse to go on unless what the run will upload can be written.

    Args:
        results: The URI that an upload will be given; empty for the site's place.
        run_id: The run.
        environment: Says which uploads follow, and the site's place.
    """
    for uri in _targets(results, environment):
        target = "the place of results"
        try:
            target = place_of_result(uri, "result", run_id, environment)
            left = try_writing(target)
        except Invalid as error:
            raise Invalid(error.reason, f"{error.message}; no budget was asked for") from None
        except Exception as error:
            if not is_of_a_place(error):
                raise
            raise PrivateKubeError(
                Reason.DATA_UNWRITABLE,
                f"results cannot be written to {target}: {why_it_fails(error)}; no budget was"
                " asked for",
            ) from error
        if left is not None:
            print(f"{left} was written as a probe and may not be deleted", flush=True)


def _targets(results: str, environment: Mapping[str, str]) -> list[str]:
    said = environment.get(UPLOADS_VARIABLE)
    if said is None:
        return [results] if results or environment.get(RESULTS_VARIABLE) else []
    return list(dict.fromkeys(str(uri) or results for uri in json.loads(said)))


def _of_run(place: str, run_id: str) -> str:
    """`{run}` in the place, or its end, is the run."""
    if "{run}" in place:
        return place.replace("{run}", run_id)
    return f"{place.rstrip('/')}/{run_id}"


def _as_file_name(name: str) -> str:
    """A name that any place takes: nothing must fail here any more."""
    return re.sub(r"[^-._A-Za-z0-9]+", "-", name, flags=re.ASCII).lstrip(".-")[:100] or "result"


def _refuse_what_a_pod_loses(uri: str, environment: Mapping[str, str]) -> None:
    """What is written into a pod's own file system goes with the pod."""
    if IN_A_POD not in environment or (
        "://" in uri and not uri.startswith(("file://", "local://"))
    ):
        return
    path = uri.partition("://")[2] or uri
    if not path.startswith("/"):
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"{uri} is a relative path, and in a pod that is nowhere: {_SET_IT}",
        )
    path = os.path.normpath(path)
    if any(path == own or path.startswith(f"{own}/") for own in _OF_A_POD) or _mount(path) == "/":
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"{uri} is in the pod's own file system and would go with the pod: mount a volume"
            f" there, on every task, or {_SET_IT}",
        )


def _mount(path: str) -> str:
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path
