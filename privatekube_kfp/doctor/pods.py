"""A pod that tries places as a task would: from inside the cluster, with all that a task has.

Started only when somebody asks for it, and deleted again. A doctor that is killed leaves it behind;
then it ends by itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from privatekube_kfp.doctor import probe
from privatekube_kfp.doctor.cluster import PODS, Cluster
from privatekube_kfp.doctor.findings import Unknown
from privatekube_kfp.doctor.images import waiting
from privatekube_kfp.doctor.probe import TERMINATION_LOG, Outcomes
from privatekube_kfp.ledger.kubernetes.api import Object
from privatekube_kfp.settings.schema import Images, TaskOptions, Toleration

SECONDS = 300.0
"""Within which the pod is to have ended; most of it is for its image."""
_EVERY = 1.0
_HOPELESS = (
    *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
    *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
)


def try_places(
    cluster: Cluster,
    pod: Object,
    seconds: float = SECONDS,
) -> Outcomes | Unknown:
    """Run the pod, and read from its status how each place fared."""
    made = cluster.create(PODS, pod)
    if isinstance(made, Unknown):
        return made
    try:
        return _ended(cluster, made, seconds)
    finally:
        cluster.delete(PODS, made)


def _ended(cluster: Cluster, made: Object, seconds: float) -> Outcomes | Unknown:
    name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
    last = "it has not started"
    for _ in range(int(seconds / _EVERY)):
        pod = cluster.get(PODS, name, namespace)
        if isinstance(pod, Unknown):
            return pod
        if pod is None:
            return Unknown(f"somebody deleted pod {name}")
        status = pod.get("status") or {}
        if status.get("phase") in ("Succeeded", "Failed"):
            return _outcomes(name, status)
        for each in waiting([pod]):
            last = each.said
            if each.reason in _HOPELESS:
                return Unknown(f"pod {name} cannot start: {each.said}")
        cluster.sleep(_EVERY)
    return Unknown(f"pod {name} did not end within {seconds:g} s: {last}")


def _outcomes(name: str, status: Object) -> Outcomes | Unknown:
    states = [each.get("state") or {} for each in status.get("containerStatuses") or []]
    end = next((state["terminated"] for state in states if state.get("terminated")), None)
    why = status.get("message") or status.get("reason") or "it left no message"
    if end is not None:
        found = probe.outcomes(str(end.get("message") or "").splitlines())
        if found:
            return found
        why = f"it ended with exit code {end.get('exitCode')}"
    return Unknown(f"pod {name} could not try it: {why}")


def pod_of(
    namespace: str,
    account: str,
    image: str,
    images: Images,
    options: TaskOptions,
    places: Mapping[str, str],
) -> Object:
    """The pod, with what settings give to tasks; `places` by what to do there."""
    volumes = [secret for secret in options.secrets if secret.mount_path]
    container = {
        "name": "doctor",
        "image": image,
        "imagePullPolicy": images.pull_policy or "IfNotPresent",
        "command": probe.command("python", places),
        "env": _variables(options),
        "resources": {"requests": dict(options.requests), "limits": dict(options.limits)},
        "terminationMessagePath": TERMINATION_LOG,
        "volumeMounts": [
            {"name": f"secret-{number}", "mountPath": secret.mount_path, "readOnly": True}
            for number, secret in enumerate(volumes)
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"privatekube-doctor-{uuid.uuid4().hex[:8]}",
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": "privatekube-doctor", **options.labels},
            # As Kubeflow does for tasks: a sidecar would keep the pod from ending.
            "annotations": {"sidecar.istio.io/inject": "false", **options.annotations},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(SECONDS),
            "serviceAccountName": account,
            "imagePullSecrets": [{"name": name} for name in images.pull_secrets],
            "nodeSelector": dict(options.node_selector),
            "tolerations": [_toleration(each) for each in options.tolerations],
            "containers": [container],
            "volumes": [
                {
                    "name": f"secret-{number}",
                    "secret": {"secretName": secret.name, "optional": secret.optional},
                }
                for number, secret in enumerate(volumes)
            ],
        },
    }


def _variables(options: TaskOptions) -> list[Object]:
    plain: list[Object] = [{"name": name, "value": value} for name, value in options.env.items()]
    return plain + [
        {
            "name": variable,
            "valueFrom": {
                "secretKeyRef": {"name": secret.name, "key": key, "optional": secret.optional}
            },
        }
        for secret in options.secrets
        for key, variable in secret.env.items()
    ]


def _toleration(one: Toleration) -> Object:
    said = {
        "key": one.key,
        "operator": one.operator,
        "value": one.value,
        "effect": one.effect,
        "tolerationSeconds": one.seconds,
    }
    return {key: value for key, value in said.items() if value not in ("", None)}
