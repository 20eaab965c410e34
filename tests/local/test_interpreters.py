"""Which Python a task of an image runs in, and what is said if there is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from privatekube_kfp.local.errors import PipelineError
from privatekube_kfp.local.interpreters import (
    KERAS_PYTHON_VARIABLE,
    python_of,
    pythons_of,
)
from privatekube_kfp.local.pipeline import read_compiled
from privatekube_kfp.settings import settings_from_text
from privatekube_kfp.settings.schema import Image, Images
from tests.local.world import World

TOP = Path(__file__).resolve().parents[2]

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


def python_for(image: str, environment: dict[str, str], images: Images | None = None) -> str:
    return pythons_of({"exec-there": {"image": image}}, images or Images(), environment)[
        "exec-there"
    ]


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
        assert python_for(image, named) == str(python)
    for image in ("privatekube/python:0.1.0", "python:3.11", "", "notprivatekube/keras:0.1.0"):
        assert python_for(image, named) == sys.executable


def test_settings_may_call_the_keras_image_by_any_name(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    named = {KERAS_PYTHON_VARIABLE: str(python)}
    moved = Images(registry="registry.example.com:5000/team", tag="nightly")
    for image in (
        "registry.example.com:5000/team/keras:nightly",
        "registry.example.com:5000/team/keras",
        "registry.example.com:5000/team/keras@sha256:0123",
    ):
        assert python_for(image, named, moved) == str(python)
    for image in ("registry.example.com:5000/team/python:1", "another.example/team/keras:1"):
        assert python_for(image, named, moved) == sys.executable
    another = Images(each={"keras": Image(image="registry.example.com/tensorflow:2")})
    assert python_for("registry.example.com/tensorflow:2", named, another) == str(python)
    assert python_for("registry.example.com/tensorflow:3", named, another) == sys.executable


def test_without_torch_its_tasks_are_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    python_for("privatekube/python-torch:0.1.0", {})
    monkeypatch.setitem(sys.modules, "torch", None)
    python_for("privatekube/python:0.1.0", {})
    python_for("elsewhere/python-torch:0.1.0", {})
    with pytest.raises(
        PipelineError, match=r"need PyTorch.*pip install 'privatekube-kfp\[training"
    ):
        python_for("registry:5000/privatekube/python-torch@sha256:0123", {})


def test_a_python_that_is_not_there_is_told_with_how_to_make_it(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(
        PipelineError, match=rf"{gone}, which {KERAS_PYTHON_VARIABLE} names"
    ) as told:
        python_of("privatekube/keras:0.1.0", "keras", {KERAS_PYTHON_VARIABLE: str(gone)})
    assert "`make keras`" in told.value.message
    with pytest.raises(PipelineError):
        python_of("privatekube/keras:0.1.0", "keras", {KERAS_PYTHON_VARIABLE: str(tmp_path)})


def test_beside_the_environment_that_runs_us_is_where_it_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    python = tmp_path / ".venv-keras" / "bin" / "python"
    with pytest.raises(
        PipelineError, match=f"and {python} is not there; make it with `make keras`"
    ):
        python_of("privatekube/keras:0.1.0", "keras", {})
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert python_of("privatekube/keras:0.1.0", "keras", {}) == str(python)


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


@pytest.mark.parametrize("settings_are_here", [True, False])
@pytest.mark.parametrize("pipeline", sorted((TOP / "pipelines").glob("*_keras.py")), ids=str)
def test_bundled_pipelines_compiled_for_a_site(
    pipeline: Path, settings_are_here: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever registry its images are, and whether or not the site's settings are at hand."""
    site = world.folder / "site.yaml"
    site.write_text("images: {registry: registry.example.com/team, tag: nightly}\n")
    world.cli.ok("compile", str(pipeline), "-o", "out.yaml", "--settings", str(site))
    compiled = read_compiled(world.folder / "out.yaml")
    text = site.read_text() if settings_are_here else ""
    images = settings_from_text(text, "site.yaml").images
    python = world.folder / "keras-python"
    python.symlink_to(sys.executable)
    found = pythons_of(compiled.containers, images, {KERAS_PYTHON_VARIABLE: str(python)})
    assert [label for label, each in found.items() if each == str(python)] == [
        "exec-dp-train-keras"
    ]


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


@pytest.mark.slow
def test_a_task_of_a_renamed_image(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A component of the author's own, in the image by the name that settings give it."""
    python = world.folder / "keras-python"
    python.write_text(f'#!/bin/sh\nWHERE=there exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv(KERAS_PYTHON_VARIABLE, str(python))
    (world.folder / "privatekube.yaml").write_text("images: {registry: registry.example.com/a}\n")
    world.cli.ok("compile", world.write(IN_KERAS), "-o", "out.yaml")
    assert "registry.example.com/a/keras:0.1.0" in (world.folder / "out.yaml").read_text()
    world.cli.ok("run", "out.yaml", "--run-id", "r")
    assert (world.folder / "there").read_text() == "there"
    assert (world.folder / "here").read_text() == "here"
