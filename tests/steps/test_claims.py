"""Allocate, consume and release as components call them."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from privatekube_kfp.accounting import Plan, PureEpsilon, Weighted
from privatekube_kfp.core.budget import renyi
from privatekube_kfp.core.claim import Kind, Phase
from privatekube_kfp.core.errors import LedgerError, Reason
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.requests import AllocateRequest
from privatekube_kfp.ledger.sqlite import SqliteLedger
from privatekube_kfp.ledger.streams import StreamSpec
from privatekube_kfp.steps.claims import allocate, consume, release
from tests.kubeflow.metadata import STORE_SESSION_INFO
from tests.steps.pages_seen import Page

PLAN = {
    "steps": [
        {"name": "preprocess", "mechanism": "pure", "epsilon": "0.1"},
        {"name": "train", "mechanism": "pure", "epsilon": "0.2"},
    ]
}


ASKED = {"run_id": "run-1", "claim_name": "claim", "stream": "clicks", "epsilon": "0.4"}
RELEASED = (
    "AlreadyReleased: claim run-1.claim was released: what it held is given back. A run that is"
    " retried keeps its id and its claims: start a new run instead"
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
    seen = Page(Path(world.artifact("report").path).read_text())
    assert seen.title == "Budget allocated"
    assert ["epsilon", "0.4", "0", "0", "0.4"] in seen.rows
    assert ["per block", "granted", "spent", "given back", "left of the claim"] in seen.rows
    assert "2 blocks, such as tuesday" in seen.lines
    assert "1 → 0.6 left of 1" in seen.lines


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
        "ExceedsCapacity: claim run-1.claim: block tuesday: epsilon 2 asked, 1 left, and no more"
        " will ever be"
    )
    assert not Path(world.artifact("claim").path).exists()
    assert world.epsilons("tuesday") == ("0", "0")


def test_a_denial_writes_its_report_before_it_fails(world, fails):
    world.allocate(run_id="run-0", epsilon="0.3")
    fails(world.allocate, epsilon="2")
    seen = Page(Path(world.artifact("report").path).read_text())
    assert seen.title == "Budget denied"
    assert "ExceedsCapacity" in seen.lines
    assert "block tuesday: epsilon 2 asked, 1 left, and no more will ever be" in seen.lines
    assert "2 asked, 0.7 left of 1" in seen.lines


def test_a_request_that_makes_no_sense_has_a_report_too(world, fails):
    fails(world.allocate, stream="other")
    seen = Page(Path(world.artifact("report").path).read_text())
    assert "UnknownStream" in seen.lines


def test_no_report_hides_why_a_task_failed(world, fails):
    """The disk is full: the reason is still the denial."""
    Path(world.artifact("report").path).symlink_to("/dev/full")
    assert fails(world.allocate, epsilon="2").startswith("ExceedsCapacity: ")


def test_a_denied_consume_writes_its_report(world, fails):
    claim = world.allocate()
    fails(spend, world, claim, amounts=[{"mechanism": "pure", "epsilon": "0.5"}], name="all")
    seen = Page(Path(world.artifact("report").path).read_text())
    assert seen.title == "Nothing was spent"
    assert "ExceedsAllocation" in seen.lines
    assert ["epsilon", "0.4", "0", "0", "0.4"] in seen.rows


def test_a_time_out_holds_nothing(world, fails):
    world.allocate(run_id="run-0", epsilon="0.9")
    assert "TimedOut: " in fails(world.allocate, timeout="0s")
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
    assert again.startswith("TimedOut: claim run-1.claim was denied before: ")
    assert again.endswith("its claims: start a new run instead")
    assert denied.removeprefix("TimedOut: claim run-1.claim: ") in again
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
    assert "CannotPrice: " in sentence


# The ledger


def test_without_a_ledger_there_is_no_budget(world, fails, monkeypatch):
    monkeypatch.delenv("PRIVATEKUBE_LEDGER")
    assert "LedgerMissing: " in fails(world.allocate)


def test_a_ledger_that_is_not_there_is_not_made(world, fails, monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVATEKUBE_LEDGER", f"sqlite:///{tmp_path}/none.db")
    assert "LedgerMissing: " in fails(world.allocate)
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
    assert "ExceedsAllocation: " in sentence
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
    assert "LedgerMissing: " in fails(release, run_id="run-1")


# What is left of a run


def end(world, run="run-1", **what):
    """Release, with its report and metrics."""
    report, metrics = world.artifact("final"), world.artifact("metrics")
    release(run_id=run, report=report, metrics=metrics, **what)
    kept = metrics.travelled().metadata
    return Page(Path(report.path).read_text()), {name: kept[name] for name in metrics.metadata}


def test_the_final_report_says_what_was_granted_spent_and_given_back(world):
    world.allocate(run_id="run-0", epsilon="0.2", last_blocks=1)
    claim = world.allocate(epsilon="", plan=PLAN)
    spend(world, claim, plan_step="train")
    seen, metrics = end(world)
    assert seen.title == "Privacy budget of this run"
    assert "Epsilon 0.2 spent of 0.3 granted" in seen.lines
    assert ["granted", "spent", "given back", "left of the claim"] in seen.rows
    assert ["0.3", "0.2", "0.1", "0"] in seen.rows
    # The run before holds 0.2 of Wednesday, and nothing of Tuesday.
    assert "0.8 → 0.6 left of 1" in seen.lines
    assert "1 → 0.8 left of 1" in seen.lines
    assert metrics == {
        "claims": 1,
        "denied": 0,
        "blocks": 2,
        "epsilon_asked": 0.3,
        "epsilon_granted": 0.3,
        "epsilon_spent": 0.2,
        "epsilon_given_back": 0.1,
        "percent_of_block_granted": 30,
        "percent_of_block_spent": 20,
        "percent_of_block_given_back": 10,
        "epsilon_left_of_block": 0.6,
    }


def test_delta_is_told_where_there_is_one(world):
    spend(world, world.allocate(delta="1e-9"))
    _, metrics = end(world)
    assert (metrics["delta_granted"], metrics["delta_given_back"]) == (1e-9, 0)


def test_the_final_report_of_a_denial_says_why(world, fails):
    """Of a task that fails Kubeflow keeps no report: this one is where people read it."""
    fails(world.allocate, epsilon="2")
    seen, metrics = end(world)
    assert "Denied: ExceedsCapacity" in seen.lines
    said = "ExceedsCapacity: block tuesday: epsilon 2 asked, 1 left, and no more will ever be"
    assert said in seen.lines
    assert "2 asked, 1 left of 1" in seen.lines
    assert (metrics["denied"], metrics["epsilon_asked"], metrics["epsilon_granted"]) == (1, 2, 0)


def test_the_final_report_of_a_run_without_claims(world):
    seen, metrics = end(world)
    assert "This run made no claim" in seen.lines
    assert metrics == {"claims": 0, "denied": 0}


def test_each_of_several_claims_has_its_numbers(world):
    spend(world, world.allocate(epsilon="0.1"))
    world.allocate(epsilon="0.2", claim_name="second")
    seen, metrics = end(world)
    assert "2 claims" in seen.lines
    assert (metrics["epsilon_spent.claim"], metrics["epsilon_spent.second"]) == (0.1, 0)
    assert metrics["epsilon_given_back.second"] == 0.2
    # Of each block, what both have spent is gone.
    assert "1 → 0.9 left of 1" in seen.lines


def test_renyi_amounts_are_those_of_the_order_that_costs_least(world):
    orders = renyi(["2", "4", "64"])
    spec = StreamSpec(
        *("curves", "10", "1e-7", ByPipelines(1)), accounting=orders, conversion=Weighted()
    )
    capacity = world.ledger.create_stream(spec).capacity
    world.ledger.create_block("whole", "curves")
    claim = world.allocate(
        stream="curves", epsilon="", plan={"mechanism": "gaussian", "sigma": "2"}, last_blocks=1
    )
    spend(world, claim)
    seen, metrics = end(world)
    spent = world.claim().total(Kind.CONSUME).groups[0][0]
    shares = {
        order: part / whole
        for order, part, whole in zip(orders.labels, spent.amounts, capacity.amounts, strict=True)
        if whole > 0
    }
    best = min(shares, key=shares.get)
    assert metrics["renyi_order"] == float(best)
    assert metrics["epsilon_spent"] == float(spent.to_json()[best])
    assert metrics["percent_of_block_spent"] == pytest.approx(100 * shares[best], abs=1e-6)
    assert f"Epsilon at order {best} left of each block, before and after this run" in seen.lines
    assert ["order 2", *(spent.to_json()["2"], spent.to_json()["2"], "0", "0")] in seen.rows


def test_a_release_is_done_even_if_blocks_cannot_be_read(world, capsys, monkeypatch):
    """A report is not worth a failure."""
    world.allocate()

    def unreadable(self, name):
        raise LedgerError(Reason.LEDGER_BUSY, "the ledger is busy")

    monkeypatch.setattr(SqliteLedger, "stream", unreadable)
    seen, metrics = end(world)
    assert seen.facts["given back"] == "epsilon 0.4"
    assert metrics == {"claims": 1, "denied": 0}
    assert "does not say what is left of the blocks: the ledger is busy" in capsys.readouterr().out
    assert world.epsilons("tuesday") == ("0", "0")
