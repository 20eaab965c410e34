"""What a task needs beside data and budget: packages of its image, and words to read with.

On a cluster nothing is guessed. On a laptop the best that is installed will do, and its name is in
every report; in a pod the same would be a model trained with other words than its author thinks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec

from privatekube_kfp import __version__
from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.ledger.opening import IN_A_POD, LEDGER_VARIABLE


def check_torch(component: str) -> None:
    """Refuse to begin in an image without PyTorch, and say which one has it."""
    if find_spec("torch") is None:
        raise PrivateKubeError(
            Reason.INVALID_REQUEST,
            f"{component} needs PyTorch, which this image does not have: run it in the image"
            f" privatekube/python-torch:{__version__}, built from components/Dockerfile with"
            " --build-arg EXTRA=bert",
        )


def check_words(words: str, environment: Mapping[str, str] = os.environ) -> None:
    """On a cluster, refuse to choose the words that nobody has named."""
    if not words and _on_a_cluster(environment):
        raise Invalid(
            Reason.INVALID_REQUEST,
            "on a cluster, name the words to train with (words): a path or an address of word"
            " vectors such as s3://vectors/glove.100d.txt.gz, for bert a directory or a hub's"
            " name, or stand-in for vectors that are drawn, not learnt",
        )


def _on_a_cluster(environment: Mapping[str, str]) -> bool:
    """A notebook is in a pod as well; what runs there on a ledger of its own runs locally."""
    own = environment.get(LEDGER_VARIABLE, "").startswith("sqlite:")
    return IN_A_POD in environment and not own
