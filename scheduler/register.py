"""The register of one stream: its book, and the objects in the cluster that the book is made of.

Claims are the journal: what a claim was told stands in its own status, and every block's numbers
are derived from the claims that name it, plus what claims that are gone have left behind. So a
register is built from lists at the start of a leader's term and thrown away at its end; nothing in
here outlives a crash, and nothing needs to.

No calls to the API are made here: `leader` makes them and reports what came of them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from privatekube_kfp.core.book import Book
from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.claim import Claim, Kind, Request, Response
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.policy import check_weighs
from privatekube_kfp.core.pool import Refusal
from privatekube_kfp.core.stream import Block
from privatekube_kfp.core.unlocking import ByPipelines, parse_duration
from privatekube_kfp.ledger.checks import check_portion, check_semantic, is_news, received
from privatekube_kfp.ledger.kubernetes.api import Object, is_newer, version_of
from privatekube_kfp.ledger.kubernetes.objects import (
    COUNT,
    FINALIZER,
    OWN_REQUEST,
    Folded,
    annotated_count,
    block_of,
    block_status,
    by_age,
    changed_since,
    check_bound,
    claim_of,
    claim_status,
    condition,
    declared,
    digest,
    digests_of,
    folded_of,
    is_adopted,
    kind_of,
    not_intact,
    published_count,
    receipt_of,
    request_of,
    response_object,
)
from privatekube_kfp.ledger.ledger import PublishedCount
from privatekube_kfp.ledger.streams import StreamSpec
from privatekube_kfp.ledger.times import parse_time
from scheduler.commit import LARGEST_BATCH, Record, Telling

_BLOCKS_LIKE_A_CLAIM = 500
_MAY_BE_OUT_OF_DATE = (Reason.UNKNOWN_BLOCK, Reason.NO_MATCHING_BLOCKS)


@dataclass(frozen=True)
class Abandonment:
    """By what a claim can be seen to be abandoned: its run, a lease, a deadline."""

    workflow: tuple[str, str] | None = None
    lease: tuple[int, str] | None = None
    deadline: int | None = None


@dataclass(slots=True)
class KnownClaim:
    """A claim's object as the cluster has it, and what it has been told.

    The claim itself is kept while it waits or holds something; of the many that are finished
    only this much is.
    """

    uid: str
    namespace: str
    name: str
    version: str
    guarded: bool
    deleting: bool
    shown: str = ""
    phase: str = "Pending"
    finished: int | None = None
    claim: Claim | None = None
    digests: dict[str, str] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    read: int = 0
    changed: tuple[str, ...] = ()
    abandonment: Abandonment = Abandonment()
    lease_seen: int = 0
    let_go: bool = False
    folded_on: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def metadata(self) -> Object:
        return {
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.version,
        }

    @property
    def is_live(self) -> bool:
        return self.claim is not None and self.claim.is_live


@dataclass(slots=True)
class KnownBlock:
    """A block's object as the cluster has it."""

    name: str
    uid: str
    version: str
    folded: Folded
    deleting: bool
    declared: Object
    conditions: tuple[Object, ...] = ()
    shown: Object | None = None

    @property
    def metadata(self) -> Object:
        return {"name": self.name, "uid": self.uid, "resourceVersion": self.version}

    @property
    def phase_shown(self) -> str | None:
        return self.shown.get("phase") if self.shown else None


