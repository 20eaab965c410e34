"""Settings in a compiled pipeline: what kfp and kfp-kubernetes would have written themselves."""

# No `from __future__ import annotations`: kfp reads the annotations as objects.
import copy
from typing import Any

import pytest
from kfp import dsl, kubernetes
from kfp.dsl import Model, Output

from privatekube_kfp.components import privacy_budget
from privatekube_kfp.components.protocol import IMAGE, KERAS_IMAGE
from privatekube_kfp.settings import RESULTS_VARIABLE, apply_settings, settings_from_text
from tests.settings.conftest import Compile


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def average(x: str) -> str:
    return x


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def in_our_image(x: str) -> str:
    return x


def applied(documents: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    before = copy.deepcopy(documents)
    made, _ = apply_settings(documents, settings_from_text(text, "site.yaml"))
    assert documents == before, "what is given stays as it is"
    return made


def pipeline_of(set_up: Any = None) -> Any:
    @dsl.pipeline(name="plain")
    def pipeline() -> None:
        task = average(x="1")
        with dsl.ParallelFor(["a", "b"]):
            inner = average(x="2")
        if set_up is not None:
            set_up(task)
            set_up(inner)

    return pipeline


ALL = """
allTasks:
  env: {A: "1", B: two}
  secrets:
    - {name: store, env: {key: AWS_SECRET_ACCESS_KEY, id: AWS_ACCESS_KEY_ID}}
    - {name: certificates, mountPath: /certificates, optional: true}
  resources:
    requests: {cpu: 500m, memory: 512Mi}
    limits: {cpu: "1.5", memory: 2G, nvidia.com/gpu: 2}
  retries: {count: 3, after: 30s, factor: 1.5, atMost: 600s}
  tolerations:
    - {key: gpu, operator: Equal, value: "yes", effect: NoSchedule}
    - {key: slow, operator: Exists, effect: NoExecute, tolerationSeconds: 60}
  nodeSelector: {disk: ssd, zone: a}
  labels: {team: a}
  annotations: {note: any text}
"""


def by_hand(task: dsl.PipelineTask) -> None:
    """What `ALL` says, in kfp's own words."""
    task.set_env_variable("A", "1").set_env_variable("B", "two")
    names = {"key": "AWS_SECRET_ACCESS_KEY", "id": "AWS_ACCESS_KEY_ID"}
    kubernetes.use_secret_as_env(task, "store", names)
    kubernetes.use_secret_as_volume(task, "certificates", "/certificates", optional=True)
    task.set_cpu_request("500m").set_memory_request("512Mi")
    task.set_cpu_limit("1.5").set_memory_limit("2G")
    task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(2)
    task.set_retry(3, backoff_duration="30s", backoff_factor=1.5, backoff_max_duration="600s")
    kubernetes.add_toleration(task, "gpu", "Equal", "yes", "NoSchedule")
    kubernetes.add_toleration(task, "slow", "Exists", effect="NoExecute", toleration_seconds=60)
    kubernetes.add_node_selector(task, "disk", "ssd")
    kubernetes.add_node_selector(task, "zone", "a")
    kubernetes.add_pod_label(task, "team", "a")
    kubernetes.add_pod_annotation(task, "note", "any text")


def test_it_is_what_kfp_and_kfp_kubernetes_write(compiled: Compile) -> None:
    assert applied(compiled(pipeline_of()), ALL) == compiled(pipeline_of(by_hand))


def test_applying_twice_is_applying_once(compiled: Compile) -> None:
    once = applied(compiled(pipeline_of()), ALL)
    assert applied(once, ALL) == once


def test_images_are_pulled_as_kfp_kubernetes_says_it(compiled: Compile) -> None:
    def pipeline_with(set_up: Any) -> Any:
        @dsl.pipeline(name="pulled")
        def pipeline() -> None:
            set_up(in_our_image(x="1"))
            average(x="1")

        return pipeline

    def pulled(task: dsl.PipelineTask) -> None:
        kubernetes.set_image_pull_policy(task, "Always")
        kubernetes.set_image_pull_secrets(task, ["registry"])

    text = "images: {pullPolicy: Always, pullSecrets: [registry]}"
    made = applied(compiled(pipeline_with(lambda task: task)), text)
    assert made == compiled(pipeline_with(pulled))


def test_what_the_pipeline_says_itself_stays(compiled: Compile) -> None:
    def own(task: dsl.PipelineTask) -> None:
        task.set_env_variable("A", "mine").set_memory_limit("64M").set_retry(7)
        kubernetes.use_secret_as_env(task, "mine", {"k": "AWS_ACCESS_KEY_ID"})
        kubernetes.use_secret_as_volume(task, "mine", "/certificates")
        kubernetes.add_pod_label(task, "team", "mine")
        kubernetes.add_node_selector(task, "zone", "mine")
        kubernetes.set_image_pull_policy(task, "Never")

    spec, platform = applied(compiled(pipeline_of(own)), ALL + "images: {pullPolicy: Always}\n")
    container = spec["deploymentSpec"]["executors"]["exec-average"]["container"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert variables == {"A": "mine", "B": "two"}
    resources = container["resources"]
    assert resources["resourceMemoryLimit"] == "64M"
    assert "resourceMemoryRequest" not in resources, "512Mi would be more than its limit"
    assert resources["resourceCpuRequest"] == "500m"
    assert spec["root"]["dag"]["tasks"]["average"]["retryPolicy"]["maxRetryCount"] == 7
    executor = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-average"]
    given = {
        key["envVar"]: one["secretName"]
        for one in executor["secretAsEnv"]
        for key in one["keyToEnv"]
    }
    assert given == {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "store"}
    assert [one["secretName"] for one in executor["secretAsVolume"]] == ["mine"]
    assert executor["podMetadata"]["labels"] == {"team": "mine"}
    assert executor["nodeSelector"]["labels"] == {"disk": "ssd", "zone": "mine"}
    assert executor["imagePullPolicy"] == "Never"


def test_a_secret_comes_before_a_variable_of_the_same_settings(compiled: Compile) -> None:
    text = "allTasks: {env: {KEY: plain}, secrets: [{name: s, env: {k: KEY}}]}"
    spec, platform = applied(compiled(pipeline_of()), text)
    assert "env" not in spec["deploymentSpec"]["executors"]["exec-average"]["container"]
    assert "KEY" in str(platform)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def trains(model: Output[Model]) -> None:
    pass


@dsl.pipeline(name="protected")
def protected() -> None:
    with privacy_budget(stream="clicks", epsilon="0.1", last_blocks=1) as budget:
        made = in_our_image(x="1").after(budget.allocated)
        budget.consume(after=[made])


@dsl.pipeline(name="uploading")
def uploading() -> None:
    with privacy_budget(stream="clicks", epsilon="0.1", last_blocks=1) as budget:
        made = trains().after(budget.allocated)
        budget.consume(after=[made])
        budget.upload(made)


OURS = {"exec-allocate", "exec-consume", "exec-release"}


def test_tasks_are_those_of_our_components(compiled: Compile) -> None:
    spec, platform = applied(compiled(protected), "tasks: {labels: {team: a}}")
    assert set(platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]) == OURS
    resources = {
        label: executor["container"].get("resources", {}).get("resourceMemoryRequest")
        for label, executor in spec["deploymentSpec"]["executors"].items()
    }
    assert resources == {**dict.fromkeys(OURS, "256Mi"), "exec-in-our-image": None}


def test_one_component_and_one_of_others(compiled: Compile) -> None:
    text = """
    components: {consume: {labels: {is: consume}}}
    otherComponents: {in_our_image: {labels: {is: other}}}
    """
    _, platform = applied(compiled(protected), text)
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    labels = {label: one["podMetadata"]["labels"]["is"] for label, one in executors.items()}
    assert labels == {"exec-consume": "consume", "exec-in-our-image": "other"}


def test_a_namesake_of_our_component_is_not_ours(compiled: Compile) -> None:
    @dsl.component(base_image="python:3.11", install_kfp_package=False)
    def upload(x: str) -> str:
        return x

    @dsl.pipeline(name="namesake")
    def pipeline() -> None:
        upload(x="1")

    documents = compiled(pipeline)
    assert applied(documents, "tasks: {labels: {team: a}}") == documents


VERSION = IMAGE.rpartition(":")[2]


@pytest.mark.parametrize(
    ("images", "ours"),
    [
        ("{}", IMAGE),
        (
            "{registry: registry.example.com/team/pk}",
            f"registry.example.com/team/pk/python:{VERSION}",
        ),
        ("{registry: 'localhost:5000', tag: '2'}", "localhost:5000/python:2"),
        ("{tag: '2', python: {tag: '3'}}", "privatekube/python:3"),
        (
            "{registry: r.io/pk, tag: '2', python: {digest: 'sha256:%s'}}" % ("b" * 64),
            f"r.io/pk/python@sha256:{'b' * 64}",
        ),
        ("{registry: r.io/pk, python: {image: 'other.io/x:1'}}", "other.io/x:1"),
        ("{keras: {tag: '3'}}", IMAGE),
    ],
)
def test_images_of_ours_and_no_others(compiled: Compile, images: str, ours: str) -> None:
    @dsl.pipeline(name="images")
    def pipeline() -> None:
        in_our_image(x="1")
        average(x="1")

    spec, *_ = applied(compiled(pipeline), f"images: {images}")
    executors = spec["deploymentSpec"]["executors"]
    assert executors["exec-in-our-image"]["container"]["image"] == ours
    assert executors["exec-average"]["container"]["image"] == "python:3.11"
    assert KERAS_IMAGE.startswith("privatekube/keras:")


@pytest.mark.parametrize(
    ("place", "variable"),
    [
        ("s3://results", "s3://results/uploading"),
        ("s3://results/", "s3://results/uploading"),
        ("s3://results/{pipeline}/all/{run}", "s3://results/uploading/all/{run}"),
    ],
)
def test_results_go_to_a_folder_of_the_pipeline(
    compiled: Compile, place: str, variable: str
) -> None:
    spec, *_ = applied(compiled(uploading), f"results: '{place}'")
    said = {
        label: {one["name"]: one["value"] for one in executor["container"].get("env", ())}
        for label, executor in spec["deploymentSpec"]["executors"].items()
    }
    told = {label: given.get(RESULTS_VARIABLE) for label, given in said.items()}
    assert {label for label, given in told.items() if given} == {"exec-allocate", "exec-upload"}
    assert told["exec-allocate"] == told["exec-upload"] == variable
    # Where nothing is uploaded, no place need be proven.
    assert RESULTS_VARIABLE not in str(applied(compiled(protected), f"results: '{place}'"))


def test_the_pipeline_root(compiled: Compile) -> None:
    @dsl.pipeline(name="rooted", pipeline_root="s3://mine")
    def rooted() -> None:
        average(x="1")

    text = "pipelineRoot: s3://site"
    assert applied(compiled(pipeline_of()), text)[0]["defaultPipelineRoot"] == "s3://site"
    assert applied(compiled(rooted), text)[0]["defaultPipelineRoot"] == "s3://mine"
