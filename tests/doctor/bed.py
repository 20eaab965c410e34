"""A cluster with a good set-up, to break one thing of and to mend again.

The API server and its controllers are real, and so is the scheduler that leads. There is no node:
what a kubelet would report of pods, the tests report.
"""

import base64
import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from kubernetes.client import AppsV1Api, CoordinationV1Api, CoreV1Api, V1Container, V1Pod
from kubernetes.client.exceptions import ApiException

from privatekube_kfp import __version__
from privatekube_kfp.cli import main
from privatekube_kfp.cli.install import NAMESPACE as SYSTEM
from tests.doctor.object_store import KEY, SECRET, ObjectStore
from tests.kubernetes.control_plane.cluster import Cluster
from tests.kubernetes.test_rbac import WORKFLOWS
from tests.scheduler.running import start_process, until

ROOT = Path(__file__).resolve().parents[2]
NAME = "privatekube-scheduler"
KUBEFLOW = "kubeflow"
ACCOUNT = "pipeline-runner"
IMAGES = [f"privatekube/{name}:{__version__}" for name in ("python", "python-torch", "keras")]


def good_settings(store: ObjectStore) -> dict:
    return {
        "namespace": KUBEFLOW,
        "serviceAccount": ACCOUNT,
        "results": "s3://team/results/{pipeline}/{run}",
        "pipelineRoot": "s3://team/root",
        "tasks": {
            "env": {"AWS_ENDPOINT_URL": store.url, "AWS_DEFAULT_REGION": "nowhere-1"},
            "secrets": [
                {
                    "name": "store",
                    "env": {"id": "AWS_ACCESS_KEY_ID", "secret": "AWS_SECRET_ACCESS_KEY"},
                }
            ],
        },
    }


@dataclass(frozen=True)
class Report:
    """What a run of the doctor said."""

    code: int
    findings: list[dict[str, str | None]]
    complete: bool

    @property
    def amiss(self) -> list[tuple[str, str, str]]:
        """All that is not well."""
        return [
            (each["check"], each["level"], each["reason"])
            for each in self.findings
            if each["level"] != "ok"
        ]

    @property
    def only(self) -> dict[str, str | None]:
        """The one thing that is not well."""
        [found] = [each for each in self.findings if each["level"] != "ok"]
        return found