class Register:
    """One stream's book, blocks and claims, as its leader keeps them."""

    def __init__(self, obj: Object, spec: StreamSpec, record: Record) -> None:
        self.obj = obj
        self.spec = spec
        self.record = record
        self.latest = record.time
        self.book = Book(spec.stream(spec.capacity()), record.arrivals)
        self.blocks: dict[str, KnownBlock] = {}
        self.claims: dict[str, KnownClaim] = {}
        self.unadopted: dict[str, Object] = {}
        self.unguarded: dict[str, Object] = {}
        self.noted: set[str] = set()
        self.leaving: set[str] = set()
        self.abandonable: set[str] = set()
        self.phases: Counter[str] = Counter()
        self.unaccounted: list[str] = []
        self.spec_changed = False
        """Whether the stream's spec was edited, and its status does not say so yet."""
        self.count_read: tuple[object, ...] = ()
        """What the stream's object said about its users when that was last read."""
        self.look_again: Callable[[], bool] = lambda: False
        """Lists the stream's blocks anew; whether that brought any."""

    @property
    def name(self) -> str:
        return self.spec.name

    def time(self, now: int) -> int:
        """The time as this stream sees it, which never goes back."""
        self.latest = max(self.latest, now)
        return self.latest

    # Building it

    def load(
        self,
        blocks: Iterable[Object],
        claims: Iterable[Object],
        now: int,
        unheard: Container[str] = (),
    ) -> list[tuple[Object, Invalid]]:
        """Build the book from all there is; returns the objects that cannot be followed.

        Claims whose uids are in `unheard` count with what they were told, and are not read on.
        """
        aside: list[tuple[Object, Invalid]] = []
        adopted: dict[str, Object] = {}
        folded: dict[str, Folded] = {}
        for obj in blocks:
            name = obj["metadata"]["name"]
            try:
                if is_adopted(obj):
                    self._check_capacity(obj)
                    folded[name] = folded_of(obj, self.spec.accounting)
                    adopted[name] = obj
                else:
                    self.unadopted[name] = obj
            except Invalid as refusal:
                aside.append((obj, refusal))
        zero = self.spec.accounting.zero()
        held = dict.fromkeys(adopted, zero)
        consumed = dict.fromkeys(adopted, zero)
        arrivals = dict.fromkeys(adopted, 0)
        waiting: list[KnownClaim] = []
        to_read: list[tuple[KnownClaim, Object]] = []
        for obj in claims:
            try:
                known, claim = self._know(obj)
                self._add_up(known.uid, claim, folded, held, consumed, arrivals)
            except Invalid as refusal:
                aside.append((obj, refusal))
                continue
            self.claims[known.uid] = known
            known.claim = claim
            if claim.unanswered() is not None:
                waiting.append(known)
            to_read.append((known, obj))
        unreadable = {obj["metadata"]["uid"] for obj, _ in aside if "namespace" in obj["metadata"]}
        there = self.claims.keys() | unreadable
        for name, obj in sorted(adopted.items(), key=lambda item: by_age(item[1])):
            left = replace(folded[name], claims=folded[name].claims & there)
            if unreadable:
                held[name] = self._no_less(held[name], obj["status"]["allocated"])
            self._restore_block(obj, left, held[name], consumed[name], arrivals[name])
        for known in sorted(waiting, key=_place_in_line):
            assert known.claim is not None
            self.book.restore_claim(known.claim)
        for name, obj in adopted.items():
            if block_of(obj).retired:  # only now, so that whoever waits for it is told
                self.book.retire_block(name)
            self.look_at_block(obj, now)
        to_read.sort(key=lambda pair: (pair[1]["metadata"]["creationTimestamp"], pair[0].name))
        for known, obj in to_read:
            assert known.claim is not None
            self._count(known, known.claim.phase.value if known.read else "Pending")
            if known.uid not in unheard:
                self.follow(known, obj, now)
        self.book.settle(now)  # now or never is now
        return aside

    def _know(self, obj: Object) -> tuple[KnownClaim, Claim]:
        meta = obj["metadata"]
        known = KnownClaim(
            uid=meta["uid"],
            namespace=meta["namespace"],
            name=meta["name"],
            version=version_of(obj),
            guarded=FINALIZER in meta.get("finalizers", ()),
            deleting="deletionTimestamp" in meta,
        )
        return known, self._read_told(known, obj)

    def _read_told(self, known: KnownClaim, obj: Object) -> Claim:
        """The claim as its status has it, and what it has been told so far."""
        claim = claim_of(obj, self.spec.accounting, name=known.uid)
        turn = claim.unanswered()
        if turn is not None and turn.kind is not Kind.ALLOCATE:
            raise Invalid(Reason.UNREADABLE, f"its request {turn.id!r} cannot be waiting")
        if turn is not None:
            self._check_waiting(turn)
        known.digests = digests_of(obj)
        known.read = len(claim.requests)
        known.told = set(claim.responses)
        known.shown = fingerprint(obj)
        return claim

    def _check_waiting(self, turn: Request) -> None:
        """A weight that the stream's policy does not know was never read by a scheduler."""
        try:
            check_weighs(self.book.stream.policy, turn.weight)
        except Invalid as refusal:
            message = f"its request {turn.id!r} cannot be waiting: {refusal.message}"
            raise Invalid(Reason.UNREADABLE, message) from refusal

    def _add_up(
        self,
        uid: str,
        claim: Claim,
        folded: Mapping[str, Folded],
        held: dict[str, Budget],
        consumed: dict[str, Budget],
        arrivals: dict[str, int],
    ) -> None:
        """Add what a claim holds, has spent and has unlocked to its blocks."""
        holding, spent, arrived = claim.held(), claim.total(Kind.CONSUME), claim.arrived()
        for block in (*claim.bound(), *holding.blocks, *spent.blocks):
            if block not in held and (claim.granted() or claim.unanswered()):
                raise Invalid(Reason.UNKNOWN_BLOCK, f"it names block {block}, whose record is gone")
        for block, amount in holding.items():
            held[block] += amount
        for block, amount in spent.items():
            if uid not in folded[block].claims:
                consumed[block] += amount
        for block in arrived:
            if block in arrivals and uid not in folded[block].claims:
                arrivals[block] += 1

    def _no_less(self, held: Budget, shown: Mapping[str, str]) -> Budget:
        """What a block was last seen to have allocated, if that is more than its claims hold.

        Of a claim that cannot be read nobody knows what it holds: it is not given to others.
        """
        seen = self.spec.accounting.parse(shown)
        return self.spec.accounting.budget(map(max, held.amounts, seen.amounts))

    def _check_capacity(self, obj: Object) -> None:
        """Refuse a block whose status cannot be read, or promises more than its stream does."""
        status, accounting = obj["status"], self.spec.accounting
        block_of(obj)
        try:
            accounting.parse(status["consumed"])
            accounting.parse(status["allocated"])
            capacity = accounting.parse(status["capacity"])
            int(status["arrivals"]), int(status["openedShares"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Invalid(Reason.UNREADABLE, f"its status cannot be read: {error!r}") from error
        if capacity != self.book.stream.capacity:
            raise Invalid(
                Reason.UNREADABLE, "its capacity is not what the stream's declaration gives"
            )

    def _restore_block(
        self, obj: Object, folded: Folded, held: Budget, consumed: Budget, arrivals: int
    ) -> None:
        """A block with what its claims add up to, and never less than it was seen to have spent.

        What a block's status shows was true of the claims when it was written. If they now add up
        to less, claims have vanished without being folded: what they spent stays spent.
        """
        status, accounting = obj["status"], self.spec.accounting
        block = replace(block_of(obj), retired=False)
        shown = accounting.parse(status["consumed"])
        derived = folded.consumed + consumed
        missing = accounting.budget(
            max(0, seen - found) for seen, found in zip(shown.amounts, derived.amounts, strict=True)
        )
        unseen = max(0, int(status["arrivals"]) - folded.arrivals - arrivals)
        if not missing.is_zero or unseen:
            self.unaccounted.append(block.name)
            folded = folded.plus(missing, unseen)
        opened = int(status["openedShares"])
        if isinstance(self.spec.unlocking, ByPipelines):
            opened = min(folded.arrivals + arrivals, self.spec.unlocking.shares)
        self.book.restore_block(
            block, folded.arrivals + arrivals, opened, held, folded.consumed + consumed
        )
        self.blocks[block.name] = _known_block(obj, folded)

    # What happens in the cluster

    def see_block(self, obj: Object, now: int) -> None:
        """A block was made or changed."""
        meta = obj["metadata"]
        name = meta["name"]
        known = self.blocks.get(name)
        if known is None:
            self.unadopted[name] = obj
            return
        if is_newer(version_of(obj), known.version):
            self.follow_block(obj, now)

    def follow_block(self, obj: Object, now: int) -> None:
        """Bring what is known of a block's object up to date."""
        meta = obj["metadata"]
        name = meta["name"]
        known = self.blocks[name]
        known.uid = meta["uid"]
        known.version = version_of(obj)
        known.deleting = "deletionTimestamp" in meta
        self.look_at_block(obj, now)

    def look_at_block(self, obj: Object, now: int) -> None:
        """Heed what a block's object says that is new, and mend what somebody else wrote there.

        What was folded is known here, and not read again.
        """
        name = obj["metadata"]["name"]
        known = self.blocks[name]
        known.shown = obj.get("status")
        if obj["spec"].get("retired") or known.deleting:
            self.book.retire_block(name)
        said = {key: value for key, value in obj["spec"].items() if key != "retired"}
        others = tuple(c for c in known.conditions if c["type"] != "Intact")
        if said == known.declared:
            known.conditions = others
        elif known.conditions == others:
            known.conditions = (*others, not_intact(now))
        if known.shown != self.block_status(name, known.folded):
            self.book.dirty_blocks.add(name)

    def adopt_block(self, obj: Object, now: int) -> Block:
        """The block that an object declares, if it may be one."""
        block = block_of(obj, created=now)
        check_portion(block)
        check_semantic(self.spec, block)
        return block

    def adopted_status(self, block: Block, obj: Object) -> Object:
        """The first status of a block: all of it locked, or available as its stream says."""
        book = Book(self.book.stream)
        book.add_block(block)
        status = block_status(book, block.name, Folded(self.spec.accounting.zero()))
        return {**status, "declared": _portion(obj)}

    def add_block(self, block: Block, obj: Object) -> None:
        self.book.add_block(block)
        self.blocks[block.name] = _known_block(obj, Folded(self.spec.accounting.zero()))
        self.unadopted.pop(block.name, None)

    def new_count(self) -> PublishedCount | None:
        """A count of users that is to be shown; `Invalid`, once, if it must not be."""
        annotations, status = self.obj["metadata"].get("annotations", {}), self.obj["status"]
        says = annotations.get(COUNT), status.get("count")
        if says == self.count_read:
            return None
        self.count_read = says
        said = annotated_count(self.obj)
        if said is None or not is_news(self.spec, published_count(self.obj), said):
            return None
        return said

    def see_claim(self, obj: Object, now: int) -> None:
        """A claim was made or changed. `Invalid` if it cannot be followed."""
        uid = obj["metadata"]["uid"]
        known = self.claims.get(uid)
        if known is None:
            known = self._know_new(obj)
        elif not is_newer(version_of(obj), known.version):
            return
        elif known.claim is None:
            if fingerprint(obj) != known.shown:
                raise Invalid(Reason.UNREADABLE, "its status was edited after it was finished")
            known.claim = self._read_told(known, obj)
        elif fingerprint(obj) != known.shown:
            self.noted.add(uid)  # edited by hand: say again what it was told
        self.follow(known, obj, now)

    def _know_new(self, obj: Object) -> KnownClaim:
        """A claim that was not there when the term began has been told nothing yet."""
        known, claim = self._know(obj)
        if claim.requests:
            raise Invalid(Reason.UNREADABLE, "its status was written by somebody else")
        self.claims[known.uid] = known
        self._count(known, "Pending")
        known.claim = claim
        return known

    def follow(self, known: KnownClaim, obj: Object, now: int) -> None:
        """Bring what is known of an object up to date, and read what was asked anew."""
        meta = obj["metadata"]
        known.version = version_of(obj)
        known.guarded = FINALIZER in meta.get("finalizers", ())
        known.deleting = "deletionTimestamp" in meta
        known.abandonment = _abandonment(known, obj, now)
        changed = tuple(changed_since(obj))
        if obj["spec"]["stream"] != self.name:
            changed = ("stream", *changed)
        if changed != known.changed:
            known.changed = changed
            self.noted.add(known.uid)
        new = [item for item in obj["spec"]["requests"] if item["id"] not in known.digests]
        if known.claim is None and (new or known.uid in self.noted):
            known.claim = self._read_told(known, obj)
        if known.claim is not None and known.abandonment != Abandonment():
            self.abandonable.add(known.uid)
        if known.deleting:
            self.leaving.add(known.uid)
            self._release(known, f"{OWN_REQUEST}deleted", "the claim was deleted", now)
        elif new and not known.guarded:
            self.unguarded[known.uid] = obj
        else:
            for item in new:
                self._receive(known, item, obj["spec"].get("owner"), now)
        self._drop_if_finished(known)

    def _receive(
        self, known: KnownClaim, item: Mapping[str, Any], owner: str | None, now: int
    ) -> None:
        """Read a request: it stands in line, is answered, or is refused for what it says."""
        claim = known.claim
        assert claim is not None
        if item["id"] in known.digests:
            return  # two requests with one id: the first counts
        known.digests[item["id"]] = digest(item)
        if not claim.requests:
            claim.created = now
        try:
            if item["id"].startswith(OWN_REQUEST):
                message = f"ids that begin with {OWN_REQUEST!r} are the scheduler's own"
                raise Invalid(Reason.INVALID_REQUEST, message)
            try:
                self._submit(claim, item, owner, now)
            except Invalid as refusal:
                if refusal.reason not in _MAY_BE_OUT_OF_DATE or not self.look_again():
                    raise
                self._submit(claim, item, owner, now)
        except Invalid as refusal:
            self._refuse(claim, item, refusal, now)

    def _submit(self, claim: Claim, item: Mapping[str, Any], owner: str | None, now: int) -> None:
        request = received(self.book, request_of(item, self.name, owner), now)
        check_bound(request.blocks)
        self.book.submit(claim, request)

    def _refuse(self, claim: Claim, item: Mapping[str, Any], refusal: Invalid, now: int) -> None:
        try:
            kind = kind_of(item)
        except Invalid:
            kind = Kind.RELEASE if "release" in item else Kind.CONSUME
        reason = Reason.INVALID_REQUEST if refusal.reason is Reason.UNREADABLE else refusal.reason
        claim.requests.append(Request(item["id"], kind, {}, submitted=now))
        claim.responses[item["id"]] = Response(item["id"], False, reason, refusal.message, now)
        self.book.claims[claim.name] = claim
        self.book.dirty_claims.add(claim.name)

    def release(self, known: KnownClaim, why: str, now: int) -> bool:
        """Give back what an abandoned claim holds or waits for; whether there was any."""
        return self._release(known, f"{OWN_REQUEST}abandoned", why, now)

    def _release(self, known: KnownClaim, id: str, why: str, now: int) -> bool:
        claim = known.claim
        if claim is None or not known.is_live:
            return False
        while id in known.digests:
            id += "-again"
        known.digests[id] = digest({"why": why})
        self.book.submit(claim, Request(id, Kind.RELEASE, {}, submitted=now))
        done = claim.responses[id]
        claim.responses[id] = replace(done, message=f"{why}: {done.message}")
        return True

    def claim_gone(self, known: KnownClaim, now: int) -> dict[str, tuple[Budget, int]]:
        """A claim's object is no more. What it held goes back; what it spent is returned, by
        block, to be folded, unless it was let go of and so has been."""
        claim = known.claim
        self._release(known, f"{OWN_REQUEST}deleted", "the claim was deleted", now)
        del self.claims[known.uid]
        self.unguarded.pop(known.uid, None)
        for uids in (self.noted, self.leaving, self.abandonable, self.book.dirty_claims):
            uids.discard(known.uid)
        self.book.claims.pop(known.uid, None)
        self.phases[known.phase] -= 1
        if known.let_go or claim is None:
            return {}
        return self.spending(claim)

    def spending(self, claim: Claim) -> dict[str, tuple[Budget, int]]:
        """What a claim leaves behind on each block: what it spent, and whether it arrived."""
        zero = self.spec.accounting.zero()
        arrived = claim.arrived()
        spent = dict(claim.total(Kind.CONSUME).items())
        return {
            block: (spent.get(block, zero), int(block in arrived))
            for block in dict.fromkeys((*spent, *arrived))
            if block in self.blocks
        }

    # What is to be written

    def batches(self) -> list[list[KnownClaim]]:
        """The claims with something to be told, in batches that may be written one by one.

        If a leader dies after any of them, no more than there is must have been granted so far:
        so whoever gives back goes first, and those who both take and give are not parted.
        """
        giving, both, others = [], [], []
        for uid in self.book.dirty_claims:
            known = self.claims.get(uid)
            if known is None or known.claim is None:
                continue
            new = [
                request.kind
                for request in known.claim.requests
                if request.id not in known.told
                and (response := known.claim.responses.get(request.id)) is not None
                and response.done
            ]
            if Kind.RELEASE not in new:
                others.append(known)
            elif Kind.ALLOCATE in new:
                both.append(known)
            else:
                giving.append(known)
        batches, rest = _in_batches(giving, []), _in_batches(others, both)
        return [batch for batch in (*batches, *rest) if batch]

    def telling(self, known: KnownClaim) -> Telling:
        claim = known.claim
        assert claim is not None
        return Telling(
            known.namespace,
            known.name,
            known.uid,
            tuple(
                receipt_of(request, known.digests[request.id])
                for request in claim.requests[known.read :]
            ),
            tuple(
                response_object(claim.responses[request.id], request, claim.requests)
                for request in claim.requests
                if request.id in claim.responses and request.id not in known.told
            ),
        )

    def status_of(self, known: KnownClaim) -> Object:
        claim = known.claim
        assert claim is not None
        notes = _notes(known, self.latest)
        return claim_status(claim, known.digests, self.why_waiting(known), notes)

    def told(self, known: KnownClaim, obj: Object) -> None:
        """A claim's status has been written."""
        claim = known.claim
        assert claim is not None
        known.version = version_of(obj)
        known.shown = fingerprint(obj)
        known.read = len(claim.requests)
        known.told = set(claim.responses)
        self._count(known, claim.phase.value, counted=True)
        self.book.dirty_claims.discard(known.uid)
        self.noted.discard(known.uid)
        self._drop_if_finished(known)

    def _drop_if_finished(self, known: KnownClaim) -> None:
        claim = known.claim
        if claim is None or known.uid in self.book.dirty_claims or known.uid in self.noted:
            return
        if known.uid in self.unguarded or known.is_live or not claim.requests:
            return
        known.phase = claim.phase.value
        known.finished = max(response.at for response in claim.responses.values())
        known.claim = None
        self.abandonable.discard(known.uid)
        self.book.claims.pop(known.uid, None)

    def _count(self, known: KnownClaim, phase: str, *, counted: bool = False) -> None:
        if counted:
            self.phases[known.phase] -= 1
        known.phase = phase
        self.phases[phase] += 1

    def block_status(self, name: str, folded: Folded) -> Object:
        known = self.blocks[name]
        status = {**block_status(self.book, name, folded), "declared": known.declared}
        return {**status, "conditions": list(known.conditions)} if known.conditions else status

    def is_unspent(self, name: str) -> bool:
        """Whether a block has never been asked for: nothing is forgotten with it."""
        budget = self.book.budget(name)
        return budget.consumed.is_zero and budget.allocated.is_zero and not budget.arrivals

    def why_waiting(self, known: KnownClaim) -> Refusal | None:
        turn = known.claim.unanswered() if known.claim is not None else None
        return self.book.why_waiting(known.uid, turn.id) if turn is not None else None


def fingerprint(obj: Object) -> str:
    """Of what a claim's status says: to see whether somebody else wrote it."""
    said = {key: value for key, value in obj.get("status", {}).items() if value}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]


def _known_block(obj: Object, folded: Folded) -> KnownBlock:
    meta = obj["metadata"]
    return KnownBlock(
        name=meta["name"],
        uid=meta["uid"],
        version=version_of(obj),
        folded=folded,
        deleting="deletionTimestamp" in meta,
        declared=_portion(obj),
        conditions=tuple(obj.get("status", {}).get("conditions", ())),
        shown=obj.get("status"),
    )


def _portion(obj: Object) -> Object:
    """A block's spec as it was first read, but for whether it is retired."""
    return {key: value for key, value in declared(obj).items() if key != "retired"}


def _place_in_line(known: KnownClaim) -> int:
    turn = known.claim.unanswered() if known.claim is not None else None
    return turn.arrival if turn is not None else 0


def _abandonment(known: KnownClaim, obj: Object, now: int) -> Abandonment:
    """What a claim says about how to see that it is abandoned; nonsense is as if unsaid.

    A lease counts from when its renewal was seen here: the holder's clock may be wrong.
    """
    spec = obj["spec"]
    workflow, lease, deadline = spec.get("workflow"), spec.get("lease"), spec.get("deadline")
    try:
        found = Abandonment(
            (workflow["name"], workflow["uid"]) if workflow else None,
            (parse_duration(lease["duration"]), str(lease["renewed"])) if lease else None,
            parse_time(deadline) if deadline else None,
        )
    except (Invalid, KeyError, TypeError):
        return known.abandonment
    if found.lease != known.abandonment.lease:
        known.lease_seen = now
    return found


def _in_batches(claims: list[KnownClaim], first: list[KnownClaim]) -> list[list[KnownClaim]]:
    """In batches of a bounded size, a claim over many blocks counting for several.

    All of `first` is in the first of them, however many they are.
    """
    batches, size = [first], len(first)
    for known in claims:
        assert known.claim is not None
        new = sum(len(request.blocks) for request in known.claim.requests[known.read :])
        weight = 1 + new // _BLOCKS_LIKE_A_CLAIM
        if size and size + weight > LARGEST_BATCH:
            batches.append([])
            size = 0
        batches[-1].append(known)
        size += weight
    return batches


def _notes(known: KnownClaim, now: int) -> list[Object]:
    if not known.changed:
        return []
    message = (
        f"changed after it had been read: {', '.join(known.changed)};"
        " what it said when it was read counts"
    )
    return [condition("Intact", False, Reason.REQUEST_CHANGED.value, message, now)]
