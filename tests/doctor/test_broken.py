"""One thing broken in a good set-up: the doctor finds that, nothing else, and what mends it."""

import base64
import json
import shutil

import pytest

from privatekube_kfp import __version__
from tests.doctor.bed import ACCOUNT, KUBEFLOW, NAME, SYSTEM, good_settings
from tests.doctor.object_store import KEY, SECRET
from tests.kubernetes.test_rbac import WORKFLOWS
from tests.scheduler.running import until

pytestmark = pytest.mark.server
IMAGES = ("python", "python-torch", "keras")


@pytest.fixture(autouse=True)
def well(bed):
    """It was well before, and is well again: else a finding might be another test's."""
    yield
    report = until(lambda: next(iter([r] if not (r := bed.doctor()).amiss else []), None), 15)
    assert report.code == 0


def mended(bed, report):
    """Run what the doctor says, then ask again: nothing is amiss any more."""
    bed.shell(report.only["mend"])


def test_nothing_is_amiss_in_a_good_set_up(bed):
    report = bed.doctor(*bed.settings)
    assert (report.amiss, report.code) == ([], 0)
    assert [each["check"] for each in report.findings] == [
        "settings",
        "cluster",
        "definitions",
        "roles",
        "scheduler",
        "workflows",
        "account",
        "rights",
        "streams",
        "images",
        "secrets",
        "results",
        "pipeline root",
    ]


# Definitions and roles


def test_missing_definition(bed):
    bed.kubectl("delete crd privacyclaims.privatekube.io")
    report = bed.doctor()
    assert report.amiss == [("definitions", "wrong", "DefinitionMissing")]
    assert report.only["message"] == "the cluster has no definition privacyclaims.privatekube.io"
    assert report.only["mend"] == "privatekube install --apply --crds-only"
    mended(bed, report)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/spec/properties/deadline", "spec.deadline"),
        ("/spec/x-kubernetes-validations", "the rules of spec"),
    ],
)
def test_old_definition(bed, path, said):
    schema = "/spec/versions/0/schema/openAPIV3Schema/properties"
    change = json.dumps([{"op": "remove", "path": schema + path}])
    bed.kubectl(f"patch crd privacyclaims.privatekube.io --type=json -p '{change}'")
    report = bed.doctor()
    assert report.amiss == [("definitions", "wrong", "DefinitionOld")]
    assert report.only["message"] == (
        "definition privacyclaims.privatekube.io is not that of this version: it lacks " + said
    )
    mended(bed, report)


def test_newer_definition(bed):
    added = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/colour"
    change = json.dumps([{"op": "add", "path": added, "value": {"type": "string"}}])
    bed.kubectl(f"patch crd privacyclaims.privatekube.io --type=json -p '{change}'")
    report = bed.doctor()
    assert report.amiss == [("definitions", "warning", "DefinitionNewer")]
    assert report.code == 0
    assert report.only["mend"] == "pip install --upgrade privatekube-kfp"
    change = json.dumps([{"op": "remove", "path": added}])
    bed.kubectl(f"patch crd privacyclaims.privatekube.io --type=json -p '{change}'")


@pytest.mark.parametrize(
    "role",
    [
        "privatekube-pipeline-runner",
        "privatekube-budget-reader",
        "privatekube-data-steward",
        "privatekube-scheduler",
    ],
)
def test_missing_role(bed, role):
    bed.kubectl(f"delete clusterrole {role}")
    report = bed.doctor()
    assert report.amiss == [("roles", "wrong", "RoleMissing")]
    assert report.only["message"] == f"the cluster has no ClusterRole {role}"
    mended(bed, report)


def test_old_role(bed):
    change = json.dumps([{"op": "remove", "path": "/rules/1"}])
    bed.kubectl(f"patch clusterrole privatekube-pipeline-runner --type=json -p '{change}'")
    report = bed.doctor()
    assert report.amiss == [("roles", "wrong", "RoleOld")]
    assert report.only["message"].endswith("it does not let get pods")
    mended(bed, report)


