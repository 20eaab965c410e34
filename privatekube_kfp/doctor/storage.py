"""Where results and artifacts go: whether tasks can write there, with what settings give them."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from privatekube_kfp.doctor import probe
from privatekube_kfp.doctor.findings import (
    Commands,
    Finding,
    Unknown,
    ok,
    unchecked,
    warning,
    wrong,
)
from privatekube_kfp.doctor.probe import Outcome, Outcomes
from privatekube_kfp.doctor.reach import Reach
from privatekube_kfp.doctor.web import proxy_for
from privatekube_kfp.ledger.kubernetes.api import Object
from privatekube_kfp.settings import Settings
from privatekube_kfp.settings.schema import TaskOptions

_SECONDS_MORE = 20.0
"""For what trying places imports; then the process that does it is killed."""
# What this machine's user has, and a pod has not.
_OWN_CREDENTIALS = ("AWS_", "GOOGLE_", "AZURE_", "GCS_", "FSSPEC_")
_ISOLATED = {
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_GCE_CHECK": "true",
}
_ENDPOINTS = (
    *("FSSPEC_S3_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "STORAGE_EMULATOR_HOST",
)
_IDENTITY = ("eks.amazonaws.com/role-arn", "iam.gke.io/gcp-service-account", "azure.workload")


@dataclass(frozen=True)
class PlaceFacts:
    """One place, and how a try went."""

    uri: str
    outcome: Outcome | Unknown
    said: str = ""


# Looking


def environment_of_task(
    options: TaskOptions, secrets: Mapping[str, Object | Unknown | None]
) -> dict[str, str] | Unknown:
    """The variables that settings give to a task; not known where a secret may not be read."""
    found = dict(options.env)
    for secret in options.secrets:
        stored = secrets.get(secret.name)
        if isinstance(stored, Unknown):
            return stored
        if secret.mount_path:
            why = f"tasks have the files of secret {secret.name}, which are not here"
            return Unknown(why, from_here=True)
        data = (stored or {}).get("data") or {}
        for key, variable in secret.env.items():
            if key in data:
                found[variable] = base64.b64decode(data[key]).decode(errors="replace")
    return found


def start_of(place: str) -> str:
    """The part of a place that is the same for every run."""
    return place.partition("{")[0].rstrip("/")


def places_of(settings: Settings) -> dict[str, str]:
    """Where results go and the pipeline root, by what is to be tried there."""
    return {"write": start_of(settings.results), "look": settings.pipeline_root}


def look(
    settings: Settings,
    variables: dict[str, str] | Unknown,
    account: Object | Unknown | None,
    reach: Reach,
    seconds: float = probe.SECONDS,
) -> tuple[PlaceFacts, PlaceFacts]:
    """Try where results go and the pipeline root as a task would, from this machine."""
    found = {}
    asked = {}
    for action, uri in places_of(settings).items():
        unknown = _why_not(uri, variables, reach)
        if unknown is not None:
            found[action] = PlaceFacts(uri, unknown)
        else:
            asked[action] = uri
    if asked:
        assert not isinstance(variables, Unknown)
        proxy = None if reach.inside else proxy_for(_endpoint(variables) or "https:")
        for action, (outcome, said) in _probe(asked, variables, seconds).items():
            known: Outcome | Unknown = outcome
            if outcome is Outcome.NO_CREDENTIALS and _has_identity(account):
                known = Unknown("tasks have the identity of their service account", from_here=True)
            elif outcome is Outcome.UNREACHABLE and not reach.inside:
                # Nodes may well reach what this machine does not.
                known = Unknown(f"its object store cannot be reached: {said}", from_here=True)
            elif outcome in (Outcome.REFUSED, Outcome.FAILED) and proxy is not None:
                known = Unknown(f"a proxy is between, which may say this: {said}", from_here=True)
            found[action] = PlaceFacts(asked[action], known, said)
    return found["write"], found["look"]


def look_from_pod(settings: Settings, found: Outcomes | Unknown) -> tuple[PlaceFacts, PlaceFacts]:
    """The same, as a pod in the cluster found it."""
    facts = {}
    for action, uri in places_of(settings).items():
        if isinstance(found, Unknown):
            facts[action] = PlaceFacts(uri, found)
        elif action in found:
            facts[action] = PlaceFacts(uri, *found[action])
        else:
            facts[action] = PlaceFacts(uri, Unknown("the pod says nothing about it"))
    return facts["write"], facts["look"]


def can_be_tried(uri: str) -> bool:
    """Whether a pod other than a task's own could tell."""
    return bool(uri) and not _is_in_pod(uri)


def _why_not(uri: str, variables: dict[str, str] | Unknown, reach: Reach) -> Unknown | None:
    """Why a place cannot be tried from here, if so."""
    if not can_be_tried(uri):
        return Unknown("it is in the pod itself")
    if isinstance(variables, Unknown):
        return variables
    if reach.inside:
        return None
    if uri.startswith("minio:"):
        return Unknown("Kubeflow's own object store is inside the cluster", from_here=True)
    host = urlsplit(_endpoint(variables)).hostname or ""
    if reach.is_of_cluster(host):
        return Unknown(f"{host} can be reached from inside the cluster only", from_here=True)
    return None


def _endpoint(variables: Mapping[str, str]) -> str:
    """The object store's address, where settings name one."""
    said = next((variables[name] for name in _ENDPOINTS if variables.get(name)), "")
    return said if not said or "://" in said else f"http://{said}"


