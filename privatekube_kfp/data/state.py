"""What ingest remembers of a stream, in one file that is replaced at once."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.ipc

from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.data.counter import UserCounter
from privatekube_kfp.data.groups import Groups
from privatekube_kfp.data.noise import RandBelow
from privatekube_kfp.data.portions import Portions
from privatekube_kfp.data.settings import Settings
from privatekube_kfp.data.store import Store
from privatekube_kfp.ledger.streams import StreamSpec

_VERSION = 1


@dataclass
class State:
    """How far a stream has been ingested. It has true counts: it stays with the data."""

    FILE: ClassVar = "ingest.json"

    spec: StreamSpec
    settings: Settings
    schema: pa.Schema
    """Of the input: user, time, and the payload."""
    until: int = 0
    """All data are there from before this period."""
    counter: UserCounter | None = None
    groups: Groups | None = None
    pieces: int = 0
    """How many pieces the users are kept in."""
    writing: dict[str, Any] | None = None
    """The ingest whose rows are counted and staged, but perhaps not yet in their blocks."""

    @staticmethod
    def begin(spec: StreamSpec, settings: Settings, schema: pa.Schema, rand: RandBelow) -> State:
        state = State(spec, settings, schema)
        if spec.counter is not None:
            assert settings.confidence is not None
            assert settings.group_size is not None
            state.counter = UserCounter(spec.counter, settings.confidence, rand)
            state.groups = Groups(settings.group_size)
        return state

    @property
    def portions(self) -> Portions:
        return Portions(self.spec.name, self.settings, self.groups or Groups(1))

    def whole_blocks(self) -> set[str]:
        """The names of the blocks that are registered, or about to be."""
        portions = self.portions
        return {portions.portion(block).name for block in portions.requestable(self.until)}

    def save(self, store: Store) -> None:
        store.write_json(
            State.FILE,
            {
                "version": _VERSION,
                "stream": self.spec.to_json(),
                "settings": self.settings.to_json(),
                "schema": base64.b64encode(self.schema.serialize()).decode(),
                "until": self.until,
                "counter": self.counter and self.counter.to_json(),
                "groups": self.groups and self.groups.to_json(),
                "pieces": self.pieces,
                "writing": self.writing,
            },
        )

    @staticmethod
    def load(store: Store, spec: StreamSpec, rand: RandBelow) -> State | None:
        """What the store remembers of this very stream; None if nothing was ingested yet."""
        kept = store.read_json(State.FILE)
        if kept is None:
            return None
        try:
            return State._read(store, kept, spec, rand)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise store.damaged(State.FILE, "is damaged") from error

    @staticmethod
    def _read(store: Store, kept: dict[str, Any], spec: StreamSpec, rand: RandBelow) -> State:
        if kept.get("version") != _VERSION:
            raise PrivateKubeError(
                Reason.DATA_UNREADABLE,
                f"{store.uri_of(State.FILE)} was written by another version of PrivateKube",
            )
        known = StreamSpec.from_json(kept["stream"])
        if known.name != spec.name:
            raise Invalid(
                Reason.INVALID_REQUEST,
                f"{store.uri} has the data of stream {known.name}, not of {spec.name}",
            )
        if known.semantic != spec.semantic:
            raise Invalid(
                Reason.INVALID_REQUEST,
                f"{store.uri} was divided for {known.semantic} semantic, and stream {spec.name} has"
                f" {spec.semantic} now; ingest it anew, to another place",
            )
        if known != spec:
            raise Invalid(
                Reason.INVALID_REQUEST,
                f"stream {spec.name} is declared otherwise than when {store.uri} was filled; what"
                " was spent then is on another ledger, or forgotten",
            )
        settings = Settings.from_json(kept["settings"])
        schema = pyarrow.ipc.read_schema(pa.py_buffer(base64.b64decode(kept["schema"])))
        state = State(spec, settings, schema)
        state.until = kept["until"]
        if kept["counter"] is not None:
            state.counter = UserCounter.from_json(kept["counter"], rand)
            state.groups = Groups.from_json(settings.group_size or 1, kept["groups"])
        state.pieces = kept["pieces"]
        state.writing = kept["writing"]
        return state