# The account of pipelines


def test_no_binding_to_claim(bed):
    bed.kubectl(f"-n {KUBEFLOW} delete rolebinding privatekube-pipeline-runner")
    report = bed.doctor()
    assert report.amiss == [("rights", "wrong", "MayNotClaim")]
    assert report.only["message"] == (
        "service account pipeline-runner in namespace kubeflow may not create, get, list, watch,"
        " update and patch privacyclaims, get pods"
    )
    mended(bed, report)


def test_no_binding_to_read_streams(bed):
    bed.kubectl("delete clusterrolebinding privatekube-budget-reader-kubeflow")
    report = bed.doctor()
    assert report.amiss == [("rights", "wrong", "MayNotRead")]
    mended(bed, report)


def test_binding_for_somebody_else(bed):
    """A binding of this name is there: another account is to be added to it, not replaced."""
    bed.kubectl(f"-n {KUBEFLOW} create serviceaccount another")
    report = bed.doctor("--service-account", "another")
    assert report.amiss == [("rights", "wrong", "MayNotClaim"), ("rights", "wrong", "MayNotRead")]
    for each in report.findings:
        if each["mend"]:
            bed.shell(each["mend"])
    assert bed.doctor("--service-account", "another").amiss == []
    bed.kubectl(f"-n {KUBEFLOW} delete serviceaccount another")


def test_binding_of_another_role_by_the_usual_name(bed):
    bed.kubectl(f"-n {KUBEFLOW} delete rolebinding privatekube-pipeline-runner")
    bed.kubectl(
        f"-n {KUBEFLOW} create rolebinding privatekube-pipeline-runner --clusterrole=view"
        f" --serviceaccount={KUBEFLOW}:default"
    )
    report = bed.doctor()
    assert report.amiss == [("rights", "wrong", "MayNotClaim")]
    mended(bed, report)
    assert bed.doctor().amiss == []
    bed.kubectl(f"-n {KUBEFLOW} delete rolebinding privatekube-pipeline-runner")
    bed.kubectl(f"-n {KUBEFLOW} delete rolebinding privatekube-pipeline-runner-{ACCOUNT}")
    bed.shell(bed.doctor().only["mend"])


def test_missing_account(bed):
    bed.kubectl(f"-n {KUBEFLOW} delete serviceaccount {ACCOUNT}")
    report = bed.doctor("--service-account", ACCOUNT)
    assert report.amiss == [("account", "wrong", "AccountMissing")]
    mended(bed, report)


def test_missing_namespace(bed):
    report = bed.doctor("--namespace", "elsewhere")
    assert report.amiss == [("account", "wrong", "NamespaceMissing")]
    assert report.only["mend"] == "kubectl create namespace elsewhere"


# The scheduler


def test_no_scheduler(bed):
    bed.stop_scheduler()
    bed.kubectl(f"-n {SYSTEM} delete deployment {NAME}")
    report = bed.doctor()
    assert report.amiss == [("scheduler", "wrong", "SchedulerMissing")]
    assert report.only["mend"] == "privatekube install --apply"
    mended(bed, report)
    bed.start_scheduler()
    bed.report_pods_ready()


def test_scheduler_scaled_away(bed):
    bed.stop_scheduler()
    bed.kubectl(f"-n {SYSTEM} scale deployment {NAME} --replicas=0")
    report = bed.doctor()
    assert report.amiss == [("scheduler", "wrong", "SchedulerStopped")]
    mended(bed, report)
    bed.start_scheduler()
    bed.report_pods_ready()


def test_scheduler_that_crashes(bed):
    bed.stop_scheduler()
    bed.report_pods_waiting("CrashLoopBackOff", "back-off restarting failed container")
    report = bed.doctor()
    assert report.amiss == [("scheduler", "wrong", "SchedulerNotRunning")]
    assert "back-off restarting failed container" in report.only["message"]
    assert NAME in bed.shell(report.only["mend"])
    bed.start_scheduler()
    bed.report_pods_ready()