def _has_identity(account: Object | Unknown | None) -> bool:
    if isinstance(account, Unknown) or account is None:
        return False
    annotations = account["metadata"].get("annotations") or {}
    return any(key.startswith(_IDENTITY) for key in annotations)


def _probe(asked: Mapping[str, str], variables: Mapping[str, str], seconds: float) -> Outcomes:
    """By action, in one process for all: what it imports takes longest."""
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith(_OWN_CREDENTIALS)
    }
    in_all = len(asked) * seconds + _SECONDS_MORE
    lines: list[str] = []
    failed = Outcome.FAILED, "the try itself broke down"
    try:
        done = subprocess.run(
            probe.command(sys.executable, asked, seconds),
            env={**ours, **_ISOLATED, **variables},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=in_all,
            check=False,
        )
        lines = done.stdout.splitlines()
    except subprocess.TimeoutExpired as error:
        lines = (error.stdout or b"").decode().splitlines()
        failed = Outcome.UNREACHABLE, f"no answer within {in_all:g} s"
    except OSError as error:
        failed = Outcome.FAILED, str(error)
    found = probe.outcomes(lines)
    return {action: found.get(action, failed) for action in asked}


# Judging


def check_results(
    facts: PlaceFacts,
    settings: Settings,
    namespace: str,
    commands: Commands,
    find_out: str | None = None,
) -> list[Finding]:
    """`find_out` is the command that tries it where this could not, if there is one."""
    check, uri = "results", facts.uri
    if not uri:
        said = "settings do not say where results go, so that each Upload has to be told"
        mend = f"echo 'results: s3://BUCKET/FOLDER' >> {settings.source}"
        return [warning(check, "ResultsUnset", said, mend)]
    if _is_in_pod(uri):
        said = f"results go to {uri} in the pod itself, and are lost unless a volume is there"
        return [warning(check, "ResultsInPod", said)]
    if isinstance(facts.outcome, Unknown):
        return [unchecked(check, _of(uri, facts.outcome), find_out)]
    secret = _renew_secret(settings.of_task("upload", ours=True), namespace, commands)
    match facts.outcome:
        case Outcome.DONE:
            return [ok(check, f"results can be written to {uri}")]
        case Outcome.NO_PACKAGE:
            return [unchecked(check, Unknown(f"{uri}: {facts.said}"), find_out)]
        case Outcome.NO_CREDENTIALS:
            said = f"settings give tasks no credentials to write results to {uri}"
            return [wrong(check, "ResultsCredentials", said, secret)]
        case Outcome.ABSENT:
            said = f"results cannot be written to {uri}: there is no such bucket"
            return [wrong(check, "ResultsMissing", said, _make_bucket(uri))]
        case Outcome.UNREACHABLE:
            said = f"the object store of {uri}, where results go, cannot be reached: {facts.said}"
            return [wrong(check, "ResultsUnreachable", said, _read_again(settings))]
    said = f"results cannot be written to {uri}: {facts.said}"
    return [wrong(check, "ResultsUnwritable", said, secret)]


def check_root(facts: PlaceFacts, settings: Settings, find_out: str | None = None) -> list[Finding]:
    """The pipeline root, where Kubeflow keeps artifacts, with credentials of its own."""
    check, uri = "pipeline root", facts.uri
    if _is_in_pod(uri):
        said = (
            f"the pipeline root {uri} is no object store, and Kubeflow keeps artifacts in none else"
        )
        return [wrong(check, "RootInPod", said, _read_again(settings))]
    if isinstance(facts.outcome, Unknown):
        return [unchecked(check, _of(uri, facts.outcome), find_out)]
    match facts.outcome:
        case Outcome.DONE:
            return [ok(check, f"the object store of {uri} answers")]
        case Outcome.ABSENT:
            said = f"artifacts are to be kept in {uri}, and there is no such bucket"
            return [wrong(check, "RootMissing", said, _make_bucket(uri))]
        case Outcome.UNREACHABLE:
            said = f"the object store of {uri}, the pipeline root, cannot be reached: {facts.said}"
            return [wrong(check, "RootUnreachable", said, _read_again(settings))]
    why = (
        facts.said if facts.outcome is Outcome.NO_PACKAGE else "Kubeflow's credentials are not here"
    )
    return [unchecked(check, Unknown(f"{uri}: {why}"))]


def _of(uri: str, unknown: Unknown) -> Unknown:
    return Unknown(f"{uri}: {unknown.why}", unknown.from_here)


def _is_in_pod(uri: str) -> bool:
    return not urlsplit(uri).scheme or uri.startswith(("file:", "local:"))


def _read_again(settings: Settings) -> str:
    return f"privatekube settings show --settings {settings.source}"


def _make_bucket(uri: str) -> str:
    scheme, bucket = urlsplit(uri).scheme, urlsplit(uri).netloc
    if scheme in ("gs", "gcs"):
        return f"gcloud storage buckets create gs://{bucket}"
    return f"aws s3 mb s3://{bucket}"


def _renew_secret(options: TaskOptions, namespace: str, commands: Commands) -> str:
    """Writes new credentials into the secret that settings name, or a first one."""
    named = [secret for secret in options.secrets if secret.env]
    name = named[0].name if named else "privatekube-results"
    keys = list(named[0].env) if named else ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
    values = [f"--from-literal={key}=VALUE" for key in keys]
    make = commands.kubectl(
        "-n",
        namespace,
        "create",
        "secret",
        "generic",
        name,
        *values,
        "--dry-run=client",
        "-o",
        "yaml",
    )
    return f"{make} | {commands.kubectl('apply', '-n', namespace, '-f', '-')}"
