"""Site settings, written into a compiled pipeline.

They go where kfp and kfp-kubernetes would have put them: resources, variables and images into the
pipeline specification, all else into the platform specification, its second document. So it works
for pipelines that were compiled elsewhere, too. What a pipeline says itself is left as it is:
settings fill in what it leaves open.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privatekube_kfp.data.places import RESULTS_VARIABLE
from privatekube_kfp.roles import roles_in_source
from privatekube_kfp.settings.schema import (
    COMPONENTS,
    IMAGES,
    Images,
    Settings,
    TaskOptions,
    cpus,
    gigabytes,
)

_TOLD_WHERE = ("allocate", "upload")
_OURS = "privatekube/"
_FUNCTION = "--function_to_execute"
_STEPS = "from privatekube_kfp.steps"
_IMAGE_OF = {
    "dp_preprocess": "python-torch",
    "dp_train": "python-torch",
    "dp_evaluate": "python-torch",
    "dp_train_keras": "keras",
}
"""The image of each component that does not run in `python`."""

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Applied:
    """What settings mean for one component of a pipeline."""

    executor: str
    component: str
    ours: bool
    image: str
    options: TaskOptions
    results: str


def apply_settings(
    documents: Sequence[Document], settings: Settings
) -> tuple[list[dict[str, Any]], list[Applied]]:
    """The documents of a compiled pipeline with settings in them, and what they say for whom."""
    spec = copy.deepcopy(dict(documents[0]))
    platform: dict[str, Any] = copy.deepcopy(dict(documents[1])) if len(documents) > 1 else {}
    results = ""
    if any(component_of(*one) == ("upload", True) for one in _containers(spec)):
        results = place_of_pipeline(settings.results, str(spec["pipelineInfo"]["name"]))
    if settings.pipeline_root:
        spec.setdefault("defaultPipelineRoot", settings.pipeline_root)
    applied: dict[str, Applied] = {}
    for label, container in _containers(spec):
        one = _applied(label, container, settings, results)
        applied[label] = one
        _write_image(container, one.image)
        _write_platform(container, platform, label, one, settings.images)
        _write_variables(container, platform, label, one)
        _write_resources(container, one.options)
    for task, label in _tasks(spec):
        if label in applied:
            _write_retries(task, applied[label].options)
    rest = [copy.deepcopy(dict(document)) for document in documents[2:]]
    made = [spec, platform, *rest] if platform or rest else [spec]
    return made, list(applied.values())


def place_of_pipeline(place: str, pipeline: str) -> str:
    """Where results of a pipeline's runs go: `{pipeline}` in the place, or its end, is its name."""
    if not place or "{pipeline}" in place:
        return place.replace("{pipeline}", pipeline)
    if "{run}" in place:
        return place
    return f"{place.rstrip('/')}/{pipeline}"


def image_of(image: str, images: Images) -> str:
    """The image in place of one of ours: `privatekube/NAME:VERSION`; others stay."""
    name, _, tag = image.removeprefix(_OURS).partition(":")
    if not image.startswith(_OURS) or name not in IMAGES or "@" in image:
        return image
    said = images.each.get(name)
    if said is not None and said.image:
        return said.image
    base = f"{images.registry or _OURS.rstrip('/')}/{name}"
    if said is not None and said.digest:
        return f"{base}@{said.digest}"
    tag = (said.tag if said is not None else "") or images.tag or tag
    return f"{base}:{tag}" if tag else base


def own_image(label: str, container: Document, images: Images) -> str | None:
    """Which of our images a container's image is, by whatever name: `keras` and so on.

    It is known by its own name, by the name that settings give it, and, in a pipeline that was
    compiled with the settings of another site, by the component that runs in it.
    """
    image = str(container.get("image", ""))
    folder, slash, last = image.partition("@")[0].rpartition("/")
    repository = f"{folder}{slash}{last.partition(':')[0]}"
    for name in IMAGES:
        said = images.each.get(name)
        if (
            f"/{repository}".endswith(f"/{_OURS}{name}")
            or (images.registry and repository == f"{images.registry}/{name}")
            or (said is not None and said.image and image == said.image)
        ):
            return name
    component, ours = component_of(label, container)
    return _IMAGE_OF.get(component) if ours else None


