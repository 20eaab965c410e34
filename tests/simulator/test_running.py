"""Grids of simulations: kept, found again, and gone on with after whatever ended them."""

import json
import os
import signal
import subprocess
import time
from contextlib import suppress

import pytest

from privatekube_kfp.simulator import running
from privatekube_kfp.simulator.experiments import Run
from privatekube_kfp.simulator.running import RESULTS, Results, run_all
from tests.cli.running import command_line, environment

RUNS = [Run("single-block", "dpf-n", seed, pipelines=n) for seed in (0, 1) for n in (50, 125)]


def test_what_was_run_before_is_not_run_again(tmp_path):
    told = []
    run_all(RUNS[:3], Results(tmp_path), 1, told.append)
    assert told == [0, 1, 1, 1]
    told.clear()
    again = Results(tmp_path)
    run_all(RUNS, again, 1, told.append)
    assert told == [3, 1]
    assert [again[run]["granted"] for run in RUNS] == [46, 100, 46, 100]


def test_several_at_a_time_find_the_same(tmp_path):
    one, two = Results(tmp_path / "one"), Results(tmp_path / "two")
    run_all(RUNS, one, 1, lambda done: None)
    run_all(RUNS, two, 2, lambda done: None)
    assert [one[run] for run in RUNS] == [two[run] for run in RUNS]


def test_a_line_that_was_cut_off_is_run_again_and_harms_no_other(tmp_path):
    run_all(RUNS[:2], Results(tmp_path), 1, lambda done: None)
    path = tmp_path / RESULTS
    path.write_bytes(path.read_bytes()[:-10])
    told = []
    run_all(RUNS[:2], Results(tmp_path), 1, told.append)
    assert told == [1, 1]
    assert len(Results(tmp_path).known) == 2


def test_results_of_other_demands_are_others(tmp_path):
    results, demands = Results(tmp_path), tmp_path / "demands.csv"
    run = Run("macro", "dpf-n", 0, pipelines=5, demands=str(demands))
    demands.write_text("one")
    results.add(run, {"granted": 1})
    assert run in Results(tmp_path)
    running._digest.cache_clear()
    demands.write_text("other")
    assert run not in Results(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("signal_sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_goes_on(tmp_path, signal_sent):
    """Many seeds are begun with; after the signal, the first of them is asked for."""
    words = ("simulate", "multi-block", "--policy", "dpf-n", "--quick", "--out", str(tmp_path))
    begun = subprocess.Popen(
        command_line(*words, "--seeds", "500", "--jobs", "2"),
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    while len(kept(tmp_path)) < 3:
        assert begun.poll() is None
        time.sleep(0.02)
    begun.send_signal(signal_sent)
    _, said = begun.communicate(timeout=120)
    if signal_sent is signal.SIGINT:
        assert begun.returncode == 130
        assert "of 5000 simulations are done and kept in" in said
    assert not _workers_of(begun.pid)
    before = kept(tmp_path)
    done = subprocess.run(
        command_line(*words, "--seeds", "1", "--json"),
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(done.stdout)["results"]) == 10
    after = kept(tmp_path)
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) >= 10


def kept(folder):
    """What was run and kept, in order; a line that was cut off counts for nothing."""
    path = folder / RESULTS
    keys = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(ValueError):
            keys.append(json.loads(line)["key"])
    return keys


def _workers_of(pid):
    """Processes that a command left behind, once they have had time to notice."""
    give_up = time.monotonic() + 180
    while True:
        left = [name for name in os.listdir("/proc") if name.isdecimal() and _parent(name) == pid]
        if not left or time.monotonic() > give_up:
            return left
        time.sleep(0.2)


def _parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except OSError:
        return None
