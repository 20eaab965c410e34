"""Streams and blocks for a local run, from the manifests one would `kubectl apply` to a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from privatekube_kfp.accounting import DEFAULT_DAYS
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.stream import Block
from privatekube_kfp.ledger.kubernetes.api import BLOCKS, STREAMS
from privatekube_kfp.ledger.kubernetes.objects import (
    block_object,
    block_of,
    spec_of,
    stream_object,
)
from privatekube_kfp.ledger.ledger import Ledger
from privatekube_kfp.ledger.streams import StreamSpec
from privatekube_kfp.local.errors import PipelineError
from privatekube_kfp.local.yaml_text import NotYaml, read_documents

_DEFAULTS = {"policy": "DPF"}
_COUNTER_DEFAULTS = {"days": DEFAULT_DAYS}
"""What the API server would fill in."""


@dataclass(frozen=True)
class Declarations:
    """The streams and blocks that files declare."""

    streams: tuple[StreamSpec, ...] = ()
    blocks: tuple[Block, ...] = ()

    def apply(self, ledger: Ledger) -> None:
        """Declare all of them; what is there already, and the very same, stays as it is."""
        for stream in self.streams:
            ledger.create_stream(stream)
        for block in self.blocks:
            ledger.create_block(
                block.name,
                block.stream,
                start=block.start,
                end=block.end,
                users=block.users,
                data_source=block.data_source,
            )


def read_declarations(paths: Iterable[Path]) -> Declarations:
    """Read manifests; a data source that is a relative path is relative to its file."""
    streams: list[StreamSpec] = []
    blocks: list[Block] = []
    for path in paths:
        for number, document in enumerate(_documents(path), start=1):
            where = f"{path}, document {number}"
            try:
                match _kind(document):
                    case STREAMS.kind:
                        streams.append(_stream(document))
                    case BLOCKS.kind:
                        blocks.append(_block(document, path))
                    case kind:
                        raise _unreadable(
                            where, f"{kind!r} is neither {STREAMS.kind} nor {BLOCKS.kind}"
                        )
            except Invalid as error:
                raise _unreadable(where, error.message) from None
    return Declarations(tuple(streams), tuple(blocks))


def _documents(path: Path) -> list[Any]:
    try:
        return read_documents(path.read_text())
    except NotYaml as error:
        raise _unreadable(path, str(error)) from None
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not text") from None


def _kind(document: Any) -> str:
    if not isinstance(document, dict):
        raise _not_a_manifest("it is not a mapping")
    if document.get("apiVersion") != STREAMS.api_version:
        raise _not_a_manifest(
            f"apiVersion is {document.get('apiVersion')!r}, not {STREAMS.api_version!r}"
        )
    meta, spec = document.get("metadata"), document.get("spec")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        raise _not_a_manifest("metadata has no name")
    if not isinstance(spec, dict):
        raise _not_a_manifest("it has no spec")
    return str(document.get("kind"))


def _stream(document: Mapping[str, Any]) -> StreamSpec:
    said = {**_DEFAULTS, **document["spec"]}
    if isinstance(said.get("counter"), dict):
        said["counter"] = {**_COUNTER_DEFAULTS, **said["counter"]}
    spec = spec_of({"metadata": document["metadata"], "spec": said})
    known = stream_object(spec)["spec"]
    _only_known(said, known, "spec")
    return spec


def _block(document: Mapping[str, Any], path: Path) -> Block:
    obj = {"metadata": document["metadata"], "spec": document["spec"]}
    block = block_of(obj, created=0)
    _only_known(document["spec"], {**block_object(block)["spec"], "retired": False}, "spec")
    if block.retired:
        raise _not_a_manifest("a block that is retired is of no use to a run")
    source = block.data_source
    if source is not None and not urlsplit(source).scheme:
        # Not resolved: whether there is anything, and what links lead to, shows when it is read.
        source = os.path.abspath(path.parent / source)
    return Block(
        name=block.name,
        stream=block.stream,
        created=0,
        start=block.start,
        end=block.end,
        users=block.users,
        data_source=source,
    )


def _only_known(said: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    """An unknown field is refused, as the API server would warn: it may be a misspelt one."""
    for key, value in said.items():
        if key not in known:
            raise _not_a_manifest(f"{where}.{key} is unknown")
        if isinstance(value, dict) and isinstance(known[key], dict):
            _only_known(value, known[key], f"{where}.{key}")


def _not_a_manifest(why: str) -> Invalid:
    return Invalid(Reason.UNREADABLE, why)


def _unreadable(where: object, why: str) -> PipelineError:
    return PipelineError("InvalidData", f"{where}: {why}")
