"""Which Python a task runs in: the one that runs us, unless its image's packages cannot be here.

On a cluster a task has an image. On this machine it has the packages that are installed, and those
of TensorFlow exclude those of kfp and torch. So tasks of that image run in an environment of their
own. PyTorch is an extra of the environment that all others run in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from privatekube_kfp.local.errors import PipelineError

KERAS_PYTHON_VARIABLE = "PRIVATEKUBE_KERAS_PYTHON"
"""Names the Python that has TensorFlow Privacy, where it is not the one that `make keras` makes."""
_KERAS = "privatekube/keras"
_TORCH = "privatekube/python-torch"


def python_of(image: str, environment: Mapping[str, str] = os.environ) -> str:
    """The Python that runs tasks of this image, wherever the image was pushed to."""
    if _is(_TORCH, image) and find_spec("torch") is None:
        raise PipelineError(
            "TorchMissing",
            f"tasks of image {image} need PyTorch, which {sys.executable} does not have; install it"
            " with pip install 'privatekube-kfp[training]', for BERT 'privatekube-kfp[bert]'",
        )
    if not _is(_KERAS, image):
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


def check_interpreters(images: Iterable[str]) -> None:
    """Refuse a pipeline before any of it runs if one of its tasks could not."""
    for image in images:
        python_of(image)


def _is(name: str, image: str) -> bool:
    """Whether an image is this one of ours, from whatever registry and of whatever version."""
    folder, slash, last = image.partition("@")[0].rpartition("/")
    untagged = f"{folder}{slash}{last.partition(':')[0]}"
    return untagged == name or untagged.endswith(f"/{name}")
