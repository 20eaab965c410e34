"""What Kubeflow's API says of the tasks of a run, and why one has failed.

Its answer lists every node of the run's Workflow: tasks, their drivers and pods, groups of tasks.
Errors are empty in it, so the reason is read where it was written: in the log of the task's pod.
Kubeflow's API hands it out, its UI does, and so does the cluster to whoever may read pods there.
Where none of them does, the user is told the command that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from privatekube_kfp.ledger.kubernetes.connecting import configuration
from privatekube_kfp.local.logs import OwnLines
from privatekube_kfp.local.pipeline import CompiledPipeline
from privatekube_kfp.steps.log_lines import error_in

LINES = 10
_SECONDS = 15
_DRIVER = "-driver"
_SHOWN = ("RUNNING", "SUCCEEDED", "SKIPPED", "FAILED", "CANCELED", "CACHED")
_TEMPLATES = ("system-container-impl", "retry-system-container-impl")
_NODE = re.compile(r"(?P<workflow>.+)-(?P<number>\d+)")
_ATTEMPT = re.compile(r"\(\d+\)$")
_MARK = "Error: "
_LAUNCHERS = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d|time=\S+ level=|Error: exit status \d+$")
"""How lines begin that Kubeflow's launcher and Argo write into a task's log."""
_DEFAULT_NAMESPACE = "kubeflow"


@dataclass(frozen=True)
class FailedTask:
    """A task that failed: its name, and if they are known its pod and the lines of its log."""

    name: str
    pod: str = ""
    log: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """The sentence in which a step of ours ends; of others', the last that they print."""
        ends = [n for n, line in enumerate(self.log, start=1) if line.startswith(_MARK)]
        if ends:
            return error_in(self.log[: ends[-1]]) or ""
        return self.log[-1].strip() if self.log else ""

    def command(self, namespace: str | None) -> str:
        """How to see the log."""
        where = f"kubectl logs -n {namespace or _DEFAULT_NAMESPACE}"
        if not self.pod:
            return f"{where} -l workflows.argoproj.io/completed=true -c main --prefix"
        return f"{where} {self.pod} -c main"

    def to_json(self, namespace: str | None) -> dict[str, object]:
        return {
            "task": self.name,
            "pod": self.pod or None,
            "reason": self.why or None,
            "logs": self.command(namespace),
        }


def states(compiled: CompiledPipeline, run: Any) -> dict[str, str]:
    """The state of each task that has begun, by its name; groups and drivers left out."""
    names = set(_tasks(compiled.spec))
    return {
        str(detail.display_name): str(detail.state)
        for detail in _details(run)
        if detail.display_name in names and detail.state in _SHOWN
    }


def failed_tasks(
    client: Any, compiled: CompiledPipeline, run: Any, namespace: str | None
) -> list[FailedTask]:
    """The tasks that failed, in the order in which they ended, with the ends of their logs."""
    logs = _PodLogs(client, str(run.run_id), namespace or _DEFAULT_NAMESPACE)
    names = set(_tasks(compiled.spec))
    failed = [detail for detail in _details(run) if detail.state in ("FAILED", "ERROR")]
    failed.sort(key=lambda detail: str(detail.end_time or ""))
    found = []
    for detail in failed:
        name = str(detail.display_name)
        if name in names:
            found.append(_with_log(logs, run, name, detail))
        elif name.endswith(_DRIVER) and name.removesuffix(_DRIVER) in names:
            found.append(FailedTask(f"{name.removesuffix(_DRIVER)} (before it began)"))
    return found


def _with_log(logs: _PodLogs, run: Any, name: str, detail: Any) -> FailedTask:
    """A task, with the log of the last of its pods that has one."""
    nodes = _nodes_of_task(_details(run), name)
    # Where Kubeflow's Argo retries nothing by itself, the children of a task are its pods.
    nodes += [str(child.pod_name or "") for child in reversed(detail.child_tasks or ())]
    pod = ""
    for id in nodes:
        node = _NODE.fullmatch(id)
        if node is None:
            continue
        pods = [f"{node['workflow']}-{template}-{node['number']}" for template in _TEMPLATES]
        pod = pod or pods[0]
        for candidate in (*pods, id):
            if lines := logs.read(candidate):
                return FailedTask(name, candidate, lines)
    return FailedTask(name, pod)


