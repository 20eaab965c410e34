"""What every ledger promises about claims."""

import pytest

from privatekube_kfp.accounting import Curve, Gaussian, Plan, PureEpsilon
from privatekube_kfp.core.claim import Phase
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.unlocking import AtOnce, ByPipelines, ByTime
from privatekube_kfp.ledger.client import ClaimDenied, StillWaiting, raise_if_denied
from privatekube_kfp.ledger.requests import AllocateRequest, ConsumeRequest, ReleaseRequest
from tests.contract.world import (
    ORDERS,
    SECOND,
    ask,
    basic_stream,
    epsilons,
    pure,
    renyi_stream,
    spend,
)


@pytest.fixture
def block(ledger):
    ledger.create_stream(basic_stream())
    ledger.create_block("b1", "s")
    return "b1"


def test_ten_tenths_fit_in_one_and_an_eleventh_never(ledger, block):
    for i in range(10):
        assert ledger.submit(f"c{i}", ask("0.1", block)).done
    eleventh = ledger.submit("c10", ask("0.1", block))
    assert eleventh.denied
    assert eleventh.reason is Reason.TIMED_OUT
    assert epsilons(ledger, block) == ("0", "0", "1", "0")


def test_ten_exact_tenths_of_a_renyi_curve_fit_and_an_eleventh_never(ledger):
    record = ledger.create_stream(renyi_stream())
    ledger.create_block("b1", "r")
    tenth = {
        order: f"{max(amount, 1) // 10 + 1}e-12"
        for order, amount in zip(ORDERS, record.capacity.amounts, strict=True)
    }
    best = max(range(len(ORDERS)), key=lambda i: record.capacity.amounts[i])
    tenth[ORDERS[best]] = f"{record.capacity.amounts[best] // 10}e-12"
    plan = Plan.of(Curve(_rising(tenth)))
    answers = [ledger.submit(f"c{i}", ask(plan, "b1", stream="r")) for i in range(11)]
    assert [answer.done for answer in answers] == [True] * 10 + [False]


def _rising(curve):
    """Renyi divergence never falls with the order: raise what would."""
    from decimal import Decimal

    rising, highest = {}, Decimal(0)
    for order in ORDERS:
        highest = max(highest, Decimal(curve[order]))
        rising[order] = f"{highest:f}"
    return rising


def test_basic_enforces_delta_as_well(ledger):
    from privatekube_kfp.accounting import EpsilonDelta

    ledger.create_stream(basic_stream(epsilon="10", delta="3e-9"))
    ledger.create_block("b1", "s")
    plan = Plan.of(EpsilonDelta("0.1", "1e-9"))
    answers = [ledger.submit(f"c{i}", ask(plan, "b1")) for i in range(4)]
    assert [answer.done for answer in answers] == [True, True, True, False]
    assert "delta 0.000000001 asked, 0 unlocked" in answers[3].message


def test_all_or_nothing_over_blocks(ledger, block):
    ledger.create_block("b2", "s")
    assert ledger.submit("greedy", ask("0.9", "b2")).done
    assert ledger.submit("both", ask("0.5", "b1", "b2")).denied
    assert epsilons(ledger, "b1") == ("0", "1", "0", "0")


def test_allocate_consume_part_release_rest(ledger, block):
    assert ledger.submit("c1", ask("0.5", block)).done
    assert ledger.claim("c1").phase is Phase.ALLOCATED
    assert ledger.submit("c1", spend("0.2", "part")).message == "epsilon 0.3 left of the claim"
    assert epsilons(ledger, block) == ("0", "0.5", "0.3", "0.2")
    released = ledger.submit("c1", ReleaseRequest("release"))
    assert released.done
    assert released.message == "epsilon 0.3 given back"
    assert epsilons(ledger, block) == ("0", "0.8", "0", "0.2")
    assert ledger.claim("c1").phase is Phase.RELEASED


