"""The control plane that the other tests in this folder stand on does what they count on."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kubernetes import watch
from kubernetes.client import CoreV1Api, CustomObjectsApi, VersionApi
from kubernetes.client.exceptions import ApiException

from tests.kubernetes.control_plane import ControlPlane, ExistingCluster, NeedsOwnControlPlane
from tests.kubernetes.control_plane.binaries import ASSETS
from tests.kubernetes.control_plane.cluster import API_SERVER, CONTROLLER_MANAGER, ETCD
from tests.kubernetes.control_plane.recipe import KUBERNETES

GROUP, PLURAL = "throwaway.example.com", "pebbles"
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"grams": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"thrown": {"type": "boolean"}}},
    },
}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "Pebble", "plural": PLURAL, "singular": "pebble"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": SCHEMA},
                "subresources": {"status": {}},
            }
        ],
    },
}


class Pebbles:
    """Pebbles of one namespace, through the client library."""

    def __init__(self, client, namespace):
        self.api = CustomObjectsApi(client)
        self.where = (GROUP, "v1", namespace, PLURAL)

    def create(self, name, grams=1):
        body = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "Pebble",
            "metadata": {"name": name},
            "spec": {"grams": grams},
        }
        return self.api.create_namespaced_custom_object(*self.where, body)

    def read(self, name):
        return self.api.get_namespaced_custom_object(*self.where, name)

    def replace(self, pebble):
        name = pebble["metadata"]["name"]
        return self.api.replace_namespaced_custom_object(*self.where, name, pebble)

    def replace_status(self, pebble):
        name = pebble["metadata"]["name"]
        return self.api.replace_namespaced_custom_object_status(*self.where, name, pebble)


@pytest.fixture(scope="module")
def _defined(control_plane):
    assert control_plane.apply(DEFINITION) == [
        f"customresourcedefinition.apiextensions.k8s.io/{PLURAL}.{GROUP}"
    ]
    yield
    control_plane.kubectl("delete", "crd", f"{PLURAL}.{GROUP}", "--wait=false")


@pytest.fixture
def pebbles(control_plane, _defined, namespace):
    return Pebbles(control_plane.admin, namespace)


def test_version(control_plane):
    version = VersionApi(control_plane.admin).get_code()
    assert version.major == "1"
    if isinstance(control_plane, ControlPlane) and not os.environ.get(ASSETS):
        assert version.git_version == f"v{KUBERNETES}"


def test_kubectl_reaches_it(control_plane, namespace):
    shown = control_plane.kubectl("get", "namespace", namespace, "-o", "name")
    assert (shown.returncode, shown.stdout) == (0, f"namespace/{namespace}\n")


def test_status_is_apart_from_spec(pebbles):
    made = pebbles.create("flint", grams=3)
    made["status"] = {"thrown": True}
    assert "status" not in pebbles.replace(made)
    made = pebbles.read("flint")
    made |= {"status": {"thrown": True}, "spec": {"grams": 4}}
    pebbles.replace_status(made)
    read = pebbles.read("flint")
    assert (read["spec"], read["status"]) == ({"grams": 3}, {"thrown": True})


def test_schema_is_enforced(pebbles):
    with pytest.raises(ApiException) as refused:
        pebbles.create("flint", grams="three")
    assert refused.value.status == 422


def test_update_of_what_has_changed_since_is_a_conflict(pebbles):
    first = pebbles.create("flint")
    second = pebbles.read("flint")
    first["spec"]["grams"] = 2
    pebbles.replace(first)
    second["spec"]["grams"] = 3
    with pytest.raises(ApiException) as refused:
        pebbles.replace(second)
    assert refused.value.status == 409
    assert pebbles.read("flint")["spec"]["grams"] == 2


def test_watch_sees_what_happens(pebbles):
    listed = pebbles.api.list_namespaced_custom_object(*pebbles.where)
    seen = watch.Watch()
    events = seen.stream(
        pebbles.api.list_namespaced_custom_object,
        *pebbles.where,
        resource_version=listed["metadata"]["resourceVersion"],
        timeout_seconds=30,
    )
    made = pebbles.create("flint")
    made["spec"]["grams"] = 2
    pebbles.replace(made)
    kinds = []
    for event in events:
        kinds.append((event["type"], event["object"]["spec"]["grams"]))
        if len(kinds) == 2:
            seen.stop()
    assert kinds == [("ADDED", 1), ("MODIFIED", 2)]


def test_token_may_do_what_its_role_says_and_no_more(control_plane, pebbles, namespace):
    pebbles.create("flint")
    control_plane.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "reader", "namespace": namespace},
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": {"name": "reader", "namespace": namespace},
                "rules": [{"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["get"]}],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "reader", "namespace": namespace},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "Role",
                    "name": "reader",
                },
                "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
            },
        ]
    )
    token = control_plane.token(namespace, "reader")
    theirs = Pebbles(control_plane.client(token), namespace)
    assert theirs.read("flint")["spec"] == {"grams": 1}
    for forbidden in (
        lambda: theirs.create("another"),
        lambda: theirs.replace_status(theirs.read("flint")),
        lambda: Pebbles(theirs.api.api_client, "default").read("flint"),
    ):
        with pytest.raises(ApiException) as refused:
            forbidden()
        assert refused.value.status == 403

    kubeconfig = control_plane.kubeconfig_for(token, namespace=namespace)
    shown = control_plane.kubectl("get", PLURAL, "flint", "-o", "name", kubeconfig=kubeconfig)
    assert shown.stdout == f"pebble.{GROUP}/flint\n"
    refused = control_plane.kubectl("delete", PLURAL, "flint", kubeconfig=kubeconfig)
    assert refused.returncode == 1
    assert f"system:serviceaccount:{namespace}:reader" in refused.stderr


def test_a_made_up_token_is_nobody(control_plane):
    with pytest.raises(ApiException) as refused:
        CoreV1Api(control_plane.client("made-up")).list_namespace()
    assert refused.value.status == 401


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("part", [ETCD, API_SERVER])
def test_data_survives_a_restart(own_control_plane, pebbles, part, how):
    pebbles.create("flint", grams=5)
    before = own_control_plane.pids
    if part == ETCD:
        own_control_plane.restart_etcd(how)
    else:
        own_control_plane.restart_api_server(how)
    after = own_control_plane.pids
    assert {name for name in before if before[name] != after[name]} == {part}
    assert pebbles.read("flint")["spec"] == {"grams": 5}
    pebbles.create("chert")


def test_a_restart_from_a_thread_that_ends_outlives_it(own_control_plane, pebbles):
    thread = threading.Thread(target=own_control_plane.restart_api_server)
    thread.start()
    thread.join()
    time.sleep(0.2)
    pebbles.create("flint")


def test_frozen_and_thawed(own_control_plane, pebbles):
    own_control_plane.kill(API_SERVER, signal.SIGSTOP)
    frozen = own_control_plane.kubectl("get", PLURAL, "--request-timeout=1s")
    own_control_plane.kill(API_SERVER, signal.SIGCONT)
    assert frozen.returncode != 0
    pebbles.create("flint")


def test_owned_objects_are_collected(control_plane, namespace):
    if isinstance(control_plane, ControlPlane) and CONTROLLER_MANAGER not in control_plane.pids:
        pytest.fail(f"{ASSETS} has no {CONTROLLER_MANAGER}, and this needs one", pytrace=False)
    api = CoreV1Api(control_plane.admin)
    owner = api.create_namespaced_config_map(namespace, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    reference["uid"] = owner.metadata.uid
    owned = {"metadata": {"name": "owned", "ownerReferences": [reference]}}
    api.create_namespaced_config_map(namespace, owned)
    api.delete_namespaced_config_map("owner", namespace)
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        names = {each.metadata.name for each in api.list_namespaced_config_map(namespace).items}
        if "owned" not in names:
            return
        time.sleep(0.1)
    pytest.fail("the owned object is still there after 180 s")


def test_nothing_is_left_after_stop(binaries):
    with ControlPlane(binaries) as own:
        pids, folders = own.pids, [own.kubeconfig.parent, own._data]
        assert set(pids) >= {ETCD, API_SERVER}
        assert all(folder.is_dir() for folder in folders)
        own.kill(ETCD, signal.SIGSTOP)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.values())
    assert not any(folder.exists() for folder in folders)


def test_nothing_is_left_running_after_a_kill(binaries, tmp_path):
    """The whole test run killed outright: the kernel ends the servers, the next run cleans up."""
    program = tmp_path / "run.py"
    program.write_text(
        "import time\n"
        "from pathlib import Path\n"
        "from tests.kubernetes.control_plane.binaries import Binaries\n"
        "from tests.kubernetes.control_plane.cluster import ControlPlane\n"
        "from pathlib import PosixPath\n"
        f"with ControlPlane({binaries!r}) as own:\n"
        "    print(*own.pids.values(), own.kubeconfig.parent, own._data, flush=True)\n"
        "    time.sleep(600)\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, str(program)],
        env=os.environ | {"PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        *pids, home, data = run.stdout.readline().split()
        assert len(pids) >= 2
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        run.kill()
    deadline = time.monotonic() + 180
    while any(_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "still running 180 s after their parent was killed"
        time.sleep(0.05)
    assert Path(home).is_dir()
    ControlPlane(binaries).stop()
    assert not Path(home).exists()
    assert not Path(data).exists()


def _alive(pid):
    """Whether it runs; one that ended may stay a zombie until whoever adopted it looks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_somebody_elses_cluster_is_not_broken(control_plane):
    with ExistingCluster(control_plane.kubeconfig, control_plane.kubectl_path) as other:
        CoreV1Api(other.client()).read_namespace("default")
        assert other.kubectl("get", "namespace", "default").returncode == 0
        for break_it in (
            other.restart_etcd,
            other.restart_api_server,
            other.restart_controller_manager,
            lambda: other.kill(ETCD, signal.SIGKILL),
        ):
            with pytest.raises(NeedsOwnControlPlane, match="needs our own control plane"):
                break_it()
