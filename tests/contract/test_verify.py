"""An audit finds what was changed behind the ledger's back."""

import sqlite3

import pytest

from privatekube_kfp.core.errors import LedgerError, Reason
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.requests import ConsumeRequest
from privatekube_kfp.ledger.sqlite import SqliteLedger
from tests.contract.world import ask, basic_stream, spend


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "ledger.db"
    with SqliteLedger(path, create=True) as ledger:
        ledger.create_stream(basic_stream(unlocking=ByPipelines(2)))
        ledger.create_block("b1", "s")
        ledger.create_block("b2", "s")
        ledger.submit("c1", ask("0.2", "b1", "b2"))
        ledger.submit("c1", spend("0.1", "part"))
        ledger.submit("c2", ask("0.3", "b1"))
        ledger.submit("c2", ConsumeRequest("consume"))
        ledger.submit("c3", ask("0.9", "b2"))
    return path


def difference(path):
    with SqliteLedger(path) as ledger:
        return ledger.verify().difference


def test_an_honest_ledger_is_ok(path):
    with SqliteLedger(path) as ledger:
        verdict = ledger.verify()
    assert (verdict.streams, verdict.blocks, verdict.claims) == (1, 2, 3)
    assert verdict.ok


@pytest.mark.parametrize(
    ("tampering", "found"),
    [
        (
            """UPDATE blocks SET consumed = '{"delta":"0","epsilon":"0.39"}' WHERE name = 'b1'""",
            "block b1: consumed epsilon 0.39, its claims add up to epsilon 0.4",
        ),
        (
            """UPDATE blocks SET allocated = '{"delta":"0","epsilon":"0"}' WHERE name = 'b2'""",
            "block b2: allocated epsilon 0, its claims add up to epsilon 0.1",
        ),
        (
            "UPDATE blocks SET arrivals = 7 WHERE name = 'b2'",
            "block b2: arrivals 7, its claims add up to 2",
        ),
        (
            "UPDATE blocks SET opened = 1 WHERE name = 'b1'",
            "block b1: unlocked shares 1, its claims add up to 2",
        ),
        (
            """UPDATE streams SET capacity = '{"delta":"0.0000001","epsilon":"2"}'""",
            "stream s: capacity epsilon 2, delta 0.0000001,"
            " its declaration gives epsilon 1, delta 0.0000001",
        ),
        (
            "DELETE FROM responses WHERE claim = 'c2' AND request = 'consume'",
            "block b1: allocated epsilon 0.1, its claims add up to epsilon 0.4",
        ),
        (
            """UPDATE responses SET amounts = '[{"blocks":["b1"],"budget":{"delta":"0","epsilon":
            "0.31"}}]' WHERE claim = 'c2' AND request = 'consume'""",
            "claim c2: request 'consume' moved more than the claim held",
        ),
        (
            """UPDATE responses SET amounts = '[{"blocks":["b1"],"budget":{"delta":"0","epsilon":
            "0.2"}}]' WHERE claim = 'c2' AND request = 'allocate'""",
            "claim c2: request 'allocate' was granted something else",
        ),
        (
            """UPDATE responses SET amounts = '[{"blocks":["b2"],"budget":{"delta":"0","epsilon":
            "0.2"}}]' WHERE claim = 'c3'""",
            "claim c3: request 'allocate' was denied but moved budget",
        ),
    ],
)
def test_what_was_tampered_with_is_shown(path, tampering, found):
    db = sqlite3.connect(path)
    for table in ("requests", "responses"):
        for verb in ("UPDATE", "DELETE"):
            db.execute(f"DROP TRIGGER {table}_{verb}")
    assert db.execute(tampering).rowcount >= 1
    db.commit()
    db.close()
    assert difference(path) == found


@pytest.mark.parametrize(
    "tampering",
    ["DELETE FROM responses", "UPDATE responses SET done = 0", "DELETE FROM requests"],
)
def test_the_file_itself_holds_the_record_append_only(path, tampering):
    db = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="only ever added"):
        db.execute(tampering)
    db.close()
    assert difference(path) is None


def test_more_granted_than_there_is_cannot_hide(path):
    """Consistent totals do not help: the sum itself is over the capacity."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA foreign_keys = OFF")
    for suffix in ("requests", "responses"):
        db.execute(f"DROP TRIGGER {suffix}_UPDATE")
    more = '{"delta":"0","epsilon":"0.95"}'
    db.execute(
        f"""UPDATE requests SET received = json_set(received, '$.steps[0][1]', json('{more}'))
        WHERE claim = 'c2' AND id = 'allocate'"""
    )
    db.execute(
        f"""UPDATE responses SET amounts = '[{{"blocks":["b1"],"budget":{more}}}]'
        WHERE claim = 'c2'"""
    )
    db.execute(
        """UPDATE blocks SET consumed = '{"delta":"0","epsilon":"1.05"}' WHERE name = 'b1'"""
    )
    db.commit()
    db.close()
    assert difference(path) == (
        "block b1: epsilon 1.15 granted, more than its capacity of epsilon 1, delta 0.0000001"
    )


def test_a_damaged_file_is_said_to_be_damaged(path):
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xaa" * 4096
    path.write_bytes(content)
    with pytest.raises(LedgerError) as refused, SqliteLedger(path) as ledger:
        ledger.verify()
    assert refused.value.reason is Reason.LEDGER_UNREADABLE