def test_scheduler_whose_account_is_gone(bed):
    bed.stop_scheduler()
    bed.kubectl(f"-n {SYSTEM} delete serviceaccount {NAME}")
    bed.kubectl(f"-n {SYSTEM} delete pods --all --force --grace-period=0")
    until(lambda: "ReplicaFailure" in bed.kubectl(f"-n {SYSTEM} get deployment {NAME} -o yaml"))
    report = bed.doctor()
    assert report.amiss == [("scheduler", "wrong", "SchedulerNotRunning")]
    assert 'serviceaccount "privatekube-scheduler" not found' in report.only["message"]
    mended(bed, report)
    bed.kubectl(f"-n {SYSTEM} rollout restart deployment {NAME}")
    bed.start_scheduler()
    bed.report_pods_ready()


def test_nobody_leads(bed):
    """Pods are ready, but whoever held the lease is gone."""
    bed.stop_scheduler()
    report = bed.doctor()
    assert report.amiss == [("scheduler", "wrong", "SchedulerNotLeading")]
    mended(bed, report)
    bed.start_scheduler()
    bed.report_pods_ready()


def test_two_schedulers(bed):
    bed.kubectl("create namespace second")
    found = json.loads(bed.kubectl(f"-n {SYSTEM} get deployment {NAME} -o json"))
    found["metadata"] = {"name": NAME, "namespace": "second", "labels": found["metadata"]["labels"]}
    del found["status"]
    bed.cluster.apply(found)
    report = bed.doctor()
    assert report.amiss == [("scheduler", "wrong", "SchedulersMany")]
    assert report.only["message"] == (
        "2 schedulers work on this cluster, each with a Lease of its own: privatekube-scheduler in"
        " namespace privatekube-system and privatekube-scheduler in namespace second"
    )
    assert report.only["mend"] == f"kubectl -n second delete deployment {NAME}"
    mended(bed, report)
    bed.kubectl("delete namespace second --wait=false")


def test_two_schedulers_one_of_them_a_process_somewhere(bed):
    bed.kubectl("create namespace third")
    first, bed._scheduler = bed._scheduler, None
    bed.start_scheduler(namespace="third")
    try:
        report = bed.doctor()
        assert report.amiss == [("scheduler", "wrong", "SchedulersMany")]
        assert "privatekube-scheduler in namespace third" in report.only["message"]
        assert "holderIdentity" in bed.shell(report.only["mend"])
    finally:
        bed.stop_scheduler()
        bed._scheduler = first
    bed.kubectl("delete namespace third --wait=false")


def test_more_replicas_on_one_lease_are_one_scheduler(bed):
    found = json.loads(bed.kubectl(f"-n {SYSTEM} get deployment {NAME} -o json"))
    labels = found["metadata"]["labels"]
    found["metadata"] = {"name": "more", "namespace": SYSTEM, "labels": labels}
    del found["status"]
    bed.cluster.apply(found)
    assert bed.doctor().amiss == []
    bed.kubectl(f"-n {SYSTEM} delete deployment more")


def test_scheduler_of_another_version(bed):
    bed.stop_scheduler()
    bed.start_scheduler("tests.doctor.older")
    report = bed.doctor()
    assert report.amiss == [("scheduler", "wrong", "SchedulerVersion")]
    assert report.only["message"] == (
        f"the scheduler is of version 0.0.9, and this library of version {__version__}"
    )
    mended(bed, report)
    bed.stop_scheduler()
    bed.start_scheduler()
    bed.report_pods_ready()


def test_image_that_cannot_be_pulled(bed):
    bed.stop_scheduler()
    bed.kubectl(f"-n {SYSTEM} delete deployment {NAME} --cascade=foreground")
    bed.shell("privatekube install --apply --image nowhere.example/typo:1")
    bed.report_pods_waiting("ImagePullBackOff", "Back-off pulling image: not found")
    report = bed.doctor()
    assert report.amiss == [("scheduler", "wrong", "SchedulerImage")]
    assert "nowhere.example/typo:1 cannot be pulled: Back-off" in report.only["message"]
    bed.shell(report.only["mend"].replace("REGISTRY", "mirror.example"))
    bed.start_scheduler()
    bed.report_pods_ready()
    image = bed.kubectl(f"-n {SYSTEM} get deployment {NAME} -o yaml")
    assert f"image: mirror.example/privatekube-scheduler:{__version__}" in image
    bed.shell("privatekube install --apply")
    bed.report_pods_ready()


