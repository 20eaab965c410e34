"""Claims whose run is over, gone or silent: what they hold is given back, what is spent is not."""

import json
import uuid

import kubernetes.client
import pytest

from privatekube_kfp.core.claim import Phase
from privatekube_kfp.core.errors import Reason
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.kubernetes.api import CLAIMS, Api
from privatekube_kfp.ledger.kubernetes.api import WORKFLOWS as KIND
from privatekube_kfp.ledger.kubernetes.objects import request_item
from privatekube_kfp.ledger.requests import ConsumeRequest
from privatekube_kfp.ledger.times import format_time
from tests.contract.world import SECOND, ask, basic_stream, epsilons, spend
from tests.kubernetes.test_rbac import WORKFLOWS
from tests.kubernetes.world import World, a_world, stream_with_blocks
from tests.scheduler.running import settle, until

ABANDONED = "scheduler.abandoned"
HOUR = 3600 * SECOND


@pytest.fixture
def world(control_plane, namespace):
    extensions = kubernetes.client.ApiextensionsV1Api(control_plane.admin)
    known = [each.metadata.name for each in extensions.list_custom_resource_definition().items]
    if WORKFLOWS["metadata"]["name"] not in known:
        control_plane.apply(WORKFLOWS)
    with a_world(control_plane, namespace) as made:
        try:
            stream_with_blocks(made.ledger, "b1", "b2")
            yield made
            made.verify()
        finally:
            for obj in made.api.list_all(KIND, namespace)[0]:
                made.api.delete(KIND, obj)


@pytest.fixture
def ledger(world):
    return world.ledger


def run(world, name="run"):
    """A Workflow that runs; what a claim says of it."""
    obj = world.create(KIND, name, {"entrypoint": "main"})
    set_phase(world, "Running", name)
    return {"name": name, "uid": obj["metadata"]["uid"]}


def set_phase(world, phase, name="run"):
    world.edit(KIND, name, lambda obj: obj.update(status={"phase": phase}))


def terminate(obj):
    """As Kubeflow terminates a run."""
    obj["spec"]["activeDeadlineSeconds"] = 0


def all_workflows_are_seen(world):
    """Wait until the scheduler knows what became of all Workflows so far: it sees them in order."""
    name = f"seen-{uuid.uuid4().hex[:8]}"
    claim(world, name, "0.01", workflow=run(world, name))
    set_phase(world, "Failed", name)
    world.answer(name, ABANDONED)


def claim(world, name="c", epsilon="0.5", spent=None, timeout=None, **spec):
    """A claim on both blocks that may have spent some of it, and says whose it is."""
    requests = [request_item(ask(epsilon, "b1", "b2", timeout=timeout))]
    if spent:
        requests.append(request_item(spend(spent, "consume")))
    world.claim(name, *requests, **spec)
    until(lambda: "phase" in world.find(CLAIMS, name).get("status", {}))
    return name


def lease(world, duration="60s", renewed=None):
    at = world.clock.now if renewed is None else renewed
    return {"duration": duration, "renewed": format_time(at)}


def is_taken_back(world, name="c"):
    responses = world.find(CLAIMS, name)["status"].get("responses", ())
    return any(response["id"] == ABANDONED for response in responses)


def is_kept(world, name="c"):
    """After a few cycles of the scheduler, which looks at every claim in each."""
    for _ in range(3):
        settle(world.scheduler)
    return not is_taken_back(world, name)


def say(world, **spec):
    """Change what a claim says of its run, and wait until the scheduler has read that."""
    id = f"sign-{uuid.uuid4().hex[:8]}"

    def change(obj):
        obj["spec"].update(spec)
        obj["spec"]["requests"].append(request_item(spend("0.001", id)))

    world.edit(CLAIMS, "c", change)
    world.answer("c", id)


# Workflows


