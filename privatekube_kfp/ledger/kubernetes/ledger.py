"""The ledger in a cluster: requests go into claims' specs, the scheduler's answers come back.

Nothing is decided here. A call writes what its caller asks, conditionally and under a name of its
own, then waits until the scheduler has read it. Whoever is killed in between asks again with the
same words and finds what became of the first time. What makes no sense is refused before it is
written, by the same checks that the scheduler makes again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from privatekube_kfp.core.book import Book, id_reused
from privatekube_kfp.core.claim import Claim, Response
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.pool import Refusal
from privatekube_kfp.core.stream import Block, BlockPhase
from privatekube_kfp.ledger.checks import (
    check_portion,
    check_same_portion,
    check_same_stream,
    check_semantic,
    check_stream_of_claim,
    check_unused,
    is_news,
    received,
    unknown_block,
    unknown_claim,
    unknown_request,
    unknown_stream,
)
from privatekube_kfp.ledger.kubernetes.api import (
    BLOCKS,
    CLAIMS,
    STREAMS,
    Api,
    Conflict,
    Expired,
    Object,
    Resource,
    Unreachable,
    version_of,
)
from privatekube_kfp.ledger.kubernetes.life import Life, life_of_run
from privatekube_kfp.ledger.kubernetes.objects import (
    Folded,
    annotated_count,
    answer_in,
    block_object,
    block_of,
    by_age,
    check_bound,
    claim_object,
    claim_of,
    count_annotation,
    folded_of,
    is_adopted,
    is_received,
    phase_of,
    published_count,
    request_item,
    restore_block,
    spec_of,
    stream_object,
    stream_of,
)
from privatekube_kfp.ledger.ledger import (
    BlockRecord,
    Ledger,
    PublishedCount,
    StreamRecord,
    Verdict,
)
from privatekube_kfp.ledger.names import check_name
from privatekube_kfp.ledger.requests import AllocateRequest, ClaimRequest
from privatekube_kfp.ledger.streams import StreamSpec
from privatekube_kfp.ledger.times import format_time, system_clock
from privatekube_kfp.ledger.verify import verify_book

_VERIFY_TRIES = 10


class KubernetesLedger(Ledger):
    """Streams and blocks of a cluster, and the claims of one namespace.

    `answer_within` (seconds) is how long a call waits for the scheduler to read what it wrote;
    after that the request simply waits, and `why_waiting` says that no scheduler has seen it.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        *,
        answer_within: float = 10.0,
        clock: Callable[[], int] = system_clock,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self.namespace = namespace
        self._answer_within = answer_within
        self._clock = clock
        self._sleep = sleep
        self._monotonic = monotonic
        self._life = Life()

    def lives_with(self, environment: Mapping[str, str]) -> str:
        """From here on, claims that are made here live as long as this process's run.

        Says in a sentence how long that is.
        """
        self._life, sentence = life_of_run(self._api, self.namespace, environment)
        return sentence

    def renew(self, claim: str) -> None:
        """A sign of life for a claim with a lease; nothing for any other."""
        while True:
            obj = self._api.find(CLAIMS, claim, self.namespace)
            if obj is None or "lease" not in obj["spec"]:
                return
            with suppress(Conflict):
                renewed = {"lease": {"renewed": format_time(self._clock())}}
                self._api.patch(CLAIMS, obj, {"spec": renewed})
                return

    # Streams and blocks

    def create_stream(self, spec: StreamSpec) -> StreamRecord:
        try:
            obj = self._api.create(STREAMS, stream_object(spec))
        except Conflict:
            obj = self._api.get(STREAMS, spec.name)
        check_same_stream(spec_of(obj), spec)
        return self._stream_record(obj, self._block_objects(spec.name))

    def streams(self) -> Sequence[StreamRecord]:
        blocks = self._block_objects()
        objects, _ = self._api.list_all(STREAMS)
        return [
            self._stream_record(obj, blocks)
            for obj in sorted(objects, key=lambda obj: str(obj["metadata"]["name"]))
        ]

    def stream(self, name: str) -> StreamRecord:
        return self._stream_record(self._stream_object(name), self._block_objects(name))

    def delete_stream(self, name: str) -> None:
        obj = self._stream_object(name)
        check_unused(name, len(self._block_objects(name)))
        self._api.delete(STREAMS, obj)
        self._until(STREAMS, obj, lambda now: now is None)

    def publish_count(self, stream: str, count: PublishedCount) -> StreamRecord:
        obj = self._announced(stream, count)

        def is_shown(now: Object | None) -> bool:
            shown = published_count(now) if now is not None else None
            return now is None or (shown is not None and shown.time >= count.time)

        obj = self._until(STREAMS, obj, is_shown) or obj
        return self._stream_record(obj, self._block_objects(stream))

    def _announced(self, stream: str, count: PublishedCount) -> Object:
        """The stream with this count in its annotation, unless a newer one is there or shown.

        One that no scheduler has read yet counts as if it were published: it is going to be.
        """
        while True:
            obj = self._stream_object(stream)
            spec, known = spec_of(obj), published_count(obj)
            with suppress(Invalid):  # nonsense is never shown, so it can be overwritten
                said = annotated_count(obj)
                if said is not None and is_news(spec, known, said):
                    known = said
            if not is_news(spec, known, count):
                return obj
            with suppress(Conflict):
                return self._api.patch(STREAMS, obj, {"metadata": count_annotation(count)})

    def create_block(
        self,
        name: str,
        stream: str,
        *,
        start: int | None = None,
        end: int | None = None,
        users: tuple[int, int] | None = None,
        data_source: str | None = None,
    ) -> BlockRecord:
        new = Block(name, stream, 0, start, end, users, data_source)
        check_portion(new)
        spec = spec_of(self._stream_object(stream))
        check_semantic(spec, new)
        try:
            obj = self._api.create(BLOCKS, block_object(new))
        except Conflict:
            obj = self._api.get(BLOCKS, name)
        check_same_portion(block_of(obj), new)
        obj = self._until(BLOCKS, obj, lambda now: now is None or is_adopted(now)) or obj
        return self._block_record(spec, obj)

    def blocks(self, stream: str | None = None) -> Sequence[BlockRecord]:
        names = [stream] if stream is not None else [r.spec.name for r in self.streams()]
        records = []
        for name in names:
            spec = spec_of(self._stream_object(name))
            of_stream = [self._block_record(spec, obj) for obj in self._block_objects(name)]
            records += sorted(of_stream, key=lambda record: record.block.newest_last)
        return records

    def block(self, name: str) -> BlockRecord:
        obj = self._block_object(name)
        return self._block_record(spec_of(self._stream_object(stream_of(obj))), obj)

    def retire_block(self, name: str) -> BlockRecord:
        while True:
            obj = self._block_object(name)
            if obj["spec"].get("retired"):
                break
            try:
                obj = self._api.patch(BLOCKS, obj, {"spec": {"retired": True}})
                break
            except Conflict:
                continue
        self._until(BLOCKS, obj, lambda now: now is None or phase_of(now) is BlockPhase.RETIRED)
        return self.block(name)

    # Claims

    def submit(self, claim: str, request: ClaimRequest) -> Response | None:
        check_name("claim", claim)
        obj = self._asked(claim, request)
        obj = (
            self._until(CLAIMS, obj, lambda now: now is None or is_received(now, request.id)) or obj
        )
        return self._response(obj, request.id)

    def _asked(self, name: str, request: ClaimRequest) -> Object:
        """The claim with this request in its spec, written there unless it already was."""
        while True:
            obj = self._api.find(CLAIMS, name, self.namespace)
            known_stream = None if obj is None else stream_of(obj)
            stream = check_stream_of_claim(name, known_stream, request)
            item = request_item(request)
            if obj is not None:
                known = [said for said in obj["spec"]["requests"] if said["id"] == request.id]
                if known and known[0] != item:
                    raise id_reused(name, request.id)
                if known:
                    return obj
            self._check(stream, request)
            try:
                if obj is None:
                    assert isinstance(request, AllocateRequest)
                    made = claim_object(name, self.namespace, request)
                    made["spec"].update(self._life.spec(self._clock()))
                    return self._api.create(CLAIMS, made)
                obj["spec"]["requests"].append(item)
                return self._api.replace(CLAIMS, obj)
            except Conflict:
                continue

    def _check(self, stream: str, request: ClaimRequest) -> None:
        """Refuse here what the scheduler would refuse: then nothing is left behind."""
        wanted = isinstance(request, AllocateRequest)
        book = self._book(stream, self._block_objects(stream) if wanted else [])
        made = received(book, request, self._clock())
        check_bound(made.blocks)
        book.check_request(made)

    def response(self, claim: str, request: str) -> Response | None:
        return self._response(self._claim_object(claim), request)

    def _response(self, obj: Object, request: str) -> Response | None:
        _check_asked(obj, request)
        if answer_in(obj, request) is None:
            return None
        spec = spec_of(self._stream_object(stream_of(obj)))
        return claim_of(obj, spec.accounting).responses[request]

    def why_waiting(self, claim: str, request: str) -> Refusal | None:
        obj = self._claim_object(claim)
        _check_asked(obj, request)
        if answer_in(obj, request) is not None:
            return None
        if not is_received(obj, request):
            return Refusal(
                claim,
                Reason.WAITING_FOR_SCHEDULER,
                "no scheduler has read the request yet; if this goes on, see whether one runs",
            )
        stream = stream_of(obj)
        book = self._book(stream, self._block_objects(stream))
        book.restore_claim(claim_of(obj, book.stream.accounting))
        book.unlock_until(self._clock())
        return book.why_waiting(claim, request)

    def claim(self, name: str) -> Claim:
        obj = self._claim_object(name)
        spec = spec_of(self._stream_object(stream_of(obj)))
        return claim_of(obj, spec.accounting, with_unread=True)

    def claims(self, stream: str | None = None) -> Sequence[Claim]:
        return [claim for _, claim in self._claims_in(self.namespace, stream)]

    def claims_everywhere(self, stream: str | None = None) -> Sequence[tuple[str, Claim]]:
        """The claims of all namespaces, each with its own."""
        return self._claims_in(None, stream)

    def at(self, namespace: str) -> KubernetesLedger:
        """The same cluster, with the claims of another namespace."""
        return KubernetesLedger(
            self._api,
            namespace,
            answer_within=self._answer_within,
            clock=self._clock,
            sleep=self._sleep,
            monotonic=self._monotonic,
        )

    def _claims_in(self, namespace: str | None, stream: str | None) -> list[tuple[str, Claim]]:
        if stream is not None:
            self._stream_object(stream)
        specs = self._specs()
        objects, _ = self._api.list_all(CLAIMS, namespace)
        claims = [
            (
                str(obj["metadata"]["namespace"]),
                claim_of(obj, specs[stream_of(obj)].accounting, with_unread=True),
            )
            for obj in objects
            if stream_of(obj) in (specs if stream is None else [stream])
        ]
        return sorted(claims, key=lambda found: (found[1].created, found[0], found[1].name))

    def tend(self) -> None:
        """Nothing: the scheduler does."""

    def verify(self) -> Verdict:
        """Audit the whole cluster. What blocks show follows the claims with a short delay, so a
        difference counts only if it stays."""
        for tries in range(_VERIFY_TRIES):
            verdict = self._verify_once()
            if verdict.ok:
                break
            if tries < _VERIFY_TRIES - 1:
                self._sleep(1.0)
        return verdict

    def _verify_once(self) -> Verdict:
        specs = self._specs()
        block_objects = self._block_objects()
        claim_objects, _ = self._api.list_all(CLAIMS)
        difference = None
        for name, spec in sorted(specs.items()):
            mine = [obj for obj in block_objects if stream_of(obj) == name]
            try:
                book = self._book(name, mine)
                folded = {obj["metadata"]["name"]: folded_of(obj, spec.accounting) for obj in mine}
                claims = [
                    claim_of(obj, spec.accounting, name=_full_name(obj))
                    for obj in claim_objects
                    if stream_of(obj) == name and not _is_folded(obj, folded.values())
                ]
                left_behind = {
                    block: (fold.consumed, fold.arrivals) for block, fold in folded.items()
                }
                difference = difference or verify_book(spec, book, claims, left_behind)
            except Invalid as refusal:
                difference = difference or f"stream {name}: {refusal.message}"
        return Verdict(len(specs), len(block_objects), len(claim_objects), difference)

    def close(self) -> None:
        self._api.close()

    # Objects

    def _until(
        self, kind: Resource, obj: Object, holds: Callable[[Object | None], bool]
    ) -> Object | None:
        """The object once it is as wanted, or as it is when the scheduler takes too long.

        None stands for an object that is gone.
        """
        give_up = self._monotonic() + self._answer_within
        meta = obj["metadata"]
        now: Object | None = obj
        while not holds(now):
            left = give_up - self._monotonic()
            if left <= 0 or now is None:
                break
            try:
                watching = self._api.watch(
                    kind, version_of(now), meta.get("namespace"), name=meta["name"], seconds=left
                )
                for change in watching:
                    if change.type == "BOOKMARK":
                        continue
                    now = None if change.type == "DELETED" else change.object
                    if holds(now):
                        break
                watching.close()
            except (Unreachable, Expired):
                self._sleep(0.05)
                now = self._api.find(kind, meta["name"], meta.get("namespace"))
        return now

    def _specs(self) -> dict[str, StreamSpec]:
        objects, _ = self._api.list_all(STREAMS)
        return {obj["metadata"]["name"]: spec_of(obj) for obj in objects}

    def _stream_object(self, name: str) -> Object:
        obj = self._api.find(STREAMS, name)
        if obj is None:
            raise unknown_stream(name)
        return obj

    def _block_object(self, name: str) -> Object:
        obj = self._api.find(BLOCKS, name)
        if obj is None:
            raise unknown_block(name)
        return obj

    def _claim_object(self, name: str) -> Object:
        obj = self._api.find(CLAIMS, name, self.namespace)
        if obj is None:
            raise unknown_claim(name)
        return obj

    def _block_objects(self, stream: str | None = None) -> list[Object]:
        objects, _ = self._api.list_all(BLOCKS)
        return [obj for obj in objects if stream is None or stream_of(obj) == stream]

    def _book(self, stream: str, blocks: Sequence[Object]) -> Book:
        spec = spec_of(self._stream_object(stream))
        book = Book(spec.stream(spec.capacity()))
        for obj in sorted(blocks, key=by_age):
            restore_block(book, obj)
        return book

    @staticmethod
    def _stream_record(obj: Object, blocks: Sequence[Object]) -> StreamRecord:
        spec = spec_of(obj)
        mine = sum(stream_of(block) == spec.name for block in blocks)
        return StreamRecord(spec, spec.capacity(), mine, published_count(obj))

    def _block_record(self, spec: StreamSpec, obj: Object) -> BlockRecord:
        book = Book(spec.stream(spec.capacity()))
        restore_block(book, obj)
        book.unlock_until(self._clock())
        name = obj["metadata"]["name"]
        return BlockRecord(book.blocks[name], book.budget(name), book.block_phase(name))


def _full_name(obj: Object) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _is_folded(obj: Object, folded: Iterable[Folded]) -> bool:
    """A claim on its way out, whose spending already stands in its blocks."""
    return any(obj["metadata"]["uid"] in fold.claims for fold in folded)


def _check_asked(obj: Object, request: str) -> None:
    if not is_received(obj, request) and all(
        item["id"] != request for item in obj["spec"]["requests"]
    ):
        raise unknown_request(obj["metadata"]["name"], request)
