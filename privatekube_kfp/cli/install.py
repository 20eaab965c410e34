"""`privatekube install`: the definitions, roles and scheduler that a cluster needs.

Prints them for kubectl, or applies them itself. It applies one object after the other, in an order
in which each finds what it needs: broken off anywhere, the same command again does the rest.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

import privatekube_kfp
from privatekube_kfp.cli.errors import Failure
from privatekube_kfp.cli.options import json_option
from privatekube_kfp.cli.output import say, write
from privatekube_kfp.cli.session import Session
from privatekube_kfp.cli.values import Value, invalid
from privatekube_kfp.core.errors import LedgerError

NAMESPACE = "privatekube-system"

Manifest = dict[str, Any]

_DISTRIBUTION = "privatekube-kfp"
_DEPLOY = Path("scheduler/deploy")
_KUSTOMIZATION = "kustomization.yaml"
_DEFINITION = "CustomResourceDefinition"
# The scheduler works without: it guards against careless node drains only.
_OPTIONAL_KINDS = {"PodDisruptionBudget"}
# What `kubectl apply` compares with too, so that either may follow the other.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_SERVER_KEEPS = ("managedFields", "resourceVersion", "generation")
_REQUEST_SECONDS = (10, 60)
_ESTABLISHED_SECONDS = 60
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


def read_namespace(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise invalid(
            f"{text!r} is no name for a namespace: use lower-case letters, digits and -,"
            " at most 63 of them"
        )
    return text


def _image(text: str) -> str:
    if not text or not text.isprintable() or " " in text:
        raise invalid(f"{text!r} is no image; write it like privatekube/scheduler:1.2.3")
    return text


@click.command(short_help="Install into a Kubernetes cluster.")
@click.option("--apply", "to_cluster", is_flag=True, help="Apply to a cluster, print nothing else.")
@click.option(
    "--dry-run", is_flag=True, help="With --apply: say what would change, change nothing."
)
@click.option("--crds-only", is_flag=True, help="The custom resource definitions alone.")
@click.option(
    "--namespace",
    type=Value("NAMESPACE", read_namespace),
    help=f"Where the scheduler runs.  [default: {NAMESPACE}]",
)
@click.option("--image", type=Value("IMAGE", _image), help="The scheduler's image, if your own.")
@click.option("--kubeconfig", metavar="FILE", help="With --apply: the kubeconfig to use.")
@click.option("--context", metavar="NAME", help="With --apply: the context of the kubeconfig.")
@json_option
@click.pass_obj
def install(
    session: Session,
    to_cluster: bool,
    dry_run: bool,
    crds_only: bool,
    namespace: str | None,
    image: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Install PrivateKube into a Kubernetes cluster, or upgrade it there.

    Prints the custom resource definitions, roles and scheduler as YAML, to be reviewed, kept, or
    piped into `kubectl apply -f -`. With --apply it applies them itself: to the cluster of the
    kubeconfig, or in a pod to the pod's own.

    \b
    Examples:
      privatekube install --namespace privacy
      privatekube install --apply --dry-run --kubeconfig admin.kubeconfig
    """
    if not to_cluster:
        for option, given in [
            ("--dry-run", dry_run),
            ("--kubeconfig", kubeconfig is not None),
            ("--context", context is not None),
        ]:
            if given:
                raise click.UsageError(f"{option} goes with --apply only.")
    if crds_only and (namespace or image):
        raise click.UsageError("--crds-only leaves nothing for --namespace or --image to change.")
    found = manifests(namespace or NAMESPACE, image)
    if crds_only:
        found = [manifest for manifest in found if manifest["kind"] == _DEFINITION]
    if not to_cluster:
        session.answer({"objects": found}, lambda: write(_as_yaml(found)))
        return
    with _connected(kubeconfig, context) as cluster:
        _apply(session, cluster, found, dry_run)


# What is installed


def manifests(namespace: str = NAMESPACE, image: str | None = None) -> list[Manifest]:
    """All objects of the installation, in the order in which to apply them.

    Raises:
        Failure: the files are not there, or nothing can read them.
    """
    found = list(_resources(_root() / _DEPLOY))
    for manifest in found:
        if manifest["kind"] == "Namespace":
            manifest["metadata"]["name"] = namespace
        elif "namespace" in manifest["metadata"]:
            manifest["metadata"]["namespace"] = namespace
        for subject in manifest.get("subjects", []):
            subject["namespace"] = namespace
        if manifest["kind"] == "Deployment" and image is not None:
            [container] = manifest["spec"]["template"]["spec"]["containers"]
            container["image"] = image
    return found


def _root() -> Path:
    """The folder that has the manifests as a checkout has them, whichever way we are installed."""
    beside = Path(privatekube_kfp.__file__).resolve().parents[1]
    places = [beside, beside / "share/privatekube", *_installed()]
    for place in places:
        if (place / _DEPLOY / _KUSTOMIZATION).is_file():
            return place
    raise Failure(
        "ManifestsMissing",
        f"this installation of {_DISTRIBUTION} lacks its manifests; install its wheel again",
    )


