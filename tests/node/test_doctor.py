"""The doctor's own pod, on a node: what a laptop cannot tell, it can."""

import json

import pytest
import yaml

from privatekube_kfp.cli import main
from tests.node.store import KEY, SECRET
from tests.node.tasks import NAMESPACE


@pytest.fixture
def settings(installed, core, store, tmp_path):
    core.create_namespaced_secret(
        NAMESPACE, {"metadata": {"name": "store"}, "stringData": {"id": KEY, "secret": SECRET}}
    )
    variables = {k: v for k, v in store.variables.items() if "ACCESS_KEY" not in k}
    keys = {"id": "AWS_ACCESS_KEY_ID", "secret": "AWS_SECRET_ACCESS_KEY"}
    document = {
        "namespace": NAMESPACE,
        "serviceAccount": "pipeline-runner",
        "results": "s3://results/site/{pipeline}/{run}",
        "pipelineRoot": "s3://mlpipeline/root",
        "images": {"registry": "localhost/privatekube"},
        "tasks": {"env": variables, "secrets": [{"name": "store", "env": keys}]},
    }
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump(document))
    yield path
    core.delete_namespaced_secret("store", NAMESPACE)


def places(node, settings, capsys, *options):
    """What the doctor finds of places: level and reason of each, and the messages."""
    capsys.readouterr()
    where = [f"--kubeconfig={node.kubeconfig}", f"--settings={settings}"]
    main(["doctor", "--json", *where, *options])
    found = json.loads(capsys.readouterr().out)["findings"]
    found = [each for each in found if each["check"] in ("results", "pipeline root")]
    return [(each["level"], each["reason"]) for each in found], [e["message"] for e in found]


def test_places_that_only_pods_reach(node, settings, core, store, capsys):
    levels, said = places(node, settings, capsys)
    assert levels == [("unchecked", "NotChecked")] * 2
    assert "minio-service.kubeflow can be reached from inside the cluster only" in said[0]
    levels, said = places(node, settings, capsys, "--in-cluster")
    assert levels == [("ok", None)] * 2, said
    core.patch_namespaced_secret("store", NAMESPACE, {"stringData": {"secret": "wrong"}})
    levels, said = places(node, settings, capsys, "--in-cluster")
    assert levels[0] == ("wrong", "ResultsUnwritable"), said
    assert not list((store.folder / "results").rglob("*probe*"))
    selector = "app.kubernetes.io/name=privatekube-doctor"
    left = core.list_namespaced_pod(NAMESPACE, label_selector=selector).items
    assert [pod for pod in left if pod.metadata.deletion_timestamp is None] == []
