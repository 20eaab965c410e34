"""Every component of the small image in a pod, with inputs such as Kubeflow gives.

Components that need PyTorch run as processes of this machine, so that what comes before and after
them is in pods; `test_images` runs all in pods.
"""

import json
import time

import kubernetes.client
import pytest

from privatekube_kfp import __version__
from privatekube_kfp.core.claim import Phase
from tests.kubeflow.imitation import Component, Run, TaskFailed
from tests.node.conftest import ROWS, SYSTEM
from tests.node.images import PYTHON
from tests.node.tasks import PLACE


def test_a_statistic_while_the_leader_dies(ingested, pods, ledger, store, core, installed):
    """The leader's pod is deleted once budget is granted; the standby takes over."""
    killed = []
    start = pods.start

    def and_kill(task, component, given):
        if task == "consume":
            killed.append(leader(installed))
            core.delete_namespaced_pod(killed[0], SYSTEM, grace_period_seconds=0)
        start(task, component, given)

    pods.start = and_kill
    kubeflow, ran = pods.run_pipeline(
        "statistics_reviews_per_category",
        epsilon="10",
        uri="s3://results/reviews_per_category.json",
    )
    assert {*kubeflow.handed} == {
        *("allocate", "download", "dp-statistic", "consume", "show-statistic", "upload", "release")
    }
    assert leader(installed) != killed[0]
    published = json.loads((store.folder / "results/reviews_per_category.json").read_text())
    assert sum(published["value"].values()) > ROWS / 2
    claim = ledger.claim(f"{ran.id}.claim")
    assert claim.phase is Phase.CONSUMED
    for block in claim.bound():
        budget = ledger.block(block).budget
        assert budget.consumed.to_json()["epsilon"] == "10"
        assert budget.allocated.is_zero
    assert ledger.verify().ok


def test_a_training(ingested, pods, ledger, store):
    """Planned, paid for, shown and published in pods of the image without PyTorch."""
    kubeflow, ran = pods.run_pipeline(
        "product_linear",
        epsilon="20",
        epochs=1,
        units=ROWS,
        words="stand-in",
        uri="s3://results/product_linear",
    )
    assert (store.folder / "results/product_linear/model.json").exists()
    assert ledger.claim(f"{ran.id}.claim").phase in (Phase.CONSUMED, Phase.RELEASED)
    assert "show-model" in kubeflow.handed


def test_an_image_without_torch_says_which_one_it_needs(ingested, pods):
    kubeflow = pods.kubeflow()
    claim = {"uri": f"{PLACE}/nothing", "metadata": {"claim": "run.claim"}, "name": "1", "type": {}}
    given = Run("wrong-image", PLACE).executor_input(
        "dp-train",
        component := Component.shipped("dp_train"),
        {"run_id": "run"},
        {"claim": claim, "examples": claim},
    )
    phase, log = pods.end_of(pods.run("dp-train", PYTHON.tag, component, given))
    assert phase == "Failed"
    assert f"run it in the image privatekube/python-torch:{__version__}" in in_one_line(log)
    assert "Traceback" not in log
    assert kubeflow.handed == {}


def test_words_that_nobody_named_are_refused_before_budget_is_asked_for(ingested, pods, ledger):
    before = [claim.name for claim in ledger.claims()]
    with pytest.raises(TaskFailed) as failed:
        pods.run_pipeline("product_linear", epsilon="20", units=ROWS)
    assert failed.value.task == "plan-training"
    assert "name the words to train with" in in_one_line(failed.value.said)
    assert [claim.name for claim in ledger.claims()] == before


def test_what_a_cancelled_run_holds_is_given_back(ingested, pods, ledger):
    """Its exit task never ran: the scheduler sees the end of its Workflow."""
    kubeflow, ran = pods.kubeflow(), Run("cancelled", PLACE)
    asked = {"run_id": ran.id, "stream": "reviews", "epsilon": "1", "last_blocks": 1}
    kubeflow.task(ran, "allocate", Component.shipped("allocate"), asked)
    assert ledger.claim(f"{ran.id}.claim").phase is Phase.ALLOCATED
    pods.end_run("Failed")
    deadline = time.monotonic() + 60
    while ledger.claim(f"{ran.id}.claim").phase is not Phase.RELEASED:
        assert time.monotonic() < deadline, "what the run held is not given back"
        time.sleep(0.5)


def leader(node):
    leases = kubernetes.client.CoordinationV1Api(node.admin)
    return leases.read_namespaced_lease("privatekube-scheduler", SYSTEM).spec.holder_identity


def in_one_line(log):
    """Long errors are folded in a log."""
    return " ".join(log.split())
