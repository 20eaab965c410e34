"""The installation on a real server: by kubectl, and by `privatekube install --apply`."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from kubernetes.client import (
    ApiextensionsV1Api,
    AppsV1Api,
    CoordinationV1Api,
    CoreV1Api,
    CustomObjectsApi,
    RbacAuthorizationV1Api,
)
from kubernetes.client.exceptions import ApiException

from privatekube_kfp.cli import main
from privatekube_kfp.cli.install import NAMESPACE, manifests
from tests.kubernetes.control_plane.cluster import ControlPlane
from tests.kubernetes.objects import example
from tests.scheduler.running import until

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "scheduler/deploy"
LACKS_PDB = (
    "poddisruptionbudget.policy/privatekube-scheduler skipped:"
    " this server has no policy/v1 PodDisruptionBudget"
)


def identity(manifest):
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace"), metadata["name"]


def by_identity(objects):
    found = {identity(each): each for each in objects}
    assert len(found) == len(objects)
    return found


def stored(cluster, objects):
    """The objects as the server has them, by what they are."""
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    done = cluster.kubectl("get", "-f", "-", "-o", "json", input=json.dumps(listed))
    assert done.returncode == 0, done.stderr
    return by_identity(json.loads(done.stdout)["items"])


def lost(wanted, found, path=""):
    """The fields of a manifest that the server does not have so."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            if key not in found:
                yield f"{path}.{key}"
            else:
                yield from lost(value, found[key], f"{path}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, (ours, theirs) in enumerate(zip(wanted, found, strict=True)):
            yield from lost(ours, theirs, f"{path}.{number}")
    elif wanted != found:
        yield f"{path}: {found!r}, not {wanted!r}"


# By kubectl


def kustomized(cluster, folder):
    """The objects that kubectl makes of a kustomization."""
    done = cluster.kubectl("kustomize", str(folder))
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def test_kustomize_gives_the_same_objects(control_plane):
    assert by_identity(kustomized(control_plane, DEPLOY)) == by_identity(manifests())


def test_monitoring_is_apart_and_can_be_built(control_plane):
    assert not [each for each in manifests() if "monitoring" in each["apiVersion"]]
    kinds = {each["kind"] for each in kustomized(control_plane, DEPLOY / "monitoring")}
    assert "ServiceMonitor" in kinds
    assert kinds <= {"ServiceMonitor", "PrometheusRule", "ConfigMap"}


def test_the_server_keeps_every_field_and_applying_again_changes_nothing(control_plane):
    objects = manifests()
    control_plane.apply(objects)
    first = stored(control_plane, objects)
    for manifest in objects:
        assert list(lost(manifest, first[identity(manifest)])) == [], identity(manifest)
    control_plane.apply(objects)
    again = stored(control_plane, objects)
    for which, before in first.items():
        # What controllers do is theirs: a status, with it the version, and what they add.
        before.pop("status", None)
        del before["metadata"]["resourceVersion"]
        before["metadata"].pop("managedFields", None)
        assert list(lost(before, again[which])) == [], which


def test_the_example_of_a_pipelines_namespace_applies(control_plane):
    applied = control_plane.kubectl(
        "apply", "--dry-run=client", "-o", "name", "-f", str(DEPLOY / "examples")
    )
    assert applied.returncode == 0, applied.stderr
    assert applied.stdout.split() == [
        "rolebinding.rbac.authorization.k8s.io/privatekube-pipeline-runner",
        "clusterrolebinding.rbac.authorization.k8s.io/privatekube-budget-reader-kubeflow",
    ]


# By the command line, on a server that has nothing yet


@pytest.fixture(scope="module")
def fresh(request, control_plane):
    """A control plane with nothing installed; a cluster that is not ours has who knows what."""
    if not isinstance(control_plane, ControlPlane):
        pytest.skip("needs a control plane of our own, with nothing installed")
    with ControlPlane(request.getfixturevalue("binaries")) as own:
        yield own


class Installer:
    """Runs `privatekube install --apply` on a cluster."""

    def __init__(self, cluster, capsys):
        self.cluster = cluster
        self.capsys = capsys

    def __call__(self, *args, kubeconfig=None):
        self.capsys.readouterr()
        where = ("--kubeconfig", str(kubeconfig or self.cluster.kubeconfig))
        code = main(["install", "--apply", *where, *args])
        return code, *self.capsys.readouterr()

    def lines(self, *args):
        code, out, err = self(*args)
        assert (code, err) == (0, ""), (out, err)
        return out.splitlines()

    def actions(self, *args):
        """What was done to each object, by its title."""
        return dict(line.split(" ", 1) for line in self.lines(*args))


@pytest.fixture
def install(fresh, capsys):
    return Installer(fresh, capsys)


@pytest.fixture
def cleared(fresh):
    """Nothing of PrivateKube is on the server, or left from the test before."""
    text = yaml.safe_dump_all(manifests())
    for attempt in range(6):
        gone = fresh.kubectl("delete", "--ignore-not-found", "--timeout=20s", "-f", "-", input=text)
        if gone.returncode == 0:
            return fresh
        # The server may stop deleting a definition until that changes: docs/install.md tells.
        fresh.kubectl("annotate", "--overwrite", "crd", "--all", f"attempt={attempt}")
    raise AssertionError(gone.stderr)


def existing(cluster):
    found = RbacAuthorizationV1Api(cluster.admin).list_cluster_role()
    names = [each.metadata.name for each in found.items]
    definitions = ApiextensionsV1Api(cluster.admin).list_custom_resource_definition().items
    return [name for name in names if "privatekube" in name] + definitions


def test_dry_run_first_then_created_then_unchanged(cleared, install):
    promised = install.lines("--dry-run")
    assert existing(cleared) == []
    done = install.lines()
    assert promised == [f"{line} (dry run)" for line in done]
    assert {line.split(" ", 1)[1] for line in done} == {"created"}
    assert len(done) == len(manifests())
    # In order: each finds what it needs.
    kinds = [line.split(".")[0].split("/")[0] for line in done]
    assert kinds[:4] == ["namespace", *["customresourcedefinition"] * 3]
    assert kinds[-1] == "deployment"

    assert set(install.actions().values()) == {"unchanged"}
    for manifest in manifests():
        [found] = stored(cleared, [manifest]).values()
        assert list(lost(manifest, found)) == []


def test_a_server_without_disruption_budgets_gets_all_else(binaries, capsys):
    """One before 1.21 has them in beta only, which is much the same as not at all."""
    with ControlPlane(binaries, api_server_args=["--runtime-config=policy/v1=false"]) as old:
        actions = Installer(old, capsys).actions()
    title, skipped = LACKS_PDB.split(" ", 1)
    assert actions.pop(title) == skipped
    assert set(actions.values()) == {"created"}


def test_definitions_are_established_when_it_returns(cleared, install):
    lines = install.lines("--crds-only")
    assert [line.split("/")[1] for line in lines] == [
        "privatedatastreams.privatekube.io created",
        "privatedatablocks.privatekube.io created",
        "privacyclaims.privatekube.io created",
    ]
    for definition in ApiextensionsV1Api(cleared.admin).list_custom_resource_definition().items:
        held = {each.type: each.status for each in definition.status.conditions}
        assert held["Established"] == "True"
    assert [each for each in existing(cleared) if isinstance(each, str)] == []


def test_an_upgrade_changes_what_differs_and_leaves_what_others_set(fresh, install):
    install.lines()
    apps, core = AppsV1Api(fresh.admin), CoreV1Api(fresh.admin)
    mine = {"metadata": {"labels": {"team": "privacy"}}}
    core.patch_namespaced_service("privatekube-scheduler", NAMESPACE, mine)
    address = core.read_namespaced_service("privatekube-scheduler", NAMESPACE).spec.cluster_ip

    title = "deployment.apps/privatekube-scheduler"
    changed = install.actions("--dry-run", "--image", "mirror/scheduler:2")
    assert changed[title] == "configured (dry run)"
    assert (install.actions()[title], install.actions()[title]) == ("unchanged", "unchanged")
    changed = install.actions("--image", "mirror/scheduler:2")
    assert [each for each, action in changed.items() if action == "configured"] == [title]
    [container] = apps.read_namespaced_deployment(
        "privatekube-scheduler", NAMESPACE
    ).spec.template.spec.containers
    assert container.image == "mirror/scheduler:2"

    service = core.read_namespaced_service("privatekube-scheduler", NAMESPACE)
    assert service.metadata.labels["team"] == "privacy"
    assert service.spec.cluster_ip == address
    assert install.actions()[title] == "configured"


def test_an_upgrade_takes_back_what_we_no_longer_set(fresh, install, monkeypatch):
    install.lines()

    def with_more(*args):
        found = manifests(*args)
        [account] = [each for each in found if each["kind"] == "ServiceAccount"]
        account["metadata"]["labels"]["old"] = "one"
        [deployment] = [each for each in found if each["kind"] == "Deployment"]
        deployment["spec"]["minReadySeconds"] = 7
        return found

    with monkeypatch.context() as older:
        older.setattr("privatekube_kfp.cli.install.manifests", with_more)
        actions = install.actions()
    assert sum(action == "configured" for action in actions.values()) == 2
    assert sum(action == "configured" for action in install.actions().values()) == 2
    account = CoreV1Api(fresh.admin).read_namespaced_service_account(
        "privatekube-scheduler", NAMESPACE
    )
    assert "old" not in account.metadata.labels
    deployment = AppsV1Api(fresh.admin).read_namespaced_deployment(
        "privatekube-scheduler", NAMESPACE
    )
    assert not deployment.spec.min_ready_seconds


def test_kubectl_and_install_may_follow_each_other(cleared, install, capsys):
    assert main(["install"]) == 0
    text = capsys.readouterr().out
    applied = cleared.kubectl("apply", "-f", "-", input=text)
    assert applied.returncode == 0, applied.stderr
    assert "created" in applied.stdout
    assert set(install.actions().values()) == {"unchanged"}
    applied = cleared.kubectl("apply", "-f", "-", input=text)
    assert applied.returncode == 0, applied.stderr
    changed = [line for line in applied.stdout.splitlines() if not line.endswith(" unchanged")]
    # Of a disruption budget, kubectl writes the selector every time.
    assert changed == ["poddisruptionbudget.policy/privatekube-scheduler configured"]


def test_another_namespace(cleared, install):
    try:
        install.lines("--namespace", "privacy")
        found = RbacAuthorizationV1Api(cleared.admin)
        binding = found.read_cluster_role_binding("privatekube-scheduler")
        assert [subject.namespace for subject in binding.subjects] == ["privacy"]
        binding = found.read_namespaced_role_binding("privatekube-scheduler-lease", "privacy")
        assert [subject.namespace for subject in binding.subjects] == ["privacy"]
        AppsV1Api(cleared.admin).read_namespaced_deployment("privatekube-scheduler", "privacy")
        with pytest.raises(ApiException, match="404"):
            CoreV1Api(cleared.admin).read_namespace(NAMESPACE)
    finally:
        cleared.kubectl("delete", "namespace", "privacy", "--wait=false")


def test_json(fresh, install):
    install.lines()
    code, out, _ = install("--json", "--dry-run")
    assert code == 0
    document = json.loads(out)
    assert document["dryRun"] is True
    assert [(each["kind"], each["name"]) for each in document["objects"]] == [
        (each["kind"], each["metadata"]["name"]) for each in manifests()
    ]
    assert {each["action"] for each in document["objects"]} <= {"unchanged", "skipped"}
    [deployment] = [each for each in document["objects"] if each["kind"] == "Deployment"]
    assert deployment == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "namespace": NAMESPACE,
        "name": "privatekube-scheduler",
        "action": "unchanged",
        "message": None,
    }


