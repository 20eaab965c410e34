"""Allocate, consume and release as components call them."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from privatekube_kfp.accounting import Plan, PureEpsilon
from privatekube_kfp.core.claim import Phase
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.ledger.requests import AllocateRequest
from privatekube_kfp.ledger.sqlite import SqliteLedger
from privatekube_kfp.steps.claims import allocate, consume, release
from tests.kubeflow.metadata import STORE_SESSION_INFO

PLAN = {
    "steps": [
        {"name": "preprocess", "mechanism": "pure", "epsilon": "0.1"},
        {"name": "train", "mechanism": "pure", "epsilon": "0.2"},
    ]
}


ASKED = {"run_id": "run-1", "claim_name": "claim", "stream": "clicks", "epsilon": "0.4"}
RELEASED = (
    "privatekube: claim run-1.claim was released: what it held is given back. A run that is retried"
    " keeps its id and its claims: start a new run instead (AlreadyReleased)"
)


def spend(world, claim, **what):
    consumed, report = world.artifact("consumed"), world.artifact("report")
    consume(claim, consumed, report, run_id=world.run, **what)
    return consumed.travelled()


def bound(claim):
    """The names of the blocks, which are in the artifact's file alone."""
    return json.loads(Path(claim.path).read_text())["blocks"]


# Allocate


def test_a_claim_is_made_and_described(world):
    claim = world.allocate()
    assert claim.metadata == {
        "claim": "run-1.claim",
        "run": "run-1",
        "stream": "clicks",
        "phase": "Allocated",
        "blocks": 2,
        "blocks_sha256": sha256(b"tuesday\nwednesday").hexdigest(),
        "granted": "epsilon 0.4, delta 0",
        "spent": "nothing",
        "returned": "nothing",
        "display_name": "claim",
        "store_session_info": STORE_SESSION_INFO,
    }
    assert world.count == 2
    document = json.loads(Path(claim.path).read_text())
    assert document["blocks"] == ["tuesday", "wednesday"]
    assert document["granted"] == [
        {"blocks": ["tuesday", "wednesday"], "budget": {"epsilon": "0.4", "delta": "0"}}
    ]
    assert world.epsilons("tuesday") == ("0.4", "0")
    assert world.epsilons("monday") == ("0", "0")
    report = Path(world.artifact("report").path).read_text()
    assert "| epsilon | 0.4 | 0 | 0 | 0.4 |" in report
    assert "* `tuesday`" in report


def test_allocating_again_resumes(world):
    first = world.allocate()
    assert world.allocate() == first
    assert world.epsilons("tuesday") == ("0.4", "0")
    assert len(world.claim().requests) == 1


def test_two_runs_have_two_claims(world):
    world.allocate()
    world.allocate(run_id="run-2")
    assert world.epsilons("tuesday") == ("0.8", "0")


def test_two_claims_of_one_run_are_two(world):
    world.allocate()
    world.allocate(claim_name="other", last_blocks=1)
    assert world.epsilons("wednesday") == ("0.8", "0")


def test_a_denial_is_the_last_line(world, fails):
    sentence = fails(world.allocate, epsilon="2")
    assert sentence == (
        "privatekube: claim run-1.claim: block tuesday: epsilon 2 asked, 1 left, and no more will"
        " ever be (ExceedsCapacity)"
    )
    assert not Path(world.artifact("claim").path).exists()
    assert world.epsilons("tuesday") == ("0", "0")


def test_a_time_out_holds_nothing(world, fails):
    world.allocate(run_id="run-0", epsilon="0.9")
    assert "(TimedOut)" in fails(world.allocate, timeout="0s")
    assert world.epsilons("tuesday") == ("0.9", "0")


def test_a_wait_says_what_it_waits_for(world, capsys, monkeypatch):
    world.allocate(run_id="run-0", epsilon="0.9")
    # In place of a pause, what is waited for happens.
    pause = "privatekube_kfp.steps.claims.time.sleep"
    monkeypatch.setattr(pause, lambda seconds: release(run_id="run-0"))
    world.allocate(timeout="1h")
    said = capsys.readouterr().out
    assert said.index("run-1.claim waits: WaitingForRelease") < said.index("run-1.claim: Allocated")


