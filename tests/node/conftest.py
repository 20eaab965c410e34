import time
from pathlib import Path

import kubernetes.client
import pytest
import yaml

from privatekube_kfp.cli import main
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.kubernetes.api import Api
from privatekube_kfp.ledger.kubernetes.connecting import connecting
from privatekube_kfp.ledger.kubernetes.ledger import KubernetesLedger
from privatekube_kfp.ledger.streams import StreamSpec
from tests.kubeflow.imitation import Component, Run
from tests.kubernetes.test_rbac import WORKFLOWS
from tests.node import images, needs
from tests.node.cluster import Node
from tests.node.store import Store, service
from tests.node.tasks import NAMESPACE, PLACE, Pods

ROWS = 400
SYSTEM = "privatekube-system"
_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """What needs a node is marked `node`, and `server` so that `make check` leaves it out."""
    for item in items:
        if item.path.is_relative_to(_HERE) and "node" in item.fixturenames:
            item.add_marker("server")
            item.add_marker("node")


@pytest.fixture(scope="session")
def say(request):
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def show(line):
        with capture.global_and_fixture_disabled():
            print(line, flush=True)

    return show


@pytest.fixture(scope="session")
def node(request, say):
    """A node with the scheduler's image, that of the protocol, and the large ones where asked for.

    All are built before it starts: from then on, this process is in the node's network, from where
    no package index can be reached.
    """
    reason = needs.why_not()
    if reason:
        raise pytest.fail.Exception(f"No node can run here: {reason}.", pytrace=False)
    needs.install()
    wanted = [images.SCHEDULER, images.PYTHON]
    if any(item.get_closest_marker("images") for item in request.session.items):
        wanted += [images.TORCH, images.KERAS]
    archives = [images.build(image, say) for image in wanted]
    began = time.monotonic()
    with Node(say) as made:
        for archive in archives:
            made.load(archive)
        say(f"A node with our images is up after {time.monotonic() - began:.0f} s")
        yield made


@pytest.fixture(scope="session")
def store(node, tmp_path_factory):
    made = Store(tmp_path_factory.mktemp("s3"))
    node.start_beside("rclone", made.command, made.is_up)
    return made


@pytest.fixture(scope="session")
def installed(node, store):
    """PrivateKube as docs/install.md has it, and a namespace of pipelines."""
    arguments = ["install", "--apply", f"--image={images.SCHEDULER.tag}"]
    assert main([*arguments, f"--kubeconfig={node.kubeconfig}"]) == 0
    node.apply(WORKFLOWS)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "pipeline-runner", "namespace": NAMESPACE},
    }
    launcher = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "launcher", "namespace": NAMESPACE},
        "data": {"launcher.py": (images.ROOT / "tests/node/launcher.py").read_text()},
    }
    node.apply([namespace])
    node.apply([account, launcher, *service(NAMESPACE)])
    example = images.ROOT / "scheduler/deploy/examples/pipeline-namespace.yaml"
    node.apply(list(yaml.safe_load_all(example.read_text())))
    node.wait_for("deployment/privatekube-scheduler", namespace=SYSTEM)
    return node


@pytest.fixture
def pods(installed, store):
    made = Pods(installed, store)
    made.begin_run()
    return made


@pytest.fixture
def ledger(installed):
    with KubernetesLedger(Api(connecting(str(installed.kubeconfig))), NAMESPACE) as opened:
        yield opened


@pytest.fixture(scope="session")
def ingested(installed, store):
    """A stream whose data the component `ingest` has brought in, in a pod."""
    table = store.folder / "data" / "reviews.parquet"
    assert main(["sample", str(table), "--rows", str(ROWS), "--days", "4"]) == 0
    with KubernetesLedger(Api(connecting(str(installed.kubeconfig))), NAMESPACE) as opened:
        opened.create_stream(StreamSpec("reviews", "1000", "1e-7", ByPipelines(1)))
    installed.apply(_stewards())
    pods = Pods(installed, store)
    pods.begin_run()
    asked = {
        "run_id": "ingest-1",
        "stream": "reviews",
        "sources": ["s3://data/reviews.parquet"],
        "to": "s3://private/reviews",
        "start": "2018-01-01",
        "until": "2018-01-05",
    }
    component = Component.shipped("ingest")
    made = pods.kubeflow().task(Run("ingest", PLACE), "ingest", component, asked)
    pods.end_run()
    assert made.parameters["until"] == "2018-01-05T00:00:00Z"


def _stewards():
    """Whoever brings data in is a data steward (docs/install.md)."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "stewards"},
        "roleRef": {
            "apiGroup": group,
            "kind": "ClusterRole",
            "name": "privatekube-data-steward",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "pipeline-runner", "namespace": NAMESPACE}],
    }


@pytest.fixture
def core(installed):
    return kubernetes.client.CoreV1Api(installed.admin)