def test_from_within_a_pod(fresh, install, tmp_path, monkeypatch, capsys):
    """With the account, address and certificate that a kubelet gives to a pod."""
    install.lines()
    account = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    administrator = {
        "metadata": {"name": "test-administrator"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [account],
    }
    RbacAuthorizationV1Api(fresh.admin).create_cluster_role_binding(administrator)
    (tmp_path / "token").write_text(fresh.token("default", "default"))
    [cluster] = yaml.safe_load(fresh.kubeconfig.read_text())["clusters"]
    in_pod = "kubernetes.config.incluster_config"
    monkeypatch.setattr(f"{in_pod}.SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(
        f"{in_pod}.SERVICE_CERT_FILENAME", cluster["cluster"]["certificate-authority"]
    )
    monkeypatch.setattr("privatekube_kfp.ledger.kubernetes.connecting._POD_ACCOUNT", tmp_path)
    host, port = fresh.server.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    capsys.readouterr()
    assert main(["install", "--apply"]) == 0
    assert f"namespace/{NAMESPACE} unchanged\n" in capsys.readouterr().out


def test_who_may_not_install_is_told_so(fresh, install):
    install.lines()
    token = fresh.token(NAMESPACE, "privatekube-scheduler")
    code, out, err = install("--json", kubeconfig=fresh.kubeconfig_for(token))
    assert code == 1
    document = json.loads(out)
    assert document["error"]["reason"] == "ClusterRefused"
    assert document["objects"] == []
    assert err == f"privatekube: {document['error']['message']}\n"
    assert err.startswith(f"privatekube: namespace/{NAMESPACE}: namespaces ")
    assert "forbidden" in err


def test_an_unknown_token_is_told_so(fresh, install):
    code, out, err = install(kubeconfig=fresh.kubeconfig_for("nonsense"))
    assert (code, out) == (1, "")
    assert err == (
        f"privatekube: the API server at {fresh.server} does not accept your credentials\n"
    )


def test_a_stranger_of_a_server_is_not_trusted(fresh, install, tmp_path):
    config = yaml.safe_load(fresh.kubeconfig.read_text())
    del config["clusters"][0]["cluster"]["certificate-authority"]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    code, out, err = install(kubeconfig=path)
    assert (code, out) == (1, "")
    assert err.startswith(f"privatekube: cannot trust the API server at {fresh.server}: ")
    assert "certificate verify failed" in err
    assert err.count("\n") == 1


# What docs/install.md says to type


def blocks_of(language, heading):
    """The blocks of a section, such as `### With settings of your own`."""
    page = (ROOT / "docs/install.md").read_text()
    section = re.search(rf"^{heading}\n(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE)[1]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


@pytest.fixture
def shell(fresh, binaries, tmp_path):
    """Types commands into a shell whose kubectl is the cluster's."""
    program = tmp_path / "bin/kubectl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {binaries.kubectl} --kubeconfig={fresh.kubeconfig} "$@"\n')
    program.chmod(0o755)
    env = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}

    def run(script):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_binding_as_documented(fresh, install, shell):
    install.lines()
    core = CoreV1Api(fresh.admin)
    core.create_namespace({"metadata": {"name": "kubeflow"}})
    core.create_namespaced_service_account("kubeflow", {"metadata": {"name": "pipeline-runner"}})
    [commands] = blocks_of("sh", "## Who may do what")
    assert shell(commands).splitlines()[-2:] == ["yes", "yes"]
    # The file binds the same: it finds nothing to change but who made it.
    shell(f"kubectl apply -f {DEPLOY / 'examples'}")
    bindings = RbacAuthorizationV1Api(fresh.admin).list_namespaced_role_binding("kubeflow").items
    assert [(each.metadata.name, each.role_ref.name) for each in bindings] == [
        ("privatekube-pipeline-runner", "privatekube-pipeline-runner")
    ]


def test_removing_everything_as_documented(fresh, install, shell):
    install.lines()
    objects = CustomObjectsApi(fresh.admin)
    held = {"finalizers": ["privatekube.io/spending"]}
    for plural in ("privatedatastreams", "privatedatablocks"):
        body = example(plural, "held")
        body["metadata"] |= held
        objects.create_cluster_custom_object("privatekube.io", "v1alpha1", plural, body)
    for place in ("default", "kube-public"):
        body = example("privacyclaims", "held")
        body["metadata"] |= held
        objects.create_namespaced_custom_object(
            "privatekube.io", "v1alpha1", place, "privacyclaims", body
        )
    stop, show, remove = blocks_of("sh", "## Remove it")
    shell(stop)
    assert shell(show).count("- privatekube.io/spending\n") == 4
    shell(remove)
    assert existing(fresh) == []
    with pytest.raises(ApiException, match="404"):
        CoreV1Api(fresh.admin).read_namespace(NAMESPACE)


def test_overlay_as_documented(control_plane, tmp_path):
    [overlay] = blocks_of("yaml", "### With settings of your own")
    for folder in ("scheduler", "crds"):
        shutil.copytree(ROOT / folder, tmp_path / "privatekube" / folder)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/kustomization.yaml").write_text(overlay)
    built = by_identity(kustomized(control_plane, tmp_path / "ours"))
    assert set(built) == set(by_identity(manifests()))
    deployment = built["Deployment", NAMESPACE, "privatekube-scheduler"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("example/privatekube-scheduler:")
    assert container["args"][-1] == "--keep-finished=30d"


# The process itself


def test_the_scheduler_works_with_the_role_and_arguments_it_is_given(fresh, install, tmp_path):
    """Last, since what it guards cannot be deleted once it is gone."""
    install.lines()
    [deployment] = [each for each in manifests() if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    given = {"$(POD_NAMESPACE)": NAMESPACE, "$(POD_NAME)": "a-pod", "0.0.0.0:8080": "127.0.0.1:0"}
    args = container["args"]
    for name, value in given.items():
        args = [arg.replace(name, value) for arg in args]
    token = fresh.token(NAMESPACE, "privatekube-scheduler")
    command = [sys.executable, "-m", "scheduler", "--kubeconfig", str(fresh.kubeconfig_for(token))]
    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen([*command, *args], cwd=ROOT, stdout=log, stderr=log)
        try:
            claim = example("privacyclaims", "train")
            del claim["spec"]["requests"][1:]
            claim["spec"]["requests"][0]["allocate"]["select"] = {"last": 1}
            stream = example(
                "privatedatastreams", "reviews", **{"spec.unlocking": {"atOnce": True}}
            )
            fresh.apply([stream, example("privatedatablocks", "monday")])
            fresh.apply(claim)
            objects = CustomObjectsApi(fresh.admin)
            where = ("privatekube.io", "v1alpha1", "default", "privacyclaims", "train")
            deadline = time.monotonic() + 180
            phase = None
            while phase != "Allocated" and time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.1)
                found = objects.get_namespaced_custom_object(*where)
                phase = found.get("status", {}).get("phase")
            log.seek(0)
            said = log.read()
            assert phase == "Allocated", said
            assert found["metadata"]["finalizers"]
            gone = fresh.kubectl("delete", "pclaim", "train", "--timeout=100s")
            assert gone.returncode == 0, gone.stderr
            lease = CoordinationV1Api(fresh.admin).read_namespaced_lease(
                "privatekube-scheduler", NAMESPACE
            )
            assert lease.spec.holder_identity == "a-pod"
            core = CoreV1Api(fresh.admin)
            until(
                lambda: (
                    "Allocated"
                    in [event.reason for event in core.list_namespaced_event("default").items]
                )
            )
        finally:
            process.terminate()
            code = process.wait(180)
        log.seek(0)
        said = log.read()
    assert code == 0, said
    assert "forbidden" not in said
