"""Streams, blocks and claims as objects of the Kubernetes API, both ways.

Pure functions over plain data, shared by the ledger (which writes specs and reads statuses) and
the scheduler (the other way round). Whatever cannot be understood is refused with `Invalid`,
never guessed: the objects can be edited by anybody who may.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

from privatekube_kfp.accounting import Counter, Weighted, plan_from_json
from privatekube_kfp.core.book import Book
from privatekube_kfp.core.budget import BASIC, Accounting, Budget, renyi
from privatekube_kfp.core.claim import Claim, Kind, Request, Response
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.per_block import NOTHING, PerBlock
from privatekube_kfp.core.pool import Refusal
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.stream import Block, BlockPhase
from privatekube_kfp.core.unlocking import parse_duration
from privatekube_kfp.ledger.kubernetes.api import BLOCKS, CLAIMS, STREAMS, Object, Resource
from privatekube_kfp.ledger.ledger import PublishedCount
from privatekube_kfp.ledger.requests import (
    AllocateRequest,
    ClaimRequest,
    ConsumeRequest,
    ReleaseRequest,
)
from privatekube_kfp.ledger.streams import Semantic, StreamSpec, conversion, unlocking_from_json
from privatekube_kfp.ledger.times import format_time, parse_time

P = ParamSpec("P")
R = TypeVar("R")

FINALIZER = "privatekube.io/spending"
"""Holds an object back from deletion until what it says about spending is safe elsewhere."""

COUNT = "privatekube.io/count"
"""The annotation of a stream with how many users it has, for the scheduler to check and show."""

OWN_REQUEST = "scheduler."
"""How the ids of requests begin that the scheduler makes itself, for a run that is gone."""

SPEC_CHANGED = "its spec was changed; what it said when it was first read counts"

MAX_BOUND = 10_000
_MAX_NAMES = 300_000
_MANY_BLOCKS = 100
"""From how many on the names of blocks are not repeated within a claim."""
_SEMANTICS = {Semantic.EVENT: "Event", Semantic.USER: "User", Semantic.USER_TIME: "UserTime"}
_POLICIES = {
    "dpf": "DPF",
    "fcfs": "FCFS",
    "weighted-dpf": "WeightedDPF",
    "dpack": "DPack",
    "fair-first": "FairFirst",
}
_CONVERSIONS = {"classic": "Classic", "weighted": "Weighted"}


def _refusing_nonsense(read: Callable[P, R]) -> Callable[P, R]:
    """What lacks a field or has something else in it makes no sense; say what it stumbled on."""

    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return read(*args, **kwargs)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            said = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise Invalid(Reason.UNREADABLE, f"it cannot be understood: {said}") from error

    return reading


def _object(kind: Resource, metadata: Object, spec: Object) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def only_known(value: Mapping[str, Any], what: str, *known: str) -> None:
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise Invalid(Reason.INVALID_REQUEST, f"{what}: unknown field {unknown[0]!r}")


# Streams


def stream_object(spec: StreamSpec) -> Object:
    accounting: Object = {"type": "Renyi" if spec.accounting.is_renyi else "Basic"}
    if spec.conversion is not None:
        accounting["orders"] = list(spec.accounting.orders)
        accounting["conversion"] = _CONVERSIONS[spec.conversion.name]
        if isinstance(spec.conversion, Weighted) and spec.conversion.weights:
            accounting["weights"] = dict(spec.conversion.weights)
    said: Object = {
        "semantic": _SEMANTICS[spec.semantic],
        "epsilon": spec.epsilon,
        "delta": spec.delta,
        "accounting": accounting,
        "unlocking": spec.unlocking.to_json(),
        "policy": _POLICIES[spec.policy],
    }
    if spec.counter is not None:
        said["counter"] = {"epsilon": spec.counter.epsilon, "days": spec.counter.days}
    return _object(STREAMS, {"name": spec.name}, said)


@_refusing_nonsense
def stream_spec(name: str, said: Mapping[str, Any]) -> StreamSpec:
    """The declaration in a stream's spec."""
    accounting = said["accounting"]
    orders = accounting.get("orders")
    if (accounting["type"] == "Renyi") != bool(orders):
        raise Invalid(Reason.INVALID_STREAM, "Renyi accounting has orders, Basic has none")
    counter = said.get("counter")
    return StreamSpec(
        name=name,
        epsilon=said["epsilon"],
        delta=said["delta"],
        unlocking=unlocking_from_json(said["unlocking"]),
        accounting=renyi(orders) if orders else BASIC,
        conversion=(
            conversion(_key(_CONVERSIONS, accounting["conversion"]), accounting.get("weights"))
            if orders
            else None
        ),
        policy=_key(_POLICIES, said.get("policy", "DPF")),
        semantic=_key(_SEMANTICS, said["semantic"]),
        counter=Counter(**counter) if counter is not None else None,
    )


