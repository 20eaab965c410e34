"""A process of TensorFlow's environment, which tests hand their arrays to."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from privatekube_kfp import __version__
from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.local.interpreters import python_of

TOP = Path(__file__).parents[2]


class Keras:
    """Calls of the functions in `inside.py`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __call__(self, function: str, **given: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((function, given), self._process.stdin)
        self._process.stdin.flush()
        how, what = pickle.load(self._process.stdout)
        if how == "refused":
            reason, message, spent = what
            refusal = Invalid(reason, message)
            refusal.spent = spent
            raise refusal
        return what


@pytest.fixture(scope="session")
def keras() -> Iterator[Keras]:
    """If this is refused: `make keras`."""
    quiet = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [
            python_of(f"privatekube/keras:{__version__}", "keras"),
            TOP / "tests" / "keras" / "inside.py",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **quiet, "PYTHONPATH": str(TOP)},
    ) as process:
        yield Keras(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0
