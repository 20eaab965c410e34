"""`privatekube simulate`, as people and programs use it."""

import json
import sys

import pytest

from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.sqlite import SqliteLedger
from tests.contract.world import ask, basic_stream

HEAD = "arrival,start_block,num_blocks,epsilon\n"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(HEAD + "".join(f"{second},0,1,0.3\n" for second in range(5)))
    return str(path)


def test_a_replay_for_programs(run, trace):
    said = run.json("simulate", "replay", "--trace", trace, "--policy", "dpf", "--pipelines", "2")
    assert said == {
        "trace": trace,
        "policy": "dpf",
        "unlocking": {"pipelines": 2},
        "arrivals": 5,
        "granted": 3,
        "refused": {},
        "waiting": 2,
        "delay_mean": 0.0,
        "delay_median": 0.0,
        "delay_p99": 0.0,
    }


def test_a_replay_for_people(run, trace):
    words = ("--trace", trace, "--policy", "fcfs", "--timeout", "1s")
    said = run.ok("simulate", "replay", *words).out
    assert "granted   3\n" in said
    assert "refused   2 TimedOut\n" in said


def test_a_replay_with_another_capacity(run, trace):
    words = ("--trace", trace, "--policy", "fcfs", "--epsilon", "0.6")
    assert run.json("simulate", "replay", *words)["granted"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "best"), "Invalid value for '--policy'"),
        (("--policy", "dpf"), "How does budget unlock?"),
        (("--pipelines", "0"), "must be from 1"),
        (("--pipelines", "2", "--lifetime", "1d"), "not both"),
        (("--lifetime", "1d"), "go together"),
        (("--policy", "fcfs", "--blocks", "0"), "0 are there when it comes"),
        (("--policy", "fcfs", "--period", "0s"), "--period must be above zero"),
        (
            (
                "--policy",
                "rr",
                "--pipelines",
                "2",
                "--epsilon",
                "1",
                "--delta",
                "1e-7",
                "--accounting",
                "renyi",
            ),
            "there is no column 'rdp_1.5'",
        ),
    ],
)
def test_a_replay_that_makes_no_sense(run, trace, words, said):
    result = run("simulate", "replay", "--trace", trace, *words)
    assert result.code in (1, 2)
    assert said in result.err
    assert result.out == ""


def test_a_trace_that_is_not_there(run):
    result = run("simulate", "replay", "--trace", "nowhere.csv", "--policy", "fcfs")
    assert result.code == 1
    assert "nowhere.csv: No such file or directory" in result.err


def test_a_bad_trace_is_the_callers_fault(run, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(HEAD + "1,0,1,-1\n")
    result = run("simulate", "replay", "--trace", str(path), "--policy", "fcfs", "--json")
    assert result.code == 2
    assert result.json["error"]["message"].endswith("line 2: epsilon '-1' is negative")


def test_an_experiment_over_seeds(run, tmp_path):
    words = ("simulate", "single-block", "--policy", "dpf-n", "--policy", "fcfs")
    few = (*words, "--pipelines", "125", "--seeds", "2", "--jobs", "1", "--out", str(tmp_path))
    said = run.json(*few)
    assert [(row["line"], row["at"]) for row in said["results"]] == [("DPF-N", 125), ("FCFS", None)]
    assert said["results"][0]["granted"] == 100
    assert said["results"][0]["granted_deviation"] == 0
    shown = run.ok(*few).out
    assert "100 ± 0" in shown
    assert "The paper: DPF behaves like FCFS at N = 1" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("single-block", "--seeds", "0"), "--seeds must be from 1 to"),
        (("single-block", "--jobs", "0"), "--jobs must be from 1 to"),
        (("single-block", "--pipelines", "0"), "--pipelines must be from 1"),
        (("mice", "--mice", "101"), "--mice must be from 0 to 100"),
        (("single-block", "--policy", "dpf"), "Invalid value for '--policy'"),
        (("macro",), "the macrobenchmark needs --demands"),
        (("nothing",), "No such command 'nothing'"),
    ],
)
def test_experiments_that_make_no_sense(run, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    result = run("simulate", *words)
    assert result.code == 2
    assert said in result.err


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "has no groups"), ("group,name\nelephants,x\n", "there is no column 'n_blocks_days'")],
)
def test_demands_that_make_no_sense(run, tmp_path, text, said):
    path = tmp_path / "demands.csv"
    path.write_text(text)
    words = ("--demands", str(path), "--out", str(tmp_path / "out"), "--seeds", "1", "--jobs", "1")
    result = run("simulate", "macro", "--pipelines", "3", *words)
    assert result.code == 1
    assert said in result.err