def _nodes_of_task(details: list[Any], task: str) -> list[str]:
    """The nodes of a task's pods, the last attempt first.

    The answer names the children of each node, but no node itself. Argo makes a node's id of its
    path in the Workflow, so paths are tried from the root on, and those whose id is known are kept.
    """
    known = {str(child.pod_name) for detail in details for child in detail.child_tasks or ()}
    workflows = {node["workflow"] for id in known if (node := _NODE.fullmatch(id))}
    if len(workflows) != 1:
        return []
    (workflow,) = workflows
    names = {str(detail.display_name) for detail in details}
    attempts = {match[0] for name in names if (match := _ATTEMPT.search(name))}
    steps = {f".{name}" for name in names if not _ATTEMPT.search(name)}
    paths, new = {workflow: workflow}, [workflow]
    while new:
        longer = [f"{path}{part}" for path in new for part in attempts | steps]
        ids = {path: f"{workflow}-{_fnv1a(path)}" for path in longer if path not in paths}
        found = {path: id for path, id in ids.items() if id in known}
        paths |= found
        new = list(found)
    attempt = _ATTEMPT.pattern.removesuffix("$")
    of_task = re.compile(rf".*\.{re.escape(task)}({attempt})?\.executor({attempt})?")
    last_first = sorted((path for path in paths if of_task.fullmatch(path)), reverse=True)
    return [paths[path] for path in last_first]


def _fnv1a(text: str) -> int:
    """The hash by which Argo names nodes: FNV-1a of 32 bits."""
    total = 0x811C9DC5
    for byte in text.encode():
        total = (total ^ byte) * 0x01000193 & 0xFFFFFFFF
    return total


class _PodLogs:
    """Reads the logs of pods, wherever one can be had."""

    def __init__(self, client: Any, run: str, namespace: str) -> None:
        self._client = client
        self._run = run
        self._namespace = namespace
        self._ways = [self._from_api, self._from_ui, self._from_cluster]

    def read(self, pod: str) -> tuple[str, ...]:
        """What the task has written, without what was written of it; empty if it cannot be had."""
        for way in list(self._ways):
            try:
                text = way(pod)
            except Exception as error:
                # Whoever answers may have another pod's log; who cannot be reached has none.
                if getattr(error, "status", None) is None:
                    self._ways.remove(way)
                continue
            own = OwnLines().among(text.splitlines())
            lines = [line.rstrip() for line in own if line.strip() and not _LAUNCHERS.match(line)]
            if lines:
                return tuple(lines)
        return ()

    def _from_api(self, pod: str) -> str:
        path = f"/apis/v1alpha1/runs/{quote(self._run)}/nodes/{quote(pod)}/log"
        text = self._get(path)
        # An answer that begins well may still end in an error, as JSON.
        return "" if '"error_message"' in text else text

    def _from_ui(self, pod: str) -> str:
        """The address that users have is often that of the UI, which passes on what it is not."""
        asked = {"podname": pod, "runid": self._run, "podnamespace": self._namespace}
        return self._get("/k8s/pod/logs", list(asked.items()))

    def _from_cluster(self, pod: str) -> str:
        from kubernetes.client import ApiClient, CoreV1Api

        with ApiClient(configuration()) as client:
            return str(
                CoreV1Api(client).read_namespaced_pod_log(
                    pod, self._namespace, container="main", _request_timeout=_SECONDS
                )
            )

    def _get(self, path: str, query: Sequence[tuple[str, str]] = ()) -> str:
        answer = self._client._run_api.api_client.call_api(
            path,
            "GET",
            query_params=list(query),
            auth_settings=["Bearer"],
            _preload_content=False,
            _request_timeout=_SECONDS,
        )
        return str(answer.data.decode("utf-8", "replace"))


def _details(run: Any) -> list[Any]:
    return list(getattr(run.run_details, "task_details", None) or ())


def _tasks(spec: Mapping[str, Any]) -> Iterator[str]:
    """The names of tasks that run a container."""
    components = spec.get("components") or {}
    for component in (spec["root"], *components.values()):
        for name, task in ((component.get("dag") or {}).get("tasks") or {}).items():
            reference = (task.get("componentRef") or {}).get("name")
            if "executorLabel" in (components.get(reference) or {}):
                yield str(name)
