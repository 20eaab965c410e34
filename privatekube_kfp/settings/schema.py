"""What a settings file can say, as types. An unknown key is refused, with the nearest known one.

Keys are those of Kubernetes where it has them (`nodeSelector`, `tolerations`, `resources`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from privatekube_kfp.core.errors import Invalid, Reason

IMAGES = ("python", "python-torch", "keras")
"""The images of PrivateKube's components: privatekube/python:VERSION and so on."""
COMPONENTS = (
    *("allocate", "consume", "download", "release", "upload", "ingest"),
    *("dp_statistic", "show_statistic", "plan_training", "dp_preprocess", "dp_train"),
    *("dp_train_keras", "dp_evaluate", "show_model"),
)

_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SECRET_KEY = re.compile(r"[-._A-Za-z0-9]{1,253}", re.ASCII)
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_REGISTRY = re.compile(r"[a-z0-9][-._a-zA-Z0-9]*(:[0-9]+)?(/[-._a-z0-9]+)*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][-.A-Za-z0-9_]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_IMAGE = re.compile(r"[a-z0-9][^\s@]*(@sha256:[0-9a-f]{64})?", re.ASCII)
_CPU = re.compile(r"([0-9]*[.])?[0-9]+m?", re.ASCII)
_MEMORY = re.compile(r"[0-9]+(Ei|Pi|Ti|Gi|Mi|Ki|E|P|T|G|M|K)?", re.ASCII)
_SECONDS = re.compile(r"([0-9]+)s", re.ASCII)
_DEVICE = re.compile(r"[a-z0-9][-.a-z0-9]*/[-._A-Za-z0-9]+", re.ASCII)
_URI = re.compile(r"([a-z][-+.a-z0-9]*://[^\s]+)|(/[^\s]*)", re.ASCII)

_FACTORS: dict[str, int] = {
    "": 1,
    **{letter: 1000**n for n, letter in enumerate("KMGTPE", start=1)},
    **{f"{letter}i": 1024**n for n, letter in enumerate("KMGTPE", start=1)},
}


class InvalidSettings(Invalid):
    """Site settings that cannot be followed: where, what is wrong, and what is right."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.INVALID_REQUEST, message)


@dataclass(frozen=True)
class Secret:
    """A Kubernetes Secret: keys as environment variables, or all of it as files at a path."""

    name: str
    env: Mapping[str, str] = field(default_factory=dict)
    mount_path: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Toleration:
    """As Kubernetes has it."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None


@dataclass(frozen=True)
class Retries:
    """How often Kubeflow tries a task's pod again, and how long it waits before it does."""

    count: int
    after: int = 10
    factor: float = 2.0
    at_most: int = 3600


@dataclass(frozen=True)
class TaskOptions:
    """What can be said for a task, or for many."""

    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[Secret, ...] = ()
    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    retries: Retries | None = None
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def over(self, other: TaskOptions) -> TaskOptions:
        """These, and where they say nothing those of `other`."""
        known = {(secret.name, secret.mount_path) for secret in self.secrets}
        more = tuple(s for s in other.secrets if (s.name, s.mount_path) not in known)
        apart = tuple(one for one in other.tolerations if one not in self.tolerations)
        return TaskOptions(
            env={**other.env, **self.env},
            secrets=(*more, *self.secrets),
            requests=_unless_limited(other, self),
            limits={**other.limits, **self.limits},
            retries=self.retries if self.retries is not None else other.retries,
            tolerations=(*apart, *self.tolerations),
            node_selector={**other.node_selector, **self.node_selector},
            labels={**other.labels, **self.labels},
            annotations={**other.annotations, **self.annotations},
        )


def _unless_limited(lower: TaskOptions, upper: TaskOptions) -> dict[str, str]:
    """The requests of both. A new limit without a request drops a request that exceeds it."""
    found = {**lower.requests, **upper.requests}
    for name, limit in upper.limits.items():
        if name not in upper.requests and name in found and exceeds(name, found[name], limit):
            del found[name]
    return found


@dataclass(frozen=True)
class Image:
    """Which one of an image: by tag, by digest, or another image altogether."""

    tag: str = ""
    digest: str = ""
    image: str = ""


@dataclass(frozen=True)
class Images:
    """Where PrivateKube's images are: in place of `privatekube/NAME:VERSION`."""

    registry: str = ""
    tag: str = ""
    each: Mapping[str, Image] = field(default_factory=dict)
    pull_policy: str = ""
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Local:
    """What `privatekube run` follows on this machine, where there is no cluster."""

    results: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """All of a settings file; `source` says where it was read, empty where there is none."""

    source: str = ""
    endpoint: str = ""
    namespace: str = ""
    service_account: str = ""
    pipeline_root: str = ""
    results: str = ""
    images: Images = field(default_factory=Images)
    all_tasks: TaskOptions = field(default_factory=TaskOptions)
    tasks: TaskOptions = field(default_factory=TaskOptions)
    components: Mapping[str, TaskOptions] = field(default_factory=dict)
    other_components: Mapping[str, TaskOptions] = field(default_factory=dict)
    local: Local = field(default_factory=Local)

    def of_task(self, component: str, *, ours: bool) -> TaskOptions:
        """All that holds for tasks of a component: what is said most closely comes first."""
        options = self.all_tasks
        if ours:
            options = self.tasks.over(options.over(default_options(component)))
        named = self.components if ours else self.other_components
        return named.get(component, TaskOptions()).over(options)


_SMALL = TaskOptions(requests={"cpu": "100m", "memory": "256Mi"})
_LARGE = TaskOptions(requests={"cpu": "500m", "memory": "1Gi"})
_LARGE_COMPONENTS = ("dp_preprocess", "dp_train", "dp_train_keras", "dp_evaluate", "show_model")


def default_options(component: str) -> TaskOptions:
    """What tasks of PrivateKube's components request where nobody says more. No limits: what a
    training needs depends on its data."""
    return _LARGE if component in _LARGE_COMPONENTS else _SMALL


# Quantities


def cpus(text: str) -> float:
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


def gigabytes(text: str) -> float:
    number = text.rstrip("EPTGMKi")
    return float(number) * _FACTORS[text[len(number) :]] / 1000**3


def exceeds(resource: str, request: str, limit: str) -> bool:
    measures: dict[str, Callable[[str], float]] = {"cpu": cpus, "memory": gigabytes}
    measure = measures.get(resource, float)
    return measure(request) > measure(limit)


# From a document


def settings_of(document: object, source: str) -> Settings:
    """The settings that a YAML document means."""
    top = _Section(document, source, "")
    read = Settings(
        source=source,
        endpoint=top.text("endpoint"),
        namespace=top.text("namespace", _NAME, "a namespace"),
        service_account=top.text("serviceAccount", _NAME, "the name of a service account"),
        pipeline_root=top.text("pipelineRoot", _URI, "a URI such as s3://bucket/folder"),
        results=top.text(
            "results", _URI, "a URI such as s3://bucket/folder; in a pod, relative paths are lost"
        ),
        images=_images(top.section("images")),
        all_tasks=_options(top.section("allTasks")),
        tasks=_options(top.section("tasks")),
        components=_named(top.section("components"), known=COMPONENTS),
        other_components=_named(top.section("otherComponents"), known=None),
        local=_local(top.section("local")),
    )
    top.refuse_others()
    return read


def _images(section: _Section) -> Images:
    read = Images(
        registry=section.text(
            "registry", _REGISTRY, "a registry such as registry.example.com/team/privatekube"
        ),
        tag=section.text("tag", _TAG, "a tag"),
        each={name: _image(section.section(name)) for name in IMAGES if section.has(name)},
        pull_policy=section.choice("pullPolicy", ("Always", "IfNotPresent", "Never")),
        pull_secrets=tuple(
            section.checked(f"pullSecrets[{n}]", item, _NAME, "the name of a secret")
            for n, item in enumerate(section.items("pullSecrets"))
        ),
    )
    section.refuse_others()
    return read


def _image(section: _Section) -> Image:
    read = Image(
        tag=section.text("tag", _TAG, "a tag"),
        digest=section.text("digest", _DIGEST, "a digest: sha256: and 64 hexadecimal digits"),
        image=section.text("image", _IMAGE, "an image such as registry.example.com/team/python:1"),
    )
    section.refuse_others()
    if sum(map(bool, (read.tag, read.digest, read.image))) != 1:
        raise section.wrong("", "give one of tag, digest and image")
    return read


def _named(section: _Section, known: tuple[str, ...] | None) -> dict[str, TaskOptions]:
    if known is None:
        return {name.replace("-", "_"): _options(section.section(name)) for name in section.names()}
    read = {name: _options(section.section(name)) for name in known if section.has(name)}
    hint = "a component of your own goes under otherComponents"
    section.refuse_others(known, "component", hint)
    return read


def _local(section: _Section) -> Local:
    read = Local(results=section.text("results"), env=_env(section))
    section.refuse_others()
    return read


def _options(section: _Section) -> TaskOptions:
    resources = section.section("resources")
    read = TaskOptions(
        env=_env(section),
        secrets=tuple(_secret(part) for part in section.sections("secrets")),
        requests=_quantities(resources.section("requests"), devices=False),
        limits=_quantities(resources.section("limits"), devices=True),
        retries=_retries(section),
        tolerations=tuple(_toleration(part) for part in section.sections("tolerations")),
        node_selector=section.texts("nodeSelector", _LABEL_KEY, _LABEL_VALUE),
        labels=section.texts("labels", _LABEL_KEY, _LABEL_VALUE),
        annotations=section.texts("annotations", _LABEL_KEY),
    )
    resources.refuse_others()
    section.refuse_others()
    for name, request in read.requests.items():
        if name in read.limits and exceeds(name, request, read.limits[name]):
            raise resources.wrong(
                f"requests.{name}", f"{request} is more than the limit {read.limits[name]}"
            )
    return read


def _env(section: _Section) -> dict[str, str]:
    return section.texts("env", _VARIABLE)


def _secret(section: _Section) -> Secret:
    env = section.section("env")
    read = Secret(
        name=section.text("name", _NAME, "the name of a secret", required=True),
        env={
            env.checked(key, key, _SECRET_KEY, "a key of a secret"): env.text(
                key, _VARIABLE, "the name of an environment variable", required=True
            )
            for key in env.names()
        },
        mount_path=section.text("mountPath", re.compile("/.*"), "an absolute path"),
        optional=section.yes("optional"),
    )
    section.refuse_others()
    if bool(read.env) == bool(read.mount_path):
        raise section.wrong("", "give either env (key: VARIABLE) or mountPath")
    return read


def _quantities(section: _Section, *, devices: bool) -> dict[str, str]:
    read = {}
    for name in section.names():
        if name == "cpu":
            read[name] = section.quantity(name, _CPU, "500m or 2")
        elif name == "memory":
            read[name] = section.quantity(name, _MEMORY, "512Mi or 4Gi")
        elif devices and _DEVICE.fullmatch(name):
            read[name] = section.quantity(name, re.compile("[1-9][0-9]*"), "1")
    if len([name for name in read if "/" in name]) > 1:
        raise section.wrong("", "Kubeflow gives a task one kind of accelerator")
    known = ("cpu", "memory", "nvidia.com/gpu") if devices else ("cpu", "memory")
    section.refuse_others((*known, *read))
    return read


def _retries(section: _Section) -> Retries | None:
    said = section.take("retries")
    if said is None:
        return None
    if isinstance(said, int) and not isinstance(said, bool):
        said = {"count": said}
    part = section.inner("retries", said)
    factor = part.take("factor")
    if factor is None:
        factor = 2.0
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= 100:
        raise part.wrong("factor", f"{factor!r} is not a number from 1 to 100")
    read = Retries(
        count=part.whole("count", 0, 100),
        after=part.seconds("after", 10),
        factor=float(factor),
        at_most=part.seconds("atMost", 3600),
    )
    part.refuse_others()
    return read


def _toleration(section: _Section) -> Toleration:
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    read = Toleration(
        key=section.text("key", _LABEL_KEY, "the key of a taint"),
        operator=section.choice("operator", ("Equal", "Exists")) or "Equal",
        value=section.text("value", _LABEL_VALUE, "the value of a taint"),
        effect=section.choice("effect", effects),
        seconds=section.whole("tolerationSeconds", 0, 10**9)
        if section.has("tolerationSeconds")
        else None,
    )
    section.refuse_others()
    if read.operator == "Exists" and read.value:
        raise section.wrong("value", "operator Exists takes no value")
    if read.operator == "Equal" and not read.key:
        raise section.wrong("key", "operator Equal needs a key")
    return read


class _Section:
    """A mapping in the document, and where it is; every key is to be asked for."""

    def __init__(self, value: object, source: str, path: str) -> None:
        self._source = source
        self._path = path
        self._asked: dict[str, None] = {}
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self.wrong("", f"expected keys and values, found {_shown(value)}")
        for key in value:
            if not isinstance(key, str):
                raise self.wrong("", f"the key {key!r} is not text; put it in quotes")
        self._value: Mapping[str, Any] = value

    def wrong(self, key: str, what: str) -> InvalidSettings:
        place = ".".join(part for part in (self._path, key) if part)
        return InvalidSettings(f"{self._source}: {place}: {what}" if place else self._told(what))

    def _told(self, what: str) -> str:
        return f"{self._source}: {what}"

    def names(self) -> list[str]:
        return list(self._value)

    def has(self, key: str) -> bool:
        self._asked[key] = None
        return key in self._value

    def take(self, key: str) -> Any:
        self._asked[key] = None
        return self._value.get(key)

    def inner(self, key: str, value: object) -> _Section:
        return _Section(value, self._source, f"{self._path}.{key}" if self._path else key)

    def section(self, key: str) -> _Section:
        return self.inner(key, self.take(key))

    def sections(self, key: str) -> list[_Section]:
        return [self.inner(f"{key}[{n}]", item) for n, item in enumerate(self.items(key))]

    def items(self, key: str) -> Iterable[Any]:
        value = self.take(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(key, f"expected a list, found {_shown(value)}")
        return value

    def text(
        self,
        key: str,
        pattern: re.Pattern[str] | None = None,
        what: str = "",
        *,
        required: bool = False,
    ) -> str:
        value = self.take(key)
        if value is None:
            if required:
                raise self.wrong(key, "it is missing")
            return ""
        return self.checked(key, value, pattern, what)

    def checked(self, key: str, value: object, pattern: re.Pattern[str] | None, what: str) -> str:
        if not isinstance(value, str):
            raise self.wrong(key, f"{_shown(value)} is not text; put it in quotes")
        if "\n" in value or (pattern is not None and not pattern.fullmatch(value)):
            raise self.wrong(key, f"{value!r} is not {what or 'one line of text'}")
        return value

    def texts(
        self, key: str, keys: re.Pattern[str], values: re.Pattern[str] | None = None
    ) -> dict[str, str]:
        part = self.section(key)
        return {
            part.checked(name, name, keys, "a name that Kubernetes takes"): part._value_of(
                name, values
            )
            for name in part.names()
        }

    def _value_of(self, name: str, pattern: re.Pattern[str] | None) -> str:
        value = self.take(name)
        if not isinstance(value, str):
            raise self.wrong(name, f"{_shown(value)} is not text; put it in quotes")
        if pattern is not None and not pattern.fullmatch(value):
            raise self.wrong(name, f"{value!r} is not a value that Kubernetes takes")
        return value

    def quantity(self, key: str, pattern: re.Pattern[str], example: str) -> str:
        value = self.take(key)
        text = str(value) if isinstance(value, int | float) and value is not True else value
        if not isinstance(text, str) or not pattern.fullmatch(text) or not re.search("[1-9]", text):
            raise self.wrong(key, f"{value!r} is not a quantity such as {example}")
        return text

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        value = self.take(key)
        if value is not None and value not in choices:
            raise self.wrong(key, f"{value!r} is not one of {', '.join(choices)}")
        return value or ""

    def yes(self, key: str) -> bool:
        value = self.take(key)
        if value not in (None, True, False):
            raise self.wrong(key, f"{_shown(value)} is neither true nor false")
        return bool(value)

    def whole(self, key: str, least: int, most: int) -> int:
        value = self.take(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, f"{_shown(value)} is not a whole number from {least} to {most:,}")
        return value

    def seconds(self, key: str, default: int) -> int:
        value = self.take(key)
        if value is None:
            return default
        said = _SECONDS.fullmatch(value) if isinstance(value, str) else None
        if said is None:
            raise self.wrong(key, f"{_shown(value)} is not a number of seconds such as 30s")
        return int(said[1])

    def refuse_others(
        self, known: Iterable[str] | None = None, noun: str = "key", hint: str = ""
    ) -> None:
        """Refuse the first key that nobody has asked for."""
        names = list(self._asked if known is None else known)
        for key in self._value:
            if key not in names:
                close = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
                meant = f": did you mean {close[0]}?" if close else "."
                rest = f"; {hint}" if hint else ""
                raise self.wrong(
                    "", f"unknown {noun} {key!r}{meant} Known are {', '.join(names)}{rest}"
                )


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return "a list"
    return "keys and values" if isinstance(value, Mapping) else repr(value)[:40]