def test_a_long_wait_does_not_look_at_all_blocks_again_and_again(world, monkeypatch):
    world.allocate(run_id="run-0", epsilon="0.9")
    looks, pauses, real = [], iter(range(30, -1, -1)), SqliteLedger.why_waiting

    def look(ledger, *request):
        looks.append(request)
        return real(ledger, *request)

    def pause(seconds):
        if not next(pauses):
            release(run_id="run-0")

    monkeypatch.setattr(SqliteLedger, "why_waiting", look)
    monkeypatch.setattr("privatekube_kfp.steps.claims.time.sleep", pause)
    monkeypatch.setattr("privatekube_kfp.steps.claims.time.monotonic", lambda: 1000.0)
    world.allocate(timeout="1h")
    assert looks == [("run-1.claim", "allocate")]


def test_a_released_claim_does_not_come_back(world, fails):
    world.allocate()
    release(run_id="run-1", claim_name="claim")
    assert fails(world.allocate) == RELEASED
    assert world.epsilons("tuesday") == ("0", "0")


def test_a_run_that_was_denied_is_denied_when_it_is_retried(world, fails):
    """Even if there is budget by then: a denial is final."""
    world.allocate(run_id="run-0", epsilon="0.9")
    denied = fails(world.allocate, timeout="0s")
    release(run_id="run-0")
    again = fails(world.allocate, timeout="0s")
    assert again.startswith("privatekube: claim run-1.claim was denied before: ")
    assert again.endswith("its claims: start a new run instead (TimedOut)")
    assert denied.removeprefix("privatekube: claim run-1.claim: ").split(" (")[0] in again
    assert world.epsilons("tuesday") == ("0", "0")


def test_the_selection_is_what_was_said(world):
    world.ledger.create_block(
        "april", "clicks", start=1_000_000, end=2_000_000, data_source="april.parquet"
    )
    claim = world.allocate(last_blocks=0, start="1970-01-01", end="1970-01-02")
    assert bound(claim) == ["april"]
    claim = world.allocate(run_id="run-2", last_blocks=0, block_names=["monday"])
    assert bound(claim) == ["monday"]
    claim = world.allocate(run_id="run-3", last_blocks=3, max_blocks=1)
    assert bound(claim) == ["wednesday"]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"epsilon": ""}, "give epsilon or a plan, for how much to ask"),
        ({"plan": PLAN}, "give epsilon or a plan, not both"),
        ({"epsilon": "-1"}, "InvalidBudget"),
        ({"epsilon": "", "plan": {"steps": [{"name": "x", "mechanism": "magic"}]}}, "magic"),
        ({"stream": "other"}, "UnknownStream"),
        ({"last_blocks": 9, "min_blocks": 4}, "3 active blocks match the selection"),
        ({"last_blocks": -1}, "last_blocks is -1"),
        ({"last_blocks": 0}, "not neither"),
        ({"last_blocks": 0, "users": (5, 2)}, "must rise"),
        ({"timeout": "soon"}, "timeout 'soon' is not a duration"),
        ({"start": "yesterday"}, "start 'yesterday' is not a date or time"),
        ({"claim_name": "a.b"}, "claim name 'a.b' must be"),
        ({"claim_name": ""}, "claim name '' must be"),
        ({"run_id": "{{$.pipeline_job_uuid}}"}, "pass dsl.PIPELINE_JOB_ID_PLACEHOLDER"),
        ({"run_id": ""}, "is not the id of a run"),
        ({"run_id": "Run 1"}, "run name 'Run 1' must be"),
    ],
)
def test_nonsense_is_refused(world, fails, asked, why):
    assert why in fails(world.allocate, **asked)
    assert list(world.ledger.claims()) == []


def test_a_plan_that_the_accounting_cannot_price_is_refused(world, fails):
    plan = {"mechanism": "gaussian", "sigma": "2"}
    sentence = fails(world.allocate, epsilon="", plan=plan)
    assert "delta" in sentence
    assert "(CannotPrice)" in sentence


# The ledger


def test_without_a_ledger_there_is_no_budget(world, fails, monkeypatch):
    monkeypatch.delenv("PRIVATEKUBE_LEDGER")
    assert "(LedgerMissing)" in fails(world.allocate)


