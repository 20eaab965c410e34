"""The scheduler's Deployment on a node."""

from tests.node.conftest import SYSTEM


def test_two_replicas_run_and_one_leads(installed, core):
    pods = core.list_namespaced_pod(SYSTEM).items
    assert len(pods) == 2
    for pod in pods:
        [status] = pod.status.container_statuses
        assert status.ready
        assert status.restart_count == 0
    lease = installed.kubectl(
        *("-n", SYSTEM, "get", "lease", "privatekube-scheduler"),
        *("-o", "jsonpath={.spec.holderIdentity}"),
    )
    assert lease.stdout in {pod.metadata.name for pod in pods}
