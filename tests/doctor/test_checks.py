"""Facts in, findings out: what no server of the tests can be made to show."""

import pytest

from privatekube_kfp.doctor import schedulers, server
from privatekube_kfp.doctor.findings import Commands, Unknown, wrong
from privatekube_kfp.doctor.reach import Reach
from privatekube_kfp.doctor.registries import reference
from privatekube_kfp.doctor.schedulers import Installed, Lead, Place, SchedulerFacts
from privatekube_kfp.doctor.server import ServerFacts

HERE = Place("privatekube-system", "privatekube-scheduler")


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("v1.20.2", "KubernetesOld"),
        ("v1.24.17+k3s1", "KubernetesOld"),
        ("v1.25.0", None),
        ("v1.36.3", None),
        ("something else", None),
    ],
)
def test_servers_that_ignore_rules(version, reason):
    [found] = server.check(ServerFacts("https://here", version))
    assert found.reason == reason


def installed(image):
    return Installed("privatekube-scheduler", HERE, image, "privatekube-scheduler", 2, 2, None)


@pytest.mark.parametrize(
    ("image", "noted", "mend"),
    [
        ("privatekube/scheduler:1.2.0", "1.2.0", None),
        ("privatekube/scheduler:1.1.0", None, "privatekube install --apply"),
        (
            "mirror.example:5000/team/scheduler:1.1.0@sha256:00",
            None,
            "privatekube install --apply --image mirror.example:5000/team/scheduler:1.2.0",
        ),
        ("privatekube/scheduler:1.10.0", None, "pip install privatekube-kfp==1.10.0"),
        ("mirror.example/scheduler:own", None, None),
        ("mirror.example/scheduler", None, None),
        # What leads says more than what is to be started.
        ("privatekube/scheduler:1.2.0", "1.1.0", "privatekube install --apply"),
    ],
)
def test_versions_of_schedulers(image, noted, mend):
    facts = SchedulerFacts([installed(image)], [Lead(HERE, "a-pod", True, noted)])
    [found] = schedulers.check(facts, "1.2.0", Commands())
    assert (found.mend, found.reason) == (mend, "SchedulerVersion" if mend else None)


def test_a_lease_that_may_not_be_read():
    facts = SchedulerFacts([installed("privatekube/scheduler:1.2.0")], Unknown("you may not"))
    [found] = schedulers.check(facts, "1.2.0", Commands())
    assert found.level == "unchecked"


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("privatekube/python:1", ("", "privatekube/python", "1", "")),
        ("registry.example.com/team/python", ("registry.example.com", "team/python", "", "")),
        ("localhost:5000/python:1", ("localhost:5000", "python", "1", "")),
        ("host.example/a@sha256:00", ("host.example", "a", "", "sha256:00")),
        ("python", ("", "python", "", "")),
    ],
)
def test_names_of_images(image, parts):
    found = reference(image)
    assert (found.registry, found.path, found.tag, found.digest) == parts


def test_commands_name_the_cluster_and_can_be_pasted():
    commands = Commands("my config", "admin@home")
    assert commands.kubectl("get", "pods") == (
        "kubectl --kubeconfig 'my config' --context admin@home get pods"
    )
    assert commands.install("privacy") == (
        "privatekube install --apply --namespace privacy"
        " --kubeconfig 'my config' --context admin@home"
    )


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("seaweedfs.kubeflow", True),
        ("minio-service.kubeflow.svc", True),
        ("minio-service.kubeflow.svc.cluster.local.", True),
        ("minio", True),
        ("localhost", False),
        ("10.0.0.1", False),
        ("::1", False),
        ("example.com", False),
        ("s3.kubeflow.com", False),
        ("", False),
    ],
)
def test_names_that_only_a_cluster_knows(host, inside):
    reach = Reach(inside=False, has_namespace=lambda name: name == "kubeflow")
    assert reach.is_of_cluster(host) is inside


def test_messages_are_one_line_whatever_was_said():
    found = wrong("cluster", "NoCluster", "it said\n\x1b[31mred\r\n" + "x" * 10_000, None)
    assert found.message.startswith("it said [31mred xxx")
    assert len(found.message) < 700
