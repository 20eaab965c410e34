"""What every ledger promises about streams and blocks."""

import pytest

from privatekube_kfp.accounting import Counter
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.stream import BlockPhase
from privatekube_kfp.core.unlocking import ByPipelines, ByTime
from privatekube_kfp.ledger.requests import AllocateRequest, ConsumeRequest
from privatekube_kfp.ledger.streams import Semantic
from tests.contract.world import DAY, SECOND, ask, basic_stream, epsilons, pure, renyi_stream


def test_the_same_stream_again_is_made_once_and_another_is_refused(ledger):
    first = ledger.create_stream(basic_stream())
    assert ledger.create_stream(basic_stream()) == first
    with pytest.raises(Invalid, match="stream s exists with another declaration") as refused:
        ledger.create_stream(basic_stream(epsilon="2"))
    assert refused.value.reason is Reason.ALREADY_EXISTS
    assert [record.spec.name for record in ledger.streams()] == ["s"]


def test_a_stream_comes_back_as_it_was_declared(ledger):
    specs = [
        basic_stream("a", unlocking=ByTime(30 * DAY, DAY), policy="fcfs"),
        renyi_stream("b", semantic=Semantic.USER, counter=Counter("0.1")),
    ]
    for spec in specs:
        ledger.create_stream(spec)
    assert [record.spec for record in ledger.streams()] == specs
    assert [record.capacity for record in ledger.streams()] == [spec.capacity() for spec in specs]


def test_the_counter_is_paid_for_when_the_block_is_made(ledger):
    ledger.create_stream(basic_stream(semantic=Semantic.USER, counter=Counter("0.1")))
    ledger.create_block("b1", "s", users=(0, 99))
    assert epsilons(ledger, "b1")[0] == "0.9"


def test_a_stream_with_blocks_is_not_deleted(ledger):
    ledger.create_stream(basic_stream())
    ledger.create_stream(basic_stream("empty"))
    ledger.create_block("b1", "s")
    with pytest.raises(Invalid, match="would forget what was spent") as refused:
        ledger.delete_stream("s")
    assert refused.value.reason is Reason.IN_USE
    ledger.delete_stream("empty")
    assert [record.spec.name for record in ledger.streams()] == ["s"]
    with pytest.raises(Invalid, match="no stream 'empty'"):
        ledger.delete_stream("empty")


def test_a_block_is_one_portion_of_one_stream(ledger):
    ledger.create_stream(basic_stream())
    ledger.create_stream(basic_stream("t"))
    made = ledger.create_block("b1", "s", start=0, end=DAY, data_source="file:///b1.parquet")
    again = ledger.create_block("b1", "s", start=0, end=DAY, data_source="file:///b1.parquet")
    assert again == made
    for stream, end in (("s", 2 * DAY), ("t", DAY)):
        with pytest.raises(Invalid, match="block b1 exists in stream s"):
            ledger.create_block("b1", stream, start=0, end=end, data_source="file:///b1.parquet")
    assert ledger.blocks("t") == []


def test_a_block_cannot_be_nowhere_or_backwards(ledger):
    ledger.create_stream(basic_stream())
    with pytest.raises(Invalid, match="no stream 'nowhere'"):
        ledger.create_block("b1", "nowhere")
    with pytest.raises(Invalid, match="a start before an end"):
        ledger.create_block("b1", "s", start=DAY, end=0)
    with pytest.raises(Invalid, match="has no user ranges"):
        ledger.create_block("b1", "s", users=(0, 9))
    with pytest.raises(Invalid, match="block name 'B_1' must be"):
        ledger.create_block("B_1", "s")
    assert ledger.blocks() == []


