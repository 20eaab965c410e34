"""Images: names that can be read, and that nodes can pull."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from privatekube_kfp.doctor.cluster import NODES, PODS, Cluster
from privatekube_kfp.doctor.findings import Finding, Unknown, ok, unchecked, wrong
from privatekube_kfp.doctor.registries import Reference, Registry, ask_registry, reference
from privatekube_kfp.ledger.kubernetes.api import Object
from privatekube_kfp.settings import IMAGES, Settings
from privatekube_kfp.settings.applying import image_of

CHECK = "images"
VERSION = re.compile(r"\d+\.\d+\.\d+([-.+]\w+)*", re.ASCII)
"""A tag that is a version; others say nothing about it."""
_CANNOT_PULL = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")


@dataclass(frozen=True)
class Waiting:
    """A pod that does not start, or a container of one: why, in Kubernetes' words."""

    pod: str
    image: str | None
    reason: str
    said: str

    @property
    def cannot_pull(self) -> bool:
        return self.image is not None and self.reason in _CANNOT_PULL


def waiting(pods: Sequence[Object]) -> list[Waiting]:
    """What pods wait for, as far as they tell."""
    found = []
    for pod in pods:
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        for condition in status.get("conditions") or []:
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                said = str(condition.get("message") or condition.get("reason"))
                found.append(Waiting(name, None, "Unschedulable", _line(said)))
        for each in [
            *(status.get("initContainerStatuses") or []),
            *(status.get("containerStatuses") or []),
        ]:
            why = (each.get("state") or {}).get("waiting") or {}
            if why.get("reason"):
                said = str(why.get("message") or why["reason"])
                found.append(Waiting(name, str(each.get("image")), why["reason"], _line(said)))
    return found


def _line(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 200 else words[:200] + "..."


# The images of components


@dataclass(frozen=True)
class ImageFacts:
    image: str
    on_nodes: bool | Unknown
    in_registry: Registry | Unknown
    waits: Sequence[Waiting] = ()
    """Pods of pipelines that cannot pull it."""


def look(
    cluster: Cluster,
    settings: Settings,
    version: str,
    namespace: str,
    pull_secrets: Mapping[str, Object | Unknown | None],
) -> list[ImageFacts]:
    """Look for each image of components: on nodes, in its registry, in pods that wait for it."""
    wanted = dict.fromkeys(
        image_of(f"privatekube/{name}:{version}", settings.images) for name in IMAGES
    )
    nodes = cluster.list(NODES)
    pods = cluster.list(PODS, namespace, fields="status.phase=Pending", most=500)
    waits = [] if isinstance(pods, Unknown) else [e for e in waiting(pods) if e.cannot_pull]
    found = []
    unreachable: dict[str, Unknown] = {}
    for image in wanted:
        on_nodes = nodes if isinstance(nodes, Unknown) else _is_on_nodes(image, nodes)
        registry = reference(image).registry
        answer: Registry | Unknown
        if on_nodes is True:
            answer = Unknown("a node has it")
        elif registry in unreachable:
            answer = unreachable[registry]
        else:
            answer = ask_registry(image, pull_secrets)
            if isinstance(answer, Unknown):
                unreachable[registry] = answer
        mine = [each for each in waits if _same(each.image, image)]
        found.append(ImageFacts(image, on_nodes, answer, mine))
    return found


def _is_on_nodes(image: str, nodes: Sequence[Object]) -> bool:
    names = {
        name
        for node in nodes
        for each in (node.get("status") or {}).get("images") or []
        for name in each.get("names") or []
    }
    return any(_same(name, image) for name in names)


def _same(name: str | None, image: str) -> bool:
    """Nodes write docker.io in front where a name says no registry."""
    return name is not None and name.removeprefix("docker.io/") == image


def check(
    facts: Sequence[ImageFacts], version: str, find_out: Callable[[str], str]
) -> list[Finding]:
    """`find_out` is the command that tells whether nodes can pull an image."""
    found: list[Finding] = []
    unknown: dict[Unknown, list[str]] = {}
    for each in facts:
        named = reference(each.image)
        if VERSION.fullmatch(named.tag) and named.tag != version and not named.digest:
            said = (
                f"image {each.image} is of version {named.tag}, and this library of version"
                f" {version}: tasks would run what this library does not know"
            )
            mend = f"pip install privatekube-kfp=={named.tag}"
            found.append(wrong(CHECK, "ImageVersion", said, mend))
        elif each.waits:
            first = each.waits[0]
            said = f"pod {first.pod} cannot pull image {each.image}: {first.said}"
            found.append(wrong(CHECK, "ImagePull", said, _push(each.image)))
        elif each.on_nodes is True or each.in_registry is Registry.HAS_IT:
            continue
        elif each.in_registry is Registry.HAS_NOT:
            said = f"registry {named.registry} has no image {each.image}"
            found.append(wrong(CHECK, "ImageMissing", said, _push(each.image)))
        else:
            unknown.setdefault(_why(each, named), []).append(each.image)
    for why, images in unknown.items():
        told = Unknown(f"{', '.join(images)}: {why.why}", why.from_here)
        found.append(unchecked(CHECK, told, find_out(images[0])))
    return found or [ok(CHECK, f"{len(facts)} images, where nodes find them")]


def _why(facts: ImageFacts, named: Reference) -> Unknown:
    if facts.in_registry is Registry.HAS_IT_FOR_YOU:
        return Unknown(
            f"registry {named.registry} has it for you, by credentials that nodes do not have",
            from_here=True,
        )
    assert isinstance(facts.in_registry, Unknown)
    if named.registry:
        return facts.in_registry
    if isinstance(facts.on_nodes, Unknown):
        return Unknown(f"no registry is named, and {facts.on_nodes.why}")
    return Unknown("no registry is named, and no node is known to have it")


def _push(image: str) -> str:
    """As the Dockerfiles say."""
    build = {
        "python-torch": "components/Dockerfile --build-arg EXTRA=bert",
        "keras": "components/Dockerfile.keras",
    }.get(reference(image).path.rpartition("/")[2], "components/Dockerfile")
    return f"docker build -f {build} -t {image} . && docker push {image}"
