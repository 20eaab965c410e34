"""What a real Kubeflow handed to the tasks of runs of ours, in the order in which they began.

Kubeflow Pipelines 2.17.0 on Kubernetes 1.36.3, with Argo Workflows 4.0.5. Each task has its
executor input, and of its pod the name, image, service account, names of variables, security
context and mounts. The runs `..._with_lists` are of components whose artifacts named all blocks.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "recorded"
RUNS = sorted(path.stem for path in FOLDER.glob("*.json"))
STORE = "minio://mlpipeline"
_SHIPPED = {"list", "struct"}


@dataclass(frozen=True)
class Task:
    """One task of a recorded run."""

    name: str
    executor_input: dict[str, Any]
    pod: dict[str, Any]

    @property
    def parameters(self) -> dict[str, Any]:
        return self.executor_input["inputs"].get("parameterValues", {})

    @property
    def artifacts(self) -> dict[str, dict[str, Any]]:
        """Those that it was handed."""
        listed = self.executor_input["inputs"].get("artifacts", {})
        return {key: said["artifacts"][0] for key, said in listed.items()}

    @property
    def folder(self) -> list[str]:
        """Pipeline, run, task and attempt, as they are in the URIs of its outputs."""
        uri = self.executor_input["outputs"]["artifacts"]["executor-logs"]["artifacts"][0]["uri"]
        return uri.removeprefix(f"{STORE}/v2/artifacts/").split("/")[:4]


def recorded(run: str) -> list[Task]:
    """The tasks of a recorded run."""
    tasks = json.loads((FOLDER / f"{run}.json").read_text())
    return [Task(said.pop("task"), said.pop("executor_input"), said) for said in tasks]


def as_made(metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata as a task of ours wrote them, from what Kubeflow gave back."""
    own = {k: v for k, v in metadata.items() if k not in ("display_name", "store_session_info")}
    return {key: _unwrapped(value) for key, value in own.items()}


def _unwrapped(value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1 and value.keys() <= _SHIPPED:
        return next(iter(value.values()))
    return value
