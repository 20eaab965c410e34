"""Compiles the library's components into `components/<name>/`: `make components`.

Each folder gets the `component.yaml` that `kfp.components.load_component_from_file` reads, and a
README made of the component's own words. Nothing in there is written by hand; a test compiles them
again and compares.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from kfp import compiler
from kfp.dsl.base_component import BaseComponent

from privatekube_kfp.components import (
    allocate,
    consume,
    download,
    dp_evaluate,
    dp_preprocess,
    dp_statistic,
    dp_train,
    dp_train_keras,
    ingest,
    plan_training,
    release,
    show_model,
    show_statistic,
    upload,
)

TOP = Path(__file__).parent
COMPONENTS = (
    ingest,
    plan_training,
    allocate,
    download,
    dp_statistic,
    dp_preprocess,
    dp_train,
    dp_train_keras,
    dp_evaluate,
    consume,
    show_statistic,
    show_model,
    upload,
    release,
)
_TYPES = {
    "STRING": "text",
    "NUMBER_INTEGER": "whole number",
    "NUMBER_DOUBLE": "number",
    "LIST": "list",
    "STRUCT": "dictionary",
}


def name_of(component: BaseComponent) -> str:
    """Its name in Python and of its folder; Kubeflow makes dashes of underscores."""
    return str(component.name).replace("-", "_")


def files(component: BaseComponent) -> dict[str, str]:
    """What belongs into the component's folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "component.yaml")
        compiler.Compiler().compile(component, str(path))
        compiled = path.read_text()
    return {"component.yaml": compiled, "README.md": _readme(component, yaml.safe_load(compiled))}


def _readme(component: BaseComponent, compiled: dict[str, Any]) -> str:
    root = compiled["root"]
    title, _, more = component.description.partition("\n\n")
    name = name_of(component)
    lines = [f"# {name}", "", title.strip()]
    if more.strip():
        lines += ["", *(line.strip() for line in more.strip().splitlines())]
    lines += [
        "",
        "```python",
        f"from privatekube_kfp.components import {name}",
        "```",
        "",
        "or, with kfp alone:",
        "",
        "```python",
        "from kfp import components",
        "",
        f'{name} = components.load_component_from_file("component.yaml")',
        "```",
        "",
    ]
    for heading, definitions in (
        ("Inputs", root.get("inputDefinitions", {})),
        ("Outputs", root.get("outputDefinitions", {})),
    ):
        rows = [
            *(_artifact(name, said) for name, said in definitions.get("artifacts", {}).items()),
            *(_parameter(name, said) for name, said in definitions.get("parameters", {}).items()),
        ]
        if rows:
            lines += [f"## {heading}", "", "| name | type | |", "|---|---|---|", *rows, ""]
    lines += [f"It runs in the image `{_image(compiled)}`."]
    return "\n".join(lines) + "\n"


def _artifact(name: str, said: dict[str, Any]) -> str:
    kind = said["artifactType"]["schemaTitle"]
    return f"| `{name}` | {kind} | {said.get('description', '')} |"


def _parameter(name: str, said: dict[str, Any]) -> str:
    kind = _TYPES[said["parameterType"]]
    default = said.get("defaultValue")
    words = " ".join(said.get("description", "").split())
    if isinstance(default, float):
        default = int(default)
    if default not in (None, ""):
        words += f" Default: `{default}`."
    elif said.get("isOptional"):
        words += " Optional."
    return f"| `{name}` | {kind} | {words.strip()} |"


def _image(compiled: dict[str, Any]) -> str:
    (executor,) = compiled["deploymentSpec"]["executors"].values()
    return str(executor["container"]["image"])


def main() -> int:
    for component in COMPONENTS:
        folder = TOP / name_of(component)
        folder.mkdir(exist_ok=True)
        for name, text in files(component).items():
            (folder / name).write_text(text)
            print(f"{folder.name}/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