def spec_of(obj: Object) -> StreamSpec:
    """A stream's declaration: as it was when the scheduler first saw it, if it has."""
    return stream_spec(obj["metadata"]["name"], declared(obj))


def declared(obj: Object) -> Mapping[str, Any]:
    """What counts of a spec: as it was when the scheduler first saw it, if it has."""
    kept: Mapping[str, Any] = obj.get("status", {}).get("declared") or obj["spec"]
    return kept


def stream_of(obj: Object) -> str:
    """The stream of a block or claim: as it was when it was first read."""
    return str(obj.get("status", {}).get("stream") or declared(obj)["stream"])


def is_intact(obj: Object) -> bool:
    """Whether a stream's spec still says what it did when it was first read."""
    return bool(obj["spec"] == declared(obj))


def says_intact(obj: Object) -> bool:
    """Whether the object's own conditions say so."""
    return all(c["type"] != "Intact" for c in obj.get("status", {}).get("conditions", ()))


def not_intact(now: int) -> Object:
    return condition("Intact", False, Reason.SPEC_CHANGED.value, SPEC_CHANGED, now)


def count_annotation(count: PublishedCount) -> Object:
    """What to merge into a stream's metadata to publish a count."""
    return {"annotations": {COUNT: json.dumps(count.to_json())}}


def annotated_count(obj: Object) -> PublishedCount | None:
    """The count that somebody wants published with a stream, whether or not it may be."""
    said = obj["metadata"].get("annotations", {}).get(COUNT)
    if said is None:
        return None
    try:
        count = json.loads(said)
        only_known(count, "count", "estimate", "lowerBound", "upperBound", "confidence", "time")
        return _count(count)
    except (Invalid, TypeError, ValueError, RecursionError) as error:
        why = error.message if isinstance(error, Invalid) else str(error)
        raise Invalid(Reason.UNREADABLE, f"its annotation {COUNT}: {why}") from error


def published_count(obj: Object) -> PublishedCount | None:
    """The count that the scheduler shows."""
    said = obj.get("status", {}).get("count")
    return None if said is None else _count(said)


@_refusing_nonsense
def _count(said: Mapping[str, Any]) -> PublishedCount:
    return PublishedCount.from_json(said)


def _key(words: Mapping[Any, str], word: str) -> Any:
    for key, said in words.items():
        if said == word:
            return key
    raise Invalid(Reason.INVALID_STREAM, f"{word!r} is none of {', '.join(words.values())}")


# Blocks


def block_object(block: Block) -> Object:
    spec: Object = {"stream": block.stream}
    if block.start is not None and block.end is not None:
        spec |= {"start": format_time(block.start), "end": format_time(block.end)}
    if block.users is not None:
        spec["users"] = list(block.users)
    if block.data_source is not None:
        spec["dataSource"] = block.data_source
    return _object(BLOCKS, {"name": block.name, "finalizers": [FINALIZER]}, spec)


@_refusing_nonsense
def block_of(obj: Object, created: int | None = None) -> Block:
    """The block an object declares; `created` for one that the scheduler has not seen before."""
    spec, status = declared(obj), obj.get("status", {})
    users = spec.get("users")
    if created is None:
        created = parse_time(status.get("adopted") or obj["metadata"]["creationTimestamp"])
    return Block(
        name=obj["metadata"]["name"],
        stream=spec["stream"],
        created=created,
        start=parse_time(spec["start"]) if "start" in spec else None,
        end=parse_time(spec["end"]) if "end" in spec else None,
        users=(int(users[0]), int(users[1])) if users is not None else None,
        data_source=spec.get("dataSource"),
        retired=bool(obj["spec"].get("retired")) or status.get("phase") == "Retired",
    )


