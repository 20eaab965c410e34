"""A ledger file that is not there, not ours, not whole, not writable, or from another time."""

import json
import os
import sqlite3
import stat
import tempfile
import time
from pathlib import Path

import pytest

from tests.cli.running import digest, in_own_process

HOUR = 3_600_000_000
NOBODY = 65534
WRITE = ("claim", "allocate", "c1", "--stream", "s", "--block", "b1", "--epsilon", "0.1")


@pytest.fixture
def file(basic, workplace) -> Path:
    return workplace / "ledger.db"


def refused(run, *args, reason):
    result = run(*args)
    assert result.code == 1, result
    assert result.out == ""
    assert f"({reason})" in result.err
    in_json = run(*args, "--json")
    assert (in_json.code, in_json.json["error"]["reason"]) == (1, reason)
    return result.err


def test_no_ledger_named(run, monkeypatch):
    for value in (None, ""):
        if value is None:
            monkeypatch.delenv("PRIVATEKUBE_LEDGER")
        else:
            monkeypatch.setenv("PRIVATEKUBE_LEDGER", value)
        result = run("stream", "list")
        assert result.code == 2
        assert "give --ledger or set PRIVATEKUBE_LEDGER" in result.err


def test_an_address_of_no_ledger(run, monkeypatch):
    said = refused(run, "--ledger", "ledger.db", "stream", "list", reason="LedgerMissing")
    assert "--ledger 'ledger.db' is not the address of a ledger; write it like sqlite:///" in said
    monkeypatch.setenv("PRIVATEKUBE_LEDGER", "postgres://somewhere")
    said = refused(run, "stream", "list", reason="LedgerMissing")
    assert "PRIVATEKUBE_LEDGER 'postgres://somewhere' is not the address of a ledger" in said


def test_the_option_goes_before_the_variable(basic, workplace):
    make = ("--epsilon", "2", "--policy", "fcfs")
    basic.ok("--ledger", "sqlite:///other.db", "stream", "create", "top", *make)
    basic.ok("stream", "create", "own", *make, "--ledger", "sqlite:///other.db")
    absolute = f"sqlite:///{workplace}/other.db"
    listed = basic.json("stream", "list", "--ledger", absolute)["streams"]
    assert [stream["name"] for stream in listed] == ["own", "top"]
    assert [s["name"] for s in basic.json("stream", "list")["streams"]] == ["s"]


@pytest.mark.parametrize(
    "args",
    [
        ("stream", "list"),
        ("block", "create", "b1", "--stream", "s"),
        WRITE,
        ("claim", "list"),
        ("ledger", "verify"),
        ("ledger", "reset-clock", "--yes"),
    ],
)
def test_missing(run, workplace, args):
    said = refused(run, *args, reason="LedgerMissing")
    assert "there is no ledger at ledger.db; `privatekube stream create` makes one" in said
    assert list(workplace.iterdir()) == []


def test_from_a_newer_version(basic, file):
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = digest(file)
    for args in (WRITE, ("stream", "list"), ("ledger", "verify")):
        assert "newer PrivateKube (format 99" in refused(basic, *args, reason="LedgerNewer")
    assert digest(file) == before