def _installed() -> Iterator[Path]:
    """Where the wheel's data went, which is a different place with every way of installing."""
    try:
        files = importlib.metadata.files(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.match(f"share/privatekube/{_DEPLOY}/{_KUSTOMIZATION}"):
            yield Path(str(file.locate())).resolve().parents[2]


def _resources(folder: Path) -> Iterator[Manifest]:
    """The little of kustomize that our kustomizations need: lists of files and folders."""
    yaml = _import("yaml")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for name in yaml.safe_load((folder / _KUSTOMIZATION).read_text("utf-8"))["resources"]:
        place = folder / name
        if place.is_dir():
            yield from _resources(place)
        else:
            yield from yaml.load_all(place.read_text("utf-8"), loader)


def _as_yaml(found: list[Manifest]) -> str:
    yaml = _import("yaml")
    text = yaml.safe_dump_all(
        found, explicit_start=True, sort_keys=False, allow_unicode=True, width=100
    )
    return str(text)


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != module.partition(".")[0]:
            raise
        raise Failure(
            "MissingExtra",
            "the Kubernetes client is not installed; run"
            f" pip install '{_DISTRIBUTION}[kubernetes]'",
        ) from None


# Applying it


def _apply(session: Session, cluster: _Cluster, found: list[Manifest], dry_run: bool) -> None:
    """Apply in order, telling of each object as it is done."""
    done: list[dict[str, object]] = []
    document = {"dryRun": dry_run, "objects": done}

    def tell(manifest: Manifest, action: str, message: str | None = None) -> None:
        done.append(
            {
                "apiVersion": manifest["apiVersion"],
                "kind": manifest["kind"],
                "namespace": manifest["metadata"].get("namespace"),
                "name": manifest["metadata"]["name"],
                "action": action,
                "message": message,
            }
        )
        if not session.as_json:
            remark = f": {message}" if message else " (dry run)" if dry_run else ""
            say(f"{_title(manifest)} {action}{remark}")

    defined: list[Manifest] = []
    absent_namespace = None
    try:
        for manifest in found:
            kind = cluster.kind(manifest)
            if kind is None:
                lacking = f"this server has no {manifest['apiVersion']} {manifest['kind']}"
                if manifest["kind"] not in _OPTIONAL_KINDS:
                    raise Failure("ServerTooOld", f"{lacking}, which PrivateKube needs")
                tell(manifest, "skipped", lacking)
                continue
            if defined and manifest["kind"] != _DEFINITION:
                cluster.wait_until_established(defined)
                defined.clear()
            if absent_namespace and manifest["metadata"].get("namespace") == absent_namespace:
                # A dry run cannot ask the server about objects in what is not there.
                tell(manifest, "created")
                continue
            action = cluster.apply(kind, manifest, dry_run)
            if dry_run and (manifest["kind"], action) == ("Namespace", "created"):
                absent_namespace = manifest["metadata"]["name"]
            if manifest["kind"] == _DEFINITION and not dry_run:
                defined.append(manifest)
            tell(manifest, action)
        cluster.wait_until_established(defined)
    except Failure as failure:
        failure.details |= document
        raise
    session.answer(document, lambda: None)


def _title(manifest: Manifest) -> str:
    """An object as kubectl names it."""
    group = manifest["apiVersion"].rpartition("/")[0]
    kind = manifest["kind"].lower() + (f".{group}" if group else "")
    return f"{kind}/{manifest['metadata']['name']}"


@dataclass(frozen=True)
class _Kind:
    """Where the server keeps objects of a kind."""

    base: str
    plural: str
    namespaced: bool

    def collection(self, manifest: Manifest) -> str:
        within = f"/namespaces/{manifest['metadata']['namespace']}" if self.namespaced else ""
        return f"{self.base}{within}/{self.plural}"

    def item(self, manifest: Manifest) -> str:
        return f"{self.collection(manifest)}/{manifest['metadata']['name']}"


class _Cluster:
    """One API server, asked one thing at a time; what it refuses is a Failure."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._served: dict[str, dict[str, _Kind]] = {}

    def kind(self, manifest: Manifest) -> _Kind | None:
        """Where objects of this kind are; None where the server does not have the kind."""
        version = manifest["apiVersion"]
        if version not in self._served:
            base = f"/apis/{version}" if "/" in version else f"/api/{version}"
            answer = self._ask("GET", base, f"the kinds of {version}", none_if_absent=True)
            self._served[version] = {
                each["kind"]: _Kind(base, each["name"], each["namespaced"])
                for each in (answer or {}).get("resources", [])
                if "/" not in each["name"]
            }
        return self._served[version].get(manifest["kind"])

    def apply(self, kind: _Kind, manifest: Manifest, dry_run: bool) -> str:
        """Create or update one object; returns `created`, `configured` or `unchanged`.

        Not by the server's own apply: servers before 1.25 refuse our definitions there, since
        it wants to know every field, and they do not know of rules.
        """
        title = _title(manifest)
        wanted = _with_last_applied(manifest)
        query = [("dryRun", "All")] if dry_run else []
        before = self._ask("GET", kind.item(manifest), title, none_if_absent=True)
        if before is None:
            self._ask("POST", kind.collection(manifest), title, body=wanted, query=query)
            return "created"
        noted = before["metadata"].get("annotations", {}).get(_LAST_APPLIED)
        patch = _merge_patch(json.loads(noted) if noted else {}, wanted)
        after = self._ask("PATCH", kind.item(manifest), title, body=patch, query=query)
        return "unchanged" if _ours(before) == _ours(after) else "configured"

    def wait_until_established(self, definitions: list[Manifest]) -> None:
        """Return when the server serves what they define."""
        deadline = time.monotonic() + _ESTABLISHED_SECONDS
        for manifest in definitions:
            kind, title = self.kind(manifest), _title(manifest)
            assert kind is not None
            while not _established(self._ask("GET", kind.item(manifest), title)):
                if time.monotonic() > deadline:
                    raise Failure(
                        "NotEstablished",
                        f"the server does not serve {manifest['metadata']['name']}"
                        f" after {_ESTABLISHED_SECONDS} s",
                    )
                time.sleep(0.2)

    def _ask(
        self,
        method: str,
        path: str,
        what: str,
        *,
        body: Manifest | None = None,
        query: list[tuple[str, str]] | None = None,
        none_if_absent: bool = False,
    ) -> Any:
        exceptions = importlib.import_module("kubernetes.client.exceptions")
        urllib3 = importlib.import_module("urllib3")
        host = self._client.configuration.host
        sent = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            return self._client.call_api(
                path,
                method,
                query_params=query or [],
                header_params={"Accept": "application/json", "Content-Type": sent},
                body=body,
                response_type="object",
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _request_timeout=_REQUEST_SECONDS,
            )
        except exceptions.ApiException as error:
            if error.status == 404 and none_if_absent:
                return None
            if error.status == 401:
                message = f"the API server at {host} does not accept your credentials"
                raise Failure("ClusterRefused", message) from error
            if not error.status:  # No answer at all: this is how TLS fails.
                message = f"cannot trust the API server at {host}: {_cause(error.reason)}"
                raise Failure("ClusterUnreachable", message) from error
            raise Failure("ClusterRefused", f"{what}: {_refusal(error)}") from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Failure(
                "ClusterUnreachable", f"cannot reach the API server at {host}: {_cause(error)}"
            ) from error


def _with_last_applied(manifest: Manifest) -> Manifest:
    """The manifest with itself in the annotation, written as kubectl writes it there."""
    metadata = manifest["metadata"]
    annotations = metadata.get("annotations", {})
    noted = manifest | {"metadata": {"annotations": annotations} | metadata}
    text = json.dumps(noted, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return manifest | {"metadata": metadata | {"annotations": annotations | {_LAST_APPLIED: text}}}


def _merge_patch(last: Mapping[str, Any], wanted: Mapping[str, Any]) -> Manifest:
    """A patch that sets what is wanted and removes what we once set and no longer want.

    What others set beside it stays, but a list is replaced as a whole.
    """
    patch: Manifest = {key: None for key in last if key not in wanted}
    for key, value in wanted.items():
        before = last.get(key)
        if isinstance(value, dict):
            value = _merge_patch(before if isinstance(before, dict) else {}, value)
        patch[key] = value
    return patch


def _ours(stored: Manifest) -> Manifest:
    """A stored object without what the server keeps for itself."""
    metadata = {key: value for key, value in stored["metadata"].items() if key not in _SERVER_KEEPS}
    return {key: stored[key] for key in stored if key != "status"} | {"metadata": metadata}


def _established(definition: Manifest) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)


def _refusal(error: Any) -> str:
    """What the server said, in its own words."""
    try:
        said = str(json.loads(error.body)["message"])
    except (ValueError, TypeError, KeyError):
        said = f"the API server answered {error.status} {error.reason}"
    return " ".join(said.split())


def _cause(error: object) -> str:
    """What went wrong on the way, without the objects that urllib3 shows."""
    return " ".join(re.sub(r"^\S*HTTPS?Connection[^:]*: ", "", str(error)).split())


@contextmanager
def _connected(kubeconfig: str | None, context: str | None) -> Iterator[_Cluster]:
    """The cluster that is named, else the one whose pod this is, else the usual kubeconfig's."""
    client = _import("kubernetes.client")
    # Here, since it needs the client.
    from privatekube_kfp.ledger.kubernetes.connecting import configuration

    try:
        settings = configuration(kubeconfig, context)
    except LedgerError as error:
        raise Failure("NoCluster", error.message) from error
    # Else each failure is tried three times more, with a warning each.
    settings.retries = False
    opened = client.ApiClient(settings)
    try:
        yield _Cluster(opened)
    finally:
        opened.rest_client.pool_manager.clear()
        opened.close()
