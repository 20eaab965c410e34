"""A claim on as many blocks as there may be is one object of the API, which has a largest size."""

import json

import pytest

from privatekube_kfp.accounting import Plan, PureEpsilon, Step
from privatekube_kfp.core.budget import BASIC
from privatekube_kfp.core.claim import Kind, Phase
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.ledger.kubernetes.objects import MAX_BOUND, claim_of, claim_status, digest
from privatekube_kfp.ledger.kubernetes.objects import request_item as item_of
from privatekube_kfp.ledger.memory import MemoryLedger
from privatekube_kfp.ledger.requests import AllocateRequest, ConsumeRequest, ReleaseRequest
from tests.contract.world import basic_stream

LARGEST_OBJECT = 1_572_864
"""What etcd takes in one request."""
PLAN = Plan(tuple(Step(name, PureEpsilon("0.1")) for name in ("one", "two", "three")))


def names(count):
    return tuple(f"reviews-2018-01-01-u{number:06}-xyz" for number in range(count))


def asked(*blocks, id="allocate", plan=PLAN):
    return AllocateRequest(id, "s", Selection(names=blocks), plan, None)


def written(*requests):
    """A claim that asked for all this, and its object as the scheduler writes it."""
    with MemoryLedger() as ledger:
        ledger.create_stream(basic_stream("s"))
        for request in requests:
            for block in request.selection.names if isinstance(request, AllocateRequest) else ():
                ledger.create_block(block, "s")
            assert ledger.submit("c", request).done
        claim = ledger.claim("c")
    items = [item_of(request) for request in requests]
    obj = {
        "metadata": {"name": "c", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"stream": "s", "requests": items},
    }
    obj["status"] = claim_status(claim, {item["id"]: digest(item) for item in items})
    return claim, json.loads(json.dumps(obj))


def test_the_largest_claim_fits_whatever_it_does():
    """Asked for by name, so that the names are in the spec as well, and spent step by step."""
    largest = names(MAX_BOUND)
    claim, obj = written(
        asked(*largest),
        ConsumeRequest("consume-one", "one"),
        ConsumeRequest("consume-two", "two"),
        ReleaseRequest("release"),
    )
    assert len(json.dumps(obj)) < LARGEST_OBJECT * 3 // 4
    read = claim_of(obj, BASIC)
    assert read.responses == claim.responses
    assert read.phase is Phase.RELEASED
    assert read.total(Kind.CONSUME) == claim.total(Kind.CONSUME)
    assert obj["status"]["consumed"] == [
        {"blocksOf": "allocate", "budget": {"epsilon": "0.2", "delta": "0"}}
    ]


def test_few_blocks_are_named_wherever_they_are_meant():
    claim, obj = written(asked("monday", "tuesday"), ConsumeRequest("consume-one", "one"))
    spent = [{"blocks": ["monday", "tuesday"], "budget": {"epsilon": "0.1", "delta": "0"}}]
    assert obj["status"]["consumed"] == obj["status"]["responses"][1]["amounts"] == spent
    assert claim_of(obj, BASIC).responses == claim.responses


def test_different_amounts_name_their_blocks():
    """Of two requests, what was left of both is given back together."""
    many = names(300)
    claim, obj = written(
        asked(*many[:150]),
        asked(*many[150:], id="more", plan=Plan.of(PureEpsilon("0.2"))),
        ConsumeRequest("some", amount=Plan.of(PureEpsilon("0.1"))),
        ReleaseRequest("release"),
    )
    assert claim_of(obj, BASIC).responses == claim.responses
    given_back = obj["status"]["released"]
    assert [group["blocksOf"] for group in given_back] == ["allocate", "more"]
    assert obj["status"]["consumed"][0]["blocks"] == list(many)


def test_amounts_on_blocks_of_an_unknown_request_are_refused():
    _, obj = written(asked(*names(200)), ConsumeRequest("consume-one", "one"))
    obj["status"]["responses"][1]["amounts"][0]["blocksOf"] = "another"
    with pytest.raises(Invalid) as refused:
        claim_of(obj, BASIC)
    assert refused.value.reason is Reason.UNREADABLE