def test_the_same_request_again_is_done_once(ledger, block):
    first = ledger.submit("c1", ask("0.5", block))
    assert ledger.submit("c1", ask("0.5", block)) == first
    part = ledger.submit("c1", spend("0.1", "part"))
    assert ledger.submit("c1", spend("0.1", "part")) == part
    gone = ledger.submit("c1", ReleaseRequest("release"))
    assert ledger.submit("c1", ReleaseRequest("release")) == gone
    assert epsilons(ledger, block) == ("0", "0.9", "0", "0.1")


def test_a_denied_request_stays_denied_and_another_id_tries_anew(ledger, block):
    assert ledger.submit("big", ask("0.9", block)).done
    assert ledger.submit("c1", ask("0.5", block)).denied
    ledger.submit("big", ReleaseRequest("release"))
    assert ledger.submit("c1", ask("0.5", block)).denied
    assert ledger.claim("c1").phase is Phase.DENIED
    assert ledger.submit("c1", ask("0.5", block, id="again")).done


def test_one_id_for_two_things_is_refused(ledger, block):
    ledger.submit("c1", ask("0.5", block))
    with pytest.raises(Invalid, match="'allocate' that says something else") as refused:
        ledger.submit("c1", ask("0.4", block))
    assert refused.value.reason is Reason.ID_REUSED
    assert epsilons(ledger, block) == ("0", "0.5", "0.5", "0")


def test_over_consuming_is_refused_with_what_is_left(ledger, block):
    ledger.submit("c1", ask("0.5", block))
    ledger.submit("c1", spend("0.2", "first"))
    over = ledger.submit("c1", spend("0.300000000001", "second"))
    assert over.reason is Reason.EXCEEDS_ALLOCATION
    assert over.message == (
        "block b1: epsilon 0.300000000001 asked, epsilon 0.3 left of what the claim holds"
    )
    assert ledger.submit("c1", spend("0.3", "third")).message == "all of it"
    assert ledger.submit("c1", ConsumeRequest("rest")).reason is Reason.NOTHING_LEFT
    assert ledger.claim("c1").phase is Phase.CONSUMED


def test_consume_after_release_is_refused_and_release_twice_is_once(ledger, block):
    ledger.submit("c1", ask("0.5", block))
    ledger.submit("c1", ReleaseRequest("release"))
    again = ledger.submit("c1", ReleaseRequest("release-2"))
    assert again.done
    assert again.message == "nothing to give back"
    assert ledger.submit("c1", ConsumeRequest("late")).reason is Reason.ALREADY_RELEASED
    late = ledger.submit("c1", ask("0.1", block, id="late-too"))
    assert late.reason is Reason.ALREADY_RELEASED
    assert epsilons(ledger, block) == ("0", "1", "0", "0")


def test_releasing_a_consumed_claim_refunds_nothing(ledger, block):
    ledger.submit("c1", ask("0.5", block))
    ledger.submit("c1", ConsumeRequest("consume"))
    assert ledger.submit("c1", ReleaseRequest("release")).message == "nothing to give back"
    assert ledger.claim("c1").phase is Phase.CONSUMED
    assert epsilons(ledger, block) == ("0", "0.5", "0", "0.5")


def test_steps_of_a_plan_are_consumed_one_by_one_and_add_up(ledger, block):
    plan = Plan.split("1", {"preprocess": "25", "train": "50", "evaluate": "25"})
    assert ledger.submit("c1", ask(plan, block)).done
    assert (
        ledger.submit("c1", ConsumeRequest("one", step="train")).message
        == "epsilon 0.5 left of the claim"
    )
    again = ledger.submit("c1", ConsumeRequest("two", step="train"))
    assert again.reason is Reason.ALREADY_CONSUMED
    unknown = ledger.submit("c1", ConsumeRequest("three", step="deploy"))
    assert unknown.reason is Reason.UNKNOWN_STEP
    assert "it has preprocess, train, evaluate" in unknown.message
    assert ledger.submit("c1", ConsumeRequest("four", step="preprocess")).done
    assert ledger.submit("c1", ConsumeRequest("five", step="evaluate")).message == "all of it"
    assert epsilons(ledger, block) == ("0", "0", "0", "1")


