"""What a settings file can say, and how it is refused when it says something else."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from privatekube_kfp import components
from privatekube_kfp.components import __all__ as exported
from privatekube_kfp.settings import (
    COMPONENTS,
    IMAGES,
    InvalidSettings,
    Settings,
    settings_from_text,
)
from privatekube_kfp.settings.schema import Images, Retries, Secret, TaskOptions, Toleration


def refused(text: str) -> str:
    with pytest.raises(InvalidSettings) as error:
        settings_from_text(text, "site.yaml")
    message = error.value.message
    assert message.startswith("site.yaml: "), message
    assert "\n" not in message
    return message.removeprefix("site.yaml: ")


def test_an_empty_file_says_nothing() -> None:
    read = settings_from_text("# nothing yet\n", "site.yaml")
    assert read.source == "site.yaml"
    assert read.tasks == TaskOptions()


def test_the_components_are_those_that_there_are() -> None:
    helpers = {"privacy_budget", "training_budget", "as_compute", "as_sink", "as_source"}
    assert set(COMPONENTS) == {name for name in exported if name.islower()} - helpers


def test_every_key() -> None:
    read = settings_from_text(
        """
        endpoint: http://localhost:8888
        namespace: team-a
        serviceAccount: runner
        pipelineRoot: s3://artifacts/kubeflow
        results: s3://results
        images:
          registry: registry.example.com/team/privatekube
          tag: "1.2"
          keras: {image: "registry.example.com/team/tf:3"}
          python: {digest: "sha256:%s"}
          pullPolicy: IfNotPresent
          pullSecrets: [registry]
        tasks:
          env: {AWS_ENDPOINT_URL: "http://store:9000"}
          secrets:
            - {name: store, env: {accesskey: AWS_ACCESS_KEY_ID}}
            - {name: certificates, mountPath: /certificates, optional: true}
          resources:
            requests: {cpu: 100m, memory: 256Mi}
            limits: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 1}
          retries: {count: 3, after: 30s, factor: 1.5, atMost: 600s}
          tolerations:
            - {key: gpu, operator: Exists, effect: NoSchedule}
            - {key: team, value: a, effect: NoExecute, tolerationSeconds: 60}
          nodeSelector: {disk: ssd}
          labels: {team: a}
          annotations: {note: any text}
        components:
          dp_train: {retries: 1}
        otherComponents:
          my-own: {labels: {mine: "yes"}}
        allTasks: {labels: {site: here}}
        local:
          results: published
          env: {OMP_NUM_THREADS: "2"}
        """
        % ("a" * 64),
        "site.yaml",
    )
    assert (read.endpoint, read.namespace) == ("http://localhost:8888", "team-a")
    assert (read.service_account, read.pipeline_root) == ("runner", "s3://artifacts/kubeflow")
    assert read.images.pull_secrets == ("registry",)
    assert read.tasks.secrets == (
        Secret("store", {"accesskey": "AWS_ACCESS_KEY_ID"}),
        Secret("certificates", mount_path="/certificates", optional=True),
    )
    assert read.tasks.limits == {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert read.tasks.retries == Retries(3, 30, 1.5, 600)
    assert read.tasks.tolerations == (
        Toleration("gpu", "Exists", "", "NoSchedule"),
        Toleration("team", "Equal", "a", "NoExecute", 60),
    )
    assert read.components["dp_train"].retries == Retries(1)
    assert read.other_components["my_own"].labels == {"mine": "yes"}
    assert read.local.results == "published"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("resutls: s3://x", "unknown key 'resutls': did you mean results? Known are endpoint"),
        ("tasks: {resource: {}}", "tasks: unknown key 'resource': did you mean resources?"),
        (
            "components: {dp_trian: {}}",
            "components: unknown component 'dp_trian': did you mean dp_train?",
        ),
        ("components: {average: {}}", "a component of your own goes under otherComponents"),
        (
            "tasks: {resources: {requests: {mem: 1Gi}}}",
            "tasks.resources.requests: unknown key 'mem': did you mean memory?",
        ),
        ("images: {pyhton: {tag: x}}", "images: unknown key 'pyhton': did you mean python?"),
        ("qqqq: 1", "unknown key 'qqqq'. Known are endpoint"),
        ("results: published", "results: 'published' is not a URI such as s3://bucket/folder"),
        ("results: 5", "results: 5 is not text; put it in quotes"),
        ("tasks: {env: {A: 1}}", "tasks.env.A: 1 is not text; put it in quotes"),
        ("tasks: {env: {A: yes}}", "tasks.env.A: True is not text; put it in quotes"),
        ("tasks: {env: {A-B: x}}", "tasks.env.A-B: 'A-B' is not a name that Kubernetes takes"),
        ("tasks: {secrets: {name: x}}", "tasks.secrets: expected a list, found keys and values"),
        ("tasks: {secrets: [{env: {a: B}}]}", "tasks.secrets[0].name: it is missing"),
        ("tasks: {secrets: [{name: x}]}", "tasks.secrets[0]: give either env (key: VARIABLE) or"),
        ("tasks: {secrets: [{name: X, mountPath: /x}]}", "'X' is not the name of a secret"),
        (
            "tasks: {resources: {limits: {memory: 1 GB}}}",
            "tasks.resources.limits.memory: '1 GB' is not a quantity such as 512Mi or 4Gi",
        ),
        ("tasks: {resources: {limits: {cpu: 0}}}", "limits.cpu: 0 is not a quantity such as"),
        (
            "tasks: {resources: {requests: {memory: 2Gi}, limits: {memory: 2000M}}}",
            "tasks.resources.requests.memory: 2Gi is more than the limit 2000M",
        ),
        ("tasks: {retries: many}", "tasks.retries: expected keys and values, found 'many'"),
        ("tasks: {retries: -1}", "tasks.retries.count: -1 is not a whole number from 0 to 100"),
        ("tasks: {retries: {count: 1, after: 5}}", "5 is not a number of seconds such as 30s"),
        ("tasks: {tolerations: [{key: a, effect: Never}]}", "'Never' is not one of NoSchedule"),
        ("tasks: {tolerations: [{effect: NoSchedule}]}", "operator Equal needs a key"),
        ("tasks: {labels: {a: b c}}", "tasks.labels.a: 'b c' is not a value that Kubernetes takes"),
        ("images: {registry: https://x}", "'https://x' is not a registry such as"),
        ("images: {python: {tag: a, digest: b}}", "images.python.digest: 'b' is not a digest"),
        ("images: {python: {}}", "images.python: give one of tag, digest and image"),
        ("images: {python: 3}", "images.python: expected keys and values, found 3"),
        ("tasks: []", "tasks: expected keys and values, found a list"),
        ("- 1", "expected keys and values, found a list"),
        ("1: 2", "the key 1 is not text; put it in quotes"),
        ("results: s3://a\nresults: s3://b", "line 2: the key 'results' is there twice"),
        ("tasks: {", "line 1: "),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, what: str) -> None:
    assert what in refused(text)


def test_what_is_said_most_closely_comes_first() -> None:
    read = settings_from_text(
        """
        allTasks: {labels: {site: here, who: all}, retries: 1}
        tasks: {labels: {who: ours}, env: {A: ours, B: ours}}
        components:
          dp_train: {env: {B: train}, resources: {limits: {memory: 512Mi}}}
        otherComponents:
          average: {labels: {who: average}}
        """,
        "site.yaml",
    )
    train = read.of_task("dp_train", ours=True)
    assert train.labels == {"site": "here", "who": "ours"}
    assert train.env == {"A": "ours", "B": "train"}
    assert train.retries == Retries(1)
    # The built-in request of 1Gi would be more than the limit: Kubernetes takes the limit for it.
    assert train.requests == {"cpu": "500m"}
    assert read.of_task("allocate", ours=True).requests == {"cpu": "100m", "memory": "256Mi"}
    average = read.of_task("average", ours=False)
    assert average.labels == {"site": "here", "who": "average"}
    assert (average.env, average.requests) == ({}, {})


def test_the_images_are_those_that_there_are() -> None:
    """A component in an image that settings do not know would stay where it cannot be pulled."""
    images = set()
    for name in COMPONENTS:
        component = getattr(components, name)
        image = component.component_spec.implementation.container.image
        images.add(image.removeprefix("privatekube/").partition(":")[0])
    assert images == set(IMAGES)


PAGE = Path(__file__).parents[2] / "docs" / "site-settings.md"


def test_the_example_of_the_page_is_complete() -> None:
    """It is read, and shows every key that there is."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    read = settings_from_text(text, "site-settings.md")
    assert read.components["dp_train"].limits["nvidia.com/gpu"] == "1"
    for field in fields(Settings):
        assert getattr(read, field.name), field.name
    for field in fields(Images):
        assert getattr(read.images, field.name), field.name
    together = read.of_task("dp_train", ours=True)
    for field in fields(TaskOptions):
        assert getattr(together, field.name), field.name
    assert all((read.local.results, read.local.env))
