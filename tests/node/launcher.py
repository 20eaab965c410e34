"""Stands in for Kubeflow's launcher in the pod of a task: artifacts come from S3 and go back there.

`python launcher.py COMMAND...` reads the executor input in the command. It fetches the input
artifacts to where the task expects them, makes the folders of the outputs, runs the command, and
puts what it has made into the store, with the file that says which parameters and metadata there
are. The real one also talks to the metadata store, which tests/kubeflow imitates outside of the
pod.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import botocore.session

SCHEME = "minio://"


def main() -> None:
    command = sys.argv[1:]
    given = json.loads(command[command.index("--executor_input") + 1])
    store = botocore.session.get_session().create_client("s3", region_name="minio")
    for artifact in artifacts(given["inputs"]):
        fetch(store, artifact["uri"])
    made = [path_of(artifact["uri"]) for artifact in artifacts(given["outputs"])]
    made.append(Path(given["outputs"]["outputFile"]))
    for path in made:
        path.parent.mkdir(parents=True, exist_ok=True)
    code = subprocess.run(command, check=False).returncode
    for path in made:
        for file in [path, *path.rglob("*")]:
            if file.is_file():
                bucket, key = file.relative_to("/minio").as_posix().split("/", 1)
                store.put_object(Bucket=bucket, Key=key, Body=file.read_bytes())
    sys.exit(code)


def artifacts(side):
    for listed in side.get("artifacts", {}).values():
        yield from listed["artifacts"]


def path_of(uri):
    return Path("/minio", uri.removeprefix(SCHEME))


def fetch(store, uri):
    """A file, or all files under a folder."""
    bucket, key = uri.removeprefix(SCHEME).split("/", 1)
    listed = store.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key)
    for page in listed:
        for found in page.get("Contents", ()):
            if found["Key"] != key and not found["Key"].startswith(f"{key}/"):
                continue
            path = Path("/minio", bucket, found["Key"])
            path.parent.mkdir(parents=True, exist_ok=True)
            body = store.get_object(Bucket=bucket, Key=found["Key"])["Body"]
            path.write_bytes(body.read())


if __name__ == "__main__":
    os.umask(0o002)
    main()