def test_steps_of_a_renyi_plan_add_up_to_the_unit(ledger):
    ledger.create_stream(renyi_stream())
    ledger.create_block("b1", "r")
    plan = Plan.of({"a": Gaussian("6.5"), "b": PureEpsilon("0.1"), "c": Gaussian("0.05")})
    assert ledger.submit("c1", ask(plan, "b1", stream="r")).denied  # infinite at most orders
    plan = Plan.of({"a": Gaussian("6.5"), "b": PureEpsilon("0.1"), "c": Gaussian("7")})
    assert ledger.submit("c2", ask(plan, "b1", stream="r")).done
    for step in "abc":
        response = ledger.submit("c2", ConsumeRequest(f"consume-{step}", step=step))
        assert response.done
    assert response.message == "all of it"


def test_a_second_allocate_adds_to_the_first_and_unlocks_nothing_twice(ledger):
    ledger.create_stream(basic_stream(unlocking=ByPipelines(10)))
    ledger.create_block("b1", "s")
    assert ledger.submit("c1", ask("0.05", "b1")).done
    assert ledger.submit("c1", ask("0.05", "b1", id="more")).done
    assert ledger.block("b1").budget.arrivals == 1
    assert ledger.submit("c1", ask("0.05", "b1", id="yet-more")).denied
    assert ledger.submit("c1", ConsumeRequest("all")).message == "all of it"
    assert epsilons(ledger, "b1") == ("0.9", "0", "0", "0.1")


def test_what_can_never_fit_is_refused_at_once_and_unlocks_nothing(ledger):
    ledger.create_stream(basic_stream(unlocking=ByPipelines(2)))
    ledger.create_block("b1", "s")
    response = ledger.submit("c1", ask("1.5", "b1", timeout=None))
    assert response.reason is Reason.EXCEEDS_CAPACITY
    assert "epsilon 1.5 asked, 1 left" in response.message
    assert epsilons(ledger, "b1") == ("1", "0", "0", "0")


def test_who_waits_for_what_others_consumed_is_refused_when_it_is_gone(ledger, block):
    ledger.submit("first", ask("0.6", block))
    assert ledger.submit("second", ask("0.5", block, timeout=None)) is None
    assert ledger.why_waiting("second", "allocate").reason is Reason.WAITING_FOR_RELEASE
    ledger.submit("first", ConsumeRequest("consume"))
    assert ledger.response("second", "allocate").reason is Reason.EXHAUSTED


def test_release_lets_the_next_in_line_run(ledger, block):
    ledger.submit("first", ask("0.6", block))
    assert ledger.submit("second", ask("0.5", block, timeout=None)) is None
    ledger.submit("first", ReleaseRequest("release"))
    assert ledger.response("second", "allocate").done


def test_smallest_dominant_share_goes_first_then_arrival(ledger, block):
    ledger.submit("holder", ask("1", block))
    for name, epsilon in (("large", "0.5"), ("small", "0.4"), ("tie", "0.4")):
        assert ledger.submit(name, ask(epsilon, block, timeout=None)) is None
    ledger.submit("holder", spend("0.3", "part"))
    ledger.submit("holder", ReleaseRequest("release"))
    assert ledger.response("small", "allocate").done
    assert ledger.response("tie", "allocate") is None
    assert ledger.response("large", "allocate") is None


def test_first_come_first_served(ledger, clock):
    spec = basic_stream(unlocking=AtOnce(), policy="fcfs")
    ledger.create_stream(spec)
    ledger.create_block("b1", "s")
    ledger.submit("holder", ask("1", "b1"))
    for name, epsilon in (("large", "0.9"), ("small", "0.2")):
        assert ledger.submit(name, ask(epsilon, "b1", timeout=None)) is None
    ledger.submit("holder", ReleaseRequest("release"))
    assert ledger.response("large", "allocate").done
    assert ledger.response("small", "allocate") is None