def is_adopted(obj: Object) -> bool:
    """Whether the scheduler has fixed the block's capacity: it can be asked for from then on."""
    return "adopted" in obj.get("status", {})


def by_age(obj: Object) -> tuple[int, str]:
    """Sorts blocks by when the scheduler first saw them, the oldest first."""
    return block_of(obj).created, obj["metadata"]["name"]


@dataclass(frozen=True)
class Folded:
    """What claims that are gone leave behind on one block.

    `claims` are the uids of those whose objects may still be there: each is folded once.
    """

    consumed: Budget
    arrivals: int = 0
    claims: frozenset[str] = frozenset()

    def plus(self, consumed: Budget, arrivals: int) -> Folded:
        return replace(self, consumed=self.consumed + consumed, arrivals=self.arrivals + arrivals)

    def to_json(self) -> Object:
        return {
            "consumed": self.consumed.to_json(),
            "arrivals": self.arrivals,
            "claims": sorted(self.claims),
        }


@_refusing_nonsense
def folded_of(obj: Object, accounting: Accounting) -> Folded:
    said = obj.get("status", {}).get("folded")
    if said is None:
        return Folded(accounting.zero())
    consumed = accounting.parse(said["consumed"])
    return Folded(consumed, int(said.get("arrivals", 0)), frozenset(said["claims"]))


def block_status(book: Book, name: str, folded: Folded) -> Object:
    """Where the block's budget is, for people and for whoever starts after us."""
    block, budget, phase = book.blocks[name], book.budget(name), book.block_phase(name)
    status: Object = {
        "adopted": format_time(block.created),
        "phase": phase.value,
        "capacity": budget.capacity.to_json(),
        "locked": budget.locked.to_json(),
        "unlocked": budget.unlocked.to_json(),
        "allocated": budget.allocated.to_json(),
        "consumed": budget.consumed.to_json(),
        "consumedShare": _percent(share_of(budget.consumed, budget.capacity)),
        "arrivals": budget.arrivals,
        "openedShares": budget.opened,
    }
    if folded.arrivals or folded.claims or not folded.consumed.is_zero:
        status["folded"] = folded.to_json()
    return status


def _percent(share: float) -> str:
    return f"{100 * share:.3f}".rstrip("0").rstrip(".") + "%"


def share_of(part: Budget, capacity: Budget) -> float:
    """A part of a capacity, for people: under Renyi at the order where it is the least."""
    shares = [
        amount / whole
        for amount, whole in zip(part.amounts, capacity.amounts, strict=True)
        if whole > 0
    ]
    if not part.accounting.is_renyi:
        return max(shares, default=0.0)
    return min(shares, default=1.0)


@_refusing_nonsense
def restore_block(book: Book, obj: Object) -> None:
    """Bring a block into a book as its status has it."""
    block, status = block_of(obj), obj.get("status", {})
    accounting = book.stream.accounting
    if not is_adopted(obj):
        book.add_block(block)
        return
    if accounting.parse(status["capacity"]) != book.stream.capacity:
        raise Invalid(
            Reason.UNREADABLE,
            f"block {block.name}: its capacity is not what the stream's declaration gives",
        )
    book.restore_block(
        block,
        int(status["arrivals"]),
        int(status["openedShares"]),
        accounting.parse(status["allocated"]),
        accounting.parse(status["consumed"]),
    )


def phase_of(obj: Object) -> BlockPhase:
    return BlockPhase(obj.get("status", {}).get("phase", BlockPhase.ACTIVE))


# Budgets


def budget_of(accounting: Accounting, said: Mapping[str, str]) -> Budget:
    """A budget in a claim: there are many claims, and few different amounts in them."""
    return _parse_budget(accounting, tuple(said.items()))


@lru_cache(maxsize=4096)
def _parse_budget(accounting: Accounting, said: tuple[tuple[str, str], ...]) -> Budget:
    return accounting.parse(dict(said))


