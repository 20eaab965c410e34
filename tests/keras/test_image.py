"""The image and the environment on this machine are made of the same packages."""

from __future__ import annotations

import configparser
from pathlib import Path

from privatekube_kfp import __version__

TOP = Path(__file__).parents[2]
DOCKERFILE = (TOP / "components" / "Dockerfile.keras").read_text()


def test_the_image_is_built_under_the_name_that_components_ask_for() -> None:
    assert f"-t privatekube/keras:{__version__} ." in DOCKERFILE


def test_kfp_is_of_the_version_that_pipelines_have() -> None:
    setup = configparser.ConfigParser()
    setup.read(TOP / "setup.cfg")
    wanted = setup["options.extras_require"]["pipelines"].split()
    (kfp,) = (requirement for requirement in wanted if requirement.startswith("kfp>"))
    for text in (DOCKERFILE, (TOP / "Makefile").read_text()):
        assert f"--no-deps '{kfp}'" in text
        assert ".[keras]" in text


def test_both_images_are_built_from_the_same_files() -> None:
    ignored = [
        (TOP / "components" / f"{name}.dockerignore").read_text()
        for name in ("Dockerfile", "Dockerfile.keras")
    ]
    assert ignored[0] == ignored[1]
    other = (TOP / "components" / "Dockerfile").read_text()
    copied = [
        [line for line in text.splitlines() if line.startswith(("FROM", "COPY", "USER"))]
        for text in (other, DOCKERFILE)
    ]
    assert copied[0] == copied[1]
