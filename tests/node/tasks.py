"""Tasks of pipelines in pods, as Kubeflow runs them.

Service account, user, security context, volumes and variables are those that were recorded on a
real Kubeflow. `launcher` stands in for its launcher, and tests.kubeflow.imitation for all else.
"""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubernetes.client

from privatekube_kfp.local.compiling import compile_file
from tests.kubeflow.imitation import ROOT, Component, Executor, Kubeflow, Run, TaskFailed
from tests.kubeflow.recordings import recorded
from tests.node.cluster import Node
from tests.node.images import PYTHON, TORCH, Image
from tests.node.store import Store

NAMESPACE = "kubeflow"
PLACE = "minio://mlpipeline"
_SECONDS = 180
_END = ("Succeeded", "Failed")
_AS_RECORDED = recorded("visits")[0].pod
_WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}


@dataclass
class Pods:
    """Runs tasks of these images in pods, and others that need PyTorch as processes beside them.

    A task in a process sees the same ledger and the same store, as files.
    """

    node: Node
    store: Store
    images: tuple[Image, ...] = (PYTHON,)
    workflow: str = "run"

    def __post_init__(self) -> None:
        self._core = kubernetes.client.CoreV1Api(self.node.admin)
        self._objects = kubernetes.client.CustomObjectsApi(self.node.admin)

    def kubeflow(self) -> "KubeflowOnNode":
        return KubeflowOnNode(PLACE, self.start, store=self.store)

    def run_pipeline(self, name: str, **arguments: Any) -> tuple["KubeflowOnNode", Run]:
        """Run a pipeline of ours, as it is compiled."""
        compiled = compile_file(ROOT / "pipelines" / f"{name}.py").spec
        kubeflow = self.kubeflow()
        return kubeflow, kubeflow.run(compiled, **arguments)

    def begin_run(self) -> str:
        """A Workflow for the next tasks to belong to, as Argo makes one for each run."""
        self.workflow = f"run-{uuid.uuid4().hex[:8]}"
        body = {**_WORKFLOW, "metadata": {"name": self.workflow}, "spec": {}}
        body["status"] = {"phase": "Running"}
        self._objects.create_namespaced_custom_object(*self._workflows, body)
        return self.workflow

    def end_run(self, phase: str = "Succeeded") -> None:
        self._objects.patch_namespaced_custom_object(
            *self._workflows, self.workflow, {"status": {"phase": phase}}
        )

    @property
    def _workflows(self) -> tuple[str, str, str, str]:
        return "argoproj.io", "v1alpha1", NAMESPACE, "workflows"

    def start(self, task: str, component: Component, given: Executor) -> None:
        """Run a task to its end.

        Raises:
            TaskFailed: with its log.
        """
        for image in self.images:
            if image.tag == f"localhost/{component.image}":
                return self._in_pod(task, image.tag, component, given)
        assert component.image.startswith(TORCH.name), f"nothing runs {component.image}"
        return self._in_process(task, component, given)

    def run(self, task: str, image: str, component: Component, given: Executor) -> str:
        """The name of a pod that was started for a task."""
        owner = self._objects.get_namespaced_custom_object(*self._workflows, self.workflow)
        name = f"{self.workflow}-system-container-impl-{uuid.uuid4().int % 10**10}"
        pod = _pod(name, image, component.argv(given), owner, self.store)
        self._core.create_namespaced_pod(NAMESPACE, pod)
        return name

    def end_of(self, name: str) -> tuple[str, str]:
        """How a pod has ended, and its log."""
        deadline = time.monotonic() + _SECONDS
        while True:
            pod = self._core.read_namespaced_pod(name, NAMESPACE)
            if pod.status.phase in _END:
                return pod.status.phase, self._core.read_namespaced_pod_log(name, NAMESPACE)
            if time.monotonic() > deadline:
                why = self.node.kubectl("-n", NAMESPACE, "describe", "pod", name).stdout
                raise AssertionError(f"pod {name} has not ended: {why}")
            time.sleep(0.2)

    def _in_pod(self, task: str, image: str, component: Component, given: Executor) -> None:
        phase, log = self.end_of(self.run(task, image, component, given))
        if phase != "Succeeded":
            raise TaskFailed(task, log)

    def _in_process(self, task: str, component: Component, given: Executor) -> None:
        here = json.loads(self.store.as_files(json.dumps(given)))
        Path(here["outputs"]["outputFile"]).parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            component.argv(here),
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "KUBECONFIG": str(self.node.kubeconfig),
                "PRIVATEKUBE_LEDGER": f"kubernetes://{NAMESPACE}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        # The server is to look at its folder again.
        self.node.kill("rclone", signal.SIGHUP)
        if done.returncode:
            raise TaskFailed(task, done.stdout)


class KubeflowOnNode(Kubeflow):
    """Reads what tasks have put out in the store, where the launcher has left it."""

    def __init__(self, place: str, start: Any, *, store: Store) -> None:
        super().__init__(place, start)
        self._store = store

    def output_of(self, given: Executor) -> str:
        file = Path(self._store.as_files(given["outputs"]["outputFile"]))
        return self._store.as_uris(file.read_text())


def _pod(
    name: str, image: str, command: list[str], owner: dict[str, Any], store: Store
) -> dict[str, Any]:
    """As recorded: what Argo and Kubeflow make of a task, without their own containers."""
    folders = [path for path in _AS_RECORDED["mounts"] if not path.startswith("/var/run")]
    volumes = [{"name": f"folder-{number}", "emptyDir": {}} for number in range(len(folders))]
    launcher = folders.index("/kfp-launcher")
    volumes[launcher] = {"name": f"folder-{launcher}", "configMap": {"name": "launcher"}}
    of_pod = {"KFP_POD_NAME": "metadata.name", "KFP_POD_UID": "metadata.uid"}
    return {
        "metadata": {
            "name": name,
            "ownerReferences": [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                }
            ],
        },
        "spec": {
            "serviceAccountName": _AS_RECORDED["service_account"],
            "restartPolicy": "Never",
            "securityContext": _AS_RECORDED["security_context"]["pod"],
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "Never",
                    "command": ["python3", "/kfp-launcher/launcher.py", *command],
                    "securityContext": _AS_RECORDED["security_context"]["container"],
                    "env": [
                        *({"name": key, "value": value} for key, value in store.variables.items()),
                        *(
                            {"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                            for key, path in of_pod.items()
                        ),
                    ],
                    "volumeMounts": [
                        {"name": f"folder-{number}", "mountPath": path}
                        for number, path in enumerate(folders)
                    ],
                }
            ],
            "volumes": volumes,
        },
    }
