"""`privatekube submit`, against a server that speaks as much of Kubeflow's API as it needs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from privatekube_kfp.steps.log_lines import error_lines
from tests.local.world import World

PIPELINE = """
@dsl.pipeline(name="counts")
def pipeline(epsilon: str = "0.5", rows: int = 3):
    with privacy_budget(**ASK, epsilon=epsilon) as budget:
        budget.consume(after=[tick(file="ticks").after(budget.allocated)])
"""


@dataclass
class Kubeflow:
    """The few calls that a client makes, what it said in them, and what goes wrong."""

    url: str = ""
    said: list[tuple[str, str, Any]] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    refuse: tuple[int, Any] | None = None
    states: list[str] = field(default_factory=lambda: ["SUCCEEDED"])
    nodes: list[dict[str, Any]] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    ui_logs: dict[str, str] = field(default_factory=dict)

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        if self.refuse is not None and not path.endswith("healthz"):
            return self.refuse
        match method, path.removeprefix("/apis/v2beta1/"):
            case "GET", "healthz":
                return 200, {"multi_user": False}
            case "GET", "experiments":
                return 200, {}
            case "POST", "experiments":
                return 200, {"experiment_id": "e1", "display_name": body["display_name"]}
            case "POST", "runs":
                return 200, {"run_id": "run-1", "display_name": body["display_name"]}
            case "GET", "runs/run-1":
                state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
                details = {"task_details": self.nodes}
                return 200, {"run_id": "run-1", "state": state, "run_details": details}
        prefix = "/apis/v1alpha1/runs/run-1/nodes/"
        if path.startswith(prefix) and path.endswith("/log"):
            pod = path.removeprefix(prefix).removesuffix("/log")
            # As it does: a status of success, then an error, where there is no such pod.
            return 200, self.logs.get(pod, '{"error_message":"Failed to read logs"}')
        if path == "/k8s/pod/logs" and self.ui_logs:
            # As Kubeflow's UI does; its API has no such path.
            pod = query["podname"][0]
            if query["podnamespace"] == ["kubeflow"] and pod in self.ui_logs:
                return 200, self.ui_logs[pod]
            return 500, "Could not get main container logs: no such pod"
        return 404, {"message": f"no {path}"}

    def runs(self) -> list[Any]:
        return [body for method, path, body in self.said if (method, path[-4:]) == ("POST", "runs")]


@pytest.fixture
def kubeflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubeflow]:
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT", raising=False)
    made = Kubeflow()
    with serving(made):
        yield made


@contextmanager
def serving(kubeflow: Kubeflow) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
            kubeflow.said.append((self.command, path, body))
            kubeflow.tokens.add(self.headers.get("authorization"))
            status, answer = kubeflow.answer(self.command, path, query, body)
            text = answer if isinstance(answer, str) else json.dumps(answer)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = _serve

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kubeflow.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_pipeline_is_uploaded_and_run(world: World, kubeflow: Kubeflow) -> None:
    result = world.cli.ok(
        "submit", world.write(PIPELINE), "--endpoint", kubeflow.url, "--arg", "epsilon=0.25",
        "--experiment", "mine", "--run-name", "a run", "--service-account", "runner",
        "--pipeline-root", "s3://bucket/root", "--json",
    )  # fmt: skip
    assert result.json == {
        "run": "run-1",
        "name": "a run",
        "state": "PENDING",
        "url": f"{kubeflow.url}/#/runs/details/run-1",
    }
    (run,) = kubeflow.runs()
    assert run["display_name"] == "a run"
    assert run["experiment_id"] == "e1"
    assert run["service_account"] == "runner"
    assert run["runtime_config"] == {
        "parameters": {"epsilon": "0.25", "rows": 3},
        "pipeline_root": "s3://bucket/root",
    }
    assert ("POST", "/apis/v2beta1/experiments") in [said[:2] for said in kubeflow.said]


def test_nothing_of_the_protocol_is_cached(world: World, kubeflow: Kubeflow) -> None:
    world.cli.ok("submit", world.write(PIPELINE), "--endpoint", kubeflow.url)
    (run,) = kubeflow.runs()
    spec = run["pipeline_spec"]
    spec = spec.get("pipeline_spec", spec)
    tasks = {
        name: task
        for component in [spec["root"], *spec["components"].values()]
        for name, task in component.get("dag", {}).get("tasks", {}).items()
    }
    assert {"allocate", "consume", "release"} <= tasks.keys()
    for name in ("allocate", "consume", "release"):
        assert not tasks[name].get("cachingOptions", {}).get("enableCache"), name
    # The run's id is filled in by the cluster.
    assert "{{$.pipeline_job_uuid}}" in json.dumps(spec)


def test_compiled_yaml_and_a_token(
    world: World, kubeflow: Kubeflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "sesame")
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", kubeflow.url)
    world.cli.ok("compile", world.write(PIPELINE), "-o", "p.yaml")
    result = world.cli.ok("submit", "p.yaml", "--token-env", "MY_TOKEN")
    assert kubeflow.tokens == {"Bearer sesame"}
    assert "sesame" not in result.out + result.err
    assert len(kubeflow.runs()) == 1


@pytest.mark.parametrize(("state", "code"), [("SUCCEEDED", 0), ("FAILED", 1), ("CANCELED", 1)])
def test_waiting_until_it_is_over(
    world: World, kubeflow: Kubeflow, monkeypatch: pytest.MonkeyPatch, state: str, code: int
) -> None:
    monkeypatch.setattr("privatekube_kfp.cli.submit._POLL", 0.01)
    kubeflow.states = ["PENDING", "RUNNING", state]
    result = world.cli(
        "submit", world.write(PIPELINE), "--endpoint", kubeflow.url, "--wait", "--json"
    )
    assert result.code == code
    assert result.json["state"] == state
    assert result.json["failed"] == []
    if code:
        assert result.err.splitlines()[-1] == f"privatekube: run run-1 ended {state}"


def node(name: str, state: str, *children: str, ended: int = 0) -> dict[str, Any]:
    """A node of a Workflow, as a real server tells of it: without an error, without its pod."""
    return {
        "run_id": "run-1",
        "display_name": name,
        "state": state,
        "end_time": f"2026-11-18T00:00:{ended:02}Z",
        "child_tasks": [{"pod_name": child} for child in children],
    }


FAILED = [
    node("counts-x7k2p", "FAILED", "counts-x7k2p-1", ended=9),
    node("root", "FAILED", ended=9),
    node("root-driver", "SUCCEEDED"),
    node("exit-handler-1", "FAILED", "counts-x7k2p-2", ended=8),
    node("allocate", "FAILED", "counts-x7k2p-1260740424", ended=7),
    node("allocate-driver", "SUCCEEDED"),
    node("executor", "FAILED", ended=7),
    node("release", "SUCCEEDED", "counts-x7k2p-3004980001", ended=9),
    node("executor", "SUCCEEDED", ended=9),
]
POD = "counts-x7k2p-system-container-impl-1260740424"
LOG = """\
time="2026-11-18T00:00:01Z" level=info msg="capturing logs"
I1118 00:00:02.1 launcher_v2.go:151] PipelineTaskSpec
[KFP Executor 2026-11-18 00:00:05,1 INFO]: Got executor_input:
{
    "inputs": {}
}
claim run-1.claim waits: WaitingForUnlock: not enough is unlocked
{error}
F1118 00:00:09.1 main.go:60] failed to execute component: exit status 1
time=2026-11-18T00:00:09.931Z level=INFO msg="sub-process exited" argo=true error="exit status 1"
Error: exit status 1
"""
WHY = "claim run-1.claim: block monday: epsilon 0.9 asked, 0.8 left, and no more will ever be"


def wait_for(world: World, kubeflow: Kubeflow, *more: str) -> Any:
    at = ("--endpoint", kubeflow.url, "--wait", *more)
    return world.cli("submit", world.write(PIPELINE), *at)


def test_a_failed_run_says_which_task_and_why(
    world: World, kubeflow: Kubeflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privatekube_kfp.cli.submit._POLL", 0.01)
    kubeflow.states, kubeflow.nodes, kubeflow.logs = ["RUNNING", "FAILED"], FAILED, {}
    ending = "\n".join(error_lines("ExceedsCapacity", WHY))
    kubeflow.logs[POD] = LOG.replace("{error}", ending)
    result = wait_for(world, kubeflow)
    assert result.code == 1
    lines = result.err.splitlines()
    for progress in ("allocate: failed", "release: succeeded"):
        assert lines.count(progress) == 1, "each is told once"
    assert lines[-1] == (
        f"privatekube: run run-1 ended FAILED: allocate failed: ExceedsCapacity: {WHY}"
    )
    assert "    claim run-1.claim waits: WaitingForUnlock: not enough is unlocked" in lines
    assert not any("launcher_v2" in line or "executor_input" in line for line in lines)
    failed = wait_for(world, kubeflow, "--json").json["failed"]
    assert failed == [
        {
            "task": "allocate",
            "pod": POD,
            "reason": f"ExceedsCapacity: {WHY}",
            "logs": f"kubectl logs -n kubeflow {POD} -c main",
        }
    ]


def test_the_pod_is_found_in_what_a_real_kubeflow_answers(world: World, kubeflow: Kubeflow) -> None:
    """Recorded of a run of `visits` whose budget was denied."""
    kubeflow.states = ["FAILED"]
    kubeflow.nodes = json.loads(Path(__file__).with_name("denied_run.json").read_text())[
        "task_details"
    ]
    pod = "visits-sdhlb-system-container-impl-3107933053"
    result = wait_for(world, kubeflow)
    assert f"    see it with kubectl logs -n kubeflow {pod} -c main" in result.err.splitlines()
    kubeflow.logs[pod] = LOG.replace("{error}", "Error: ExceedsCapacity: too much")
    result = wait_for(world, kubeflow)
    assert result.err.splitlines()[-1] == (
        "privatekube: run run-1 ended FAILED: allocate failed: ExceedsCapacity: too much"
    )


def test_a_log_that_cannot_be_had_is_told_of(
    world: World, kubeflow: Kubeflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privatekube_kfp.cli.submit._POLL", 0.01)
    kubeflow.states, kubeflow.nodes = ["FAILED"], FAILED
    result = wait_for(world, kubeflow, "--namespace", "team-a")
    lines = result.err.splitlines()
    assert f"    see it with kubectl logs -n team-a {POD} -c main" in lines
    assert lines[-1] == "privatekube: run run-1 ended FAILED: allocate failed"


def test_a_log_that_only_the_ui_has(world: World, kubeflow: Kubeflow) -> None:
    kubeflow.states, kubeflow.nodes = ["FAILED"], FAILED
    kubeflow.ui_logs[POD] = LOG.replace("{error}", "Error: ExceedsCapacity: too much")
    result = wait_for(world, kubeflow)
    assert result.err.splitlines()[-1] == (
        "privatekube: run run-1 ended FAILED: allocate failed: ExceedsCapacity: too much"
    )


def test_a_task_whose_pod_was_made_again(world: World, kubeflow: Kubeflow) -> None:
    again = "counts-x7k2p-retry-system-container-impl-2"
    kubeflow.states, kubeflow.logs = ["FAILED"], {again: "Error: it is full\n"}
    kubeflow.nodes = [
        node("tick", "FAILED", "counts-x7k2p-1", "counts-x7k2p-2", ended=2),
        node("consume-driver", "FAILED", ended=3),
    ]
    result = wait_for(world, kubeflow)
    assert result.err.splitlines()[-1] == (
        "privatekube: run run-1 ended FAILED: tick failed: it is full"
        " (also failed: consume (before it began))"
    )


SETTINGS = """
endpoint: {url}
namespace: team-a
serviceAccount: of-the-site
pipelineRoot: s3://site/root
images: {{registry: registry.example.com/team/pk}}
tasks:
  secrets: [{{name: store, env: {{key: AWS_SECRET_ACCESS_KEY}}}}]