def amounts_of(
    accounting: Accounting, said: Iterable[Mapping[str, Any]], requests: Iterable[Request] = ()
) -> PerBlock:
    """Reads back what `amounts_object` wrote."""
    asked = {request.id: request.blocks for request in requests}
    return PerBlock(
        tuple(
            (
                budget_of(accounting, group["budget"]),
                tuple(group["blocks"] if "blocks" in group else asked[group["blocksOf"]]),
            )
            for group in said
        )
    )


def amounts_object(amounts: PerBlock, requests: Iterable[Request]) -> list[dict[str, object]]:
    """Amounts on the wire. The id of an allocate stands for all its blocks if they are many.

    Their names are in its receipt. If every request and every sum had 10,000 names of its own, a
    claim would be larger than an object can be.
    """
    named = {r.blocks: r.id for r in requests if len(r.blocks) > _MANY_BLOCKS}
    return [
        {
            **({"blocksOf": named[names]} if names in named else {"blocks": list(names)}),
            "budget": budget.to_json(),
        }
        for budget, names in amounts.groups
    ]


# Requests


def claim_object(name: str, namespace: str, request: AllocateRequest) -> Object:
    """A claim with its first request."""
    spec: Object = {"stream": request.stream, "requests": [request_item(request)]}
    if request.owner:
        spec["owner"] = request.owner
    return _object(CLAIMS, {"name": name, "namespace": namespace, "finalizers": [FINALIZER]}, spec)


def request_item(request: ClaimRequest) -> Object:
    """A request as it stands in a claim's spec."""
    body = {
        key: value for key, value in request.body().items() if key != "stream" and value is not None
    }
    return {"id": request.id, request.kind.value: body}


@_refusing_nonsense
def request_of(item: Mapping[str, Any], stream: str, owner: str | None = None) -> ClaimRequest:
    """The request in an item of a claim's spec, checked as strictly as on any other ledger."""
    kind = kind_of(item)
    body = item[kind.value]
    if kind is Kind.RELEASE:
        only_known(body, "release")
        return ReleaseRequest(item["id"])
    if kind is Kind.CONSUME:
        only_known(body, "consume", "step", "amount")
        amount = body.get("amount")
        if amount is not None and body.get("step") is not None:
            raise Invalid(Reason.INVALID_REQUEST, "consume a step or an amount, not both")
        return ConsumeRequest(
            item["id"], body.get("step"), plan_from_json(amount) if amount is not None else None
        )
    only_known(body, "allocate", "select", "plan", "timeout", "weight")
    timeout = body.get("timeout")
    return AllocateRequest(
        item["id"],
        stream,
        selection_of(body["select"]),
        plan_from_json(body["plan"]),
        None if timeout is None else parse_duration(timeout, "timeout"),
        owner,
        body.get("weight", 1),
    )


def kind_of(item: Mapping[str, Any]) -> Kind:
    kinds = [kind for kind in Kind if kind.value in item]
    if len(kinds) != 1:
        raise Invalid(
            Reason.INVALID_REQUEST, "a request is exactly one of allocate, consume and release"
        )
    return kinds[0]


@_refusing_nonsense
def selection_of(said: Mapping[str, Any]) -> Selection:
    only_known(said, "select", "names", "start", "end", "users", "last", "atLeast", "atMost")
    users = said.get("users")
    return Selection(
        names=tuple(said.get("names", ())),
        start=parse_time(said["start"], "start") if "start" in said else None,
        end=parse_time(said["end"], "end") if "end" in said else None,
        users=(int(users[0]), int(users[1])) if users is not None else None,
        last=said.get("last"),
        at_least=said.get("atLeast", 1),
        at_most=said.get("atMost"),
    )


def check_bound(blocks: Sequence[str]) -> None:
    """A claim is one object, and an object has a largest size."""
    if len(blocks) > MAX_BOUND or sum(map(len, blocks)) > _MAX_NAMES:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"{len(blocks)} blocks are more than one claim can hold: at most {MAX_BOUND}, whose"
            f" names have {_MAX_NAMES} letters together; ask for them in several claims",
        )


def digests_of(obj: Object) -> dict[str, str]:
    """The fingerprint of each request that has been read, by its id."""
    receipts = obj.get("status", {}).get("receipts", ())
    return {receipt["id"]: receipt["digest"] for receipt in receipts}


