"""An S3 server beside the node: rclone, which serves a folder."""

import urllib.error
import urllib.request
from pathlib import Path

from tests.node.network import ADDRESS
from tests.s3 import rclone

PORT = 9000
KEY, SECRET = "tests", "of-the-tests"
BUCKETS = ("mlpipeline", "data", "private", "results")


class Store:
    """The server's folder, and how pods reach it: as minio-service in the namespace kubeflow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for bucket in BUCKETS:
            (folder / bucket).mkdir(parents=True)

    @property
    def command(self) -> list[str]:
        address = f"--addr={ADDRESS}:{PORT}"
        return [rclone(), "serve", "s3", address, f"--auth-key={KEY},{SECRET}", str(self.folder)]

    @property
    def variables(self) -> dict[str, str]:
        """What a client of S3 reads in a pod."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://minio-service.kubeflow:{PORT}",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        }

    def is_up(self) -> bool:
        try:
            urllib.request.urlopen(f"http://{ADDRESS}:{PORT}/", timeout=2)
        except urllib.error.HTTPError:
            return True  # It answers: that nobody has signed the request.
        except OSError:
            return False
        return True

    def as_files(self, text: str) -> str:
        """What names artifacts as pods do, with the paths of this machine."""
        own = f"{self.folder}/mlpipeline"
        return text.replace("minio://mlpipeline", own).replace("/minio/mlpipeline", own)

    def as_uris(self, text: str) -> str:
        return text.replace(f"{self.folder}/mlpipeline", "minio://mlpipeline")


def service(namespace: str) -> list[dict[str, object]]:
    """A Service of the name that Kubeflow's has, to a process that is in no pod."""
    name = "minio-service"
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"ports": [{"port": PORT}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4",
            "ports": [{"port": PORT}],
            "endpoints": [{"addresses": [ADDRESS]}],
        },
    ]
