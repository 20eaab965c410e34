"""The lines that must work exactly as written, typed into a real shell."""

import json
import shlex
import subprocess
import sys

import pytest

from tests.cli.running import environment

SESSION = """\
export PRIVATEKUBE_LEDGER=sqlite:///tmp-ledger.db
privatekube stream create s --epsilon 1 --delta 1e-7 --accounting basic --unlock-pipelines 1
privatekube stream create r --epsilon 10 --delta 1e-7 --accounting renyi --orders 2,3,4,5,6,8,16,32,64 --conversion classic --unlock-lifetime 30d --unlock-interval 1d
privatekube block create b1 --stream s            # --start/--end, --users, --data-source as needed
privatekube claim allocate c1 --stream s --block b1 --epsilon 0.1 --timeout 0s
privatekube claim consume c1                      # all of it; --epsilon 0.04 for a part
privatekube claim release c1
privatekube claim show c1 --json
privatekube ledger verify
privatekube account --epsilon 10 --delta 1e-7 --orders 2,3,4,5,6,8,16,32,64 --gaussian 6.5 --json   # how often it fits in a block
"""  # noqa: E501


@pytest.fixture
def shell(workplace):
    program = workplace / "bin" / "privatekube"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m privatekube_kfp.cli "$@"\n')
    program.chmod(0o755)
    env = environment()
    env["PATH"] = f"{program.parent}:{env['PATH']}"

    def run(script):
        return subprocess.run(
            ["bash", "-e", "-c", script], env=env, text=True, capture_output=True, check=False
        )

    return run


def test_every_line_works_as_written(shell, workplace):
    result = shell(SESSION)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert (workplace / "tmp-ledger.db").exists()
    said, rest = result.stdout.split("{", 1)
    assert said.splitlines() == [
        "stream s: epsilon 1, delta 1e-7, basic accounting, unlocked 1/1 per pipeline, policy dpf",
        "stream r: epsilon 10, delta 1e-7, renyi accounting, unlocked over 30d every 1d,"
        " policy dpf",
        "block b1 of stream s: Active",
        "claim c1: Allocated: epsilon 0.1 on 1 block",
        "claim c1: Consumed: all of it",
        "claim c1: Released: nothing to give back",
    ]
    shown, end = json.JSONDecoder().raw_decode("{" + rest)
    assert shown["phase"] == "Consumed"
    assert shown["consumed"] == [{"blocks": ["b1"], "budget": {"epsilon": "0.1", "delta": "0"}}]
    verdict, account = ("{" + rest)[end:].strip().split("\n", 1)
    assert verdict == "OK: 2 streams, 1 block, 1 claim"
    assert json.loads(account)["fits"] == 100


def test_each_line_takes_json(run):
    for line in SESSION.splitlines()[1:]:
        _, *args = shlex.split(line.replace("--json", ""), comments=True)
        assert isinstance(run.json(*args), dict)


def test_a_part_then_the_rest(basic):
    basic.ok("claim", "allocate", "c1", "--stream", "s", "--block", "b1", "--epsilon", "0.1")
    part = basic.json("claim", "consume", "c1", "--epsilon", "0.04")
    assert part["held"] == [{"blocks": ["b1"], "budget": {"epsilon": "0.06", "delta": "0"}}]
    rest = basic.json("claim", "consume", "c1")
    assert (rest["phase"], rest["held"]) == ("Consumed", [])


@pytest.mark.parametrize("consumed", [False, True])
def test_ten_tenths_fit_and_an_eleventh_never_does(basic, consumed):
    ask = ("--stream", "s", "--block", "b1", "--epsilon", "0.1", "--timeout", "0s")
    for number in range(1, 11):
        basic.ok("claim", "allocate", f"c{number}", *ask)
        if consumed:
            basic.ok("claim", "consume", f"c{number}")
    eleventh = basic("claim", "allocate", "c11", *ask)
    reason = "ExceedsCapacity" if consumed else "TimedOut"
    assert eleventh.code == 1
    assert eleventh.out == ""
    assert eleventh.err.startswith(f"privatekube: claim c11 denied: {reason}: ")
    assert "block b1: epsilon 0.1 asked, 0 " in eleventh.err
    again = basic("claim", "allocate", "c11", *ask, "--json")
    assert (again.code, again.json["error"]["reason"]) == (1, reason)
    assert again.json["claim"]["phase"] == "Denied"
    block = basic.json("block", "show", "b1")
    assert block["unlocked"]["epsilon"] == block["locked"]["epsilon"] == "0"
    assert block["phase"] == ("Exhausted" if consumed else "Active")
    assert basic.ok("ledger", "verify").out == "OK: 1 stream, 1 block, 11 claims\n"


def test_a_renyi_curve_fits_to_the_last_unit(run):
    """A curve of a tenth of the capacity, at the one order: ten fit, an eleventh does not."""
    stream = run.json(
        *("stream", "create", "r", "--epsilon", "10", "--delta", "1e-7", "--orders", "8"),
        "--unlock-at-once",
    )
    capacity = stream["capacity"]["8"]
    tenth = f"{int(capacity.replace('.', '')) // 10 / 10**12:.12f}"
    run.ok("block", "create", "b", "--stream", "r")
    plan = json.dumps({"mechanism": "curve", "orders": {"8": tenth}})
    ask = ("--stream", "r", "--block", "b", "--plan", plan, "--timeout", "0s")
    for number in range(1, 11):
        run.ok("claim", "allocate", f"c{number}", *ask)
    assert run("claim", "allocate", "c11", *ask).code == 1