def test_figures_with_a_page(run, tmp_path):
    out = tmp_path / "out"
    words = ("--only", "single-block", "--only", "mice", "--seeds", "2", "--out", str(out))
    said = run.json("simulate", "figures", *words)
    assert said["page"] == str(out / "index.html")
    names = ["single-block.png", "single-block.svg", "mice.png", "mice.svg"]
    assert said["figures"] == [str(out / name) for name in names]
    page = (out / "index.html").read_text()
    assert "DPF-N: up to 100 at 125" in page
    assert "limit: at most 100" in page
    assert 'src="mice.svg"' in page
    for name in names:
        assert (out / name).stat().st_size > 5_000
    before = (out / "mice.svg").read_bytes()
    run.ok("simulate", "figures", *words)
    assert (out / "mice.svg").read_bytes() == before


def test_without_the_extra(run, tmp_path, monkeypatch):
    """Figures say at once what is missing; experiments go without the limit, and say so."""
    extra = {"scipy", "matplotlib"}
    for name in extra | {name for name in sys.modules if name.partition(".")[0] in extra}:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "privatekube_kfp.simulator.figures", raising=False)
    monkeypatch.setattr("privatekube_kfp.cli.simulate.find_spec", lambda name: None)
    few = ("--seeds", "1", "--jobs", "1", "--out", str(tmp_path))
    said = run("simulate", "figures", *few)
    assert said.code == 1
    assert "is not installed; run pip install 'privatekube-kfp[simulator]'" in said.err
    shown = run("simulate", "single-block", "--pipelines", "125", *few)
    assert shown.code == 0
    assert "without the limit: scipy is not installed" in shown.err
    assert "limit" not in shown.out
    asked = run("simulate", "single-block", "--policy", "limit", *few)
    assert asked.code == 1
    assert "scipy is not installed; run pip install" in asked.err


@pytest.fixture
def waiting(workplace):
    """Three claims that wait for what a block has not yet unlocked, in the ledger that is named."""
    with SqliteLedger(workplace / "ledger.db", create=True) as ledger:
        ledger.create_stream(basic_stream(unlocking=ByPipelines(10)))
        ledger.create_block("monday", "s")
        for name, epsilon in (("large", "0.9"), ("small", "0.4"), ("middle", "0.5")):
            assert ledger.submit(name, ask(epsilon, "monday", timeout=None)) is None
        yield ledger


def test_what_if_more_were_unlocked(run, waiting):
    def fates(*words):
        said = run.json("simulate", "what-if", "s", *words)
        assert said["waiting"] == 3
        return {claim["claim"] for claim in said["claims"] if claim["granted"]}

    before = [record.budget for record in waiting.blocks()]
    assert fates() == set()
    assert fates("--pipelines", "5") == {"small"}
    assert fates("--pipelines", "3") == {"small", "middle"}
    assert fates("--at-once") == {"small", "middle"}
    assert fates("--at-once", "--policy", "fcfs") == {"large"}
    assert fates("--lifetime", "10d", "--interval", "1d", "--within", "4d1h") == {"small"}
    assert [record.budget for record in waiting.blocks()] == before
    assert all(claim.phase == "Pending" for claim in waiting.claims())


def test_what_if_for_people(run, waiting):
    said = run.ok("simulate", "what-if", "s", "--pipelines", "5").out
    assert said.startswith("stream s with policy dpf, unlocked 1/5 per pipeline: 1 of 3 waiting")
    assert "large   Waiting    block monday: epsilon 0.9 asked, 0.2 unlocked" in said
    later = run.ok(
        "simulate", "what-if", "s", "--lifetime", "10d", "--interval", "1d", "--within", "4d1h"
    )
    assert "small   Allocated in " in later.out


def test_what_if_of_a_stream_that_is_not_there(run, waiting):
    result = run("simulate", "what-if", "t")
    assert result.code == 1
    assert "UnknownStream" in result.err


def test_what_if_needs_one_way_to_unlock(run, waiting):
    assert run("simulate", "what-if", "s", "--at-once", "--pipelines", "3").code == 2


def test_results_of_a_read_only_folder(run, tmp_path):
    (tmp_path / "file").write_text("")
    result = run("simulate", "single-block", "--seeds", "1", "--out", str(tmp_path / "file" / "x"))
    assert result.code == 1
    assert "Not a directory" in result.err
    assert json.loads(run("simulate", "mice", "--json", "--seeds", "0").out)["error"]