@pytest.mark.parametrize(
    ("phase", "said"),
    [("Failed", "has failed"), ("Error", "has ended in an error"), ("Succeeded", "is over")],
)
def test_a_run_that_ended_gives_back_what_it_did_not_consume(world, ledger, phase, said):
    claim(world, spent="0.2", workflow=run(world))
    assert is_kept(world)
    assert epsilons(ledger, "b1") == ("0", "0.5", "0.3", "0.2")
    set_phase(world, phase)
    answer = world.answer("c", ABANDONED)
    assert (answer["state"], answer["reason"]) == ("Done", "Released")
    assert answer["message"].startswith(f"its run, Workflow run, {said}: ")
    assert until(lambda: world.events("c", "Abandoned")) == [f"its run, Workflow run, {said}"]
    for block in ("b1", "b2"):
        assert epsilons(ledger, block) == ("0", "0.8", "0", "0.2")
    assert ledger.claim("c").phase is Phase.RELEASED


@pytest.mark.parametrize("how", [{"activeDeadlineSeconds": 0}, {"shutdown": "Terminate"}])
def test_a_terminated_run_whose_exit_task_hangs_holds_nothing_within_a_minute(world, ledger, how):
    claim(world, spent="0.2", workflow=run(world))
    world.edit(KIND, "run", lambda obj: obj["spec"].update(how))
    all_workflows_are_seen(world)
    world.clock.now += 29 * SECOND
    assert is_kept(world)  # its exit task may give back by itself
    world.clock.now += 1 * SECOND
    said = world.answer("c", ABANDONED)["message"]
    assert said.startswith("its run, Workflow run, was terminated, and has not ended in 30s: ")
    assert epsilons(ledger, "b1") == ("0", "0.8", "0", "0.2")
    assert until(lambda: world.events("c", "Abandoned"))


def test_a_terminated_run_that_is_retried_keeps_its_claim(world, ledger):
    """Kubeflow takes the mark away then; the time that was left for the exit task is as before."""
    claim(world, workflow=run(world))
    world.edit(KIND, "run", terminate)
    all_workflows_are_seen(world)
    world.edit(KIND, "run", lambda obj: obj["spec"].pop("activeDeadlineSeconds"))
    all_workflows_are_seen(world)
    world.clock.now += HOUR
    assert is_kept(world)
    world.edit(KIND, "run", terminate)
    all_workflows_are_seen(world)
    assert is_kept(world)
    world.clock.now += 30 * SECOND
    world.answer("c", ABANDONED)
    assert epsilons(ledger, "b1") == ("0", "1", "0", "0")


def test_a_run_that_ended_and_expired_before_anybody_looked(world, ledger):
    """Its Workflow is deleted by its time to live while no scheduler runs; so is one that waits."""
    claim(world, "holds", "0.6", spent="0.2", workflow=run(world, "first"))
    claim(world, "waits", "0.7", workflow=run(world, "second"))
    world.stop()
    for name in ("first", "second"):
        set_phase(world, "Succeeded", name)
        world.delete(KIND, name)
    world.start()
    assert "Workflow first, is gone" in world.answer("holds", ABANDONED)["message"]
    assert "Workflow second, is gone" in world.answer("waits", ABANDONED)["message"]
    assert ledger.response("waits", "allocate").reason is Reason.WITHDRAWN
    assert epsilons(ledger, "b1") == ("0", "0.8", "0", "0.2")


@pytest.mark.usefixtures("runner")
def test_a_claim_that_is_made_after_its_run_has_ended_is_given_back(world, ledger):
    """Its pod is slow to ask, or to end."""
    ledger.lives_with(pod_of_pipeline(world, run(world)))
    world.delete(KIND, "run")
    ledger.submit("c", ask("0.5", "b1"))
    assert "is gone" in world.answer("c", ABANDONED)["message"]
    assert epsilons(ledger, "b1") == ("0", "1", "0", "0")


