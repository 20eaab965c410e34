"""Sends metadata through the real store of ML Metadata, in an environment of its own.

Kubeflow's launcher and driver talk to this store. Its package needs Python 3.11 and another
protobuf than kfp, so it is installed into a folder of the cache, and a process of its own uses it:
this file, run as a program, reads a JSON object and prints it as the store gives it back.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

VERSION = "1.17.1"


def given_back_by_store(metadata: dict[str, Any]) -> dict[str, Any]:
    """What ML Metadata keeps of an artifact's metadata."""
    done = subprocess.run(
        [_python(), "-S", __file__],
        input=json.dumps(metadata),
        env={**os.environ, "PYTHONPATH": str(_installed())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    back: dict[str, Any] = json.loads(done.stdout)
    return back


def _python() -> str:
    if sys.version_info[:2] == (3, 11):
        return sys.executable
    found = shutil.which("python3.11")
    assert found, "ML Metadata needs Python 3.11: install it beside this one"
    return found


def _installed() -> Path:
    """The folder with the package, which appears whole."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".cache"
    folder = base / "privatekube" / f"ml-metadata-{VERSION}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(dir=folder.parent))
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--python-version", "3.11"),
                *("--only-binary", ":all:", "--disable-pip-version-check", "--no-warn-conflicts"),
                *("--target", str(making / "in"), f"ml-metadata=={VERSION}"),
            ],
            check=True,
        )
        try:
            (making / "in").rename(folder)
        except OSError:
            assert folder.is_dir()  # another process was faster
        shutil.rmtree(making)
    return folder


def _main() -> None:
    from ml_metadata import metadata_store
    from ml_metadata.proto import metadata_store_pb2 as pb

    config = pb.ConnectionConfig()
    config.fake_database.SetInParent()
    store = metadata_store.MetadataStore(config)
    kind = store.put_artifact_type(pb.ArtifactType(name="system.PrivacyClaim"))
    artifact = pb.Artifact(type_id=kind, uri="minio://mlpipeline/claim")
    for key, value in json.load(sys.stdin).items():
        _put(artifact.custom_properties[key], value)
    (number,) = store.put_artifacts([artifact])
    (kept,) = store.get_artifacts_by_id([number])
    back = {key: _get(value) for key, value in kept.custom_properties.items()}
    json.dump(back, sys.stdout)


def _put(into: Any, value: Any) -> None:
    """A property as the launcher makes it of JSON: a double, an integer, a text, a structure."""
    if isinstance(value, bool):
        into.int_value = int(value)
    elif isinstance(value, str):
        into.string_value = value
    elif isinstance(value, int | float):
        into.double_value = value
    elif isinstance(value, list):
        into.struct_value.update({"list": value})
    elif isinstance(value, dict):
        into.struct_value.update({"struct": value})
    else:
        raise TypeError(f"the launcher makes no property of {value!r}")


def _get(kept: Any) -> Any:
    from google.protobuf import json_format

    which = kept.WhichOneof("value")
    if which == "struct_value":
        return json_format.MessageToDict(kept.struct_value)
    return getattr(kept, which)


if __name__ == "__main__":
    _main()