# Who is who


def _containers(spec: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    for label, executor in (spec["deploymentSpec"].get("executors") or {}).items():
        if isinstance(executor, dict) and isinstance(executor.get("container"), dict):
            yield label, executor["container"]


def component_of(label: str, container: Document) -> tuple[str, bool]:
    """The name of an executor's component, and whether it is one of PrivateKube's."""
    words = [str(word) for word in container.get("args") or ()]
    command = [str(word) for word in container.get("command") or ()]
    name = label.removeprefix("exec-").replace("-", "_")
    if _FUNCTION in words and words.index(_FUNCTION) + 1 < len(words):
        name = words[words.index(_FUNCTION) + 1]
    ours = (
        name in COMPONENTS
        and bool(roles_in_source(command))
        and any(_STEPS in word for word in command)
    )
    return name, ours


def _applied(label: str, container: Document, settings: Settings, results: str) -> Applied:
    component, ours = component_of(label, container)
    return Applied(
        executor=label,
        component=component,
        ours=ours,
        image=image_of(str(container.get("image", "")), settings.images),
        options=settings.of_task(component, ours=ours),
        results=results if ours and component in _TOLD_WHERE else "",
    )


def _tasks(spec: Document) -> Iterator[tuple[dict[str, Any], str]]:
    """Every task that runs a container, and its executor's label."""
    components = spec.get("components") or {}
    for component in (spec["root"], *components.values()):
        for task in ((component.get("dag") or {}).get("tasks") or {}).values():
            reference = (task.get("componentRef") or {}).get("name")
            label = (components.get(reference) or {}).get("executorLabel")
            if label is not None:
                yield task, str(label)


# The pipeline's specification


def _write_image(container: dict[str, Any], image: str) -> None:
    if image:
        container["image"] = image


def _write_variables(
    container: dict[str, Any], platform: dict[str, Any], label: str, one: Applied
) -> None:
    known = _variables(container, _executor(platform, label, make=False))
    wanted = dict(one.options.env)
    if one.results:
        wanted.setdefault(RESULTS_VARIABLE, one.results)
    new = [{"name": k, "value": v} for k, v in wanted.items() if k not in known]
    if new:
        container["env"] = [*(container.get("env") or ()), *new]


def _variables(container: Document, executor: Document) -> set[str]:
    """The variables that a pipeline gives itself, one way or the other."""
    names = {str(one.get("name")) for one in container.get("env") or ()}
    for way in ("secretAsEnv", "configMapAsEnv"):
        for given in executor.get(way) or ():
            names |= {str(key.get("envVar")) for key in given.get("keyToEnv") or ()}
    names |= {str(given.get("name")) for given in executor.get("fieldPathAsEnv") or ()}
    return names


def _write_resources(container: dict[str, Any], options: TaskOptions) -> None:
    """A resource of which the pipeline says anything is left to the pipeline."""
    said = dict(container.get("resources") or {})
    new: dict[str, Any] = {}
    for name, measure in (("cpu", cpus), ("memory", gigabytes)):
        resource = name.capitalize()
        if any(key in said for end in ("Limit", "Request") for key in _keys(name, end)):
            continue
        for end, given in (("Limit", options.limits), ("Request", options.requests)):
            if name in given:
                new[f"{name}{end}"] = measure(given[name])
                new[f"resource{resource}{end}"] = given[name]
    devices = [(kind, count) for kind, count in options.limits.items() if "/" in kind]
    if devices and "accelerator" not in said:
        kind, count = devices[0]
        new["accelerator"] = {
            "count": count,
            "resourceCount": count,
            "resourceType": kind,
            "type": kind,
        }
    if new:
        container["resources"] = {**said, **new}


def _keys(name: str, end: str) -> tuple[str, str]:
    return f"{name}{end}", f"resource{name.capitalize()}{end}"


def _write_retries(task: dict[str, Any], options: TaskOptions) -> None:
    retries = options.retries
    if retries is not None and retries.count and "retryPolicy" not in task:
        task["retryPolicy"] = {
            "backoffDuration": f"{retries.after}s",
            "backoffFactor": retries.factor,
            "backoffMaxDuration": f"{retries.at_most}s",
            "maxRetryCount": retries.count,
        }


# The platform's


def _executor(platform: dict[str, Any], label: str, *, make: bool = True) -> dict[str, Any]:
    found: Any = platform
    for key in ("platforms", "kubernetes", "deploymentSpec", "executors", label):
        found = found.setdefault(key, {}) if make else found.get(key) or {}
    return found if make else dict(found)


def _write_platform(
    container: Document, platform: dict[str, Any], label: str, one: Applied, images: Images
) -> None:
    before = _executor(platform, label, make=False)
    new = _platform_entries(container, before, one.options)
    if one.ours or _is_ours(str(container.get("image", "")), images):
        if images.pull_policy and "imagePullPolicy" not in before:
            new["imagePullPolicy"] = images.pull_policy
        if images.pull_secrets and "imagePullSecret" not in before:
            new["imagePullSecret"] = [_secret_name(name) for name in images.pull_secrets]
    if new:
        _executor(platform, label).update(new)


def _is_ours(image: str, images: Images) -> bool:
    registry = images.registry or _OURS.rstrip("/")
    others = {one.image for one in images.each.values() if one.image}
    return image in others or any(image.startswith(f"{registry}/{name}") for name in IMAGES)


def _platform_entries(
    container: Document, before: Document, options: TaskOptions
) -> dict[str, Any]:
    """What to set of an executor's platform settings, with what the pipeline says kept."""
    new: dict[str, Any] = {}
    known = _variables(container, before)
    as_env = [
        {"keyToEnv": keys, "optional": secret.optional, **_secret_name(secret.name)}
        for secret in options.secrets
        if (
            keys := [
                {"envVar": variable, "secretKey": key}
                for key, variable in secret.env.items()
                if variable not in known
            ]
        )
    ]
    mounted = {
        one.get("mountPath")
        for way in ("secretAsVolume", "configMapAsVolume", "pvcMount", "genericEphemeralVolume")
        for one in before.get(way) or ()
    }
    as_volume = [
        {
            "mountPath": secret.mount_path,
            "optional": secret.optional,
            **_secret_name(secret.name),
        }
        for secret in options.secrets
        if secret.mount_path and secret.mount_path not in mounted
    ]
    tolerations = [_toleration(one) for one in options.tolerations]
    for key, more in (
        ("secretAsEnv", as_env),
        ("secretAsVolume", as_volume),
        ("tolerations", tolerations),
    ):
        apart = [one for one in more if one not in (before.get(key) or ())]
        if apart:
            new[key] = [*(before.get(key) or ()), *apart]
    if options.node_selector:
        selector = dict(before.get("nodeSelector") or {})
        labels = {**options.node_selector, **(selector.get("labels") or {})}
        new["nodeSelector"] = {**selector, "labels": labels}
    if options.labels or options.annotations:
        metadata = dict(before.get("podMetadata") or {})
        for key, said in (("labels", options.labels), ("annotations", options.annotations)):
            if said:
                metadata[key] = {**said, **(metadata.get(key) or {})}
        new["podMetadata"] = metadata
    return new


def _secret_name(name: str) -> dict[str, Any]:
    """As kfp-kubernetes says it: the name, and for newer servers the name as a parameter."""
    return {"secretName": name, "secretNameParameter": {"runtimeValue": {"constant": name}}}


def _toleration(one: Any) -> dict[str, Any]:
    said = {
        "key": one.key,
        "operator": one.operator,
        "value": one.value,
        "effect": one.effect,
        "tolerationSeconds": None if one.seconds is None else str(one.seconds),
    }
    return {key: value for key, value in said.items() if value not in ("", None)}
