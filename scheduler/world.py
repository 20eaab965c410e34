"""The cluster as a leader knows it: a register for each stream, and what belongs to none.

Everything that is seen in the cluster comes in here, object by object. One that cannot be followed
is set aside, with a condition, an event and a metric, and never stops the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from privatekube_kfp.core.errors import Invalid, LedgerError, Reason
from privatekube_kfp.core.stream import Block
from privatekube_kfp.ledger.kubernetes.api import (
    BLOCKS,
    CLAIMS,
    STREAMS,
    WORKFLOWS,
    Api,
    Change,
    NotFound,
    Object,
    Refused,
    Resource,
    Unreachable,
    is_newer,
    version_of,
)
from privatekube_kfp.ledger.kubernetes.objects import (
    SPEC_CHANGED,
    claim_of,
    condition,
    is_intact,
    says_intact,
    stream_of,
)
from scheduler.commit import record_of
from scheduler.events import Recorder
from scheduler.following import Relisted, Seen
from scheduler.metrics import Metrics
from scheduler.register import KnownClaim, Register
from scheduler.runs import Runs
from scheduler.writing import Deposed, Writer

log = logging.getLogger(__name__)

_EACH_NEEDS_THE_FORMER = {STREAMS: 0, BLOCKS: 1, CLAIMS: 2, WORKFLOWS: 3}


class World:
    """Registers by the name of their stream, kept up to date with the cluster."""

    def __init__(
        self,
        api: Api,
        writer: Writer,
        metrics: Metrics,
        recorder: Recorder,
        clock: Callable[[], int],
        aside: dict[tuple[str, str], str],
    ) -> None:
        self._api = api
        self._writer = writer
        self._metrics = metrics
        self._recorder = recorder
        self._clock = clock
        self.registers: dict[str, Register] = {}
        self.runs = Runs(api)
        self._aside = aside
        """Objects that cannot be followed, by kind and uid, each with the version that it had.

        Outlives the term: what could not be followed in one cannot be in the next.
        """
        self._homeless: dict[str, dict[str, tuple[Resource, Object]]] = {}
        """Blocks and claims by the name of a stream that is not there."""
        self._stream_of: dict[str, str] = {}
        """Which stream a block or claim is in, by its uid."""
        self._now = 0
        """The time of the cycle: requests that came in it, for now or never, are decided then."""

    def begin(
        self, streams: list[Object], list_rest: Callable[[], tuple[list[Object], list[Object]]]
    ) -> None:
        """Take every stream over, and only then read what blocks and claims there are."""
        self._now = now = self._clock()
        for obj in streams:
            self._open(obj, now)
        blocks, claims = list_rest()
        there = {obj["metadata"]["uid"] for obj in (*streams, *blocks, *claims)}
        for key in [key for key in self._aside if key[1] not in there]:
            del self._aside[key]
        self._load(self.registers, blocks, claims, now)
        self._publish_counts()

    def bad_objects(self) -> dict[str, int]:
        counts = {STREAMS.label: 0, BLOCKS.label: 0, CLAIMS.label: 0}
        for kind, _ in self._aside:
            counts[kind] += 1
        return counts

    def take_in(self, news: list[Seen | Relisted], now: int) -> None:
        """Streams, then blocks, then claims: each needs the former."""
        self._now = now
        adopted = False
        for item in sorted(news, key=lambda item: _EACH_NEEDS_THE_FORMER[item.kind]):
            if item.kind is CLAIMS and not adopted:
                self._adopt_blocks(now)
                adopted = True
            for change in self._changes(item):
                self._carefully(item.kind, change, now)
        if not adopted:
            self._adopt_blocks(now)
        self._guard_claims(now)
        self._publish_counts()

    def _changes(self, item: Seen | Relisted) -> Iterator[Change]:
        """What a relist means: all that is there may be new, all that is not there is gone.

        Unless it is known in a later version than the list's, from `_look_again`.
        """
        if isinstance(item, Seen):
            yield item.change
            return
        if item.kind is WORKFLOWS:
            self.runs.relisted(item.objects)
            return
        there = {obj["metadata"]["uid"] for obj in item.objects}
        for obj in self._known_objects(item.kind):
            if obj["metadata"]["uid"] not in there and not is_newer(version_of(obj), item.version):
                yield Change("DELETED", obj)
        for obj in item.objects:
            yield Change("MODIFIED", obj)

    def _known_objects(self, kind: Resource) -> list[Object]:
        known: list[Object] = []
        for register in self.registers.values():
            if kind is STREAMS:
                known.append(register.obj)
            elif kind is BLOCKS:
                known += [{"metadata": block.metadata} for block in register.blocks.values()]
            elif kind is CLAIMS:
                known += [{"metadata": claim.metadata} for claim in register.claims.values()]
        return known

    def _carefully(self, kind: Resource, change: Change, now: int) -> None:
        """One object that cannot be followed never stops the others."""
        obj = change.object
        try:
            uid = obj["metadata"]["uid"]
            key = (kind.label, uid)
            before = self._aside.get(key)
            if change.type == "DELETED":
                self._aside.pop(key, None)
            elif key in self._aside and self._aside[key] == version_of(obj):
                return
            if kind is STREAMS:
                self._see_stream(change, now)
            elif kind is BLOCKS:
                self._see_block(change, now)
            elif kind is CLAIMS:
                self._see_claim(change, now)
            else:
                self.runs.see(change)
                return
            if before is not None and self._aside.get(key) == before and kind is not CLAIMS:
                del self._aside[key]
        except Invalid as error:
            self.set_aside(kind, obj, error.reason, error.message)
        except (Deposed, Unreachable):
            raise
        except Exception as error:
            log.exception("%s %s", kind.label, obj.get("metadata", {}).get("name"))
            self.set_aside(kind, obj, Reason.UNREADABLE, f"it cannot be understood: {error!r}")

    def set_aside(self, kind: Resource, obj: Object, reason: Reason, message: str) -> None:
        """Leave an object alone until somebody changes it, and say so where people look."""
        meta = obj["metadata"]
        key = (kind.label, meta["uid"])
        if self._aside.get(key) == meta.get("resourceVersion"):
            return
        log.warning(
            "set aside: %s", message, extra={"kind": kind.label, "object": meta.get("name")}
        )
        self._metrics.bad_object(kind.label, reason.value)
        self._recorder.say(kind, meta, reason.value, message, warning=True)
        note = condition("Followed", False, reason.value, message, self._clock())
        status = dict(obj.get("status", {}))
        status["conditions"] = [
            *(c for c in status.get("conditions", ()) if c["type"] != "Followed"),
            note,
        ]
        version = str(meta.get("resourceVersion"))
        try:
            noted = self._writer.note(obj, kind, status)
            version = version_of(noted) if noted is not None else version
        except LedgerError as error:  # its status may be what the server will not take
            log.info("no condition was written: %s", error.message)
        self._aside[key] = version

    def _open(self, obj: Object, now: int) -> None:
        """Begin to lead on a stream: nobody else can commit from here on."""
        if "deletionTimestamp" in obj["metadata"] and not obj.get("status", {}).get("commit"):
            self._writer.let_go(STREAMS, obj)
            return
        name = obj["metadata"]["name"]
        said_so = not says_intact(obj)
        try:
            obj, spec, record = self._writer.take_over(obj, now)
            if not is_intact(obj) and not said_so:
                self._say_changed(obj)
            results = self._writer.all(
                self._writer.finish, ((telling, spec.accounting) for telling in record.batch)
            )
            for telling, result in zip(record.batch, results, strict=True):
                if isinstance(result, Unreachable):
                    raise result
                if isinstance(result, Exception):
                    # What it was to be told stays untold: the claim is as if never granted.
                    log.error(
                        "a claim could not be told: %s",
                        result,
                        extra={"claim": f"{telling.namespace}/{telling.name}"},
                    )
        except NotFound:
            return  # deleted before anybody led on it
        except (Invalid, Refused) as error:
            self.set_aside(STREAMS, obj, error.reason, error.message)
            return
        register = Register(obj, spec, record)
        register.look_again = lambda: self._look_again(register)
        self.registers[name] = register

    def _load(
        self,
        registers: dict[str, Register],
        blocks: list[Object],
        claims: list[Object],
        now: int,
    ) -> None:
        """Fill registers with the blocks and claims of their streams."""
        of_blocks: dict[str, list[Object]] = {name: [] for name in registers}
        of_claims: dict[str, list[Object]] = {name: [] for name in registers}
        for kind, objects, by_stream in (
            (BLOCKS, blocks, of_blocks),
            (CLAIMS, claims, of_claims),
        ):
            for obj in objects:
                stream = stream_of(obj)
                self._stream_of[obj["metadata"]["uid"]] = stream
                if stream in by_stream:
                    by_stream[stream].append(obj)
                elif stream not in self.registers:
                    self._without_stream(kind, obj)
        for name, register in registers.items():
            unheard = {
                obj["metadata"]["uid"]
                for obj in of_claims[name]
                if self._aside.get((CLAIMS.label, obj["metadata"]["uid"])) == version_of(obj)
            }
            aside = register.load(of_blocks[name], of_claims[name], register.time(now), unheard)
            for obj, why in aside:
                kind = CLAIMS if "namespace" in obj["metadata"] else BLOCKS
                self.set_aside(kind, obj, why.reason, why.message)
            for block in register.unaccounted:
                self._recorder.say(
                    BLOCKS,
                    register.blocks[block].metadata,
                    "Unaccounted",
                    "its claims add up to less than it has shown: claims were removed by force;"
                    " what they spent stays spent",
                    warning=True,
                )
            register.unaccounted.clear()
            for obj in of_blocks[name]:
                known = register.blocks.get(obj["metadata"]["name"])
                if known is not None and known.deleting:
                    self._look_at_block_deletion(register, obj)
            self._look_at_deletion(register)

    def _see_stream(self, change: Change, now: int) -> None:
        obj = change.object
        name = obj["metadata"]["name"]
        register = self.registers.get(name)
        if change.type == "DELETED":
            if register is not None and register.obj["metadata"]["uid"] == obj["metadata"]["uid"]:
                if register.blocks:
                    raise Deposed(f"stream {name} was removed by force; reading everything again")
                del self.registers[name]
            return
        if register is None:
            self._open(obj, now)
            if name in self.registers:
                waiting = self._homeless.pop(name, {}).values()
                blocks = [o for kind, o in waiting if kind is BLOCKS]
                claims = [o for kind, o in waiting if kind is CLAIMS]
                self._load({name: self.registers[name]}, blocks, claims, now)
            return
        if not is_newer(version_of(obj), version_of(register.obj)):
            return
        record = record_of(obj.get("status", {}).get("commit"))
        if (record.epoch, record.holder) != (register.record.epoch, register.record.holder):
            raise Deposed(f"{record.holder} leads on stream {name} now")
        register.obj = obj
        if is_intact(obj) != says_intact(obj):
            register.spec_changed = True
            if not is_intact(obj):
                self._say_changed(obj)
        self._look_at_deletion(register)

    def _publish_counts(self) -> None:
        """Show the counts of users that were written on streams since they were last read."""
        for register in self.registers.values():
            try:
                count = register.new_count()
                if count is not None:
                    register.obj = self._writer.publish(register, count) or register.obj
            except (Invalid, Refused) as error:
                meta = register.obj["metadata"]
                log.warning("no count: %s", error.message, extra={"stream": register.name})
                self._recorder.say(STREAMS, meta, error.reason.value, error.message, warning=True)

    def _say_changed(self, obj: Object) -> None:
        self._recorder.say(
            STREAMS,
            obj["metadata"],
            Reason.SPEC_CHANGED.value,
            SPEC_CHANGED,
            warning=True,
        )

    def _look_at_deletion(self, register: Register) -> None:
        """Let a stream go that is to be deleted and has no blocks."""
        obj = register.obj
        if "deletionTimestamp" in obj["metadata"]:
            if register.blocks or register.unadopted:
                self._recorder.say(
                    STREAMS,
                    obj["metadata"],
                    Reason.DELETION_REFUSED.value,
                    f"it has {len(register.blocks)} blocks; deleting it would forget what was"
                    " spent on them",
                    warning=True,
                )
            else:
                self._writer.let_go(STREAMS, obj)

    def _see_block(self, change: Change, now: int) -> None:
        obj = change.object
        meta = obj["metadata"]
        if change.type == "DELETED":
            stream = self._stream_of.pop(meta["uid"], None)
            register = self.registers.get(stream or "")
            if register is None:
                self._homeless.get(stream or "", {}).pop(meta["uid"], None)
            elif meta["name"] in register.blocks:
                self._block_gone(register, meta)
            else:
                register.unadopted.pop(meta["name"], None)
            return
        stream = self._stream_of.setdefault(meta["uid"], stream_of(obj))
        register = self.registers.get(stream)
        if register is None:
            self._without_stream(BLOCKS, obj)
            return
        known = register.blocks.get(meta["name"])
        if known is not None and known.uid != meta["uid"] and register.is_unspent(meta["name"]):
            raise Deposed(f"block {meta['name']} was made anew; reading everything again")
        register.see_block(obj, register.time(now))
        if known is not None and known.deleting:
            self._look_at_block_deletion(register, obj)

    def _look_at_block_deletion(self, register: Register, obj: Object) -> None:
        """Let a block go that is to be deleted and was never asked for."""
        if register.is_unspent(obj["metadata"]["name"]):
            self._writer.let_go(BLOCKS, obj)
            return
        self._recorder.say(
            BLOCKS,
            obj["metadata"],
            Reason.DELETION_REFUSED.value,
            "budget of it was asked for; deleting its record would forget what was spent."
            " It is retired",
            warning=True,
        )

    def _block_gone(self, register: Register, meta: Object) -> None:
        name = meta["name"]
        if register.is_unspent(name):
            # It is out of use for good; a later block of this name is another, for a later term.
            register.book.retire_block(name)
            del register.blocks[name]
            self._look_at_deletion(register)
            return
        self.set_aside(
            BLOCKS,
            {"metadata": {**meta, "resourceVersion": "0"}},
            Reason.DELETION_REFUSED,
            "its record was removed by force; what was spent on it is known only to its claims",
        )
        register.book.retire_block(name)

    def _adopt_blocks(self, now: int) -> bool:
        """Fix the capacity of new blocks; whether there were any."""
        found = False
        for register in self.registers.values():
            if register.unadopted:
                self._make_sure_of(register)
            new: list[tuple[Block, Object]] = []
            for name, obj in list(register.unadopted.items()):
                del register.unadopted[name]
                if name in register.book.blocks:
                    raise Deposed(f"block {name} was made anew; reading everything again")
                key = (BLOCKS.label, obj["metadata"]["uid"])
                if self._aside.get(key) == version_of(obj):
                    continue
                if "deletionTimestamp" in obj["metadata"]:
                    self._writer.let_go(BLOCKS, obj)
                    continue
                try:
                    new.append((register.adopt_block(obj, register.time(now)), obj))
                except Invalid as refusal:
                    self.set_aside(BLOCKS, obj, refusal.reason, refusal.message)
            written = self._writer.all(
                self._writer.adopt, ((register, block, obj) for block, obj in new)
            )
            for (block, obj), result in zip(new, written, strict=True):
                if isinstance(result, Exception):
                    self.failed(BLOCKS, obj, result)
                else:
                    register.add_block(block, result)
                    self._aside.pop((BLOCKS.label, obj["metadata"]["uid"]), None)
                    register.follow_block(result, register.time(now))
                    found = True
        return found

    def _make_sure_of(self, register: Register) -> None:
        """That a new block's stream is the one we know, not a later one of the same name.

        Nothing orders the watches: a block of the later one may be seen before the deletion of the
        former. Once the block is there its stream cannot go, so the answer holds.
        """
        there = self._api.find(STREAMS, register.name)
        if there is None or there["metadata"]["uid"] != register.obj["metadata"]["uid"]:
            raise Deposed(f"stream {register.name} was made anew; reading everything again")

    def _look_again(self, register: Register) -> bool:
        """Whether a fresh list has blocks that the watch has not brought yet."""
        objects, _ = self._api.list_all(BLOCKS)
        for obj in objects:
            if stream_of(obj) == register.name:
                self._stream_of.setdefault(obj["metadata"]["uid"], register.name)
                register.see_block(obj, register.time(self._now))
        return self._adopt_blocks(self._now)

    def _see_claim(self, change: Change, now: int) -> None:
        obj = change.object
        meta = obj["metadata"]
        if change.type == "DELETED":
            stream = self._stream_of.pop(meta["uid"], None)
            register = self.registers.get(stream or "")
            known = register.claims.get(meta["uid"]) if register is not None else None
            if register is None or known is None:
                self._homeless.get(stream or "", {}).pop(meta["uid"], None)
            else:
                self.claim_gone(register, known, obj, now)
            return
        stream = self._stream_of.setdefault(meta["uid"], stream_of(obj))
        register = self.registers.get(stream)
        if register is None:
            self._without_stream(CLAIMS, obj)
        else:
            register.see_claim(obj, register.time(now))
            self._aside.pop((CLAIMS.label, meta["uid"]), None)

    def claim_gone(self, register: Register, known: KnownClaim, obj: Object, now: int) -> None:
        """A claim's object is gone; if nobody folded it, what it spent is kept now."""
        if known.claim is None and not known.let_go and "spec" in obj:
            known.claim = claim_of(obj, register.spec.accounting, name=known.uid)
        left = register.claim_gone(known, register.time(now))
        for name in known.folded_on:
            if name in register.blocks:
                block = register.blocks[name]
                block.folded = replace(block.folded, claims=block.folded.claims - {known.uid})
                register.book.dirty_blocks.add(name)
        for name, (spent, arrived) in left.items():
            block = register.blocks[name]
            block.folded = block.folded.plus(spent, arrived)
            register.book.dirty_blocks.add(name)

    def _without_stream(self, kind: Resource, obj: Object) -> None:
        """Keep an object until its stream is there, and say what it waits for."""
        stream, meta = stream_of(obj), obj["metadata"]
        told = obj.get("status", {}).get("receipts")
        if kind is CLAIMS and "deletionTimestamp" in meta and not told:
            self._writer.let_go(kind, obj)  # it has asked nobody for anything yet
        waiting = self._homeless.setdefault(stream, {})
        seen = waiting.get(meta["uid"])
        waiting[meta["uid"]] = (kind, obj)
        if seen is not None or kind is not CLAIMS or obj.get("status"):
            return
        message = f"there is no stream {stream!r}; it is read when there is"
        noted = self._writer.note(
            obj,
            kind,
            {"phase": "Pending", "reason": Reason.UNKNOWN_STREAM.value, "message": message},
        )
        if noted is not None:
            waiting[meta["uid"]] = (kind, noted)

    def _guard_claims(self, now: int) -> None:
        """Add the finalizer to claims that were made without it, before they are granted any."""
        for register in self.registers.values():
            unguarded = list(register.unguarded.values())
            register.unguarded.clear()
            results = self._writer.all(self._writer.guard, ((CLAIMS, obj) for obj in unguarded))
            for obj, result in zip(unguarded, results, strict=True):
                known = register.claims.get(obj["metadata"]["uid"])
                if known is None:
                    continue
                if isinstance(result, Exception):
                    self.failed(CLAIMS, obj, result)
                elif result["metadata"]["uid"] == known.uid:
                    register.follow(known, result, register.time(now))

    def failed(self, kind: Resource, obj: Object, error: Exception) -> None:
        if isinstance(error, Unreachable):
            raise error
        if isinstance(error, NotFound):
            return  # the watch is about to say so
        message = error.message if isinstance(error, LedgerError) else repr(error)
        if "uid" in obj["metadata"]:
            self.set_aside(kind, obj, Reason.CLUSTER_REFUSED, message)
        else:
            log.warning("%s %s: %s", kind.label, obj["metadata"]["name"], message)
