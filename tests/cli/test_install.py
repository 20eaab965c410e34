"""`privatekube install`: what it prints, from a checkout and from a wheel, and what it refuses.

What it does to a server is tested on one, in tests/kubernetes/test_deploy.py.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import yaml

from privatekube_kfp import __version__
from privatekube_kfp.cli import main
from tests.cli.running import KUBECONFIG, ROOT, in_own_process

DEPLOY = ROOT / "scheduler/deploy"
IMAGE = f"privatekube/scheduler:{__version__}"


def printed(result):
    return parsed(result.out)


def parsed(text):
    return list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def the(kind, objects):
    [found] = [each for each in objects if each["kind"] == kind]
    return found


def names(objects):
    return [(each["kind"], each["metadata"]["name"]) for each in objects]


@pytest.fixture(scope="module")
def everything():
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["install"]) == 0
    return out.getvalue()


@pytest.fixture
def objects(everything):
    return parsed(everything)


@pytest.fixture
def pod(objects):
    return the("Deployment", objects)["spec"]["template"]["spec"]


@pytest.fixture
def container(pod):
    [found] = pod["containers"]
    return found


# What it prints


def test_everything_in_the_order_to_apply_it(objects):
    assert names(objects) == [
        ("Namespace", "privatekube-system"),
        ("CustomResourceDefinition", "privatedatastreams.privatekube.io"),
        ("CustomResourceDefinition", "privatedatablocks.privatekube.io"),
        ("CustomResourceDefinition", "privacyclaims.privatekube.io"),
        ("ServiceAccount", "privatekube-scheduler"),
        ("ClusterRole", "privatekube-scheduler"),
        ("ClusterRoleBinding", "privatekube-scheduler"),
        ("Role", "privatekube-scheduler-lease"),
        ("RoleBinding", "privatekube-scheduler-lease"),
        ("ClusterRole", "privatekube-pipeline-runner"),
        ("ClusterRole", "privatekube-budget-reader"),
        ("ClusterRole", "privatekube-data-steward"),
        ("ClusterRole", "privatekube-viewer"),
        ("NetworkPolicy", "privatekube-scheduler"),
        ("Service", "privatekube-scheduler"),
        ("PodDisruptionBudget", "privatekube-scheduler"),
        ("Deployment", "privatekube-scheduler"),
    ]


def test_as_the_files_say(objects):
    files = [*DEPLOY.glob("*.yaml"), *(ROOT / "crds").glob("*.yaml")]
    written = [
        each
        for file in files
        if file.name != "kustomization.yaml"
        for each in yaml.safe_load_all(file.read_text())
    ]
    assert sorted(names(written)) == sorted(names(objects))
    for each in written:
        assert each in objects


def test_json(run, objects):
    assert run.json("install") == {"objects": objects}


def test_crds_only(run, objects):
    found = printed(run.ok("install", "--crds-only"))
    assert found == [each for each in objects if each["kind"] == "CustomResourceDefinition"]


def test_another_namespace(run):
    text = run.ok("install", "--namespace", "privacy").out
    assert "privatekube-system" not in text
    found = list(yaml.safe_load_all(text))
    assert the("Namespace", found)["metadata"]["name"] == "privacy"
    placed = [each["metadata"].get("namespace") for each in found]
    assert placed.count("privacy") == 7
    assert placed.count(None) == len(found) - 7
    subjects = [subject for each in found for subject in each.get("subjects", [])]
    assert [subject["namespace"] for subject in subjects] == ["privacy", "privacy"]


def test_another_image(run, objects):
    changed = printed(run.ok("install", "--image", "mirror/scheduler:own"))
    text = yaml.safe_dump(changed)
    assert text.count("mirror/scheduler:own") == 1
    assert text == yaml.safe_dump(objects).replace(IMAGE, "mirror/scheduler:own")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--namespace", "No_Good"), "'No_Good' is no name for a namespace"),
        (("--namespace", ""), "'' is no name for a namespace"),
        (("--image", "two words"), "'two words' is no image"),
        (("--dry-run",), "--dry-run goes with --apply only"),
        (("--kubeconfig", "k"), "--kubeconfig goes with --apply only"),
        (("--context", "c"), "--context goes with --apply only"),
        (("--crds-only", "--image", "i"), "--crds-only leaves nothing for"),
        (("--crds-only", "--namespace", "n"), "--crds-only leaves nothing for"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(run, args, said):
    result = run("install", *args)
    assert (result.code, result.out) == (2, "")
    assert said in result.err


# What there is to agree


def test_image_has_the_librarys_version(container):
    assert container["image"] == IMAGE
    dockerfile = (ROOT / "scheduler/Dockerfile").read_text()
    assert f"-t {IMAGE} " in dockerfile
    [major, minor] = {
        *re.findall(r"FROM python:(\d+\.\d+)\.\d+-slim-bookworm", dockerfile)
    }.pop().split(".")
    assert (3, 11) <= (int(major), int(minor)) < (3, 13)


def test_image_and_pod_run_as_the_same_user(pod):
    assert pod["securityContext"]["runAsNonRoot"] is True
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    dockerfile = (ROOT / "scheduler/Dockerfile").read_text()
    assert re.findall(r"^USER (.*)$", dockerfile, re.M) == [user] == ["65532:65532"]


def test_nothing_is_privileged(pod, container):
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "priorityClassName"} & set(pod)
    assert [set(volume) for volume in pod["volumes"]] == [{"name", "emptyDir"}]


def test_lease_is_the_one_that_the_role_allows(objects, container):
    [name] = [arg for arg in container["args"] if arg.startswith("--lease-name=")]
    allowed = [rule.get("resourceNames") for rule in the("Role", objects)["rules"]]
    assert [[name.partition("=")[2]]] == [each for each in allowed if each]


def test_the_scheduler_knows_its_arguments(container):
    command = [sys.executable, "-m", "scheduler", "--help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for arg in container["args"]:
        assert re.search(rf"{arg.partition('=')[0]}\b", shown), arg


def test_ports_and_labels_agree(objects, container):
    [port] = container["ports"]
    assert f"--listen=0.0.0.0:{port['containerPort']}" in container["args"]
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]
    [served] = the("Service", objects)["spec"]["ports"]
    assert served["targetPort"] == port["name"]
    [entrance] = the("NetworkPolicy", objects)["spec"]["ingress"]
    assert [each["port"] for each in entrance["ports"]] == [port["name"]]
    monitor = yaml.safe_load((DEPLOY / "monitoring/service-monitor.yaml").read_text())["spec"]
    assert [endpoint["port"] for endpoint in monitor["endpoints"]] == [served["name"]]

    labels = the("Deployment", objects)["spec"]["template"]["metadata"]["labels"]
    for selector in (
        the("Deployment", objects)["spec"]["selector"]["matchLabels"],
        the("PodDisruptionBudget", objects)["spec"]["selector"]["matchLabels"],
        the("NetworkPolicy", objects)["spec"]["podSelector"]["matchLabels"],
        the("Service", objects)["spec"]["selector"],
    ):
        assert selector.items() <= labels.items()
    assert monitor["selector"]["matchLabels"].items() <= (
        the("Service", objects)["metadata"]["labels"].items()
    )


def test_two_replicas_of_which_one_may_go(objects):
    spec = the("Deployment", objects)["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 1
    assert the("PodDisruptionBudget", objects)["spec"]["maxUnavailable"] == 1


# What goes wrong before a server is asked


@pytest.mark.usefixtures("no_cluster")
class TestNoCluster:
    def failed(self, run, *args):
        result = run("install", "--apply", *args, "--json")
        assert result.code == 1
        error = result.json["error"]
        assert result.err == f"privatekube: {error['message']}\n"
        return error["reason"], error["message"]

    def test_none_named(self, run):
        said = "there is no kubeconfig ~/.kube/config; name one with --kubeconfig"
        assert self.failed(run) == ("NoCluster", said)

    def test_no_such_file(self, run):
        reason, said = self.failed(run, "--kubeconfig", "nowhere.kubeconfig")
        assert reason == "NoCluster"
        assert said.startswith("there is no kubeconfig nowhere.kubeconfig")

    @pytest.mark.parametrize("text", ["", "[]", "{", "clusters: 1", "\0"])
    def test_no_kubeconfig_in_the_file(self, run, tmp_path, text):
        (tmp_path / "broken").write_text(text)
        reason, said = self.failed(run, "--kubeconfig", "broken")
        assert reason == "NoCluster"
        assert said.startswith("broken cannot be used: ")

    def test_no_such_context(self, run, tmp_path):
        (tmp_path / "good").write_text(KUBECONFIG)
        reason, said = self.failed(run, "--kubeconfig", "good", "--context", "there")
        assert reason == "NoCluster"
        assert "there" in said

    def test_nobody_answers(self, run, tmp_path, monkeypatch):
        (tmp_path / "good").write_text(KUBECONFIG)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "good"))
        assert self.failed(run, "--context", "here") == (
            "ClusterUnreachable",
            "cannot reach the API server at https://127.0.0.1:1:"
            " Failed to establish a new connection: [Errno 111] Connection refused",
        )


@pytest.mark.parametrize("module", ["yaml", "kubernetes"])
def test_without_the_extra(module):
    lacking = f"sys.modules[{module!r}] = None"
    args = ("--apply",) if module == "kubernetes" else ()
    result = in_own_process("install", *args, before=lacking)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "privatekube: the Kubernetes client is not installed;"
        " run pip install 'privatekube-kfp[kubernetes]'\n"
    )


# From a wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The program of a wheel, built from a copy of the checkout, in an environment of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "checkout"
    for name in ("privatekube_kfp", "crds", "scheduler"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)

    def do(*command):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    do(sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(copy))
    [wheel] = folder.glob("*.whl")
    shutil.rmtree(copy)
    do(sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"))
    python = folder / "venv/bin/python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install")
    do(*pip, "--no-deps", "--no-index", str(wheel))
    # Its dependencies are ours; a path in such a file comes after its own, and is only a path.
    [packages] = (folder / "venv/lib").glob("python*/site-packages")
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "venv/bin/privatekube"


@pytest.mark.slow
def test_from_a_wheel_outside_of_the_checkout(run, installed, tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [installed, "install"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run.ok("install").out
    share = Path(installed).parents[1] / "share/privatekube"
    shipped = {str(file.relative_to(share)) for file in share.rglob("*.yaml")}
    sources = [*(ROOT / "crds").glob("*.yaml"), *DEPLOY.rglob("*.yaml")]
    assert shipped == {str(file.relative_to(ROOT)) for file in sources}

    shutil.move(share, share.with_name("elsewhere"))
    try:
        lacking = subprocess.run(
            [installed, "install"], cwd=tmp_path, env=env, capture_output=True, text=True
        )
    finally:
        shutil.move(share.with_name("elsewhere"), share)
    assert (lacking.returncode, lacking.stdout) == (1, "")
    assert lacking.stderr == (
        "privatekube: this installation of privatekube-kfp lacks its manifests;"
        " install its wheel again\n"
    )
