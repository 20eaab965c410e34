"""Pipelines that were compiled, and pipelines that kfp-kubernetes has written settings into."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Compile = Callable[[Any], list[dict[str, Any]]]


@pytest.fixture
def compiled(tmp_path: Path) -> Compile:
    """Compiles a pipeline function: its documents."""
    from kfp import compiler

    def compile_pipeline(pipeline: Any) -> list[dict[str, Any]]:
        path = tmp_path / "pipeline.yaml"
        compiler.Compiler().compile(pipeline, str(path))
        return list(yaml.safe_load_all(path.read_text()))

    return compile_pipeline
