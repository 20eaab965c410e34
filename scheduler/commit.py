"""The commit record of a stream: what a leader is about to tell claims, written down before.

A batch of decisions is first written into the stream's status, on condition that nobody else has
written there since; only then are the claims told. So a leader that was paused and replaced cannot
decide anything more: its next record is refused. And whatever it had decided is in the record
that its successor finds, and tells the claims before it decides anything itself.

A crash leaves either no record of a batch (nobody was told: it is decided again) or the record
(it is told again, which changes nothing for the claims that know).
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.ledger.kubernetes.api import Object
from privatekube_kfp.ledger.times import format_time, parse_time

LARGEST_BATCH = 200
"""How many claims one record tells: small, so that nobody waits long behind others."""


@dataclass(frozen=True)
class Telling:
    """What one claim is to be told: receipts for new requests, and responses."""

    namespace: str
    name: str
    uid: str
    receipts: tuple[Object, ...]
    responses: tuple[Object, ...]

    @property
    def metadata(self) -> Object:
        return {"namespace": self.namespace, "name": self.name, "uid": self.uid}

    def to_json(self) -> list[Any]:
        return [self.namespace, self.name, self.uid, self.receipts, self.responses]


@dataclass(frozen=True)
class Record:
    """A commit record: whose turn it is, and the last batch."""

    epoch: int = 0
    sequence: int = 0
    holder: str = "nobody"
    time: int = 0
    arrivals: int = 0
    batch: tuple[Telling, ...] = ()

    def to_json(self) -> Object:
        said: Object = {
            "epoch": self.epoch,
            "sequence": self.sequence,
            "holder": self.holder,
            "time": format_time(self.time),
            "arrivals": self.arrivals,
            "claims": len(self.batch),
        }
        if self.batch:
            said["batch"] = _pack([telling.to_json() for telling in self.batch])
        return said


def record_of(said: Object | None) -> Record:
    """The record in a stream's status; refused if it cannot be read: it may hold grants."""
    if not said:
        return Record()
    try:
        batch = _unpack(said["batch"]) if "batch" in said else []
        return Record(
            epoch=int(said["epoch"]),
            sequence=int(said["sequence"]),
            holder=str(said["holder"]),
            time=parse_time(said["time"]),
            arrivals=int(said["arrivals"]),
            batch=tuple(
                Telling(namespace, name, uid, tuple(receipts), tuple(responses))
                for namespace, name, uid, receipts, responses in batch
            ),
        )
    except (KeyError, ValueError, TypeError, zlib.error) as error:
        raise Invalid(
            Reason.UNREADABLE, f"the commit record cannot be understood: {error!r}"
        ) from error


def _pack(batch: Sequence[Any]) -> str:
    return base64.b64encode(zlib.compress(json.dumps(batch).encode(), 1)).decode()


def _unpack(text: str) -> list[Any]:
    unpacked: list[Any] = json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
    return unpacked