class Bed:
    """The cluster, its scheduler, and the doctor."""

    def __init__(self, cluster: Cluster, folder: Path, store: ObjectStore) -> None:
        self.cluster = cluster
        self.store = store
        self.folder = folder
        self.core = CoreV1Api(cluster.admin)
        self.apps = AppsV1Api(cluster.admin)
        self._scheduler: subprocess.Popen[bytes] | None = None
        self.settings = "--settings", str(self.write_settings("site.yaml", good_settings(store)))
        tools = folder / "bin"
        tools.mkdir()
        (tools / "kubectl").symlink_to(cluster.kubectl_path)
        program = tools / "privatekube"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m privatekube_kfp.cli "$@"\n')
        program.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
        }

    # Setting up

    def set_up(self) -> None:
        """All as the documentation says, and a stream with a block."""
        self.shell("privatekube install --apply")
        self.cluster.apply(WORKFLOWS)
        self.core.create_namespace({"metadata": {"name": KUBEFLOW}})
        self.core.create_namespaced_service_account(KUBEFLOW, {"metadata": {"name": ACCOUNT}})
        self.cluster.apply(ROOT / "scheduler/deploy/examples/pipeline-namespace.yaml")
        self.core.create_namespaced_secret(
            KUBEFLOW,
            {"metadata": {"name": "store"}, "stringData": {"id": KEY, "secret": SECRET}},
        )
        (self.store.folder / "team").mkdir()
        self.report_node()
        self.start_scheduler()
        self.report_pods_ready()
        self.shell(
            "privatekube --ledger kubernetes stream create clicks --epsilon 1 --delta 1e-7"
            " --unlock-pipelines 1"
        )
        self.shell("privatekube --ledger kubernetes block create monday --stream clicks")

    def tear_down(self) -> None:
        self.stop_scheduler()

    # The doctor, and what it says to run

    def doctor(self, *args: str, kubeconfig: Path | None = None) -> Report:
        """What it says of the pipelines of Kubeflow's own namespace.

        Without settings unless told otherwise: trying places takes longer than all else.
        """
        which: tuple[str, ...] = ()
        if "--settings" not in args:
            which = ("--settings", "none")
            for option, value in (("--namespace", KUBEFLOW), ("--service-account", ACCOUNT)):
                which += () if option in args else (option, value)
        code, out, err = self._privatekube(["doctor", "--json", *which, *args], kubeconfig)
        assert err == ""
        document = json.loads(out)
        assert document["ok"] is (code == 0)
        assert code in (0, 1)
        unchecked = [each for each in document["findings"] if each["level"] == "unchecked"]
        assert document["complete"] is (not unchecked)
        return Report(code, document["findings"], document["complete"])

    def text(self, *args: str, code: int = 0) -> str:
        """What `privatekube` prints for people."""
        ended, out, err = self._privatekube(list(args), None)
        assert (ended, err) == (code, "")
        return out

    def _privatekube(self, args: list[str], kubeconfig: Path | None) -> tuple[int, str, str]:
        """Runs it in this process, which is quicker than another."""
        out, err = io.StringIO(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            patch.setenv("KUBECONFIG", str(kubeconfig or self.cluster.kubeconfig))
            patch.setenv("HOME", str(self.folder))
            patch.chdir(self.folder)
            code = main(args)
        return code, out.getvalue(), err.getvalue()

    def shell(self, command: str, kubeconfig: Path | None = None) -> str:
        """Run a command as whoever reads it would."""
        program, *args = shlex.split(command)
        if program == "privatekube":
            code, out, err = self._privatekube(args, kubeconfig)
            assert code == 0, (command, out, err)
            return out
        done = subprocess.run(
            ["bash", "-e", "-c", command],
            env=self._environment(kubeconfig),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def _environment(self, kubeconfig: Path | None) -> dict[str, str]:
        return {**self.environment, "KUBECONFIG": str(kubeconfig or self.cluster.kubeconfig)}

    # What others than the doctor do

    def start_scheduler(self, module: str = "scheduler", namespace: str = SYSTEM) -> None:
        """A scheduler that leads, in place of those in pods that no node runs."""
        self._scheduler = start_process(
            self.cluster.kubeconfig, namespace, "--log-level=error", module=module
        )
        until(lambda: self._is_led(namespace), 60)

    def stop_scheduler(self) -> None:
        if self._scheduler is not None:
            self._scheduler.terminate()
            assert self._scheduler.wait(timeout=180) == 0
            self._scheduler = None

    def _is_led(self, namespace: str) -> bool:
        try:
            lease = CoordinationV1Api(self.cluster.admin).read_namespaced_lease(NAME, namespace)
        except ApiException:
            return False
        return bool(lease.spec.holder_identity)

    def report_pods_ready(self, namespace: str = SYSTEM) -> None:
        """What kubelets would report once the scheduler's pods run, until its Deployment is so."""

        def are_ready() -> bool:
            self._report(namespace, {"running": {}}, ready=True)
            found = self.apps.read_namespaced_deployment(NAME, namespace)
            status = found.status
            return (
                status.observed_generation == found.metadata.generation
                and found.spec.replicas
                == (status.replicas or 0)
                == (status.updated_replicas or 0)
                == (status.ready_replicas or 0)
            )

        until(are_ready, 60)

    def report_pods_waiting(self, reason: str, message: str) -> None:
        """What kubelets would report while containers cannot start."""
        waiting = {"waiting": {"reason": reason, "message": message}}

        def are_waiting() -> bool:
            self._report(SYSTEM, waiting, ready=False)
            status = self.apps.read_namespaced_deployment(NAME, SYSTEM).status
            return not status.ready_replicas and bool(status.updated_replicas)

        until(are_waiting, 60)

    def _report(self, namespace: str, state: dict, *, ready: bool) -> None:
        for pod in self._pods(namespace):
            self.report_pod(pod, state, ready=ready)

    def _pods(self, namespace: str) -> list[V1Pod]:
        selector = f"app.kubernetes.io/name={NAME}"
        return list(self.core.list_namespaced_pod(namespace, label_selector=selector).items)

    def pods_of_image(self, image: str) -> list[V1Pod]:
        return [pod for pod in self._pods(SYSTEM) if pod.spec.containers[0].image == image]

    def report_pod(self, pod: V1Pod, state: dict, *, ready: bool) -> None:
        container = pod.spec.containers[0]
        status = {
            "phase": "Running" if ready else "Failed" if "terminated" in state else "Pending",
            "conditions": [
                {"type": "Ready", "status": str(ready), "lastTransitionTime": None},
                {"type": "ContainersReady", "status": str(ready), "lastTransitionTime": None},
            ],
            "containerStatuses": [
                {
                    "name": container.name,
                    "image": container.image,
                    "imageID": "",
                    "ready": ready,
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        where = pod.metadata.name, pod.metadata.namespace
        try:
            self.core.patch_namespaced_pod_status(*where, {"status": status})
        except ApiException as error:
            if error.status not in (404, 409):
                raise

    @contextlib.contextmanager
    def kubelet(self, reported: dict | None = None) -> Iterator[list[V1Pod]]:
        """Runs the doctor's pods as processes of this machine, and reports how they ended.

        With `reported`, it runs nothing and reports that.
        """
        over, ran = threading.Event(), []

        def work() -> None:
            while not over.wait(0.1):
                selector = "app.kubernetes.io/name=privatekube-doctor"
                for pod in self.core.list_namespaced_pod(KUBEFLOW, label_selector=selector).items:
                    if pod.metadata.uid not in {each.metadata.uid for each in ran}:
                        ran.append(pod)
                        state = reported or {"terminated": self._run(pod.spec.containers[0])}
                        self.report_pod(pod, state, ready=False)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield ran
        finally:
            over.set()
            thread.join()

    def _run(self, container: V1Container) -> dict:
        """What a container's command says, with the variables of the container and no others."""
        environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin", "PYTHONPATH": str(ROOT)}
        for each in container.env:
            environment[each.name] = each.value or ""
            if each.value_from is not None:
                named = each.value_from.secret_key_ref
                data = self.core.read_namespaced_secret(named.name, KUBEFLOW).data
                environment[each.name] = base64.b64decode(data[named.key]).decode()
        done = subprocess.run(
            container.command, env=environment, capture_output=True, text=True, timeout=120
        )
        return {"exitCode": done.returncode, "message": done.stdout[-4096:]}

    def report_node(self) -> None:
        """A node that has the images of components."""
        self.core.create_node({"metadata": {"name": "node"}})
        images = [{"names": [f"docker.io/{image}"], "sizeBytes": 1} for image in IMAGES]
        self.core.patch_node_status("node", {"status": {"images": images}})

    # Breaking things

    def write_settings(self, name: str, document: dict) -> Path:
        path = self.folder / name
        path.write_text(yaml.safe_dump(document))
        return path

    def changed_settings(self, **changes: object) -> tuple[str, str]:
        """The option that names settings with something changed; None leaves it out."""
        changed = good_settings(self.store) | changes
        document = {key: value for key, value in changed.items() if value is not None}
        return "--settings", str(self.write_settings("changed.yaml", document))

    def kubectl(self, command: str) -> str:
        return self.shell(f"kubectl {command}")
