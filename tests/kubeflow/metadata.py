"""What Kubeflow makes of an artifact's metadata between the task that writes them and the next.

Its launcher keeps them in ML Metadata, whose properties are texts, numbers and structures, and its
driver reads them from there. `test_metadata` compares this with what a real Kubeflow gave back, and
with the real store.
"""

import json
from collections.abc import Mapping
from typing import Any

STORE_SESSION_INFO = json.dumps(
    {
        "Provider": "minio",
        "Params": {
            "accessKeyKey": "accesskey",
            "disableSSL": "true",
            "endpoint": "seaweedfs.kubeflow:9000",
            "fromEnv": "false",
            "maxRetries": "5",
            "region": "minio",
            "secretKeyKey": "secretkey",
            "secretName": "mlpipeline-minio-artifact",
        },
    },
    separators=(",", ":"),
)
"""Where the object store's credentials are; no credential itself."""


class TaskFails(Exception):
    """The launcher cannot record what a task has made: the task fails, after all it has done."""


def given_back(metadata: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An artifact's metadata as the next task gets them; `name` is that of the output."""
    added = {"display_name": name, "store_session_info": STORE_SESSION_INFO}
    back = {key: _property(key, value) for key, value in metadata.items()} | added
    return dict(sorted(back.items()))


def _property(key: str, value: Any) -> Any:
    if value is None:
        raise TaskFails(f"metadata {key!r} is null, which ML Metadata does not keep")
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list):
        return {"list": as_json(value)}
    if isinstance(value, dict):
        return {"struct": as_json(value)}
    return as_json(value)


def as_json(value: Any) -> Any:
    """A value after its way through protobuf's JSON: numbers are doubles, but 7.0 is written 7."""
    if isinstance(value, dict):
        return {key: as_json(part) for key, part in sorted(value.items())}
    if isinstance(value, list):
        return [as_json(part) for part in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    double = float(value)
    return int(double) if double.is_integer() else double