"""


def test_site_settings_go_with_it(world: World, kubeflow: Kubeflow) -> None:
    (world.folder / "privatekube.yaml").write_text(SETTINGS.format(url=kubeflow.url))
    world.cli.ok("submit", world.write(PIPELINE))
    world.cli.ok("submit", "pipeline.py", "--service-account", "mine", "--pipeline-root", "s3://m")
    first, second = kubeflow.runs()
    assert first["service_account"] == "of-the-site"
    assert first["runtime_config"]["pipeline_root"] == "s3://site/root"
    assert second["service_account"] == "mine"
    assert second["runtime_config"]["pipeline_root"] == "s3://m"
    said = first["pipeline_spec"]
    executors = said["pipeline_spec"]["deploymentSpec"]["executors"]
    assert executors["exec-allocate"]["container"]["image"].startswith(
        "registry.example.com/team/pk/python:"
    )
    assert executors["exec-tick"]["container"]["image"] == "python:3.11"
    kubernetes = said["platform_spec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert kubernetes["exec-consume"]["secretAsEnv"][0]["secretName"] == "store"
    assert "exec-tick" not in kubernetes


def test_no_settings_and_wrong_ones(world: World, kubeflow: Kubeflow) -> None:
    (world.folder / "privatekube.yaml").write_text(SETTINGS.format(url=kubeflow.url))
    source = world.write(PIPELINE)
    world.cli.ok("submit", source, "--settings", "none", "--endpoint", kubeflow.url)
    (run,) = kubeflow.runs()
    assert "platform_spec" not in run["pipeline_spec"]
    (world.folder / "other.yaml").write_text("servicAccount: x\n")
    for bad in ("other.yaml", "missing.yaml"):
        result = world.cli("submit", source, "--settings", bad)
        assert result.code == 1
        assert bad in result.err
    assert len(kubeflow.runs()) == 1


@pytest.mark.parametrize(
    ("refuse", "what"),
    [
        ((401, {"message": "who are you"}), "401 Unauthorized: who are you"),
        ((401, ""), "401 Unauthorized: name a bearer token with --token-env"),
        ((400, {"error": "bad", "message": "no such parameter"}), "400 Bad Request: no such"),
        ((503, "<html>down</html>"), "503 Service Unavailable"),
    ],
)
def test_a_refusal_is_a_sentence(
    world: World, kubeflow: Kubeflow, refuse: tuple[int, Any], what: str
) -> None:
    kubeflow.refuse = refuse
    result = world.cli("submit", world.write(PIPELINE), "--endpoint", kubeflow.url, "--json")
    assert result.code == 1
    assert result.json["error"]["reason"] == "EndpointRefused"
    assert what in result.json["error"]["message"]
    assert len(result.err.splitlines()) == 1


def test_an_endpoint_that_is_not_there(world: World) -> None:
    kubeflow = Kubeflow()
    with serving(kubeflow):
        pass
    result = world.cli("submit", world.write(PIPELINE), "--endpoint", kubeflow.url)
    assert result.code == 1
    assert f"{kubeflow.url} cannot be reached" in result.err
    assert "Connection refused" in result.err
    assert len(result.err.splitlines()) == 1


def test_what_does_not_fit_is_refused_before_anything_is_sent(
    world: World, kubeflow: Kubeflow
) -> None:
    source = world.write(PIPELINE)
    at = ("--endpoint", kubeflow.url)
    assert world.cli("submit", source, *at, "--arg", "rows=x").code == 2
    assert world.cli("submit", source).code == 2
    for nowhere in ("", " ", "not a url"):
        result = world.cli("submit", source, "--endpoint", nowhere)
        assert result.code == 2
        assert f"{nowhere!r} is not an address" in result.err
    assert world.cli("submit", source, *at, "--token-env", "NO_SUCH_VARIABLE").code == 2
    bad = world.write(
        """
@dsl.pipeline(name="bad")
def pipeline():
    allocate(**ASK, epsilon="0.5")
""",
        "bad.py",
    )
    result = world.cli("submit", bad, *at, "--json")
    assert result.code == 1
    assert result.json["findings"]
    assert kubeflow.said == []
