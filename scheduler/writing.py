"""Every write that a scheduler makes, and what each does when it comes too late.

All are conditional on the version of the object that they change, and can be done again. After a
`Conflict` on a claim, a leader makes sure that it still is the leader before it tries the newer
version: the order (read the claim, then the record, then write) leaves no room for a successor to
have written in between without the last step failing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from privatekube_kfp.core.budget import Accounting, Budget
from privatekube_kfp.core.errors import Reason
from privatekube_kfp.core.stream import Block
from privatekube_kfp.ledger.kubernetes.api import (
    BLOCKS,
    CLAIMS,
    STREAMS,
    Api,
    Conflict,
    NotFound,
    Object,
    Resource,
    version_of,
)
from privatekube_kfp.ledger.kubernetes.objects import (
    FINALIZER,
    claim_of,
    claim_status,
    condition,
    declared,
    digests_of,
    folded_of,
    is_intact,
    not_intact,
    spec_of,
)
from privatekube_kfp.ledger.ledger import PublishedCount
from privatekube_kfp.ledger.streams import StreamSpec
from scheduler.commit import Record, Telling, record_of
from scheduler.register import KnownClaim, Register

R = TypeVar("R")


class Deposed(Exception):
    """Another scheduler leads now. What this one knows is out of date."""


class Writer:
    """Writes to the cluster, over so many connections at a time."""

    def __init__(self, api: Api, identity: str, connections: int) -> None:
        self.api = api
        self.identity = identity
        self._pool = ThreadPoolExecutor(connections, thread_name_prefix="writing")

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def all(self, write: Callable[..., R], of: Iterable[tuple[Any, ...]]) -> list[R | Exception]:
        """Do many writes side by side; what one of them raises takes its place in the list.

        A leader that turns out to be deposed stops at once.
        """
        calls = list(of)
        if len(calls) == 1:  # no need to hand it to a thread and wait for that
            return [self._one(write, calls[0])]
        futures = [self._pool.submit(self._one, write, call) for call in calls]
        return [future.result() for future in futures]

    def every(self, write: Callable[..., R], of: Iterable[tuple[Any, ...]]) -> list[R]:
        """The same, where one that fails is the failure of all."""
        done: list[R] = []
        for result in self.all(write, of):
            if isinstance(result, Exception):
                raise result
            done.append(result)
        return done

    @staticmethod
    def _one(write: Callable[..., R], call: tuple[Any, ...]) -> R | Exception:
        try:
            return write(*call)
        except Deposed:
            raise
        except Exception as error:
            return error

    # Streams

    def take_over(self, obj: Object, now: int) -> tuple[Object, StreamSpec, Record]:
        """Raise the stream's epoch: from here on no other leader can commit anything on it.

        The record keeps the last batch of the leader before, for `finish`.
        """
        while True:
            obj = self.guard(STREAMS, obj)
            spec, status = spec_of(obj), obj.get("status", {})
            last = record_of(status.get("commit"))
            mine = replace(
                last, epoch=last.epoch + 1, holder=self.identity, time=max(last.time, now)
            )
            try:
                taken = {
                    **status,
                    "declared": declared(obj),
                    "capacity": spec.capacity().to_json(),
                    "commit": mine.to_json(),
                    "conditions": _accepted(obj, now),
                }
                return self._put(STREAMS, obj["metadata"], taken), spec, mine
            except Conflict:
                obj = self._get(STREAMS, obj["metadata"])

    def commit(self, register: Register, record: Record, conflicted: Callable[[], None]) -> Object:
        """Write down a batch before anybody is told; only the newest leader can.

        A conflict may also be somebody who changed the stream's spec, or published a count.
        """
        obj = register.obj
        while True:
            status = {
                **obj.get("status", {}),
                "blocks": len(register.blocks),
                "commit": record.to_json(),
                "conditions": _accepted(obj, record.time),
            }
            try:
                return self._put(STREAMS, obj["metadata"], status)
            except Conflict:
                conflicted()
                obj = self._as_leader(register)
                if record_of(obj["status"]["commit"]).sequence == record.sequence:
                    return obj  # it had arrived, only the answer got lost

    def publish(self, register: Register, count: PublishedCount) -> Object | None:
        """Show how many users a stream has, as its newest leader; None if the stream is gone.

        Only leaders write there, so it still shows what the count was checked against.
        """
        obj = register.obj
        while True:
            status = {**obj["status"], "count": count.to_json()}
            try:
                return self._put(STREAMS, obj["metadata"], status)
            except NotFound:
                return None
            except Conflict:
                if self.find(STREAMS, obj["metadata"]) is None:
                    return None
                obj = self._as_leader(register)

    def _as_leader(self, register: Register) -> Object:
        """The stream as it is now, if this scheduler still leads on it."""
        obj = self.find(STREAMS, register.obj["metadata"])
        if obj is None:
            raise Deposed(f"stream {register.name} is gone")
        record = record_of(obj.get("status", {}).get("commit"))
        if (record.epoch, record.holder) != (register.record.epoch, self.identity):
            raise Deposed(f"{record.holder} leads on stream {register.name} now")
        return obj

    # Claims

    def tell(self, register: Register, known: KnownClaim, status: Object) -> Object | None:
        """Write a claim's status; None if the claim is gone."""
        metadata = known.metadata
        while True:
            try:
                return self._put(CLAIMS, metadata, status)
            except NotFound:
                return None
            except Conflict:
                fresh = self.find(CLAIMS, metadata)
                if fresh is None:
                    return None
                self._as_leader(register)
                metadata["resourceVersion"] = version_of(fresh)

    def delete(self, known: KnownClaim) -> None:
        """Delete a claim as we know it; if it has changed since, it is not finished."""
        try:
            self.api.delete(CLAIMS, {"metadata": known.metadata}, this_version=True)
        except Conflict:
            return

    def note(self, obj: Object, kind: Resource, status: Object) -> Object | None:
        """Write a status that decides nothing, unless somebody was faster."""
        try:
            return self._put(kind, obj["metadata"], status)
        except (NotFound, Conflict):
            return None

    def finish(self, telling: Telling, accounting: Accounting) -> None:
        """Tell a claim what a leader before had decided, unless it knows or is gone."""
        while True:
            obj = self.find(CLAIMS, telling.metadata)
            if obj is None:
                return
            status = obj.get("status", {})
            receipts, added = _with_missing(status.get("receipts", []), telling.receipts)
            responses, answered = _with_missing(status.get("responses", []), telling.responses)
            if not added and not answered:
                return
            told = {**obj, "status": {**status, "receipts": receipts, "responses": responses}}
            claim = claim_of(told, accounting)
            try:
                self._put(CLAIMS, obj["metadata"], claim_status(claim, digests_of(told)))
                return
            except NotFound:
                return
            except Conflict:
                continue

    # Finalizers

    def guard(self, kind: Resource, obj: Object) -> Object:
        """Make sure that the object cannot go before what it says is safe elsewhere."""
        while FINALIZER not in obj["metadata"].get("finalizers", ()):
            if "deletionTimestamp" in obj["metadata"]:
                return obj
            finalizers = [*obj["metadata"].get("finalizers", ()), FINALIZER]
            try:
                obj = self.api.patch(kind, obj, {"metadata": {"finalizers": finalizers}})
            except Conflict:
                obj = self._get(kind, obj["metadata"])
        return obj

    def let_go(self, kind: Resource, obj: Object) -> None:
        """Take our finalizer off: what the object said is safe elsewhere, or was nothing."""
        there: Object | None = obj
        while there is not None and FINALIZER in there["metadata"].get("finalizers", ()):
            finalizers = [name for name in there["metadata"]["finalizers"] if name != FINALIZER]
            try:
                self.api.patch(kind, there, {"metadata": {"finalizers": finalizers}})
                return
            except NotFound:
                return
            except Conflict:
                there = self.find(kind, obj["metadata"])

    # Blocks

    def adopt(self, register: Register, block: Block, obj: Object) -> Object:
        """Fix a new block's capacity: only then can it be asked for."""
        while True:
            obj = self.guard(BLOCKS, obj)
            status = register.adopted_status(block, obj)
            try:
                return self._put(BLOCKS, obj["metadata"], status)
            except Conflict:
                obj = self._get(BLOCKS, obj["metadata"])

    def show_block(self, metadata: Object, status: Object) -> Object | None:
        """Write where a block's budget is: the block as it is then, or None if it is gone."""
        try:
            return self._put(BLOCKS, metadata, status)
        except (Conflict, NotFound):
            return self.find(BLOCKS, metadata)

    def fold(
        self, register: Register, name: str, leaving: Mapping[str, tuple[KnownClaim, Budget, int]]
    ) -> Object | None:
        """Keep in a block what claims spent on it that are about to go; each is kept once.

        The claims were seen to be there after the block's version was known. Had one been folded
        and gone before, it would not have been there; if it is folded meanwhile, the version is
        another. After a conflict both are therefore read again, in this order.

        Returns the block with them in it, whoever wrote that: it may be this very call, whose
        answer got lost. None if it is gone, or known to have them.
        """
        known = register.blocks[name]
        version, folded = known.version, known.folded
        fresh: Object | None = None
        left = dict(leaving)
        while True:
            left = {uid: part for uid, part in left.items() if uid not in folded.claims}
            if not left:
                return fresh
            more = replace(folded, claims=folded.claims | left.keys())
            for _, spent, arrived in left.values():
                more = more.plus(spent, arrived)
            meta = {**known.metadata, "resourceVersion": version}
            try:
                return self._put(BLOCKS, meta, register.block_status(name, more))
            except NotFound:
                return None
            except Conflict:
                fresh = self.api.find(BLOCKS, name)
                if fresh is None:
                    return None
                version = version_of(fresh)
                folded = folded_of(fresh, register.spec.accounting)
                left = {
                    uid: part for uid, part in left.items() if self.find(CLAIMS, part[0].metadata)
                }

    # How

    def find(self, kind: Resource, metadata: Object) -> Object | None:
        """This very object as it is now; another one of its name is not it."""
        obj = self.api.find(kind, metadata["name"], metadata.get("namespace"))
        return obj if obj is not None and obj["metadata"]["uid"] == metadata["uid"] else None

    def _get(self, kind: Resource, metadata: Object) -> Object:
        obj = self.find(kind, metadata)
        if obj is None:
            raise NotFound(Reason.UNKNOWN_OBJECT, f"{kind.label} {metadata['name']} is gone")
        return obj

    def _put(self, kind: Resource, metadata: Object, status: Object) -> Object:
        """Write a status. Of the rest, its subresource takes only the name and the version."""
        kept = ("name", "namespace", "uid", "resourceVersion")
        return self.api.replace_status(
            kind,
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {key: metadata[key] for key in kept if key in metadata},
                "status": status,
            },
        )


def _with_missing(there: list[Any], wanted: Iterable[Object]) -> tuple[list[Any], bool]:
    ids = {item["id"] for item in there}
    missing = [item for item in wanted if item["id"] not in ids]
    return [*there, *missing], bool(missing)


def _accepted(obj: Object, now: int) -> list[Object]:
    """The stream's conditions: accepted, and whether its spec is still what was accepted."""
    before = {c["type"]: c for c in obj.get("status", {}).get("conditions", ())}
    made = [condition("Accepted", True, "Accepted", "its blocks can be asked for", now)]
    if not is_intact(obj):
        made.append(not_intact(now))
    return [
        before[c["type"]] if before.get(c["type"], {}).get("status") == c["status"] else c
        for c in made
    ]