def test_a_run_that_vanished_gives_back_what_it_did_not_consume(world, ledger):
    claim(world, spent="0.2", workflow=run(world))
    assert is_kept(world)
    world.delete(KIND, "run")
    assert "its run, Workflow run, is gone" in world.answer("c", ABANDONED)["message"]
    assert until(lambda: world.events("c", "Abandoned"))
    assert epsilons(ledger, "b1") == ("0", "0.8", "0", "0.2")


def test_a_run_that_was_never_there_is_gone(world, ledger):
    claim(world, workflow={"name": "nowhere", "uid": "none"})
    assert "Workflow nowhere, is gone" in world.answer("c", ABANDONED)["message"]
    assert epsilons(ledger, "b1") == ("0", "1", "0", "0")


def test_a_later_run_of_the_same_name_is_another(world, ledger):
    mine = run(world)
    claim(world, workflow=mine)
    assert is_kept(world)
    world.stop()
    world.delete(KIND, "run")
    theirs = run(world)
    world.start()
    assert "is gone" in world.answer("c", ABANDONED)["message"]
    claim(world, "other", workflow=theirs)
    assert is_kept(world, "other")
    assert epsilons(ledger, "b1") == ("0", "0.5", "0.5", "0")


def test_a_run_of_the_same_name_in_another_namespace_is_another(world, control_plane):
    mine = run(world)
    claim(world, workflow=mine)
    core = kubernetes.client.CoreV1Api(control_plane.admin)
    elsewhere = f"{world.namespace}-too"
    core.create_namespace({"metadata": {"name": elsewhere}})
    there = World(control_plane, elsewhere)
    try:
        other = there.create(KIND, "run", {"entrypoint": "main"}, namespace=elsewhere)
        other["status"] = {"phase": "Failed"}
        there.api.replace(KIND, other)
        assert is_kept(world)
    finally:
        there.ledger.close()
        core.delete_namespace(elsewhere)


@pytest.mark.parametrize("phase", ["", "Pending", "Running", "SomethingNew"])
def test_a_run_that_is_not_over_keeps_its_claim(world, ledger, phase):
    claim(world, workflow=run(world))
    set_phase(world, phase)
    assert is_kept(world)
    world.restart()
    assert is_kept(world)
    assert epsilons(ledger, "b1") == ("0", "0.5", "0.5", "0")


def test_a_run_that_ended_while_no_scheduler_ran_is_found_later(world, ledger):
    claim(world, spent="0.1", workflow=run(world))
    claim(world, "other", "0.4", workflow=run(world, "other"))
    assert is_kept(world)
    world.stop()
    set_phase(world, "Failed")
    world.delete(KIND, "other")
    world.start()
    assert "has failed" in world.answer("c", ABANDONED)["message"]
    assert "is gone" in world.answer("other", ABANDONED)["message"]
    assert epsilons(ledger, "b1") == ("0", "0.9", "0", "0.1")


def test_a_waiting_claim_of_a_run_that_ended_is_withdrawn(world, ledger):
    claim(world, "holds", "1", timeout=0)
    claim(world, "c", "0.5", workflow=run(world))
    claim(world, "next", "0.6")
    set_phase(world, "Failed")
    world.answer("c", ABANDONED)
    assert ledger.response("c", "allocate").reason is Reason.WITHDRAWN
    assert "nothing to give back" in world.answer("c", ABANDONED)["message"]
    world.delete(CLAIMS, "holds")
    until(lambda: ledger.response("next", "allocate"))
    assert epsilons(ledger, "b1") == ("0", "0.4", "0.6", "0")


def test_what_is_given_back_goes_to_whoever_waits(world, ledger):
    claim(world, "c", "1", spent="0.3", workflow=run(world))
    claim(world, "waits", "0.7")
    set_phase(world, "Error")
    until(lambda: ledger.response("waits", "allocate"))
    assert ledger.response("waits", "allocate").done
    assert epsilons(ledger, "b1") == ("0", "0", "0.7", "0.3")


