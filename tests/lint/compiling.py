"""Compiles pipelines for the linter."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kfp import compiler, dsl


def compiled(pipeline: Callable[..., Any]) -> str:
    """The YAML of a pipeline, given as a plain function."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(dsl.pipeline(name="pipeline")(pipeline), str(path))
        return path.read_text()