def test_image_of_an_upgrade_that_cannot_be_pulled(bed):
    """What was there before goes on, so that claims are answered."""
    bed.kubectl(f"-n {SYSTEM} set image deployment/{NAME} scheduler=nowhere.example/typo:1")
    pods = until(lambda: bed.pods_of_image("nowhere.example/typo:1"), 60)
    bed.report_pod(pods[0], {"waiting": {"reason": "ErrImagePull"}}, ready=False)
    report = bed.doctor()
    assert report.amiss == [("scheduler", "warning", "SchedulerImage")]
    bed.shell("privatekube install --apply")
    bed.report_pods_ready()


def test_scheduler_without_its_binding(bed):
    bed.kubectl("delete clusterrolebinding privatekube-scheduler")
    report = bed.doctor()
    assert report.amiss == [("scheduler", "wrong", "SchedulerMayNot")]
    mended(bed, report)


def test_one_replica_short(bed):
    pods = json.loads(bed.kubectl(f"-n {SYSTEM} get pods -o json"))["items"]
    name = pods[0]["metadata"]["name"]
    condition = [{"type": "Ready", "status": "False"}]
    change = json.dumps({"status": {"conditions": condition}})
    bed.kubectl(f"-n {SYSTEM} patch pod {name} --subresource=status -p '{change}'")
    until(lambda: bed.apps.read_namespaced_deployment(NAME, SYSTEM).status.ready_replicas == 1)
    report = bed.doctor()
    assert report.amiss == [("scheduler", "warning", "SchedulerNoStandby")]
    assert report.code == 0
    bed.report_pods_ready()


def test_no_workflows(bed):
    bed.kubectl("delete crd workflows.argoproj.io")
    report = bed.doctor()
    assert report.amiss == [("workflows", "warning", "WorkflowsMissing")]
    bed.cluster.apply(WORKFLOWS)


# Streams


def test_stream_without_blocks(bed):
    bed.shell(
        "privatekube --ledger kubernetes stream create empty --epsilon 1 --delta 1e-7"
        " --unlock-at-once"
    )
    report = bed.doctor()
    assert report.amiss == [("streams", "warning", "StreamEmpty")]
    bed.shell(report.only["mend"].replace("NAME", "tuesday"))


# Settings


def test_unknown_key_in_settings(bed):
    report = bed.doctor(*bed.changed_settings(resultz="s3://team/results"), "--namespace", KUBEFLOW)
    assert report.amiss == [("settings", "wrong", "SettingsInvalid")]
    assert "unknown key 'resultz': did you mean results?" in report.only["message"]
    assert report.only["mend"] == f"privatekube settings show --settings {bed.folder}/changed.yaml"


def test_settings_in_a_config_map(bed):
    address = f"configmap:{KUBEFLOW}/site"
    report = bed.doctor("--settings", address, "--namespace", KUBEFLOW)
    assert report.amiss == [("settings", "wrong", "SettingsMissing")]
    bed.shell(report.only["mend"].replace("FILE", bed.settings[1]))
    assert bed.doctor("--settings", address).amiss == []


@pytest.mark.parametrize("image", [{"digest": "sha256:12"}, {"tag": "a b"}, {"image": "A B"}])
def test_malformed_image(bed, image):
    changed = bed.changed_settings(images={"python": image})
    report = bed.doctor(*changed, "--namespace", KUBEFLOW)
    assert report.amiss == [("settings", "wrong", "SettingsInvalid")]
    assert "images.python" in report.only["message"]