def digest(item: Mapping[str, Any]) -> str:
    """A fingerprint of a request's words: they must not change once they were read."""
    return hashlib.sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()[:32]


# Claims


def _body(item: Mapping[str, Any] | None, kind: Kind, stream: str) -> dict[str, object]:
    """A request's words as every ledger shows them."""
    if item is None:
        return {}
    said = dict(item[kind.value])
    if kind is Kind.ALLOCATE:
        weight = {"weight": said["weight"]} if "weight" in said else {}
        return {
            "stream": stream,
            "select": said.get("select"),
            "plan": said.get("plan"),
            "timeout": said.get("timeout"),
            **weight,
        }
    return said


@_refusing_nonsense
def claim_of(
    obj: Object, accounting: Accounting, *, name: str | None = None, with_unread: bool = False
) -> Claim:
    """A claim as its status has it: requests that the scheduler has read, and its responses.

    Requests are taken from the receipts, so that what was changed in the spec after the fact
    changes nothing.
    """
    meta, spec, status = obj["metadata"], obj["spec"], obj.get("status", {})
    items = {item["id"]: item for item in spec["requests"]}
    receipts = status.get("receipts", ())
    created = receipts[0]["time"] if receipts else meta["creationTimestamp"]
    claim = Claim(
        name if name is not None else meta["name"],
        stream_of(obj),
        spec.get("owner"),
        parse_time(created),
    )
    for receipt in receipts:
        claim.requests.append(_received(receipt, items, stream_of(obj), accounting))
    for response in status.get("responses", ()):
        request = claim.request(response["id"])
        if request is None:
            raise Invalid(
                Reason.UNREADABLE, f"a response to {response['id']!r}, which was never received"
            )
        claim.responses[request.id] = response_of(response, request, accounting, claim.requests)
    claim.held()  # refuses responses that cannot follow from each other
    if with_unread:
        for item in unread(obj):
            kind = kind_of(item)
            body = _body(item, kind, stream_of(obj))
            claim.requests.append(Request(item["id"], kind, body, submitted=claim.created))
    return claim


def _received(
    receipt: Mapping[str, Any],
    items: Mapping[str, Mapping[str, Any]],
    stream: str,
    accounting: Accounting,
) -> Request:
    item = items.get(receipt["id"])
    if item is not None and digest(item) != receipt.get("digest"):
        item = None
    kind = Kind(receipt["kind"])
    return Request(
        id=receipt["id"],
        kind=kind,
        body=_body(item, kind, stream),
        submitted=parse_time(receipt["time"]),
        blocks=tuple(receipt.get("blocks", ())),
        steps=tuple(
            (step["name"], budget_of(accounting, step["budget"]))
            for step in receipt.get("steps", ())
        ),
        arrival=int(receipt.get("arrival", 0)),
        deadline=parse_time(receipt["deadline"]) if "deadline" in receipt else None,
        weight=int(receipt.get("weight", 1)),
        step=receipt.get("step"),
        amount=budget_of(accounting, receipt["amount"]) if "amount" in receipt else None,
    )


def receipt_of(request: Request, said: str) -> Object:
    receipt: Object = {
        "id": request.id,
        "kind": request.kind.value,
        "time": format_time(request.submitted),
        "digest": said,
    }
    if request.kind is Kind.ALLOCATE:
        receipt["arrival"] = request.arrival
        if request.blocks:
            receipt["blocks"] = list(request.blocks)
        if request.steps:
            receipt["steps"] = [
                {"name": name, "budget": budget.to_json()} for name, budget in request.steps
            ]
        if request.deadline is not None:
            receipt["deadline"] = format_time(request.deadline)
        if request.weight != 1:
            receipt["weight"] = request.weight
    if request.step is not None:
        receipt["step"] = request.step
    if request.amount is not None:
        receipt["amount"] = request.amount.to_json()
    return receipt


def response_object(response: Response, request: Request, requests: Iterable[Request]) -> Object:
    """An answer on the wire; what an allocate was granted is what its receipt says."""
    said: Object = {
        "id": response.request,
        "state": "Done" if response.done else "Denied",
        "reason": response.reason.value,
        "message": response.message[:4096] or response.reason.value,
        "time": format_time(response.at),
    }
    if response.amounts.groups and request.kind is not Kind.ALLOCATE:
        said["amounts"] = amounts_object(response.amounts, requests)
    return said


