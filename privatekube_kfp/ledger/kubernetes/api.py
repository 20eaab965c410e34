"""The Kubernetes API, as the ledger and the scheduler use it: objects in and out as plain data.

Every write here is safe to send again: it is conditional on the version that it changes, or names
what it makes or removes. So a call that got no answer is simply repeated, and whoever called
finds out from a `Conflict` or from what is there now whether the first one had arrived.
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn, Protocol
from urllib.parse import urlencode

import urllib3

from privatekube_kfp.core.errors import LedgerError, Reason

Object = dict[str, Any]

PAGE = 500
_ANSWER_WITHIN = 30.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0
_WATCH_SECONDS = 240
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True)
class Resource:
    """A kind of object: where the API serves it, and what its objects are called."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    label: str
    """What people and metrics call it."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, sub: str = "") -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = f"/namespaces/{namespace}" if namespace else ""
        one = f"/{name}" if name else ""
        return f"{root}{within}/{self.plural}{one}{sub}"


GROUP, VERSION = "privatekube.io", "v1alpha1"
STREAMS = Resource(
    GROUP, VERSION, "privatedatastreams", "PrivateDataStream", namespaced=False, label="streams"
)
BLOCKS = Resource(
    GROUP, VERSION, "privatedatablocks", "PrivateDataBlock", namespaced=False, label="blocks"
)
CLAIMS = Resource(GROUP, VERSION, "privacyclaims", "PrivacyClaim", namespaced=True, label="claims")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True, label="leases")
VERSION_ANNOTATION = "privatekube.io/version"
"""On a Lease: the version of the scheduler that holds it."""
EVENTS = Resource("", "v1", "events", "Event", namespaced=True, label="events")
WORKFLOWS = Resource(
    "argoproj.io", "v1alpha1", "workflows", "Workflow", namespaced=True, label="workflows"
)

_SERVER = Resource("", "v1", "", "", namespaced=False, label="server")


class NotFound(LedgerError):
    """There is no such object, or no such kind."""


class Conflict(LedgerError):
    """Somebody else was faster: the object has another version, or exists already."""


class Expired(LedgerError):
    """The version to list or watch from is no longer kept: list anew."""


class Refused(LedgerError):
    """The server will not take it, now or later: malformed, too large, or not allowed."""


class Forbidden(Refused):
    """Whoever asks has no right to."""


class Unreachable(LedgerError):
    """No answer, or none that helps. What was sent may or may not have arrived."""


@dataclass(frozen=True)
class Change:
    """What a watch reports: an object that was added, modified or deleted, or a bookmark."""

    type: str
    object: Object

    @property
    def version(self) -> str:
        return version_of(self.object)


def version_of(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"]["resourceVersion"])


def is_newer(version: str, than: str) -> bool:
    """Versions of one kind of object are the store's revisions, so they can be compared."""
    return int(version) > int(than)


class Connection(Protocol):
    """As much of the Kubernetes client as is used: its `ApiClient`, or a pod's own (`pod`)."""

    default_headers: dict[str, str]
    configuration: Any
    rest_client: Any

    def update_params_for_auth(
        self, headers: dict[str, str], queries: list[Any], auth_settings: list[str]
    ) -> None: ...

    def close(self) -> None: ...