def test_a_claim_that_was_taken_back_is_told_so_and_can_ask_no_more(world, ledger):
    claim(world, workflow=run(world))
    set_phase(world, "Failed")
    world.answer("c", ABANDONED)
    assert ledger.submit("c", ConsumeRequest("late")).reason is Reason.ALREADY_RELEASED
    assert ledger.submit("c", ask("0.1", "b1", id="again")).reason is Reason.ALREADY_RELEASED
    shown = world.control_plane.kubectl("describe", "pclaim", "c", "-n", world.namespace).stdout
    assert "Abandoned" in shown
    assert "its run, Workflow run, has failed" in shown


def test_a_finished_claim_is_not_taken_back_again(world, ledger):
    claim(world, spent="0.5", workflow=run(world))
    set_phase(world, "Succeeded")
    assert is_kept(world)
    assert not world.events("c", "Abandoned")
    assert epsilons(ledger, "b1") == ("0", "0.5", "0", "0.5")


def test_the_run_of_a_finished_claim_is_not_asked_about_any_more(world, ledger):
    asked = []

    class Listening(Api):
        def get(self, kind, name, namespace=None):
            asked.append(kind)
            return super().get(kind, name, namespace)

    world.restart(make_api=Listening)
    claim(world, workflow={"name": "nowhere", "uid": "none"})
    world.answer("c", ABANDONED)
    settle(world.scheduler)
    asked.clear()
    for _ in range(3):
        settle(world.scheduler)
    assert KIND not in asked


def test_it_is_taken_back_once(world, ledger):
    claim(world, workflow=run(world), deadline=format_time(world.clock.now + HOUR))
    set_phase(world, "Failed")
    world.answer("c", ABANDONED)
    world.clock.now += 2 * HOUR
    world.restart()
    ids = [response["id"] for response in world.find(CLAIMS, "c")["status"]["responses"]]
    assert ids == ["allocate", ABANDONED]
    assert len(world.events("c", "Abandoned")) == 1


def test_what_an_abandoned_claim_unlocked_stays_unlocked(world, ledger):
    ledger.create_stream(basic_stream("slow", unlocking=ByPipelines(4)))
    ledger.create_block("slow-1", "slow")
    world.claim(
        "c",
        request_item(ask("0.1", "slow-1", stream="slow")),
        stream="slow",
        workflow=run(world),
    )
    world.answer("c")
    set_phase(world, "Failed")
    world.answer("c", ABANDONED)
    assert epsilons(ledger, "slow-1") == ("0.75", "0.25", "0", "0")


# Leases


def test_a_lease_that_is_not_renewed_runs_out(world, ledger):
    claim(world, spent="0.2", lease=lease(world))
    world.clock.now += 59 * SECOND
    assert is_kept(world)
    world.clock.now += 1 * SECOND
    assert "its lease was not renewed for 1m: " in world.answer("c", ABANDONED)["message"]
    assert until(lambda: world.events("c", "Abandoned"))
    assert epsilons(ledger, "b1") == ("0", "0.8", "0", "0.2")


def test_a_lease_that_is_renewed_goes_on(world, ledger):
    claim(world, lease=lease(world))
    for _ in range(3):
        world.clock.now += 40 * SECOND
        say(world, lease=lease(world))
        assert is_kept(world)
    world.clock.now += 60 * SECOND
    world.answer("c", ABANDONED)


def test_a_waiting_claim_whose_lease_runs_out_is_withdrawn(world, ledger):
    claim(world, "holds", "1")
    claim(world, lease=lease(world))
    world.clock.now += 60 * SECOND
    world.answer("c", ABANDONED)
    assert ledger.response("c", "allocate").reason is Reason.WITHDRAWN
    assert epsilons(ledger, "b1") == ("0", "0", "1", "0")


