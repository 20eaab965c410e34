"""Whether a registry has an image: asked without credentials, then with those that there are.

Nodes pull with the secrets that settings name, or with credentials that nobody else sees. So what a
registry says to the user of this machine tells whether it has the image, and not whether nodes may
pull it.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from privatekube_kfp.doctor.deadlines import within
from privatekube_kfp.doctor.findings import Unknown
from privatekube_kfp.doctor.web import Answer, NoAnswer, ask, is_this_machine
from privatekube_kfp.ledger.kubernetes.api import Object

_SECONDS = 5.0
_SECONDS_IN_ALL = 20.0
_MOST_BYTES = 1_000_000
_MANIFESTS = ", ".join(
    [
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    ]
)
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_DENIED = (401, 403)
_DOCKER_HUB = "docker.io"
_SERVERS = {_DOCKER_HUB: "registry-1.docker.io"}
"""Where a registry answers, if it is not where its name says."""


@dataclass(frozen=True)
class Reference:
    """An image's name, taken apart: `registry/path:tag@digest`."""

    registry: str
    """Empty where the name says none: then it is what nodes are told to take, mostly Docker Hub."""
    path: str
    tag: str
    digest: str

    @property
    def repository(self) -> str:
        return f"{self.registry}/{self.path}" if self.registry else self.path


def reference(image: str) -> Reference:
    name, _, digest = image.partition("@")
    before, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    path = f"{before}{slash}{last}"
    first, slash, rest = path.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return Reference(first, rest, tag, digest)
    return Reference("", path, tag, digest)


class Registry(StrEnum):
    """What a registry says of an image."""

    HAS_IT = "has it"
    HAS_IT_FOR_YOU = "has it for you"
    """By credentials of this machine's user, which nodes do not have."""
    HAS_NOT = "has not"


# Credentials


@dataclass(frozen=True)
class Login:
    """Credentials for one repository, and whose they are."""

    user: str
    password: str
    source: str
    of_nodes: bool
    """Whether pods pull with them."""

    @property
    def header(self) -> str:
        pair = f"{self.user}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


def logins(image: Reference, pull_secrets: Mapping[str, Object | Unknown | None]) -> list[Login]:
    """What pods pull an image with, as far as it can be read, then what this machine's user has.

    Programs that keep credentials elsewhere (`credHelpers`, `credsStore`) are not run.
    """
    found: list[Login] = []
    for name, stored in pull_secrets.items():
        if stored is not None and not isinstance(stored, Unknown):
            kept = (stored.get("data") or {}).get(".dockerconfigjson", "")
            with suppress(ValueError):
                text = base64.b64decode(kept, validate=True)
                found += _logins(text, image, f"secret {name}", of_nodes=True)
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    with suppress(OSError), (folder / "config.json").open("rb") as file:
        text = file.read(_MOST_BYTES)
        found += _logins(text, image, str(folder / "config.json"), of_nodes=False)
    return found


def _logins(text: bytes, image: Reference, source: str, *, of_nodes: bool) -> Iterable[Login]:
    """The credentials in a Docker configuration, if it is one, that are for this image."""
    try:
        auths = json.loads(text).get("auths") or {}
        for server, said in auths.items():
            named = server.partition("://")[2] or server
            named = re.sub(r"/v[12]/?$", "", named).rstrip("/")
            named = {"index.docker.io": _DOCKER_HUB}.get(named, named)
            if named == image.registry or f"{image.repository}/".startswith(f"{named}/"):
                user, password = said.get("username"), said.get("password")
                if said.get("auth"):
                    pair = base64.b64decode(said["auth"]).decode()
                    user, _, password = pair.partition(":")
                if user and password:
                    yield Login(str(user), str(password), source, of_nodes)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return


# Asking


def ask_registry(
    image: str,
    pull_secrets: Mapping[str, Object | Unknown | None],
    seconds: float = _SECONDS,
    in_all: float = _SECONDS_IN_ALL,
) -> Registry | Unknown:
    """Whether an image's registry has it, as far as this machine can tell."""
    named = reference(image)
    if not named.registry:
        return Unknown(f"{image} names no registry, and no node is known to have it")
    try:
        return within(in_all, lambda: _ask(named, logins(named, pull_secrets), seconds))
    except (NoAnswer, TimeoutError) as error:
        why = f"registry {named.registry} cannot be reached: {error}"
        return Unknown(why, from_here=True)


def _ask(named: Reference, known: Sequence[Login], seconds: float) -> Registry | Unknown:
    host = urlsplit(f"//{named.registry}").hostname or ""
    scheme = "http" if is_this_machine(host) else "https"
    which = named.digest or named.tag or "latest"
    server = _SERVERS.get(named.registry, named.registry)
    url = f"{scheme}://{server}/v2/{named.path}/manifests/{which}"

    def look(authorization: str | None = None) -> Answer:
        headers = {"Accept": _MANIFESTS}
        if authorization is not None:
            headers["Authorization"] = authorization
        return ask("HEAD", url, headers, seconds)

    first = look()
    if first.status not in _DENIED:
        return _meaning(first, named, None)
    # What many registries want even of those who may read anything: a token for nobody.
    challenge = first.headers.get("WWW-Authenticate", "")
    for login in (None, *known):
        authorization = _authorization(challenge, named, login, seconds)
        if authorization is not None:
            answer = look(authorization)
            if answer.status not in _DENIED:
                return _meaning(answer, named, login)
    refused = " and ".join(dict.fromkeys(login.source for login in known))
    why = f"refuses those of {refused}" if refused else "there are none for it here"
    return Unknown(f"registry {named.registry} asks for credentials, and {why}", from_here=True)


def _meaning(answer: Answer, named: Reference, login: Login | None) -> Registry | Unknown:
    if answer.status == 404:
        return Registry.HAS_NOT
    if answer.status == 200:
        own = login is not None and not login.of_nodes
        return Registry.HAS_IT_FOR_YOU if own else Registry.HAS_IT
    return Unknown(f"registry {named.registry} answered {answer.status}", from_here=True)


def _authorization(
    challenge: str, named: Reference, login: Login | None, seconds: float
) -> str | None:
    """What to send to a registry that asked for credentials; None where there is nothing."""
    kind, _, rest = challenge.partition(" ")
    said = dict(_PARAMETER.findall(rest))
    if kind.lower() == "basic":
        return login.header if login is not None else None
    realm = said.get("realm", "")
    parts = urlsplit(realm)
    safe = parts.scheme == "https" or is_this_machine(parts.hostname or "")
    if kind.lower() != "bearer" or not safe:
        return None
    query = {"scope": said.get("scope") or f"repository:{named.path}:pull"}
    if "service" in said:
        query["service"] = said["service"]
    url = f"{realm}{'&' if parts.query else '?'}{urlencode(query)}"
    headers = {"Authorization": login.header} if login is not None else {}
    try:
        token = json.loads(ask("GET", url, headers, seconds).body)
        token = token.get("token") or token["access_token"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return f"Bearer {token}" if isinstance(token, str) and token.isprintable() else None
