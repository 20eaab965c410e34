"""Who may do what: every role with a real token, against a real server.

The tables are written out here a second time, on purpose: a role that grows is to fail a test.
"""

import contextlib
import itertools
import time
import uuid
from datetime import UTC, datetime

import pytest
from kubernetes.client import (
    ApiextensionsV1Api,
    AuthorizationV1Api,
    CoordinationV1Api,
    CoreV1Api,
    CustomObjectsApi,
    EventsV1Api,
    RbacAuthorizationV1Api,
)
from kubernetes.client.exceptions import ApiException

from privatekube_kfp.cli.install import NAMESPACE, manifests
from privatekube_kfp.ledger.kubernetes.objects import COUNT
from tests.kubernetes.objects import BLOCKS, CLAIMS, GROUP, PLURALS, STREAMS, VERSION, example
from tests.scheduler.running import clean

LEASE = "privatekube-scheduler"
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
READ = "get list watch"

# Verbs on each resource of the group; whatever is not here is denied.
MAY = {
    "privatekube-scheduler": {
        STREAMS: f"{READ} patch",
        BLOCKS: f"{READ} patch",
        CLAIMS: f"{READ} patch delete",
        f"{STREAMS}/status": "update patch",
        f"{BLOCKS}/status": "update patch",
        f"{CLAIMS}/status": "update patch",
    },
    "privatekube-pipeline-runner": {CLAIMS: f"{READ} create update patch"},
    "privatekube-budget-reader": {STREAMS: READ, BLOCKS: READ},
    "privatekube-data-steward": {
        STREAMS: f"{READ} create update patch delete",
        BLOCKS: f"{READ} create update patch delete",
        CLAIMS: READ,
    },
    "privatekube-viewer": {STREAMS: READ, BLOCKS: READ, CLAIMS: READ},
}
# The same outside of the group.
MAY_BESIDES = {
    "privatekube-scheduler": {
        ("argoproj.io", "workflows"): READ,
        ("", "events"): "create patch",
        ("events.k8s.io", "events"): "create patch",
    },
    # To find in its own pod which Workflow it belongs to.
    "privatekube-pipeline-runner": {("", "pods"): "get"},
}
WORKFLOWS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "workflows.argoproj.io"},
    "spec": {
        "group": "argoproj.io",
        "scope": "Namespaced",
        "names": {"kind": "Workflow", "plural": "workflows", "singular": "workflow"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


class User:
    """Somebody with a token: real calls, and the server's own word on what would be allowed."""

    def __init__(self, client):
        self.objects = CustomObjectsApi(client)
        self.core = CoreV1Api(client)
        self.leases = CoordinationV1Api(client)
        self.events = EventsV1Api(client)
        self._reviews = AuthorizationV1Api(client)

    def may(self, verb, group, resource, namespace=""):
        plural, _, subresource = resource.partition("/")
        asked = {
            "verb": verb,
            "group": group,
            "resource": plural,
            "subresource": subresource,
            "namespace": namespace,
        }
        review = self._reviews.create_self_subject_access_review(
            {"spec": {"resourceAttributes": asked}}
        )
        return review.status.allowed

    def rules(self, namespace):
        """Every rule that holds for them in the namespace, each (verb, group, resource, name)."""
        review = self._reviews.create_self_subject_rules_review({"spec": {"namespace": namespace}})
        assert not review.status.incomplete
        return {
            permission
            for rule in review.status.resource_rules
            for permission in itertools.product(
                rule.verbs, rule.api_groups or [""], rule.resources, rule.resource_names or ["*"]
            )
        }


@pytest.fixture(scope="module", autouse=True)
def _installed(control_plane):
    """Definitions, roles and the scheduler's account, as shipped."""
    kinds = "Namespace CustomResourceDefinition ServiceAccount ClusterRole ClusterRoleBinding Role"
    wanted = {*kinds.split(), "RoleBinding"}
    control_plane.apply([each for each in manifests() if each["kind"] in wanted])
    yield
    clean(control_plane)


@pytest.fixture(scope="module")
def own(control_plane):
    """The namespace of the accounts, and of the pipelines."""
    name = f"rbac-{uuid.uuid4().hex[:12]}"
    core = CoreV1Api(control_plane.admin)
    core.create_namespace({"metadata": {"name": name}})
    yield name
    core.delete_namespace(name)


@pytest.fixture(scope="module")
def users(control_plane, own):
    """A user of each role, bound as the role is meant to be, and `nobody` with no role."""
    core, rbac = CoreV1Api(control_plane.admin), RbacAuthorizationV1Api(control_plane.admin)
    made = {
        "privatekube-scheduler": (NAMESPACE, "privatekube-scheduler"),
        "nobody": (own, "nobody"),
    }
    core.create_namespaced_service_account(own, {"metadata": {"name": "nobody"}})
    bound = []
    for role in [*MAY, "view"]:
        if role in made:
            continue
        core.create_namespaced_service_account(own, {"metadata": {"name": role}})
        name = f"{role}-{own}"
        binding = {
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role,
            },
            "subjects": [{"kind": "ServiceAccount", "name": role, "namespace": own}],
        }
        if role in ("privatekube-pipeline-runner", "view"):
            rbac.create_namespaced_role_binding(own, binding)
        else:
            rbac.create_cluster_role_binding(binding)
            bound.append(name)
        made[role] = (own, role)
    yield {
        role: User(control_plane.client(control_plane.token(*account)))
        for role, account in made.items()
    }
    for name in bound:
        rbac.delete_cluster_role_binding(name)


@pytest.fixture
def scheduler(users):
    return users["privatekube-scheduler"]


@pytest.fixture
def runner(users):
    return users["privatekube-pipeline-runner"]


@pytest.fixture
def admin(control_plane):
    return CustomObjectsApi(control_plane.admin)


@pytest.fixture
def stream(admin):
    name = f"stream-{uuid.uuid4().hex[:12]}"
    yield admin.create_cluster_custom_object(GROUP, VERSION, STREAMS, example(STREAMS, name))
    admin.delete_cluster_custom_object(GROUP, VERSION, STREAMS, name)


@pytest.fixture
def block(admin):
    name = f"block-{uuid.uuid4().hex[:12]}"
    yield admin.create_cluster_custom_object(GROUP, VERSION, BLOCKS, example(BLOCKS, name))
    admin.delete_cluster_custom_object(GROUP, VERSION, BLOCKS, name)


def refused(call, *args):
    """The call is refused for want of permission."""
    with pytest.raises(ApiException) as raised:
        call(*args)
    assert raised.value.status == 403, raised.value
    return True


def a_claim(requests=1):
    claim = example(CLAIMS, f"claim-{uuid.uuid4().hex[:12]}")
    claim["spec"]["requests"] = claim["spec"]["requests"][:requests]
    return claim


# Tables


@pytest.mark.parametrize("role", MAY)
def test_exactly_these_verbs_of_the_group(users, own, namespace, role):
    user = users[role]
    bound_in = {own} if role == "privatekube-pipeline-runner" else {own, namespace, ""}
    allowed, expected = set(), set()
    for plural, subresource in itertools.product(PLURALS, ("", "/status", "/scale", "/finalizers")):
        resource = plural + subresource
        places = (own, namespace, "") if plural == CLAIMS else ("",)
        for place, verb in itertools.product(places, VERBS):
            if user.may(verb, GROUP, resource, place):
                allowed.add((verb, resource, place))
            if verb in MAY[role].get(resource, "").split() and place in bound_in:
                expected.add((verb, resource, place))
    assert allowed == expected


@pytest.mark.parametrize("role", MAY)
def test_nothing_outside_of_the_group(users, own, namespace, role):
    """All rules of a role, less what everybody who has a token may do."""
    group = {
        (verb, GROUP, resource, "*")
        for resource, verbs in MAY[role].items()
        for verb in verbs.split()
    }
    besides = {
        (verb, api_group, resource, "*")
        for (api_group, resource), verbs in MAY_BESIDES.get(role, {}).items()
        for verb in verbs.split()
    }
    leases = set()
    if role == "privatekube-scheduler":
        verbs = [("create", "*"), ("get", LEASE), ("update", LEASE), ("patch", LEASE)]
        leases = {(verb, "coordination.k8s.io", "leases", name) for verb, name in verbs}
    elsewhere = set() if role == "privatekube-pipeline-runner" else group | besides
    expected = {own: group | besides, namespace: elsewhere, NAMESPACE: elsewhere | leases}
    for place, permissions in expected.items():
        found = users[role].rules(place) - users["nobody"].rules(place)
        assert found == permissions, place


def test_built_in_viewers_see_claims_of_their_namespace(users, own, namespace):
    viewer = users["view"]
    deadline = time.monotonic() + 180  # A controller copies the rules.
    while not viewer.may("list", GROUP, CLAIMS, own) and time.monotonic() < deadline:
        time.sleep(0.2)
    for verb in VERBS:
        assert viewer.may(verb, GROUP, CLAIMS, own) == (verb in READ.split()), verb
        assert not viewer.may(verb, GROUP, f"{CLAIMS}/status", own)
        assert not viewer.may(verb, GROUP, CLAIMS, namespace)
        assert not viewer.may(verb, GROUP, STREAMS)


# A pipeline


def test_a_pipeline_claims_reads_and_appends(runner, own):
    claim = a_claim()
    name, where = claim["metadata"]["name"], (GROUP, VERSION, own, CLAIMS)
    runner.objects.create_namespaced_custom_object(*where, claim)
    found = runner.objects.get_namespaced_custom_object(*where, name)
    assert [each["id"] for each in found["spec"]["requests"]] == ["allocate"]

    more = example(CLAIMS, name)["spec"]["requests"]
    found["spec"]["requests"] = more[:2]
    runner.objects.replace_namespaced_custom_object(*where, name, found)
    patch = {"spec": {"requests": more}}
    runner.objects.patch_namespaced_custom_object(*where, name, patch)
    [listed] = [
        each
        for each in runner.objects.list_namespaced_custom_object(*where)["items"]
        if each["metadata"]["name"] == name
    ]
    assert listed["spec"]["requests"] == more


def test_a_pipeline_never_grants_itself_budget(runner, admin, own):
    claim = a_claim()
    name, where = claim["metadata"]["name"], (GROUP, VERSION, own, CLAIMS)
    granted = {"phase": "Allocated"}
    runner.objects.create_namespaced_custom_object(*where, claim | {"status": granted})
    found = runner.objects.get_namespaced_custom_object(*where, name)
    assert "status" not in found
    wrong = found | {"status": granted}
    assert refused(runner.objects.replace_namespaced_custom_object_status, *where, name, wrong)
    patch = {"status": granted}
    assert refused(runner.objects.patch_namespaced_custom_object_status, *where, name, patch)
    runner.objects.replace_namespaced_custom_object(*where, name, wrong)
    assert "status" not in admin.get_namespaced_custom_object(*where, name)


def test_a_pipeline_never_deletes(runner, own):
    claim = a_claim()
    where = (GROUP, VERSION, own, CLAIMS)
    runner.objects.create_namespaced_custom_object(*where, claim)
    name = claim["metadata"]["name"]
    assert refused(runner.objects.delete_namespaced_custom_object, *where, name)
    assert refused(runner.objects.delete_collection_namespaced_custom_object, *where)


def test_a_pipeline_keeps_to_its_namespace(runner, admin, namespace):
    theirs, where = a_claim(), (GROUP, VERSION, namespace, CLAIMS)
    name = theirs["metadata"]["name"]
    stored = admin.create_namespaced_custom_object(*where, theirs)
    objects = runner.objects
    assert refused(objects.get_namespaced_custom_object, *where, name)
    assert refused(objects.list_namespaced_custom_object, *where)
    assert refused(objects.list_cluster_custom_object, GROUP, VERSION, CLAIMS)
    assert refused(objects.create_namespaced_custom_object, *where, a_claim())
    assert refused(objects.replace_namespaced_custom_object, *where, name, stored)
    patch = {"spec": {"owner": "somebody-else"}}
    assert refused(objects.patch_namespaced_custom_object, *where, name, patch)


def test_a_pipeline_reads_streams_and_blocks_only_with_the_second_role(
    runner, users, stream, block
):
    reader = users["privatekube-budget-reader"]
    for plural, there in ((STREAMS, stream), (BLOCKS, block)):
        where, name = (GROUP, VERSION, plural), there["metadata"]["name"]
        assert refused(runner.objects.get_cluster_custom_object, *where, name)
        assert reader.objects.get_cluster_custom_object(*where, name)["spec"] == there["spec"]
        assert reader.objects.list_cluster_custom_object(*where)["items"]
        for user in (runner, reader):
            new = example(plural, f"new-{name}")
            patch = {"metadata": {"labels": {"mine": "yes"}}}
            assert refused(user.objects.create_cluster_custom_object, *where, new)
            assert refused(user.objects.replace_cluster_custom_object, *where, name, there)
            assert refused(user.objects.patch_cluster_custom_object, *where, name, patch)
            assert refused(user.objects.delete_cluster_custom_object, *where, name)
            full = there | {"status": {}}
            assert refused(user.objects.replace_cluster_custom_object_status, *where, name, full)


# A data steward


def test_a_steward_declares_and_removes_but_writes_no_status(users, runner, own):
    steward = users["privatekube-data-steward"]
    claim = a_claim()
    runner.objects.create_namespaced_custom_object(GROUP, VERSION, own, CLAIMS, claim)
    where, name = (GROUP, VERSION, own, CLAIMS), claim["metadata"]["name"]
    assert steward.objects.get_namespaced_custom_object(*where, name)
    assert steward.objects.list_cluster_custom_object(GROUP, VERSION, CLAIMS)["items"]
    assert refused(steward.objects.create_namespaced_custom_object, *where, a_claim())
    assert refused(steward.objects.delete_namespaced_custom_object, *where, name)
    for plural in (STREAMS, BLOCKS):
        made = example(plural, f"steward-{uuid.uuid4().hex[:12]}")
        there = (GROUP, VERSION, plural)
        stored = steward.objects.create_cluster_custom_object(*there, made)
        name = made["metadata"]["name"]
        full = stored | {"status": {}}
        replace_status = steward.objects.replace_cluster_custom_object_status
        assert refused(replace_status, *there, name, full)
        counted = {"metadata": {"annotations": {COUNT: "{}"}}}
        steward.objects.patch_cluster_custom_object(*there, name, counted)
        steward.objects.delete_cluster_custom_object(*there, name)


# The scheduler


def test_the_scheduler_writes_every_status(scheduler, admin, stream, block, namespace):
    for plural, there, status in (
        (STREAMS, stream, {"blocks": 1}),
        (BLOCKS, block, {"phase": "Active"}),
    ):
        where, name = (GROUP, VERSION, plural), there["metadata"]["name"]
        found = scheduler.objects.get_cluster_custom_object(*where, name)
        scheduler.objects.replace_cluster_custom_object_status(
            *where, name, found | {"status": status}
        )
        scheduler.objects.patch_cluster_custom_object_status(*where, name, {"status": status})
        assert admin.get_cluster_custom_object(*where, name)["status"] == status
    claim, where = a_claim(), (GROUP, VERSION, namespace, CLAIMS)
    name = claim["metadata"]["name"]
    found = admin.create_namespaced_custom_object(*where, claim)
    scheduler.objects.replace_namespaced_custom_object_status(
        *where, name, found | {"status": {"phase": "Pending"}}
    )
    scheduler.objects.patch_namespaced_custom_object_status(
        *where, name, {"status": {"phase": "Denied"}}
    )
    assert admin.get_namespaced_custom_object(*where, name)["status"] == {"phase": "Denied"}


def test_the_scheduler_holds_a_claim_and_lets_it_go(scheduler, admin, namespace):
    claim, where = a_claim(), (GROUP, VERSION, namespace, CLAIMS)
    name = claim["metadata"]["name"]
    admin.create_namespaced_custom_object(*where, claim)
    hold, let_go = ({"metadata": {"finalizers": each}} for each in ([f"{GROUP}/fold"], None))
    scheduler.objects.patch_namespaced_custom_object(*where, name, hold)
    scheduler.objects.delete_namespaced_custom_object(*where, name)
    held = scheduler.objects.get_namespaced_custom_object(*where, name)
    assert held["metadata"]["deletionTimestamp"]
    scheduler.objects.patch_namespaced_custom_object(*where, name, let_go)
    with pytest.raises(ApiException, match="404"):
        admin.get_namespaced_custom_object(*where, name)


def test_the_scheduler_takes_its_lease_and_no_other(scheduler, control_plane):
    leases = CoordinationV1Api(control_plane.admin)
    other = f"other-{uuid.uuid4().hex[:12]}"
    leases.create_namespaced_lease(NAMESPACE, {"metadata": {"name": other}})
    # A scheduler of another test may have left its own.
    with contextlib.suppress(ApiException):
        leases.delete_namespaced_lease(LEASE, NAMESPACE)
    theirs = scheduler.leases
    try:
        theirs.create_namespaced_lease(
            NAMESPACE, {"metadata": {"name": LEASE}, "spec": {"holderIdentity": "first"}}
        )
        mine = theirs.read_namespaced_lease(LEASE, NAMESPACE)
        mine.spec.holder_identity = "second"
        theirs.replace_namespaced_lease(LEASE, NAMESPACE, mine)
        theirs.patch_namespaced_lease(LEASE, NAMESPACE, {"spec": {"leaseDurationSeconds": 15}})
        assert refused(theirs.read_namespaced_lease, other, NAMESPACE)
        assert refused(theirs.patch_namespaced_lease, other, NAMESPACE, {"spec": {}})
        assert refused(theirs.delete_namespaced_lease, LEASE, NAMESPACE)
        assert refused(theirs.list_namespaced_lease, NAMESPACE)
        lease = {"metadata": {"name": LEASE}}
        assert refused(theirs.create_namespaced_lease, "default", lease)
    finally:
        leases.delete_namespaced_lease(other, NAMESPACE)
        leases.delete_namespaced_lease(LEASE, NAMESPACE)


def test_the_scheduler_tells_of_events_anywhere(scheduler, namespace):
    for place in (namespace, "default"):
        name = f"event-{uuid.uuid4().hex[:12]}"
        about = {"kind": "PrivacyClaim", "name": "train", "namespace": place}
        scheduler.core.create_namespaced_event(
            place,
            {"metadata": {"name": name}, "involvedObject": about, "reason": "Allocated"},
        )
        scheduler.core.patch_namespaced_event(name, place, {"count": 2})
        assert refused(scheduler.core.list_namespaced_event, place)
        assert refused(scheduler.core.delete_namespaced_event, name, place)
    name = f"event-{uuid.uuid4().hex[:12]}"
    scheduler.events.create_namespaced_event(
        namespace,
        {
            "metadata": {"name": name},
            "regarding": {"kind": "PrivacyClaim", "name": "train", "namespace": namespace},
            "reason": "Allocated",
            "action": "Allocate",
            "type": "Normal",
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": GROUP,
            "reportingInstance": "a-pod",
        },
    )
    series = {"count": 2, "lastObservedTime": "2026-11-16T08:30:00.000000Z"}
    scheduler.events.patch_namespaced_event(name, namespace, {"series": series})


@pytest.fixture
def workflow(control_plane, admin, namespace):
    known = ApiextensionsV1Api(control_plane.admin).list_custom_resource_definition().items
    if WORKFLOWS["metadata"]["name"] not in [each.metadata.name for each in known]:
        control_plane.apply(WORKFLOWS)
    body = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "run"},
        "spec": {},
    }
    return admin.create_namespaced_custom_object(
        "argoproj.io", "v1alpha1", namespace, "workflows", body
    )