class Api:
    """Calls on one cluster, repeated while they get no answer.

    `connect` makes a client: again when the credentials have expired. `patience` is how long
    (seconds) a call is repeated without an answer; `keep_trying` can end that earlier. Each time
    the server has `answer_within` seconds.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        *,
        patience: float = 60.0,
        answer_within: float = _ANSWER_WITHIN,
        keep_trying: Callable[[], bool] = lambda: True,
        observe: Callable[[str, str, str], None] = lambda verb, kind, code: None,
        retried: Callable[[str], None] = lambda kind: None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._client = connect()
        self._patience = patience
        self._answer_within = answer_within
        self._keep_trying = keep_trying
        self._observe = observe
        self._retried = retried
        self._sleep = sleep
        self._monotonic = monotonic
        self._skew: float | None = None

    @property
    def host(self) -> str:
        """The API server's address."""
        return str(self._client.configuration.host)

    @property
    def clock_skew(self) -> float | None:
        """Seconds that this machine's clock is ahead of the server's, as of the last answer."""
        return self._skew

    def close(self) -> None:
        self._client.close()

    # Reading

    def ask(self, path: str) -> Object:
        """What the server says about itself at a path, such as /version."""
        return self._call("get", _SERVER, "GET", path)

    def get(self, kind: Resource, name: str, namespace: str | None = None) -> Object:
        return self._call("get", kind, "GET", kind.path(namespace, name))

    def find(self, kind: Resource, name: str, namespace: str | None = None) -> Object | None:
        try:
            return self.get(kind, name, namespace)
        except NotFound:
            return None

    def list_all(
        self, kind: Resource, namespace: str | None = None, *, page: int = PAGE
    ) -> tuple[list[Object], str]:
        """All objects, and the version to watch from."""
        objects: list[Object] = []
        version = ""
        try:
            for items, latest in self.pages(kind, namespace, page=page):
                objects += items
                version = latest
        except Expired:  # it took longer than the server keeps pages: all at once, then
            answer = self._call("list", kind, "GET", kind.path(namespace))
            return answer["items"], str(answer["metadata"]["resourceVersion"])
        return objects, version

    def pages(
        self,
        kind: Resource,
        namespace: str | None = None,
        *,
        page: int = PAGE,
        selected: Sequence[tuple[str, str]] = (),
    ) -> Iterator[tuple[list[Object], str]]:
        """The same page by page, for those who keep little of each; may end with `Expired`.

        `selected` are selectors as the API takes them: `labelSelector`, `fieldSelector`.
        """
        query: list[tuple[str, str]] = [*selected, ("limit", str(page))]
        while True:
            answer = self._call("list", kind, "GET", kind.path(namespace), query=query)
            meta = answer["metadata"]
            yield answer["items"], str(meta["resourceVersion"])
            if not meta.get("continue"):
                return
            query = [*selected, ("limit", str(page)), ("continue", meta["continue"])]

    def watch(
        self,
        kind: Resource,
        version: str,
        namespace: str | None = None,
        *,
        name: str | None = None,
        seconds: float = _WATCH_SECONDS,
    ) -> Watching:
        """What changes from `version` on. Ends after so many seconds; `Expired` if it is too old.

        Not repeated, `Unreachable` at once: the caller knows what it has seen, and watches on from
        there.
        """
        query = [
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(max(1, int(seconds)))),
        ]
        if name is not None:
            query.append(("fieldSelector", f"metadata.name={name}"))
        try:
            response = self._send(
                "watch", kind, "GET", kind.path(namespace), query=query, timeout=(10, seconds + 15)
            )
        except _NoAnswer as failed:
            raise _unreachable(failed) from failed
        return Watching(response, kind)

    # Writing

    def create(self, kind: Resource, obj: Object) -> Object:
        namespace = obj["metadata"].get("namespace")
        return self._call("create", kind, "POST", kind.path(namespace), body=obj)

    def replace(self, kind: Resource, obj: Object) -> Object:
        """Write spec and metadata, if the object still has the version that `obj` names."""
        meta = obj["metadata"]
        path = kind.path(meta.get("namespace"), meta["name"])
        return self._call("update", kind, "PUT", path, body=obj)

    def replace_status(self, kind: Resource, obj: Object) -> Object:
        """Write the status, if the object still has the version that `obj` names."""
        meta = obj["metadata"]
        path = kind.path(meta.get("namespace"), meta["name"], "/status")
        return self._call("update", kind, "PUT", path, body=obj)

    def patch(self, kind: Resource, obj: Object, change: Object) -> Object:
        """Merge a change into the object, if it still has the version that `obj` names."""
        meta = obj["metadata"]
        held_to = {"metadata": {"resourceVersion": meta["resourceVersion"], "uid": meta["uid"]}}
        body = {**change, "metadata": {**change.get("metadata", {}), **held_to["metadata"]}}
        path = kind.path(meta.get("namespace"), meta["name"])
        return self._call("patch", kind, "PATCH", path, body=body, content=_MERGE_PATCH)

    def delete(self, kind: Resource, obj: Object, *, this_version: bool = False) -> None:
        """Delete this very object, and if asked only in this very version."""
        meta = obj["metadata"]
        only = {"uid": meta["uid"]}
        if this_version:
            only["resourceVersion"] = meta["resourceVersion"]
        path = kind.path(meta.get("namespace"), meta["name"])
        with suppress(NotFound):
            self._call("delete", kind, "DELETE", path, body={"preconditions": only})

    # How

    def _call(
        self,
        verb: str,
        kind: Resource,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Object | None = None,
        content: str = _JSON,
    ) -> Object:
        """The answer, however often it has to be asked for."""
        give_up = self._monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                response = self._send(
                    verb, kind, method, path, query=query, body=body, content=content
                )
                answer: Object = json.loads(response.data)
                return answer
            except _NoAnswer as failed:
                wait = max(pause * random.uniform(0.5, 1.0), failed.retry_after)
                if self._monotonic() + wait > give_up or not self._keep_trying():
                    raise _unreachable(failed) from failed
                self._retried(kind.label)
                self._sleep(wait)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _send(
        self,
        verb: str,
        kind: Resource,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Object | None = None,
        content: str = _JSON,
        timeout: tuple[float, float] | None = None,
    ) -> Any:
        client = self._client
        connect, read = timeout or (min(10.0, self._answer_within), self._answer_within)
        headers = {"Accept": _JSON, "Content-Type": content, **client.default_headers}
        client.update_params_for_auth(headers, [], ["BearerToken"])
        url = client.configuration.host + path + (f"?{urlencode(query)}" if query else "")
        code = "none"
        try:
            response = client.rest_client.pool_manager.request(
                method,
                url,
                body=None if body is None else json.dumps(body),
                headers=headers,
                timeout=urllib3.Timeout(connect=connect, read=read),
                preload_content=verb != "watch",
                retries=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _NoAnswer(_short(error)) from error
        else:
            code = str(response.status)
        finally:
            self._observe(verb, kind.label, code)
        self._note_time(response.headers.get("Date"))
        if response.status >= 300:
            self._raise(response, client)
        return response

    def _note_time(self, date: str | None) -> None:
        """The server's clock, to the second: the middle of it is half a second off at most."""
        with suppress(TypeError, ValueError):
            self._skew = time.time() - parsedate_to_datetime(str(date)).timestamp() - 0.5

    def _raise(self, response: Any, client: Connection) -> NoReturn:
        code = response.status
        said = _message(response.data)
        if code == 401:
            if self._client is client:
                self._client = self._connect()
            raise _NoAnswer("it does not accept the credentials (401 Unauthorized)")
        if code == 403:
            raise Forbidden(Reason.CLUSTER_REFUSED, said)
        if code == 404:
            raise NotFound(Reason.UNKNOWN_OBJECT, said)
        if code == 409:
            raise Conflict(Reason.ALREADY_EXISTS, said)
        if code == 410:
            raise Expired(Reason.CLUSTER_UNREACHABLE, said)
        if code in _TRANSIENT and "request is too large" not in said:
            after = response.headers.get("Retry-After", "")
            raise _NoAnswer(f"{code}: {said}", float(after) if after.isdigit() else 0.0)
        raise Refused(Reason.CLUSTER_REFUSED, said)


class Watching:
    """Changes as they come, until the server ends it or `close` is called from any thread."""

    def __init__(self, response: Any, kind: Resource) -> None:
        self._response = response
        self._kind = kind
        self._socket = getattr(getattr(response, "connection", None), "sock", None)

    def __iter__(self) -> Iterator[Change]:
        pending = b""
        try:
            for piece in self._response.stream(amt=None):
                *lines, pending = (pending + piece).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield self._change(json.loads(line))
        except (urllib3.exceptions.HTTPError, OSError, AttributeError, ValueError) as error:
            raise Unreachable(Reason.CLUSTER_UNREACHABLE, _short(error)) from error
        finally:
            self._response.close()

    def _change(self, event: Object) -> Change:
        if event["type"] == "ERROR":
            status = event["object"]
            said = str(status.get("message", status))
            if status.get("code") == 410:
                raise Expired(Reason.CLUSTER_UNREACHABLE, said)
            raise Unreachable(Reason.CLUSTER_UNREACHABLE, said)
        return Change(event["type"], event["object"])

    def close(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class _NoAnswer(Exception):
    def __init__(self, what: str, retry_after: float = 0.0) -> None:
        super().__init__(what)
        self.retry_after = retry_after


def _unreachable(failed: _NoAnswer) -> Unreachable:
    return Unreachable(Reason.CLUSTER_UNREACHABLE, f"the cluster gave no answer: {failed}")


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        return body.decode(errors="replace")[:300] or "no reason given"


def _short(error: BaseException) -> str:
    """The innermost cause: the rest is the client library talking about itself."""
    while (inner := getattr(error, "reason", None)) is not None and isinstance(
        inner, BaseException
    ):
        error = inner
    return f"{type(error).__name__}: {error}"
