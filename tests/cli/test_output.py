"""What reaches the reader: whole, plain where it is piped, one document where it is JSON."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from privatekube_kfp import __version__
from privatekube_kfp.cli.app import cli
from privatekube_kfp.ledger.ledger import PublishedCount
from privatekube_kfp.ledger.sqlite import SqliteLedger
from privatekube_kfp.ledger.times import parse_time
from privatekube_kfp.local.compiling import compile_file
from tests.cli.running import command_line, environment, in_own_process

VISITS = Path(__file__).parents[2] / "pipelines" / "visits.py"
LONG = "a-block-with-a-name-that-is-longer-than-a-narrow-terminal-is-wide-" + "x" * 40


def commands(group=cli, path=()):
    """Every command, by its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands())


@pytest.mark.parametrize("words", COMMANDS)
def test_help_with_an_example(run, words):
    for option in ("-h", "--help"):
        result = run.ok(*words, option)
        assert re.search(rf"Examples?:\n +privatekube {' '.join(words)} ?", result.out)
        assert "--json" in result.out
    assert COMMANDS[words].get_short_help_str(limit=70)[-3:] != "..."


def examples():
    for words, command in COMMANDS.items():
        text = command.help.replace("\\\n", "")
        for line in text.splitlines():
            if line.strip().startswith("privatekube "):
                yield pytest.param(line.split()[1:], id=" ".join(words))


@pytest.mark.parametrize("args", list(examples()))
def test_examples_in_help_can_be_understood(run, workplace, monkeypatch, args):
    """On a ledger that has what they name, no example is a usage error."""
    if args[0] == "vectors":
        monkeypatch.setenv("XDG_CACHE_HOME", str(workplace))
        monkeypatch.setenv("PATH", "")  # nothing is fetched here
    if args[0] == "simulate":
        # What they tell takes minutes; here it only has to be understood.
        done = {"arrivals": 2, "granted": 1, "delay_mean": 0.5, "fair": 2, "fair_granted": 1}
        monkeypatch.setattr("privatekube_kfp.simulator.experiments.Run.result", lambda run: done)
        monkeypatch.setattr("os.cpu_count", lambda: 1)  # in this process
    (workplace / "plan.json").write_text('{"mechanism": "laplace", "epsilon": "0.1"}')
    for stream in ("clicks", "reviews", "users"):
        more = ("--semantic", "user", "--counter-epsilon", "0.1") if stream == "users" else ()
        run.ok("stream", "create", stream, "--epsilon", "1", "--policy", "fcfs", *more)
    run.ok("block", "create", "monday", "--stream", "clicks")
    for claim in ("c1", "c3"):
        ask = ("--stream", "clicks", "--block", "monday", "--epsilon", "0.1", "--timeout", "0s")
        run.ok("claim", "allocate", claim, *ask)
    if args[0] == "lint":
        compiled = compile_file(VISITS).text
        (workplace / "pipelines").mkdir()
        for name in ("pipeline.yaml", "pipelines/visits.yaml"):
            (workplace / name).write_text(compiled)
    result = run(*as_a_shell_does(args, workplace))
    assert result.code in (0, 1), result


def as_a_shell_does(args, folder):
    """Without what goes to a file, and with the files that a pattern means."""
    words = args[: args.index(">")] if ">" in args else args
    for word in words:
        found = sorted(folder.glob(word)) if "*" in word else []
        yield from (str(path.relative_to(folder)) for path in found) if found else (word,)


def test_the_top(run):
    assert run.ok("--version").out == f"privatekube {__version__}\n"
    assert run.ok("--json", "--version").json == {"version": __version__}
    top = run.ok("--help").out
    for name in ("stream", "block", "claim", "ledger", "account", "calibrate"):
        assert f"\n  {name} " in top
    nothing = run("claim")
    assert (nothing.code, nothing.out) == (2, "")
    assert "allocate" in nothing.err
    assert run("claim", "--json").code == 2