def test_the_scheduler_watches_runs_and_leaves_them_alone(scheduler, workflow, namespace):
    where = ("argoproj.io", "v1alpha1", namespace, "workflows")
    objects = scheduler.objects
    found = objects.get_namespaced_custom_object(*where, "run")
    assert found["metadata"]["uid"] == workflow["metadata"]["uid"]
    assert objects.list_cluster_custom_object("argoproj.io", "v1alpha1", "workflows")["items"]
    stop = {"spec": {"shutdown": "Terminate"}}
    assert refused(objects.patch_namespaced_custom_object, *where, "run", stop)
    assert refused(objects.delete_namespaced_custom_object, *where, "run")


def test_the_scheduler_makes_no_claims_streams_or_blocks(scheduler, stream, block, namespace):
    objects = scheduler.objects
    where = (GROUP, VERSION, namespace, CLAIMS)
    assert refused(objects.create_namespaced_custom_object, *where, a_claim())
    for plural, there in ((STREAMS, stream), (BLOCKS, block)):
        new, name = example(plural, "new"), there["metadata"]["name"]
        assert refused(objects.create_cluster_custom_object, GROUP, VERSION, plural, new)
        assert refused(objects.delete_cluster_custom_object, GROUP, VERSION, plural, name)
        assert refused(objects.replace_cluster_custom_object, GROUP, VERSION, plural, name, there)


def test_the_scheduler_reads_nothing_else(scheduler):
    core = scheduler.core
    for place in (NAMESPACE, "kube-system", "default"):
        for call in (
            core.list_namespaced_secret,
            core.list_namespaced_pod,
            core.list_namespaced_config_map,
        ):
            assert refused(call, place)
    assert refused(core.list_node)
    assert refused(core.list_namespace)