@pytest.mark.parametrize("off", [-10 * HOUR, 10 * HOUR], ids=["behind", "ahead"])
def test_the_clock_of_who_holds_a_lease_does_not_matter(world, ledger, off):
    claim(world, lease=lease(world, renewed=world.clock.now + off))
    world.clock.now += 30 * SECOND
    assert is_kept(world)
    say(world, lease=lease(world, renewed=world.clock.now + off))
    world.clock.now += 59 * SECOND
    assert is_kept(world)
    world.clock.now += 1 * SECOND
    world.answer("c", ABANDONED)


def test_a_new_scheduler_gives_every_lease_its_whole_duration(world, ledger):
    claim(world, lease=lease(world))
    world.stop()
    world.clock.now += HOUR
    world.start()
    assert is_kept(world)
    world.clock.now += 60 * SECOND
    world.answer("c", ABANDONED)


# Deadlines


def test_a_deadline_ends_a_claim(world, ledger):
    at = world.clock.now + HOUR
    claim(world, spent="0.2", deadline=format_time(at))
    world.clock.now = at - 1
    assert is_kept(world)
    world.clock.now = at
    answer = world.answer("c", ABANDONED)
    assert answer["message"].startswith(f"its deadline was {format_time(at)}: ")
    assert until(lambda: world.events("c", "Abandoned"))
    assert epsilons(ledger, "b1") == ("0", "0.8", "0", "0.2")


def test_a_deadline_can_be_put_off(world, ledger):
    claim(world, deadline=format_time(world.clock.now + HOUR))
    say(world, deadline=format_time(world.clock.now + 3 * HOUR))
    world.clock.now += 2 * HOUR
    assert is_kept(world)
    world.clock.now += HOUR
    world.answer("c", ABANDONED)


def test_a_deadline_that_is_past_from_the_start_grants_nothing(world, ledger):
    claim(world, deadline=format_time(world.clock.now - HOUR))
    world.answer("c", ABANDONED)
    assert epsilons(ledger, "b1") == ("0", "1", "0", "0")


def test_a_claim_without_any_sign_is_kept(world, ledger):
    claim(world)
    world.clock.now += 1000 * HOUR
    assert is_kept(world)
    assert epsilons(ledger, "b1") == ("0", "0.5", "0.5", "0")


def test_whichever_sign_comes_first_counts(world, ledger):
    claim(
        world,
        workflow=run(world),
        lease=lease(world),
        deadline=format_time(world.clock.now + HOUR),
    )
    assert is_kept(world)
    world.clock.now += 60 * SECOND
    assert "its lease was not renewed" in json.dumps(world.answer("c", ABANDONED))


# A run's own claims


def a_pod(world, *owners, name=None):
    """A pod that no node will ever run, with these owners; its environment without Kubeflow."""
    name = name or f"pod-{uuid.uuid4().hex[:8]}"
    kubernetes.client.CoreV1Api(world.control_plane.admin).create_namespaced_pod(
        world.namespace,
        {
            "metadata": {"name": name, "ownerReferences": list(owners)},
            "spec": {
                "containers": [{"name": "main", "image": "none"}],
                "serviceAccountName": "runner",
                "automountServiceAccountToken": False,
            },
        },
    )
    return {"KUBERNETES_SERVICE_HOST": "there", "HOSTNAME": name[:63]}


@pytest.fixture
def runner(world):
    """The account that pods run under: the API server takes no pod without one."""
    core = kubernetes.client.CoreV1Api(world.control_plane.admin)
    core.create_namespaced_service_account(world.namespace, {"metadata": {"name": "runner"}})


@pytest.mark.usefixtures("runner")
def test_a_claim_made_in_a_pod_lives_as_long_as_its_workflow(world, ledger):
    workflow = run(world)
    owner = {"apiVersion": KIND.api_version, "kind": "Workflow", **workflow}
    sentence = ledger.lives_with(a_pod(world, owner))
    assert sentence == "kept for as long as Workflow run runs"
    assert ledger.submit("c", ask("0.5", "b1")).done
    assert world.find(CLAIMS, "c")["spec"]["workflow"] == workflow
    settle(world.scheduler)
    assert not is_taken_back(world)
    set_phase(world, "Failed")
    until(lambda: is_taken_back(world))
    assert epsilons(ledger, "b1")[2] == "0"


