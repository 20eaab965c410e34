"""`privatekube settings`: what differs from cluster to cluster, and what that means for tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from privatekube_kfp.cli.errors import needing
from privatekube_kfp.cli.options import InOrder, json_option
from privatekube_kfp.cli.output import print_facts, print_table, say
from privatekube_kfp.cli.pipelines import function_option, read_pipeline, settings_option
from privatekube_kfp.cli.session import Session
from privatekube_kfp.settings import (
    COMPONENTS,
    IMAGES,
    Applied,
    Settings,
    apply_settings,
    find_settings,
)
from privatekube_kfp.settings.applying import image_of
from privatekube_kfp.settings.reading import CONFIG_MAP_NAME, config_map_of, read_settings
from privatekube_kfp.settings.schema import TaskOptions


@click.group(cls=InOrder)
def settings() -> None:
    """See site settings and what they mean, and keep them in a cluster."""


@settings.command(short_help="Show what applies, to all components or to a pipeline.")
@click.argument("pipeline", required=False, type=click.Path(dir_okay=False, path_type=Path))
@settings_option
@function_option
@json_option
@click.pass_obj
def show(
    session: Session, pipeline: Path | None, settings_address: str | None, function: str | None
) -> None:
    """Show the site settings that hold here, and what they mean for each component.

    With a PIPELINE, a Python file or compiled YAML: what its tasks get when it is compiled or
    submitted. What a pipeline says itself comes before settings.

    \b
    Examples:
      privatekube settings show
      privatekube settings show pipelines/product_lstm.py --settings site/privatekube.yaml
    """
    found = find_settings(settings_address)
    if pipeline is None:
        applied = [_of_component(name, found) for name in COMPONENTS]
    else:
        _, applied = apply_settings(read_pipeline(pipeline, function).documents, found)
    document = {**_facts(found), "tasks": [_task_json(one) for one in applied]}
    session.answer(document, lambda: _show(found, applied))


@settings.command(short_help="Put a settings file into a cluster, as a ConfigMap.")
@click.argument("target", metavar="configmap:NAMESPACE[/NAME]")
@settings_option
@json_option
@click.pass_obj
def publish(session: Session, target: str, settings_address: str | None) -> None:
    """Check a settings file, and put it into a cluster as a ConfigMap.

    Whoever works with the cluster then names it in place of a file. It is called
    privatekube-settings unless NAME says otherwise. Secrets are named in settings, never in them.

    \b
    Example:
      privatekube settings publish configmap:kubeflow --settings privatekube.yaml
      privatekube submit pipeline.py --settings configmap:kubeflow
    """
    namespace, name = config_map_of(target)
    found = find_settings(settings_address)
    if not found.source or not Path(found.source).is_file():
        raise click.UsageError(
            "There is no settings file to publish: name one with --settings FILE."
        )
    text = Path(found.source).read_text()
    with needing("kubernetes", "kubernetes", "urllib3"):
        from privatekube_kfp.settings.cluster import write_config_map
    write_config_map(namespace, name, text)
    read_settings(f"configmap:{namespace}/{name}")
    short = namespace if name == CONFIG_MAP_NAME else f"{namespace}/{name}"
    document = {"namespace": namespace, "name": name, "source": found.source}
    session.answer(
        document, lambda: say(f"{found.source} is published: --settings configmap:{short}")
    )


def _of_component(name: str, found: Settings) -> Applied:
    return Applied("", name, True, "", found.of_task(name, ours=True), "")


def _facts(found: Settings) -> dict[str, Any]:
    from privatekube_kfp import __version__

    return {
        "source": found.source or None,
        "endpoint": found.endpoint or None,
        "namespace": found.namespace or None,
        "serviceAccount": found.service_account or None,
        "pipelineRoot": found.pipeline_root or None,
        "results": found.results or None,
        "images": {
            name: image_of(f"privatekube/{name}:{__version__}", found.images) for name in IMAGES
        },
        "local": {"results": found.local.results or None, "env": dict(found.local.env)},
    }


def _task_json(one: Applied) -> dict[str, Any]:
    options = one.options
    retries = options.retries
    said: dict[str, Any] = {
        "component": one.component,
        "image": one.image,
        "env": dict(options.env),
        "results": one.results,
        "secrets": [
            {
                "name": secret.name,
                "env": dict(secret.env),
                "mountPath": secret.mount_path,
                "optional": secret.optional,
            }
            for secret in options.secrets
        ],
        "requests": dict(options.requests),
        "limits": dict(options.limits),
        "retries": retries.count if retries is not None else 0,
        "tolerations": [one.key for one in options.tolerations],
        "nodeSelector": dict(options.node_selector),
        "labels": dict(options.labels),
        "annotations": dict(options.annotations),
    }
    return {key: value for key, value in said.items() if value not in ("", 0, [], {})}


def _show(found: Settings, applied: list[Applied]) -> None:
    facts = _facts(found)
    rows = [("settings", facts["source"] or "none: what is built in")]
    keys = ("endpoint", "namespace", "serviceAccount", "pipelineRoot", "results")
    rows += [(key, facts[key]) for key in keys if facts[key]]
    rows += [(f"image {name}", image) for name, image in facts["images"].items()]
    if found.local.results:
        rows.append(("local results", found.local.results))
    print_facts(rows)
    say("")
    print_table(
        ["COMPONENT", "REQUESTS", "LIMITS", ">RETRIES", "SECRETS", "MORE"],
        [
            (
                one.component,
                _pairs(one.options.requests),
                _pairs(one.options.limits),
                str(one.options.retries.count if one.options.retries else 0),
                ", ".join(secret.name for secret in one.options.secrets) or "-",
                _more(one.options),
            )
            for one in applied
        ],
    )


def _pairs(said: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in said.items()) or "-"


def _more(options: TaskOptions) -> str:
    parts = [f"env {name}" for name in options.env]
    parts += [f"tolerates {one.key or 'every taint'}" for one in options.tolerations]
    parts += [f"node {key}={value}" for key, value in options.node_selector.items()]
    parts += [f"label {key}={value}" for key, value in options.labels.items()]
    parts += [f"annotation {key}" for key in options.annotations]
    return ", ".join(parts) or "-"