@pytest.mark.parametrize("policy", ["weighted-dpf", "dpack"])
def test_a_weight_lets_a_larger_claim_go_first(ledger, policy):
    ledger.create_stream(basic_stream(unlocking=AtOnce(), policy=policy))
    ledger.create_block("b1", "s")
    ledger.submit("holder", ask("1", "b1"))
    heavy = ask("0.9", "b1", timeout=None, weight=10)
    assert ledger.submit("small", ask("0.2", "b1", timeout=None)) is None
    assert ledger.submit("heavy", heavy) is None
    assert ledger.claim("heavy").requests[0].weight == 10
    assert ledger.claim("heavy").requests[0].body == heavy.body()
    with pytest.raises(Invalid, match="repeat that one word for word") as refused:
        ledger.submit("heavy", ask("0.9", "b1", timeout=None, weight=9))
    assert refused.value.reason is Reason.ID_REUSED
    ledger.submit("holder", ReleaseRequest("release"))
    assert ledger.response("heavy", "allocate").done
    assert ledger.response("small", "allocate") is None


def test_fair_shares_go_before_what_packs_best(ledger):
    ledger.create_stream(basic_stream(unlocking=ByPipelines(4), policy="fair-first"))
    for block in ("b1", "b2"):
        ledger.create_block(block, "s")
    assert ledger.submit("heavy", ask("0.4", "b1", timeout=None, weight=1000)) is None
    assert ledger.submit("fair", ask("0.25", "b1", "b2")).done
    assert ledger.response("heavy", "allocate") is None
    assert ledger.submit("third", ask("0.1", "b1")).done
    assert ledger.response("heavy", "allocate").done


@pytest.mark.parametrize("policy", ["dpf", "fcfs"])
def test_a_weight_is_refused_where_it_would_make_no_difference(ledger, policy):
    ledger.create_stream(basic_stream(unlocking=AtOnce(), policy=policy))
    ledger.create_block("b1", "s")
    with pytest.raises(Invalid, match=f"policy {policy} knows no weights") as refused:
        ledger.submit("c1", ask("0.1", "b1", weight=2))
    assert refused.value.reason is Reason.INVALID_REQUEST
    assert not ledger.claims()
    assert ledger.submit("c1", ask("0.1", "b1", weight=1)).done


@pytest.mark.parametrize("weight", [0, 1001, -1, 1.5, "2", True])
def test_a_weight_is_a_whole_number_in_range(weight):
    with pytest.raises(Invalid, match="not a whole number from 1 to 1000"):
        ask("0.1", "b1", weight=weight)


def test_a_weight_of_one_is_not_said():
    assert ask("0.1", "b1").body() == ask("0.1", "b1", weight=1).body()
    assert "weight" not in ask("0.1", "b1").body()


def test_time_unlocks_and_the_waiting_caller_drives(ledger, claims, clock):
    ledger.create_stream(basic_stream(unlocking=ByTime(100 * SECOND, 10 * SECOND)))
    ledger.create_block("b1", "s")
    began = clock.now
    response = claims.allocate(
        "c1", stream="s", selection=Selection(names=("b1",)), plan=pure("0.3")
    )
    assert response.done
    assert 0 <= clock.now - began - 30 * SECOND < 2 * SECOND
    assert epsilons(ledger, "b1") == ("0.7", "0", "0.3", "0")


def test_a_timeout_is_refused_with_what_was_missing(ledger, claims, clock):
    ledger.create_stream(basic_stream(unlocking=ByPipelines(4)))
    ledger.create_block("b1", "s")
    began = clock.now
    response = claims.allocate(
        "c1", stream="s", selection=Selection(names=("b1",)), plan=pure("0.3"), timeout=90 * SECOND
    )
    assert response.reason is Reason.TIMED_OUT
    assert "block b1: epsilon 0.3 asked, 0.25 unlocked" in response.message
    assert 0 <= clock.now - began - 90 * SECOND < 2 * SECOND
    with pytest.raises(ClaimDenied) as denied:
        raise_if_denied("c1", response)
    assert denied.value.reason is Reason.TIMED_OUT


