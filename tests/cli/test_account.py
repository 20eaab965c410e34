"""What things cost, and how often they fit."""

import json
import sys

import pytest

ORDERS = ("--orders", "2,3,4,5,6,8,16,32,64")
STREAM = ("account", "--epsilon", "10", "--delta", "1e-7")


@pytest.mark.parametrize(
    ("options", "fits", "best"),
    [
        ((*ORDERS, "--gaussian", "6.5"), 100, "5"),
        ((*ORDERS, "--laplace", "0.1"), 254, "5"),
        ((*ORDERS, "--conversion", "classic", "--gaussian", "6.5"), 100, "5"),
        ((*ORDERS, "--conversion", "weighted", "--gaussian", "6.5"), 103, "5"),
        (("--epsilon-delta", "1,1e-9"), 10, None),
        (("--pure", "1"), 10, None),
        (("--laplace", "0.1"), 100, None),
        (("--pure", "11"), 0, None),
    ],
)
def test_how_often_it_fits(run, options, fits, best):
    document = run.json(*STREAM, *options)
    assert (document["fits"], document["bestOrder"]) == (fits, best)
    counts = [count for count in document["fitsAt"].values() if count is not None]
    assert fits == (max if best else min)(counts)


def test_a_whole_answer(run):
    document = run.json(*STREAM, "--epsilon-delta", "1,1e-9")
    assert document == {
        "fits": 10,
        "accounting": "basic",
        "conversion": None,
        "bestOrder": None,
        "capacity": {"epsilon": "10", "delta": "0.0000001"},
        "price": {"epsilon": "1", "delta": "0.000000001"},
        "steps": {"all": {"epsilon": "1", "delta": "0.000000001"}},
        "fitsAt": {"epsilon": 10, "delta": 100},
    }


def test_for_people(run):
    assert (
        run.ok(*STREAM, *ORDERS, "--gaussian", "6.5").out
        == """\
ORDER        CAPACITY           PRICE  FITS
    2               0  0.023668639054     0
    3   1.94095217452   0.03550295858    54
    4   4.62730144968  0.047337278107    97
    5   5.97047608726  0.059171597634   100  <- best
    6  6.776380869808   0.07100591716    95
    8  7.697414907005  0.094674556214    81
   16  8.925460289936  0.189349112427    47
   32  9.480061430614  0.378698224853    25
   64  9.744157211889  0.757396449705    12

fits 100 times in one block
"""
    )
    assert run.ok(*STREAM, "--pure", "11").out.endswith("\ndoes not fit in one block\n")


PLAN = {
    "steps": [
        {"name": "preprocess", "mechanism": "laplace", "epsilon": "0.25"},
        {"name": "train", "mechanism": "pure", "epsilon": "0.5"},
        {"name": "evaluate", "mechanism": "pure", "epsilon": "0.25"},
    ]
}


def test_a_plan_from_anywhere(run, workplace, monkeypatch):
    (workplace / "plan.json").write_text(json.dumps(PLAN))
    (workplace / "{odd").write_text(json.dumps(PLAN))
    documents = [
        run.json(*STREAM, "--plan", where)
        for where in ("plan.json", json.dumps(PLAN), " " + json.dumps(PLAN), "./{odd")
    ]
    with (workplace / "plan.json").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        documents.append(run.json(*STREAM, "--plan", "-"))
    assert all(document == documents[0] for document in documents)
    assert documents[0]["fits"] == 10
    assert documents[0]["steps"]["train"] == {"epsilon": "0.5", "delta": "0"}
    shown = run.ok(*STREAM, "--plan", "plan.json").out
    assert "STEP        PRICE\npreprocess   0.25\ntrain         0.5\nevaluate     0.25\n" in shown


def test_gaussian_noise_on_a_basic_stream_needs_a_delta(run):
    priced = run.json(*STREAM, "--gaussian", "6.5", "--mechanism-delta", "1e-9")
    assert priced["price"]["delta"] == "0.000000001"
    assert priced["fits"] == 11


def test_on_a_stream_of_a_ledger(run):
    declared = ("--epsilon", "10", "--delta", "1e-7", *ORDERS, "--unlock-pipelines", "3")
    run.ok("stream", "create", "r", *declared)
    of_ledger = run.json("account", "--stream", "r", "--gaussian", "6.5")
    assert of_ledger == run.json(*STREAM, *ORDERS, "--gaussian", "6.5")


def test_the_user_counter_takes_its_part(run):
    counted = run.json(*STREAM, "--counter-epsilon", "1", "--pure", "1")
    assert (counted["fits"], counted["capacity"]["epsilon"]) == (9, "9")


def test_needs_no_ledger(run, monkeypatch):
    monkeypatch.delenv("PRIVATEKUBE_LEDGER")
    run.ok(*STREAM, "--pure", "1")


@pytest.mark.parametrize(
    ("command", "noise", "value"),
    [
        (("laplace",), "scale", "10"),
        (("gaussian", "--delta", "1e-9"), "sigma", "6.5"),
        (("dp-sgd", "--delta", "1e-5", "--rate", "0.01", "--steps", "100"), "noise", "1.1"),
    ],
)
def test_there_and_back(run, command, noise, value):
    """Noise for the epsilon that some noise has is no more than that noise."""
    there = run.json("calibrate", *command, f"--{noise}", value)
    back = run.json("calibrate", *command, "--epsilon", there["epsilon"])
    assert float(back[noise]) <= float(value)
    again = run.json("calibrate", *command, f"--{noise}", back[noise])
    assert float(again["epsilon"]) <= float(there["epsilon"])
    priced = run.json(*STREAM, "--plan", json.dumps(there["mechanism"]))
    assert priced["price"]["epsilon"] == there["epsilon"]


def test_calibration_for_people(run):
    assert run.ok("calibrate", "gaussian", "--epsilon", "1", "--delta", "1e-9").out == (
        "sigma    5.495266158\nepsilon  1\ndelta    1e-9\n"
    )