def test_json_is_asked_for_anywhere(basic):
    first = basic.ok("--json", "block", "list").json
    assert first == basic.ok("block", "list", "--json").json
    (block,) = first["blocks"]
    del block["created"]
    assert block == {
        "name": "b1",
        "stream": "s",
        "phase": "Active",
        "start": None,
        "end": None,
        "users": None,
        "dataSource": None,
        "arrivals": 0,
        "capacity": {"epsilon": "1", "delta": "0.0000001"},
        "locked": {"epsilon": "1", "delta": "0.0000001"},
        "unlocked": {"epsilon": "0", "delta": "0"},
        "allocated": {"epsilon": "0", "delta": "0"},
        "consumed": {"epsilon": "0", "delta": "0"},
    }


def test_a_stream_is_shown_with_its_users(run, workplace):
    declared = ("--epsilon", "1", "--policy", "fcfs", "--semantic", "user")
    run.ok("stream", "create", "users", *declared, "--counter-epsilon", "0.1")
    assert run.json("stream", "show", "users")["count"] is None
    assert "about" not in run.ok("stream", "show", "users").out
    with SqliteLedger(workplace / "ledger.db") as ledger:
        count = PublishedCount(120, 100, 140, "0.999", parse_time("2026-11-16"))
        ledger.publish_count("users", count)
    assert run.json("stream", "show", "users")["count"] == {
        "estimate": 120,
        "lowerBound": 100,
        "upperBound": 140,
        "confidence": "0.999",
        "time": "2026-11-16T00:00:00Z",
    }
    shown = run.ok("stream", "show", "users").out
    assert (
        "\nusers       about 120; at least 100 and at most 140 with confidence 0.999;"
        " up to 2026-11-16T00:00:00Z\n"
    ) in shown


def test_errors_are_json_too(basic):
    unknown = basic("stream", "show", "zz", "--json")
    assert (unknown.code, unknown.json) == (
        1,
        {"error": {"reason": "UnknownStream", "message": "there is no stream 'zz'"}},
    )
    for args in [("--json",), ("stream", "--json"), ("stream", "show", "--json", "--zz", "1")]:
        usage = basic(*args)
        assert usage.code == 2
        assert usage.json["error"]["reason"] == "Usage"


@pytest.fixture
def long_names(basic):
    declared = ("--epsilon", "10", "--delta", "1e-7", "--orders", "5,64", "--unlock-at-once")
    basic.ok("stream", "create", "a-stream-with-a-rather-long-name", *declared)
    basic.ok("block", "create", LONG, "--stream", "a-stream-with-a-rather-long-name")
    return basic


def test_piped_output_is_plain_and_whole(long_names):
    result = in_own_process("block", "list")
    assert "\x1b" not in result.stdout
    header, ours, theirs = result.stdout.splitlines()
    assert header.split()[:4] == ["NAME", "STREAM", "PHASE", "ORDER"]
    assert ours.split()[:5] == [
        LONG,
        "a-stream-with-a-rather-long-name",
        "Active",
        "64",
        "9.744157211889",
    ]
    assert theirs.split()[0] == "b1"
    assert all(line == line.rstrip() for line in result.stdout.splitlines())


def at_a_terminal(columns, *args):
    """What a terminal of this width shows."""
    ours, theirs = pty.openpty()
    env = environment() | {"COLUMNS": str(columns), "TERM": "xterm"}
    child = subprocess.Popen(command_line(*args), env=env, stdin=theirs, stdout=theirs)
    os.close(theirs)
    shown = b""
    with child, open(ours, "rb", buffering=0) as terminal:
        while True:
            try:
                shown += terminal.read(4096)
            except OSError:  # what Linux says when the other end is closed
                break
    assert child.returncode == 0
    return shown.decode().replace("\r\n", "\n")


