"""Which Python a task of an image runs in, and what is said if there is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from privatekube_kfp.local.errors import PipelineError
from privatekube_kfp.local.interpreters import (
    KERAS_PYTHON_VARIABLE,
    check_interpreters,
    python_of,
)
from tests.local.world import World

IN_KERAS = """
@dsl.component(base_image="privatekube/keras:0.1.0", install_kfp_package=False)
def there() -> str:
    import os
    return os.environ["WHERE"]

@component
def here() -> str:
    import os
    return os.environ.get("WHERE", "here")

@component
def note(words: str, file: str):
    open(file, "w").write(words)

@dsl.pipeline(name="both")
def pipeline():
    tick(file="ticks")
    note(words=there().output, file="there")
    note(words=here().output, file="here")
"""


def test_only_tasks_of_the_keras_image_run_elsewhere(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    named = {KERAS_PYTHON_VARIABLE: str(python)}
    for image in (
        "privatekube/keras:0.1.0",
        "privatekube/keras",
        "localhost:5000/privatekube/keras:0.1.0",
        "docker.io/privatekube/keras@sha256:0123",
    ):
        assert python_of(image, named) == str(python)
    for image in ("privatekube/python:0.1.0", "python:3.11", "", "notprivatekube/keras:0.1.0"):
        assert python_of(image, named) == sys.executable


def test_without_torch_its_tasks_are_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_interpreters(["privatekube/python-torch:0.1.0", "privatekube/python:0.1.0"])
    monkeypatch.setitem(sys.modules, "torch", None)
    check_interpreters(["privatekube/python:0.1.0", "elsewhere/python-torch:0.1.0"])
    with pytest.raises(
        PipelineError, match=r"need PyTorch.*pip install 'privatekube-kfp\[training"
    ):
        check_interpreters(["registry:5000/privatekube/python-torch@sha256:0123"])


def test_a_python_that_is_not_there_is_told_with_how_to_make_it(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(
        PipelineError, match=rf"{gone}, which {KERAS_PYTHON_VARIABLE} names"
    ) as told:
        python_of("privatekube/keras:0.1.0", {KERAS_PYTHON_VARIABLE: str(gone)})
    assert "`make keras`" in told.value.message
    with pytest.raises(PipelineError):
        python_of("privatekube/keras:0.1.0", {KERAS_PYTHON_VARIABLE: str(tmp_path)})


def test_beside_the_environment_that_runs_us_is_where_it_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    python = tmp_path / ".venv-keras" / "bin" / "python"
    with pytest.raises(
        PipelineError, match=f"and {python} is not there; make it with `make keras`"
    ):
        python_of("privatekube/keras:0.1.0", {})
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert python_of("privatekube/keras:0.1.0", {}) == str(python)


def test_a_run_without_it_is_refused_before_anything_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KERAS_PYTHON_VARIABLE, str(world.folder / "gone"))
    result = world.run(IN_KERAS)
    assert result.code == 1
    assert "tasks of image privatekube/keras:0.1.0 need TensorFlow Privacy" in result.err
    assert len(result.err.splitlines()) == 1
    assert not world.home.exists()
    assert not (world.folder / "ticks").exists()


@pytest.mark.slow
def test_a_task_runs_in_the_python_of_its_image(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a Python that says where it is, and is ours otherwise."""
    python = world.folder / "keras-python"
    python.write_text(f'#!/bin/sh\nWHERE=there exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv(KERAS_PYTHON_VARIABLE, os.path.relpath(python))
    result = world.run(IN_KERAS)
    assert result.code == 0, result.err
    assert (world.folder / "there").read_text() == "there"
    assert (world.folder / "here").read_text() == "here"