@_refusing_nonsense
def response_of(
    said: Mapping[str, Any], request: Request, accounting: Accounting, requests: Iterable[Request]
) -> Response:
    done = {"Done": True, "Denied": False}[said["state"]]
    if request.kind is Kind.ALLOCATE:
        amounts = request.demand() if done else NOTHING
    else:
        amounts = amounts_of(accounting, said.get("amounts", ()), requests)
    return Response(
        said["id"], done, Reason(said["reason"]), said["message"], parse_time(said["time"]), amounts
    )


def unread(obj: Object) -> list[Mapping[str, Any]]:
    """The requests of a claim that the scheduler has not read yet, in order."""
    seen = {receipt["id"] for receipt in obj.get("status", {}).get("receipts", ())}
    return [item for item in obj["spec"]["requests"] if item["id"] not in seen]


def changed_since(obj: Object) -> list[str]:
    """The ids of requests that were removed or reworded after they had been read."""
    items = {item["id"]: item for item in obj["spec"]["requests"]}
    return [
        receipt["id"]
        for receipt in obj.get("status", {}).get("receipts", ())
        if not receipt["id"].startswith(OWN_REQUEST)
        and (receipt["id"] not in items or digest(items[receipt["id"]]) != receipt.get("digest"))
    ]


def answer_in(obj: Object, request: str) -> Mapping[str, Any] | None:
    """The answer to a request, as the status has it."""
    for response in obj.get("status", {}).get("responses", ()):
        if response["id"] == request:
            found: Mapping[str, Any] = response
            return found
    return None


def is_received(obj: Object, request: str) -> bool:
    return any(receipt["id"] == request for receipt in obj.get("status", {}).get("receipts", ()))


def condition(kind: str, holds: bool, reason: str, message: str, since: int) -> Object:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message[:4096] or reason,
        "lastTransitionTime": format_time(since - since % 1_000_000),
    }


def claim_status(
    claim: Claim,
    digests: Mapping[str, str],
    waiting: Refusal | None = None,
    notes: Sequence[Object] = (),
) -> Object:
    """All that a claim's status says. `waiting` is why the request whose turn it is waits."""
    last = next((r for r in reversed(claim.requests) if r.id in claim.responses), None)
    if waiting is not None:
        reason, message = waiting.reason, waiting.message
    elif last is not None:
        reason, message = claim.responses[last.id].reason, claim.responses[last.id].message
    else:
        reason, message = Reason.WAITING_FOR_UNLOCK, "its turn has not come yet"
    bound = claim.bound()
    status: Object = {
        "stream": claim.stream,
        "phase": claim.phase.value,
        "reason": reason.value,
        "message": message[:4096] or reason.value,
        "blocks": len(bound),
        "receipts": [receipt_of(request, digests[request.id]) for request in claim.requests],
        "responses": [
            response_object(claim.responses[request.id], request, claim.requests)
            for request in claim.requests
            if request.id in claim.responses
        ],
        "conditions": [*_happened(claim), *notes],
    }
    if bound:
        status["boundBlocks"] = list(bound)
    for name, kind in _SUMS.items():
        total = claim.total(kind)
        if total.groups:
            status[name] = amounts_object(total, claim.requests)
    return status


_SUMS = {"allocated": Kind.ALLOCATE, "consumed": Kind.CONSUME, "released": Kind.RELEASE}


def _happened(claim: Claim) -> list[Object]:
    """Bound, Allocated, Consumed, Released: each that has happened, since when and why."""
    conditions = []
    bound = next((request for request in claim.requests if request.blocks), None)
    if bound is not None:
        count = len(claim.bound())
        message = f"asked for {count} block{'s' if count > 1 else ''}"
        conditions.append(condition("Bound", True, "Bound", message, bound.submitted))
    for name, kind in _SUMS.items():
        done = next(
            (
                response
                for request in claim.requests
                if request.kind is kind
                and (response := claim.responses.get(request.id)) is not None
                and response.done
            ),
            None,
        )
        if done is not None:
            conditions.append(
                condition(name.capitalize(), True, done.reason.value, done.message, done.at)
            )
    return conditions
