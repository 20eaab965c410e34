"""Ledgers of version 1: read as they are, brought up to date by the first who writes."""

import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.ledger.requests import ReleaseRequest
from privatekube_kfp.ledger.sqlite import SqliteLedger
from tests.contract.test_counts import MONDAY, TUESDAY
from tests.contract.world import epsilons

HERE = Path(__file__).parent


@pytest.fixture
def old(tmp_path):
    """A file that version 1 wrote: one claim has spent, one holds, one waits."""
    path = tmp_path / "ledger.db"
    with sqlite3.connect(path) as db:
        db.executescript((HERE / "version-1.sql").read_text())
    db.close()
    assert version(path) == 1
    return path


def version(path):
    db = sqlite3.connect(path)
    (found,) = db.execute("PRAGMA user_version").fetchone()
    db.close()
    return found


def test_reading_leaves_it_as_it_is(old):
    before = old.read_bytes()
    with SqliteLedger(old) as ledger:
        assert ledger.stream("users").count is None
        assert epsilons(ledger, "u0") == ("0", "0.6", "0.1", "0.2")
        assert ledger.response("waits", "allocate") is None
        ledger.tend()
        assert ledger.verify().ok
    assert old.read_bytes() == before


def test_the_first_who_writes_brings_it_up_to_date(old):
    with SqliteLedger(old) as ledger:
        assert ledger.submit("holds", ReleaseRequest("release")).done
        assert ledger.response("waits", "allocate").done
        assert ledger.stream("users").count is None
        assert ledger.publish_count("users", MONDAY).count == MONDAY
    assert version(old) == 2
    with SqliteLedger(old) as ledger:
        assert ledger.stream("users").count == MONDAY
        assert epsilons(ledger, "u0") == ("0", "0.05", "0.65", "0.2")
        assert ledger.verify().ok


def test_it_becomes_what_a_new_ledger_is(old, tmp_path):
    with SqliteLedger(old) as ledger:
        ledger.publish_count("users", MONDAY)
    SqliteLedger(tmp_path / "new.db", create=True).close()
    assert version(old) == version(tmp_path / "new.db")
    assert schema(old) == schema(tmp_path / "new.db")


def schema(path):
    db = sqlite3.connect(path)
    found = {tuple(row) for row in db.execute("SELECT type, name, sql FROM sqlite_master")}
    db.close()
    return found


def test_a_write_that_is_refused_changes_nothing(old):
    before = old.read_bytes()
    with SqliteLedger(old) as ledger:
        with pytest.raises(Invalid, match="no stream 'zz'"):
            ledger.publish_count("zz", MONDAY)
        assert ledger.stream("users").count is None
    assert old.read_bytes() == before


def test_whoever_has_it_open_sees_what_another_publishes(old):
    with SqliteLedger(old) as first, SqliteLedger(old) as second:
        assert first.stream("users").count is None
        second.publish_count("users", MONDAY)
        assert first.stream("users").count == MONDAY
        first.publish_count("users", TUESDAY)
        assert second.stream("users").count == TUESDAY


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_it_is_brought_up_to_date(old, when):
    """Before the end of the transaction nothing has happened, after it everything."""
    program = f"""
import os, signal, sys
from privatekube_kfp.ledger import sqlite
from tests.contract.test_counts import MONDAY

def die():
    os.kill(os.getpid(), signal.SIGKILL)

publish = sqlite._SqliteShelf.publish
if {when!r} == "before":
    sqlite._SqliteShelf.publish = lambda *args: (publish(*args), die())
sqlite.SqliteLedger(sys.argv[1]).publish_count("users", MONDAY)
die()
"""
    top = HERE.parents[1]
    ended = subprocess.run([sys.executable, "-c", program, old], cwd=top, check=False)
    assert ended.returncode == -signal.SIGKILL
    published = MONDAY if when == "after" else None
    with SqliteLedger(old) as ledger:
        assert ledger.stream("users").count == published
        assert ledger.verify().ok
        later = replace(TUESDAY, lower=101)
        assert ledger.publish_count("users", later).count == later
        assert ledger.verify().ok
    assert version(old) == 2