def test_a_ledger_that_is_not_there_is_not_made(world, fails, monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVATEKUBE_LEDGER", f"sqlite:///{tmp_path}/none.db")
    assert "(LedgerMissing)" in fails(world.allocate)
    assert not (tmp_path / "none.db").exists()


def test_a_pod_asks_its_cluster(world, fails, monkeypatch, tmp_path):
    """And never makes a ledger of its own, even where the cluster does not answer."""
    monkeypatch.delenv("PRIVATEKUBE_LEDGER")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert "Cluster" in fails(world.allocate)


# Consume


def test_consuming_all(world):
    consumed = spend(world, world.allocate())
    assert consumed.metadata["consumed"] == "consume"
    assert consumed.metadata["phase"] == "Consumed"
    assert world.epsilons("tuesday") == ("0", "0.4")


def test_consuming_again_spends_once(world):
    claim = world.allocate()
    assert spend(world, claim) == spend(world, claim)
    assert world.epsilons("tuesday") == ("0", "0.4")


def test_consuming_step_by_step(world):
    claim = world.allocate(epsilon="", plan=PLAN)
    spend(world, claim, plan_step="preprocess")
    assert world.epsilons("tuesday") == ("0.2", "0.1")
    spend(world, claim, plan_step="train")
    assert world.epsilons("tuesday") == ("0", "0.3")


def test_consuming_what_steps_report(world):
    claim = world.allocate()
    reported = [{"mechanism": "pure", "epsilon": "0.05"}, PLAN]
    consumed = spend(world, claim, amounts=reported, name="first")
    assert world.epsilons("tuesday") == ("0.05", "0.35")
    assert spend(world, claim, amounts=reported, name="first") == consumed
    assert world.epsilons("tuesday") == ("0.05", "0.35")


def test_consuming_more_than_is_held_is_refused(world, fails):
    claim = world.allocate()
    reported = [{"mechanism": "pure", "epsilon": "0.5"}]
    sentence = fails(spend, world, claim, amounts=reported, name="all")
    assert "(ExceedsAllocation)" in sentence
    assert world.epsilons("tuesday") == ("0.4", "0")
    assert not Path(world.artifact("consumed").path).exists()


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ({"amounts": [PLAN]}, "amounts need a name"),
        ({"amounts": [], "name": "x"}, "the list of amounts is empty"),
        ({"amounts": [PLAN], "plan_step": "train", "name": "x"}, "not both"),
        ({"name": "x"}, "is for amounts"),
        ({"plan_step": "other"}, "UnknownStep"),
        ({"amounts": ["all"], "name": "x"}, "InvalidPlan"),
    ],
)
def test_consuming_nonsense_is_refused(world, fails, what, why):
    claim = world.allocate(epsilon="", plan=PLAN)
    assert why in fails(spend, world, claim, **what)
    assert world.epsilons("tuesday") == ("0.3", "0")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"claim": "run-2.claim"}, "is not one of run run-1"),
        ({"claim": "run-1.other"}, "there is no claim"),
        ({"claim": None}, "it names no claim"),
        ({"claim": "run-1"}, "is not one of run run-1"),
        ({"blocks_sha256": "0" * 64}, "its blocks are not those"),
        ({"blocks_sha256": ""}, "its blocks are not those"),
        ({"blocks_sha256": 7}, "it does not say which blocks"),
        ({"blocks_sha256": {"list": ["tuesday", "wednesday"]}}, "it does not say which blocks"),
        ({"blocks_sha256": None}, "it does not say which blocks"),
        ({"blocks_sha256": None, "blocks": ["monday"]}, "its blocks are not those"),
        ({"blocks_sha256": None, "blocks": {"list": ["monday"]}}, "its blocks are not those"),
        ({"blocks_sha256": None, "blocks": {"list": []}}, "its blocks are not those"),
        ({"blocks_sha256": None, "blocks": {"list": {}}}, "it does not say which blocks"),
        ({"blocks_sha256": None, "blocks": {"struct": {}}}, "it does not say which blocks"),
        ({"blocks_sha256": None, "blocks": [["tuesday"]]}, "it does not say which blocks"),
        ({"blocks_sha256": None, "blocks": "tuesday"}, "it does not say which blocks"),
    ],
)
def test_a_tampered_claim_is_refused(world, fails, change, why):
    claim = world.allocate()
    world.allocate(run_id="run-2")
    claim.metadata.update(change)
    sentence = fails(spend, world, claim)
    assert "the claim artifact is not what Allocate made" in sentence
    assert why in sentence
    assert world.epsilons("tuesday") == ("0.8", "0")


@pytest.mark.parametrize("shape", [lambda names: names, lambda names: {"list": names}])
def test_an_artifact_of_an_older_version_has_the_names_of_its_blocks(world, shape):
    claim = world.allocate()
    del claim.metadata["blocks_sha256"]
    claim.metadata["blocks"] = shape(["tuesday", "wednesday"])
    spend(world, claim)
    assert world.epsilons("tuesday") == ("0", "0.4")