@pytest.fixture
def week(ledger):
    ledger.create_stream(basic_stream())
    for day in range(7):
        ledger.create_block(f"d{day}", "s", start=day * DAY, end=(day + 1) * DAY)


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(last=2), ("d5", "d6")),
        (Selection(start=2 * DAY, end=4 * DAY), ("d2", "d3")),
        (Selection(start=2 * DAY + 1, end=3 * DAY + 1), ("d2", "d3")),
        (Selection(start=5 * DAY), ("d5", "d6")),
        (Selection(end=DAY), ("d0",)),
        (Selection(start=0, at_most=3), ("d4", "d5", "d6")),
        (Selection(names=("d3", "d1")), ("d3", "d1")),
    ],
)
def test_selections_choose_by_the_data(ledger, week, selection, chosen):
    response = ledger.submit("c1", AllocateRequest("allocate", "s", selection, pure("0.1"), 0))
    assert response.amounts.blocks == chosen


def test_user_ranges_choose_by_the_users(ledger):
    ledger.create_stream(basic_stream(semantic=Semantic.USER_TIME, counter=Counter("0.1")))
    for group in range(3):
        for day in range(2):
            ledger.create_block(
                f"u{group}d{day}",
                "s",
                users=(group * 10, group * 10 + 9),
                start=day * DAY,
                end=(day + 1) * DAY,
            )
    selection = Selection(users=(5, 10), start=DAY)
    response = ledger.submit("c1", AllocateRequest("allocate", "s", selection, pure("0.1"), 0))
    assert set(response.amounts.blocks) == {"u0d1", "u1d1"}


def test_a_retired_block_is_no_resource_but_what_is_held_can_be_used(ledger, week):
    ledger.submit("holder", ask("0.5", "d6"))
    assert ledger.submit("waiter", ask("0.6", "d6", timeout=None)) is None
    assert ledger.retire_block("d6").phase is BlockPhase.RETIRED
    assert ledger.response("waiter", "allocate").reason is Reason.BLOCK_RETIRED
    assert ledger.retire_block("d6").phase is BlockPhase.RETIRED
    with pytest.raises(Invalid, match="block d6 is retired"):
        ledger.submit("late", ask("0.1", "d6"))
    newest = AllocateRequest("allocate", "s", Selection(last=1), pure("0.1"), 0)
    assert ledger.submit("newest", newest).amounts.blocks == ("d5",)
    assert ledger.submit("holder", ConsumeRequest("consume")).done


def test_an_exhausted_block_is_passed_over(ledger, week):
    ledger.submit("all", ask("1", "d6"))
    ledger.submit("all", ConsumeRequest("consume"))
    assert ledger.block("d6").phase is BlockPhase.EXHAUSTED
    newest = AllocateRequest("allocate", "s", Selection(last=1), pure("0.1"), 0)
    assert ledger.submit("newest", newest).amounts.blocks == ("d5",)
    assert ledger.submit("named", ask("0.1", "d6")).reason is Reason.EXCEEDS_CAPACITY


def test_streams_do_not_share_budgets(ledger):
    for stream in ("s", "t"):
        ledger.create_stream(basic_stream(stream, unlocking=ByPipelines(2)))
        ledger.create_block(f"{stream}-b", stream)
    ledger.submit("c1", ask("0.5", "s-b"))
    assert epsilons(ledger, "s-b") == ("0.5", "0", "0.5", "0")
    assert epsilons(ledger, "t-b") == ("1", "0", "0", "0")


def test_a_clock_that_steps_back_a_little_stands_still(ledger, week, clock):
    ledger.submit("c1", ask("0.1", "d1"))
    at = clock.now
    clock.now -= 30 * SECOND
    assert ledger.submit("c2", ask("0.1", "d1")).at == at


def test_a_clock_that_steps_back_a_lot_is_refused(embedded_ledger, clock):
    ledger = embedded_ledger
    ledger.create_stream(basic_stream())
    ledger.create_block("d1", "s")
    ledger.submit("c1", ask("0.1", "d1"))
    at = clock.now
    clock.now -= 90 * SECOND
    with pytest.raises(Exception, match=r"the clock says .* but this ledger was last written at"):
        ledger.submit("c3", ask("0.1", "d1"))
    assert [claim.name for claim in ledger.claims()] == ["c1"]
    clock.now = at + 1
    assert ledger.submit("c3", ask("0.1", "d1")).done
