"""Which Python a task runs in: the one that runs us, unless its image's packages cannot be here.

On a cluster a task has an image. On this machine it has the packages that are installed, and those
of TensorFlow exclude those of kfp and torch. So tasks of that image run in an environment of their
own. PyTorch is an extra of the environment that all others run in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from privatekube_kfp.local.errors import PipelineError
from privatekube_kfp.settings.applying import own_image
from privatekube_kfp.settings.schema import Images

KERAS_PYTHON_VARIABLE = "PRIVATEKUBE_KERAS_PYTHON"
"""Names the Python that has TensorFlow Privacy, where it is not the one that `make keras` makes."""


def pythons_of(
    containers: Mapping[str, Mapping[str, Any]],
    images: Images,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The Python that runs tasks of each executor, by its label.

    It refuses a pipeline before any of it runs if one of its tasks could not.
    """
    return {
        label: python_of(
            str(container.get("image", "")), own_image(label, container, images), environment
        )
        for label, container in containers.items()
    }


def python_of(image: str, ours: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The Python that runs tasks of an image, which may be one of ours: `keras` and so on."""
    if ours == "python-torch" and find_spec("torch") is None:
        raise PipelineError(
            "TorchMissing",
            f"tasks of image {image} need PyTorch, which {sys.executable} does not have; install it"
            " with pip install 'privatekube-kfp[training]', for BERT 'privatekube-kfp[bert]'",
        )
    if ours != "keras":
        return sys.executable
    named = environment.get(KERAS_PYTHON_VARIABLE)
    python = Path(named or Path(sys.prefix).parent / ".venv-keras" / "bin" / "python").absolute()
    if not os.access(python, os.X_OK) or python.is_dir():
        source = f", which {KERAS_PYTHON_VARIABLE} names," if named else ""
        raise PipelineError(
            "KerasMissing",
            f"tasks of image {image} need TensorFlow Privacy, and {python}{source} is not there;"
            f" make it with `make keras`, or name a Python that has it in {KERAS_PYTHON_VARIABLE}",
        )
    return str(python)