def _truncate(file):
    os.truncate(file, file.stat().st_size // 2)


def _truncate_to_the_header(file):
    os.truncate(file, 100)


def _empty(file):
    os.truncate(file, 0)


def _text(file):
    file.write_text("streams:\n  - s\n" * 100)


def _another_program(file):
    file.unlink()
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE notes (text)")
    db.close()


def _damage(file):
    content = bytearray(file.read_bytes())
    content[200:] = b"\xee" * (len(content) - 200)
    file.write_bytes(content)


@pytest.mark.parametrize(
    "spoil", [_truncate, _truncate_to_the_header, _empty, _text, _another_program, _damage]
)
def test_not_a_whole_ledger(basic, file, spoil):
    spoil(file)
    before = digest(file)
    create = ("stream", "create", "t", "--epsilon", "1", "--policy", "fcfs")
    for args in (WRITE, create, ("stream", "list"), ("ledger", "verify")):
        assert "ledger.db" in refused(basic, *args, reason="LedgerUnreadable")
    assert digest(file) == before


def test_a_record_that_makes_no_sense(basic, file):
    with sqlite3.connect(file) as db:
        db.execute("UPDATE streams SET spec = 'x'")
    db.close()
    before = digest(file)
    for args in (WRITE, ("stream", "list"), ("ledger", "verify")):
        assert "damaged" in refused(basic, *args, reason="LedgerUnreadable")
    assert digest(file) == before


def test_numbers_that_do_not_add_up(basic, file):
    basic.ok(*WRITE)
    with sqlite3.connect(file) as db:
        db.execute("""UPDATE blocks SET consumed = '{"epsilon":"0.2","delta":"0"}'""")
    db.close()
    result = basic("ledger", "verify")
    assert result.code == 1
    assert result.err == (
        "privatekube: the ledger does not add up (1 stream, 1 block, 1 claim):"
        " block b1: consumed epsilon 0.2, its claims add up to epsilon 0\n"
    )
    in_json = basic("ledger", "verify", "--json")
    assert in_json.code == 1
    assert in_json.json["ok"] is False
    assert in_json.json["difference"].startswith("block b1: consumed")
    assert in_json.json["error"]["reason"] == "LedgerInconsistent"


def test_a_directory(run, workplace):
    (workplace / "ledger.db").mkdir()
    assert "ledger.db" in refused(run, "stream", "list", reason="LedgerUnreadable")


@pytest.fixture
def read_only(file):
    """The ledger where somebody may read it and nobody may write it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "ledger.db"
        path.write_bytes(file.read_bytes())
        path.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
        folder.chmod(0o555)
        yield path
        folder.chmod(0o755)


# Nobody may not even be able to read Python's library: all is loaded, by use, before.
UNPRIVILEGED = f"""
import contextlib, io, os
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    for args in (sys.argv[3:], ["claim", "show", "zz"], ["block", "list"]):
        main(["--ledger", "sqlite:///ledger.db", *args])
if os.getuid() == 0:
    os.setuid({NOBODY})
"""


def test_read_only(read_only, workplace):
    before = digest(read_only)
    address = ("--ledger", f"sqlite:///{read_only}")
    for args in (WRITE, ("block", "retire", "b1")):
        result = in_own_process(*address, *args, before=UNPRIVILEGED, cwd=workplace)
        assert result.returncode == 1, result
        assert "(LedgerReadOnly)" in result.stderr
        assert "Traceback" not in result.stderr
    elsewhere = ("--ledger", f"sqlite:///{read_only.parent}/new.db")
    create = ("stream", "create", "t", "--epsilon", "1", "--policy", "fcfs")
    result = in_own_process(*elsewhere, *create, before=UNPRIVILEGED, cwd=workplace)
    assert (result.returncode, "(LedgerReadOnly)" in result.stderr) == (1, True), result
    assert digest(read_only) == before
    assert [path.name for path in read_only.parent.iterdir()] == ["ledger.db"]
    shown = in_own_process(*address, "block", "list", before=UNPRIVILEGED, cwd=workplace)
    assert shown.returncode == 0, shown
    assert "b1" in shown.stdout


def test_read_only_and_of_an_older_version(file, request, workplace):
    with sqlite3.connect(file) as db:
        db.executescript("DROP TABLE counts; PRAGMA user_version = 1")
    db.close()
    read_only = request.getfixturevalue("read_only")
    before = digest(read_only)
    address = ("--ledger", f"sqlite:///{read_only}")
    show = (*address, "stream", "show", "s", "--json")
    shown = in_own_process(*show, before=UNPRIVILEGED, cwd=workplace)
    assert shown.returncode == 0, shown
    assert json.loads(shown.stdout)["count"] is None
    result = in_own_process(*address, *WRITE, before=UNPRIVILEGED, cwd=workplace)
    assert (result.returncode, "(LedgerReadOnly)" in result.stderr) == (1, True), result
    assert digest(read_only) == before


@pytest.mark.parametrize("room", [1024, None])
def test_a_full_disk(basic, file, workplace, room):
    """Files cannot grow: not the journal (first case), or not the ledger beyond its size."""
    size = file.stat().st_size if room is None else room
    full = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
    before = digest(file)
    big = ("block", "create", "b2", "--stream", "s", "--data-source", "x" * 100_000)
    result = in_own_process(*big, before=full, cwd=workplace)
    assert result.returncode == 1, result
    assert "(LedgerFull)" in result.stderr
    assert "nothing was changed" in result.stderr
    assert digest(file) == before
    assert [block["name"] for block in basic.json("block", "list")["blocks"]] == ["b1"]
    assert digest(file) == before
    assert basic.ok("ledger", "verify").out == "OK: 1 stream, 1 block, 0 claims\n"


def test_a_full_disk_leaves_no_half_made_ledger(workplace):
    full = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))"
    create = ("stream", "create", "t", "--epsilon", "1", "--policy", "fcfs")
    result = in_own_process(*create, before=full, cwd=workplace)
    assert (result.returncode, "(LedgerFull)" in result.stderr) == (1, True), result
    assert list(workplace.iterdir()) == []


def test_a_clock_that_jumps_back(basic, file):
    later = time.time_ns() // 1_000 + 2 * HOUR
    with sqlite3.connect(file) as db:
        db.execute("UPDATE ledger SET latest = ?", (later,))
    db.close()
    before = digest(file)
    said = refused(basic, *WRITE, reason="ClockWentBack")
    assert "privatekube ledger reset-clock" in said
    assert basic.ok("block", "list").out
    assert digest(file) == before
    unconfirmed = basic("ledger", "reset-clock")
    assert (unconfirmed.code, "give --yes" in unconfirmed.err) == (1, True)
    assert digest(file) == before
    assert basic.json("ledger", "reset-clock", "--yes") == {"reset": True}
    basic.ok(*WRITE)