def test_metadata_are_texts_and_numbers_however_many_blocks_there_are(world):
    """All else is changed or refused by Kubeflow, and its tasks' inputs must stay small."""
    for number in range(300):
        world.ledger.create_block(f"{number}".rjust(192, "x"), "clicks", data_source="none")
    claim = world.artifact("claim")
    allocate(claim, world.artifact("report"), **ASKED, last_blocks=300)
    assert {type(value) for value in claim.metadata.values()} == {str, int}
    assert len(json.dumps(claim.metadata)) < 500
    assert len(bound(claim)) == 300


def test_amounts_in_metadata_are_short(world):
    claim = world.allocate(epsilon="", plan=PLAN)
    paid = spend(world, claim, plan_step="train")
    assert (claim.metadata["granted"], claim.metadata["spent"]) == (
        "epsilon 0.3, delta 0",
        "nothing",
    )
    assert (paid.metadata["granted"], paid.metadata["spent"]) == (
        "epsilon 0.3, delta 0",
        "epsilon 0.2, delta 0",
    )


def test_a_claim_that_somebody_else_made_under_the_name_is_refused(world, fails):
    stolen = world.allocate(run_id="run-2")
    request = AllocateRequest(
        "allocate", "clicks", Selection(last=2), Plan.of(PureEpsilon("0.1")), 0, "somebody"
    )
    assert world.ledger.submit("run-1.claim", request).done
    stolen.metadata["claim"] = "run-1.claim"
    sentence = fails(spend, world, stolen)
    assert "claim run-1.claim belongs to 'somebody', not to run run-1" in sentence
    assert world.epsilons("tuesday") == ("0.5", "0")


def test_consuming_a_released_claim_says_what_to_do(world, fails):
    claim = world.allocate()
    release(run_id="run-1")
    assert fails(spend, world, claim) == RELEASED


def test_a_consume_that_was_done_before_the_release_is_found_again(world):
    claim = world.allocate(epsilon="", plan=PLAN)
    paid = spend(world, claim, plan_step="preprocess")
    release(run_id="run-1")
    again = spend(world, claim, plan_step="preprocess")
    assert again.metadata["consumed"] == paid.metadata["consumed"]
    assert again.metadata["returned"] == "epsilon 0.2, delta 0"
    assert world.epsilons("tuesday") == ("0", "0.1")


# Release


def test_releasing_in_every_state(world, capsys):
    release(run_id="run-1", claim_name="claim")
    assert "was never made" in capsys.readouterr().out
    claim = world.allocate()
    release(run_id="run-1", claim_name="claim")
    assert world.epsilons("tuesday") == ("0", "0")
    release(run_id="run-1", claim_name="claim")
    assert "is Released: there is nothing to give back" in capsys.readouterr().out
    claim = world.allocate(run_id="run-2")
    world.run = "run-2"
    spend(world, claim)
    release(run_id="run-2", claim_name="claim")
    assert "is Consumed: there is nothing to give back" in capsys.readouterr().out
    assert world.epsilons("tuesday") == ("0", "0.4")


def test_releasing_what_is_left_after_a_step(world):
    claim = world.allocate(epsilon="", plan=PLAN)
    spend(world, claim, plan_step="preprocess")
    release(run_id="run-1")
    assert world.epsilons("tuesday") == ("0", "0.1")


def test_releasing_a_claim_that_waits_withdraws_it(world):
    world.allocate(run_id="run-0", epsilon="0.9")
    request = AllocateRequest(
        "allocate", "clicks", Selection(last=2), Plan.of(PureEpsilon("0.4")), None, "run-1"
    )
    assert world.ledger.submit("run-1.claim", request) is None
    release(run_id="run-1")
    assert world.claim().phase is not Phase.PENDING
    assert world.epsilons("tuesday") == ("0.9", "0")


def test_releasing_all_claims_of_a_run_and_of_no_other(world):
    world.allocate(epsilon="0.1")
    world.allocate(epsilon="0.1", claim_name="second")
    world.allocate(epsilon="0.1", run_id="run-12")
    release(run_id="run-1")
    assert world.epsilons("tuesday") == ("0.1", "0")
    assert world.claim("run-12.claim").phase is Phase.ALLOCATED


def test_a_release_that_cannot_reach_its_ledger_fails(world, fails, monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVATEKUBE_LEDGER", f"sqlite:///{tmp_path}/none.db")
    assert "(LedgerMissing)" in fails(release, run_id="run-1")