def test_impatience_leaves_the_request_in_line(ledger, claims):
    ledger.create_stream(basic_stream(unlocking=ByPipelines(2)))
    ledger.create_block("b1", "s")
    assert ledger.submit("c1", ask("0.6", "b1", timeout=None)) is None
    with pytest.raises(StillWaiting, match=r"epsilon 0.6 asked, 0.5 unlocked") as waiting:
        claims.wait("c1", patience=5 * SECOND)
    assert waiting.value.reason is Reason.WAITING_FOR_UNLOCK
    assert ledger.claim("c1").phase is Phase.PENDING
    ledger.submit("c2", ask("0.1", "b1"))
    assert claims.wait("c1").done


def test_release_withdraws_a_claim_that_waits(ledger):
    ledger.create_stream(basic_stream(unlocking=ByPipelines(2)))
    ledger.create_block("b1", "s")
    assert ledger.submit("c1", ask("0.6", "b1", timeout=None)) is None
    assert ledger.submit("c1", ConsumeRequest("consume")) is None  # in order: after the allocate
    assert ledger.why_waiting("c1", "consume").reason is Reason.WAITING_FOR_ALLOCATE
    assert ledger.submit("c1", ReleaseRequest("release")).done
    assert ledger.response("c1", "allocate").reason is Reason.WITHDRAWN
    assert ledger.response("c1", "consume").reason is Reason.NOT_ALLOCATED
    assert epsilons(ledger, "b1") == ("0.5", "0.5", "0", "0")


def test_requests_queue_behind_a_waiting_allocate_in_order(ledger):
    ledger.create_stream(basic_stream(unlocking=ByPipelines(2)))
    ledger.create_block("b1", "s")
    assert ledger.submit("c1", ask("0.6", "b1", timeout=None)) is None
    assert ledger.submit("c1", spend("0.2", "consume")) is None
    assert ledger.submit("c1", ask("0.1", "b1", timeout=None, id="more")) is None
    ledger.submit("c2", ask("0.01", "b1"))
    assert ledger.response("c1", "allocate").done
    assert ledger.response("c1", "consume").message == "epsilon 0.4 left of the claim"
    assert ledger.response("c1", "more").done
    assert epsilons(ledger, "b1") == ("0", "0.29", "0.51", "0.2")


def test_a_claim_stays_on_its_stream(ledger, block):
    ledger.create_stream(basic_stream("t"))
    ledger.create_block("b2", "t")
    ledger.submit("c1", ask("0.1", block))
    with pytest.raises(Invalid, match="claim c1 is on stream s"):
        ledger.submit("c1", ask("0.1", "b2", stream="t", id="other"))


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (ask("0.1", "b1", stream="nowhere"), Reason.UNKNOWN_STREAM),
        (ask("0.1", "b9"), Reason.UNKNOWN_BLOCK),
        (
            AllocateRequest("allocate", "s", Selection(start=0, end=1), pure("0.1")),
            Reason.NO_MATCHING_BLOCKS,
        ),
        (
            AllocateRequest("allocate", "s", Selection(last=3, at_least=2), pure("0.1")),
            Reason.NO_MATCHING_BLOCKS,
        ),
        (ConsumeRequest("consume"), Reason.UNKNOWN_CLAIM),
        (ReleaseRequest("release"), Reason.UNKNOWN_CLAIM),
        (ask(Plan.of(Curve({"2": "0.1"})), "b1"), Reason.CANNOT_PRICE),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_no_trace(ledger, block, request_, reason):
    before = (ledger.blocks(), ledger.claims())
    with pytest.raises(Invalid) as refused:
        ledger.submit("c1", request_)
    assert refused.value.reason is reason
    assert (ledger.blocks(), ledger.claims()) == before


def test_a_denied_claim_holds_nothing_to_consume(ledger, block):
    ledger.submit("c1", ask("2", block))
    assert ledger.submit("c1", ConsumeRequest("consume")).reason is Reason.NOT_ALLOCATED
    assert ledger.submit("c1", ReleaseRequest("release")).done


def test_unknown_claims_and_requests_are_named(ledger, block):
    with pytest.raises(Invalid, match="no claim 'c9'"):
        ledger.claim("c9")
    ledger.submit("c1", ask("0.1", block))
    with pytest.raises(Invalid, match="no request 'other'"):
        ledger.response("c1", "other")