def test_relative_place(bed):
    changed = bed.changed_settings(results="published/results")
    report = bed.doctor(*changed, "--namespace", KUBEFLOW)
    assert report.amiss == [("settings", "wrong", "SettingsInvalid")]
    assert "relative paths are lost" in report.only["message"]


# Images


def test_image_of_another_version(bed):
    report = bed.doctor(*bed.changed_settings(images={"python": {"tag": "0.0.9"}}))
    assert report.amiss == [("images", "wrong", "ImageVersion")]
    assert report.only["mend"] == "pip install privatekube-kfp==0.0.9"


def test_image_that_tasks_cannot_pull(bed):
    image = f"privatekube/python:{__version__}"
    pod = {
        "metadata": {"name": "task"},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }
    bed.core.create_namespaced_pod(KUBEFLOW, pod)
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "manifest unknown"}}
    status = {"name": "main", "image": image, "imageID": "", "ready": False, "restartCount": 0}
    reported = {"status": {"phase": "Pending", "containerStatuses": [status | {"state": waiting}]}}
    bed.core.patch_namespaced_pod_status("task", KUBEFLOW, reported)
    report = bed.doctor()
    assert report.amiss == [("images", "wrong", "ImagePull")]
    assert report.only["message"] == f"pod task cannot pull image {image}: manifest unknown"
    assert report.only["mend"] == (
        f"docker build -f components/Dockerfile -t {image} . && docker push {image}"
    )
    bed.core.delete_namespaced_pod("task", KUBEFLOW)


def test_registry_without_the_image(bed, registry):
    registry.has.add(f"python-torch/manifests/{__version__}")
    registry.has.add(f"keras/manifests/{__version__}")
    report = bed.doctor(*bed.changed_settings(images={"registry": registry.name}))
    assert report.amiss == [("images", "wrong", "ImageMissing")]
    image = f"{registry.name}/python:{__version__}"
    assert image in report.only["message"]
    registry.has.add(f"python/manifests/{__version__}")
    assert bed.doctor(*bed.changed_settings(images={"registry": registry.name})).amiss == []


def test_registry_that_cannot_be_reached(bed):
    """That is no fault of the cluster's: nodes may reach what this machine does not."""
    report = bed.doctor(*bed.changed_settings(images={"registry": "127.0.0.1:1/team"}))
    assert report.amiss == [("images", "unchecked", "NotChecked")]
    assert report.code == 0
    assert report.only["message"].startswith("could not be checked from here: 127.0.0.1:1/team/")
    assert "registry 127.0.0.1:1 cannot be reached: " in report.only["message"]


@pytest.mark.parametrize("way", ["basic", "bearer"])
def test_registry_that_wants_credentials(bed, registry, way):
    registry.has |= {f"{name}/manifests/{__version__}" for name in IMAGES}
    registry.wants(way, "robot", "secret")
    private = bed.changed_settings(images={"registry": registry.name})
    report = bed.doctor(*private)
    assert report.amiss == [("images", "unchecked", "NotChecked")]
    assert report.code == 0
    host = registry.name.partition("/")[0]
    assert report.only["message"].startswith("could not be checked from here: ")
    assert report.only["message"].endswith(
        f"registry {host} asks for credentials, and there are none for it here"
    )
    assert report.only["mend"] == (
        f"kubectl -n {KUBEFLOW} run privatekube-pull --rm -i --restart=Never"
        f" --image={registry.name}/python:{__version__}"
        f""" '--overrides={{"spec": {{"serviceAccountName": "{ACCOUNT}"}}}}'"""
        " --command -- true"
    )