def without_colours(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_terminal_has_colours_and_a_width(basic):
    declared = ("--epsilon", "10", "--delta", "1e-7", "--orders", "5,64", "--unlock-at-once")
    basic.ok("stream", "create", "r", *declared)
    basic.ok("block", "create", "rb", "--stream", "r")
    wide = at_a_terminal(120, "block", "list")
    assert "\x1b[32mActive" in wide
    assert "9.744157211889" in wide
    narrow = without_colours(at_a_terminal(80, "block", "list"))
    assert max(map(len, narrow.splitlines())) <= 80
    assert "9.7441.." in narrow
    assert len(narrow.splitlines()) == 3
    facts = without_colours(at_a_terminal(40, "block", "list"))
    assert "capacity   9.744157211889\n" in facts
    assert max(map(len, facts.splitlines())) <= 40


def test_a_terminal_too_narrow_for_a_name_still_shows_all_of_it(long_names):
    shown = without_colours(at_a_terminal(60, "block", "list"))
    assert LONG in re.sub(r"\s", "", shown)


def test_a_reader_that_stops_reading(basic):
    for args in (("block", "list"), ("block", "list", "--json"), ("block", "show", "zz", "--json")):
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "wb") as broken:
            result = subprocess.run(
                command_line(*args),
                env=environment(),
                stdout=broken,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert result.returncode == 141, result
        assert "Traceback" not in result.stderr
        assert "Exception ignored" not in result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_an_output_that_is_full(basic):
    for args in (("block", "list"), ("block", "list", "--json")):
        with open("/dev/full", "wb") as full:
            result = subprocess.run(
                command_line(*args),
                env=environment(),
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert result.returncode == 1
        assert result.stderr == (
            "privatekube: cannot write to standard output: No space left on device\n"
        )


def test_an_output_that_is_closed(basic):
    closed = f"{' '.join(command_line('block', 'list'))} >&-"
    assert subprocess.run(["sh", "-c", closed], env=environment(), check=False).returncode == 0


def test_brackets_are_not_markup(basic):
    where = "s3://bucket/[bold]x[/bold]"
    basic.ok("block", "create", "b2", "--stream", "s", "--data-source", where)
    assert where in basic.ok("block", "show", "b2").out


def loaded_by(*args):
    """The modules that a command loads."""
    program = (
        "import sys\nfrom privatekube_kfp.cli import main\n"
        "code = main(sys.argv[1:])\nprint('\\n'.join(sys.modules), file=sys.stderr)\nsys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *args],
        env=environment(),
        text=True,
        capture_output=True,
        check=False,
    )
    return {name.split(".")[0] for name in result.stderr.splitlines()}


def test_a_quick_start():
    for args in (("--help",), ("--version",), ("claim", "allocate", "--help")):
        assert not loaded_by(*args) & {"numpy", "rich", "scipy", "dp_accounting"}
    account = ("account", "--epsilon", "1", "--pure", "0.1", "--json")
    assert not loaded_by(*account) & {"numpy", "rich", "scipy", "dp_accounting"}


def test_no_command_loads_scipy(basic):
    ask = ("claim", "allocate", "c1", "--stream", "s", "--block", "b1", "--epsilon", "0.1")
    assert not loaded_by(*ask) & {"scipy", "dp_accounting"}


def test_a_bug_of_ours_is_not_called_a_damaged_ledger(basic, monkeypatch):
    def broken(self):
        raise KeyError("a bug")

    monkeypatch.setattr(SqliteLedger, "streams", broken)
    with pytest.raises(KeyError, match="a bug"):
        basic("stream", "list")


def test_every_command_has_one_json_document(basic):
    basic.ok("claim", "allocate", "c1", "--stream", "s", "--last", "1", "--epsilon", "0.1")
    for args in [
        ("stream", "list"),
        ("stream", "show", "s"),
        ("block", "list"),
        ("block", "show", "b1"),
        ("claim", "list"),
        ("claim", "show", "c1"),
        ("claim", "wait", "c1"),
        ("claim", "consume", "c1"),
        ("claim", "release", "c1"),
        ("block", "retire", "b1"),
        ("ledger", "verify"),
        ("ledger", "reset-clock", "--yes"),
    ]:
        out = basic.ok(*args, "--json").out
        assert isinstance(json.loads(out), dict)
        assert out.endswith("}\n")