def pod_of_pipeline(world, workflow):
    """A pod as Kubeflow names it, and the environment that it gives it."""
    name = f"{workflow['name']}-system-container-impl-1260740424"
    owner = {"apiVersion": KIND.api_version, "kind": "Workflow", **workflow}
    return {**a_pod(world, owner, name=name), "KFP_POD_NAME": name}


@pytest.mark.usefixtures("runner")
@pytest.mark.parametrize("waits", [True, False], ids=["it waits", "it holds budget"])
def test_a_pipeline_with_a_long_name_is_cancelled(world, ledger, waits):
    """Its pod's host name is cut off, so that no pod has it."""
    if waits:
        claim(world, "holds", "1")
    name = f"{'a-pipeline-with-a-name-of-sixty-characters'.ljust(60, 'x')}-kt6q2"
    workflow = run(world, name)
    environment = pod_of_pipeline(world, workflow)
    assert len(environment["HOSTNAME"]) == 63 < len(environment["KFP_POD_NAME"])
    assert ledger.lives_with(environment) == f"kept for as long as Workflow {name} runs"
    answer = ledger.submit("c", ask("0.5", "b1", timeout=None))
    assert (answer is None) == waits
    assert is_kept(world)
    world.edit(KIND, name, terminate)
    assert is_kept(world)  # its exit task may run
    set_phase(world, "Failed", name)
    assert "has failed" in world.answer("c", ABANDONED)["message"]
    if waits:
        assert ledger.response("c", "allocate").reason is Reason.WITHDRAWN
    assert epsilons(ledger, "b1") == (("0", "0", "1", "0") if waits else ("0", "1", "0", "0"))


@pytest.mark.usefixtures("runner")
def test_a_pod_of_no_workflow_keeps_its_claim_for_a_day(world, ledger):
    assert "it belongs to no Workflow" in ledger.lives_with(a_pod(world))
    ledger.submit("c", ask("0.5", "b1"))
    world.clock.now += 23 * HOUR
    settle(world.scheduler)
    assert not is_taken_back(world)
    world.clock.now += 2 * HOUR
    world.scheduler.term.wake()
    until(lambda: is_taken_back(world))


def test_a_pod_that_cannot_be_read_is_no_reason_to_keep_a_claim_for_ever(world, ledger):
    sentence = ledger.lives_with({"KUBERNETES_SERVICE_HOST": "there", "HOSTNAME": "nobody"})
    assert "the run of pod nobody is not known" in sentence
    ledger.submit("c", ask("0.5", "b1"))
    assert world.find(CLAIMS, "c")["spec"]["lease"]["duration"] == "1d"


def test_a_lease_is_renewed_for_as_long_as_somebody_watches(world, ledger):
    ledger.lives_with({"PRIVATEKUBE_CLAIM_LEASE": "60s"})
    ledger.submit("c", ask("0.5", "b1"))
    for _ in range(3):
        world.clock.now += 50 * SECOND
        ledger.renew("c")
        settle(world.scheduler)
        assert not is_taken_back(world)
    world.clock.now += 61 * SECOND
    world.scheduler.term.wake()
    until(lambda: is_taken_back(world))
    ledger.renew("gone")


def test_a_claim_without_a_lease_has_none_to_renew(world, ledger):
    assert "nobody watches" in ledger.lives_with({})
    ledger.submit("c", ask("0.5", "b1"))
    before = world.find(CLAIMS, "c")["spec"]
    ledger.renew("c")
    assert world.find(CLAIMS, "c")["spec"] == before
    assert "lease" not in before