@pytest.mark.parametrize("way", ["basic", "bearer"])
def test_registry_that_takes_the_credentials_of_a_pull_secret(bed, registry, way):
    registry.has |= {f"{name}/manifests/{__version__}" for name in IMAGES if name != "keras"}
    registry.wants(way, "robot", "secret")
    host = registry.name.partition("/")[0]
    private = bed.changed_settings(images={"registry": registry.name, "pullSecrets": ["robot"]})
    make = f"-n {KUBEFLOW} create secret docker-registry robot --docker-server={host}"
    bed.kubectl(f"{make} --docker-username=robot --docker-password=secret")
    try:
        report = bed.doctor(*private)
        assert report.amiss == [("images", "wrong", "ImageMissing")]
        assert f"{registry.name}/keras:{__version__}" in report.only["message"]
        registry.has.add(f"keras/manifests/{__version__}")
        assert bed.doctor(*private).amiss == []
        registry.wants(way, "robot", "another")
        report = bed.doctor(*private)
        assert report.amiss == [("images", "unchecked", "NotChecked")]
        assert "and refuses those of secret robot" in report.only["message"]
    finally:
        bed.kubectl(f"-n {KUBEFLOW} delete secret robot")


def test_registry_that_takes_your_own_credentials(bed, registry):
    """They tell whether there is an image, and not whether nodes may pull it."""
    registry.wants("bearer", "me", "mine")
    host = registry.name.partition("/")[0]
    auth = base64.b64encode(b"me:mine").decode()
    folder = bed.folder / ".docker"
    folder.mkdir()
    try:
        (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
        private = bed.changed_settings(images={"registry": registry.name})
        report = bed.doctor(*private)
        assert {each[1:] for each in report.amiss} == {("wrong", "ImageMissing")}
        registry.has |= {f"{name}/manifests/{__version__}" for name in IMAGES}
        report = bed.doctor(*private)
        assert report.amiss == [("images", "unchecked", "NotChecked")]
        assert "has it for you, by credentials that nodes do not have" in report.only["message"]
        (folder / "config.json").write_text('{"auths": [1')
        assert bed.doctor(*private).amiss == [("images", "unchecked", "NotChecked")]
    finally:
        shutil.rmtree(folder)


def test_registry_that_gives_everybody_a_token(bed, registry):
    registry.has |= {f"{name}/manifests/{__version__}" for name in IMAGES}
    registry.wants("bearer", "", "")
    assert bed.doctor(*bed.changed_settings(images={"registry": registry.name})).amiss == []


# Secrets


def test_missing_secret(bed):
    bed.kubectl(f"-n {KUBEFLOW} delete secret store")
    report = bed.doctor(*bed.settings)
    assert report.amiss == [("secrets", "wrong", "SecretMissing")]
    assert report.only["mend"] == (
        "kubectl -n kubeflow create secret generic store --from-literal=id=VALUE"
        " --from-literal=secret=VALUE"
    )
    fill_in(bed, report)


def test_missing_key_of_a_secret(bed):
    change = json.dumps([{"op": "remove", "path": "/data/secret"}])
    bed.kubectl(f"-n {KUBEFLOW} patch secret store --type=json -p '{change}'")
    report = bed.doctor(*bed.settings)
    assert report.amiss == [("secrets", "wrong", "SecretKeyMissing")]
    fill_in(bed, report)


def test_missing_pull_secret(bed):
    report = bed.doctor(*bed.changed_settings(images={"pullSecrets": ["hub"]}))
    assert report.amiss == [("secrets", "wrong", "SecretMissing")]
    mended(bed, report)
    assert bed.doctor(*bed.changed_settings(images={"pullSecrets": ["hub"]})).amiss == []


def test_optional_secret(bed):
    secrets = good_settings(bed.store)["tasks"]["secrets"]
    more = {"name": "more", "env": {"a": "A"}, "optional": True}
    tasks = good_settings(bed.store)["tasks"] | {"secrets": [*secrets, more]}
    assert bed.doctor(*bed.changed_settings(tasks=tasks)).amiss == []


def fill_in(bed, report):
    """Run what the doctor says, with the values that it cannot know."""
    command = report.only["mend"].replace("id=VALUE", f"id={KEY}")
    command = command.replace("secret=VALUE", f"secret={SECRET}")
    bed.shell(command.replace('"secret": "VALUE"', f'"secret": "{SECRET}"'))
    assert bed.doctor(*bed.settings).amiss == []


# Places


def test_results_refused(bed):
    """Credentials that the object store does not know."""
    change = json.dumps({"stringData": {"secret": "wrong"}})
    bed.kubectl(f"-n {KUBEFLOW} patch secret store -p '{change}'")
    report = bed.doctor(*bed.settings)
    assert ("results", "wrong", "ResultsUnwritable") in report.amiss
    [found] = [each for each in report.findings if each["level"] == "wrong"]
    assert found["message"].startswith("results cannot be written to s3://team/results: ")
    command = found["mend"].replace("id=VALUE", f"id={KEY}")
    bed.shell(command.replace("secret=VALUE", f"secret={SECRET}"))
    assert bed.doctor(*bed.settings).amiss == []


def test_results_without_credentials(bed):
    tasks = {"env": {"AWS_ENDPOINT_URL": bed.store.url}}
    report = bed.doctor(*bed.changed_settings(tasks=tasks, pipelineRoot="minio://mlpipeline"))
    wrong = [each for each in report.amiss if each[1] == "wrong"]
    assert wrong == [("results", "wrong", "ResultsCredentials")]


def test_results_in_no_bucket(bed):
    report = bed.doctor(*bed.changed_settings(results="s3://nobodys/results"))
    assert report.amiss == [("results", "wrong", "ResultsMissing")]
    assert report.only["mend"] == "aws s3 mb s3://nobodys"


def reached_at(bed, url):
    tasks = good_settings(bed.store)["tasks"]
    tasks["env"]["AWS_ENDPOINT_URL"] = url
    return bed.changed_settings(tasks=tasks)


def test_object_store_that_cannot_be_reached(bed):
    """From outside, nobody knows: nodes may reach what this machine does not."""
    report = bed.doctor(*reached_at(bed, "http://127.0.0.1:1"))
    assert [each[:2] for each in report.amiss] == [
        ("results", "unchecked"),
        ("pipeline root", "unchecked"),
    ]
    assert report.code == 0
    assert not report.complete


@pytest.mark.parametrize(
    "host",
    [
        "minio-service.kubeflow.svc",
        "seaweedfs.kubeflow",
        "seaweedfs",
        "s.kubeflow.svc.cluster.local",
    ],
)
def test_object_store_that_only_the_cluster_reaches(bed, host):
    settings = reached_at(bed, f"http://{host}:9000")
    report = bed.doctor(*settings)
    assert report.amiss == [
        ("results", "unchecked", "NotChecked"),
        ("pipeline root", "unchecked", "NotChecked"),
    ]
    assert (report.code, report.complete) == (0, False)
    [found] = [each for each in report.findings if each["check"] == "results"]
    assert found["message"] == (
        f"could not be checked from here: s3://team/results: {host} can be reached from inside the"
        " cluster only"
    )
    assert found["mend"] == (
        f"privatekube doctor --in-cluster --namespace {KUBEFLOW} --service-account {ACCOUNT}"
        f" --settings {settings[1]}"
    )


# From inside the cluster


def test_places_are_tried_in_a_pod(bed):
    with bed.kubelet() as ran:
        report = bed.doctor(*bed.settings, "--in-cluster")
    assert (report.amiss, report.complete) == ([], True)
    [pod] = ran
    assert pod.spec.service_account_name == ACCOUNT
    assert pod.spec.containers[0].image == f"privatekube/python:{__version__}"
    left = bed.core.list_namespaced_pod(
        KUBEFLOW, label_selector="app.kubernetes.io/name=privatekube-doctor"
    ).items
    assert left == [], "it is deleted"
    assert list((bed.store.folder / "team").rglob("*probe*")) == []


def test_a_pod_that_cannot_reach_the_object_store(bed):
    """There, it is wrong."""
    with bed.kubelet():
        report = bed.doctor(*reached_at(bed, "http://127.0.0.1:1"), "--in-cluster")
    assert report.amiss == [("results", "wrong", "ResultsUnreachable")]
    assert report.code == 1


def test_a_pod_without_credentials(bed):
    tasks = {"env": {"AWS_ENDPOINT_URL": bed.store.url}}
    settings = bed.changed_settings(tasks=tasks, pipelineRoot=None)
    with bed.kubelet():
        report = bed.doctor(*settings, "--in-cluster")
    assert report.amiss == [("results", "wrong", "ResultsCredentials")]


@pytest.mark.parametrize(
    ("reported", "said"),
    [
        (
            {"waiting": {"reason": "ErrImagePull", "message": "manifest\nunknown"}},
            "cannot start: manifest unknown",
        ),
        ({"terminated": {"exitCode": 1, "message": "no JSON"}}, "it ended with exit code 1"),
    ],
)
def test_a_pod_that_cannot_tell(bed, reported, said):
    with bed.kubelet(reported):
        report = bed.doctor(*bed.settings, "--in-cluster")
    assert [each[1] for each in report.amiss] == ["unchecked", "unchecked"]
    assert said in report.findings[-1]["message"]
    assert (report.code, report.complete) == (0, False)


def test_a_tenant_who_may_not_start_pods(bed):
    bed.kubectl(f"-n {KUBEFLOW} create serviceaccount reader")
    bed.kubectl(
        f"-n {KUBEFLOW} create rolebinding reader --clusterrole=view"
        f" --serviceaccount={KUBEFLOW}:reader"
    )
    kubeconfig = bed.cluster.kubeconfig_for(bed.cluster.token(KUBEFLOW, "reader"))
    report = bed.doctor(*bed.settings, "--in-cluster", kubeconfig=kubeconfig)
    [found] = [each for each in report.findings if each["check"] == "results"]
    assert found["message"].endswith("you may not create pods in namespace kubeflow")
    assert found["level"] == "unchecked"


def test_results_in_the_pod(bed):
    report = bed.doctor(*bed.changed_settings(results="/published"))
    assert report.amiss == [("results", "warning", "ResultsInPod")]


def test_results_nowhere(bed):
    report = bed.doctor(*bed.changed_settings(results=None))
    assert report.amiss == [("results", "warning", "ResultsUnset")]


def test_pipeline_root_in_no_bucket(bed):
    report = bed.doctor(*bed.changed_settings(pipelineRoot="s3://nobodys/root"))
    assert report.amiss == [("pipeline root", "wrong", "RootMissing")]


def test_pipeline_root_that_is_a_path(bed):
    report = bed.doctor(*bed.changed_settings(pipelineRoot="/artifacts"))
    assert report.amiss == [("pipeline root", "wrong", "RootInPod")]


# Kubeflow


def test_kubeflow_does_not_answer(bed):
    report = bed.doctor("--endpoint", "http://127.0.0.1:1")
    assert report.amiss == [("kubeflow", "wrong", "KubeflowUnreachable")]


def test_kubeflow_that_only_the_cluster_reaches(bed):
    report = bed.doctor("--endpoint", "http://ml-pipeline.kubeflow:8888")
    assert report.amiss == [("kubeflow", "unchecked", "NotChecked")]
    assert report.only["message"] == (
        "could not be checked from here: http://ml-pipeline.kubeflow:8888: ml-pipeline.kubeflow"
        " can be reached from inside the cluster only"
    )


@pytest.mark.parametrize(
    ("said", "amiss"),
    [
        ({"tag_name": "2.17.0", "multi_user": False}, []),
        ({"tag_name": "2.5.0"}, [("kubeflow", "warning", "KubeflowNotTried")]),
        ({"tag_name": "unknown"}, [("kubeflow", "unchecked", "NotChecked")]),
        (["no", "Kubeflow"], [("kubeflow", "wrong", "KubeflowUnreachable")]),
    ],
)
def test_version_of_kubeflow(bed, registry, said, amiss):
    registry.pages["/apis/v2beta1/healthz"] = json.dumps(said)
    report = bed.doctor("--endpoint", f"http://{registry.name.partition('/')[0]}")
    assert report.amiss == amiss
