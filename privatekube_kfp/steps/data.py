"""Download and upload: where private data come in, and where results go out.

Both ask the ledger first. Data come from fsspec URIs: a path, `s3://`, `gs://`, `memory://`, ...
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privatekube_kfp.core.claim import Claim, Phase
from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.core.stream import Block
from privatekube_kfp.data.places import in_one_line, is_local, is_of_a_place, why_it_fails
from privatekube_kfp.ledger.ledger import Ledger
from privatekube_kfp.steps.report import blocks_in_words
from privatekube_kfp.steps.results import place_of_result
from privatekube_kfp.steps.run import (
    Artifact,
    claim_of_artifact,
    digest_of_blocks,
    in_a_sentence,
    ledger_of_run,
    released_already,
)

# Imported where they are used: tasks that read no rows start without them.
if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet as parquet

_BATCH = 64 * 1024
_CHUNK = 1024 * 1024
_ONE_BY_ONE = 10
"""How many blocks are asked for one by one: a stream may have many more than a claim."""


class DataUnreadable(PrivateKubeError):
    """The data of a block cannot be read. Its budget is not consumed."""

    def __init__(self, block: str, source: str, why: str) -> None:
        super().__init__(
            Reason.DATA_UNREADABLE, f"the data of block {block} at {source} cannot be read: {why}"
        )


# In


@in_a_sentence
def download(claim: Artifact, data: Artifact, *, run_id: str) -> None:
    """Write the rows of the claim's bound blocks into one Parquet file, oldest block first.

    A crash leaves no file, or the whole one. How many rows there are is told nobody: the log and
    the artifact's metadata are read by people who may not see the data.
    """
    with ledger_of_run() as ledger:
        known = claim_of_artifact(ledger, claim, run_id)
        make_sure_it_is_allocated(known, "read")
        sources = _sources(ledger, known)
    _refuse_anothers(data, known)
    _copy(sources, Path(data.path))
    data.metadata.update(
        claim=known.name,
        stream=known.stream,
        blocks_sha256=digest_of_blocks(name for name, _ in sources),
    )
    print(f"claim {known.name}: the data of {blocks_in_words(len(sources))}")


def make_sure_it_is_allocated(claim: Claim, done: str) -> None:
    if claim.phase is Phase.RELEASED:
        raise released_already(claim.name)
    if claim.phase is not Phase.ALLOCATED:
        raise PrivateKubeError(
            Reason.NOT_ALLOCATED,
            f"claim {claim.name} is {claim.phase}: data are {done} only while it is Allocated",
        )


def _sources(ledger: Ledger, claim: Claim) -> list[tuple[str, str]]:
    """The blocks that the claim holds budget on, in its order, and where their data are."""
    held = {name for name, budget in claim.held().items() if not budget.is_zero}
    blocks = blocks_of_claim(ledger, claim)
    return [(name, _source(blocks[name])) for name in claim.bound() if name in held]


def blocks_of_claim(ledger: Ledger, claim: Claim) -> dict[str, Block]:
    """The bound blocks by name; of many, with one list in place of a call for each."""
    bound = claim.bound()
    listed = ledger.blocks(claim.stream) if len(bound) > _ONE_BY_ONE else ()
    known = {record.block.name: record.block for record in listed}
    return {name: known.get(name) or ledger.block(name).block for name in bound}


def _source(block: Block) -> str:
    if not block.data_source:
        raise PrivateKubeError(
            Reason.DATA_UNREADABLE,
            f"block {block.name} has no data source: nobody said where its data are",
        )
    return block.data_source


def _refuse_anothers(data: Artifact, claim: Claim) -> None:
    """Two claims must not write to one place: what is read there could be of either.

    `kfp.local` alone lets tasks of one component share their outputs' paths.
    """
    mark = Path(f"{data.path}.claim")
    mark.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError), mark.open("x") as new:
        new.write(claim.name)
    other = mark.read_text()
    if other != claim.name:
        raise PrivateKubeError(
            Reason.INVALID_REQUEST,
            f"{data.path} is for the data of claim {other}, not of {claim.name}: two tasks share"
            " their output. Run the pipeline with `privatekube run`, which keeps them apart",
        )


def _copy(sources: list[tuple[str, str]], target: Path) -> None:
    """With the number of each block's rows in the footer, which is as private as the rows."""
    import pyarrow.parquet as parquet

    from privatekube_kfp.data.blocks import ROWS_OF_BLOCKS

    partial = target.with_name(f"{target.name}.{uuid.uuid4().hex}.partial")
    writer: parquet.ParquetWriter | None = None
    rows = [0] * len(sources)
    try:
        for number, (block, source) in enumerate(sources):
            for batch in _batches(block, source):
                if writer is None:
                    writer = parquet.ParquetWriter(partial, batch.schema)
                if not batch.schema.equals(writer.schema):
                    raise DataUnreadable(block, source, "its columns differ from those before it")
                if batch.num_rows:
                    writer.write_batch(batch)
                    rows[number] += batch.num_rows
        assert writer is not None, "a claim that is Allocated holds a block"
        writer.add_key_value_metadata({ROWS_OF_BLOCKS: json.dumps(rows)})
        writer.close()
        os.replace(partial, target)
    finally:
        if writer is not None:
            writer.close()
        partial.unlink(missing_ok=True)


def _batches(block: str, source: str) -> Iterator[pyarrow.RecordBatch | pyarrow.Table]:
    """The rows of one block; a folder's files in the order of their names.

    Of each file first its columns, with no rows: nothing may have happened in a block's time.
    """
    import fsspec
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        files, path = fsspec.core.url_to_fs(source)
        paths = sorted(files.find(path)) if files.isdir(path) else [path]
        parts = [part for part in paths if part == path or part.endswith(".parquet")]
        if not parts:
            raise FileNotFoundError("there is no Parquet file in it")
        for part in parts:
            with files.open(part, "rb") as opened, parquet.ParquetFile(opened) as table:
                yield table.schema_arrow.empty_table()
                yield from table.iter_batches(_BATCH)
    except PrivateKubeError:
        raise
    except Exception as error:
        if isinstance(error, pyarrow.ArrowException):
            why = f"it is no whole Parquet file ({in_one_line(error)})"
        elif is_of_a_place(error):
            why = why_it_fails(error)
        else:
            raise
        raise DataUnreadable(block, source, why) from error


# Out


@in_a_sentence
def upload(
    claim: Artifact, artifact: Artifact, *, run_id: str, uri: str = "", name: str = ""
) -> None:
    """Write a result to a URI, or into the run's folder at the site's place by its name, for a
    claim that has consumed.

    Beside it goes a note of whose it is and of its digest, first: what was written once under a
    claim can be written again by a retry, and nothing else can be, since that would be a second
    result for one price. A crash leaves the old result, or the whole new one, and a note that says
    it is not complete. A folder in an object store cannot be replaced at once: it is whole when
    its note says so.
    """
    with ledger_of_run() as ledger:
        known = claim_of_artifact(ledger, claim, run_id)
        make_sure_it_consumed(known, claim)
    source = Path(artifact.path)
    if not source.exists():
        raise Invalid(Reason.INVALID_REQUEST, f"there is nothing at {source}: nothing to upload")
    # Without a name, the contents give one: two results of a run do not collide.
    place = place_of_result(uri, name or f"result-{_digest(source)[:12]}", run_id)
    try:
        _publish(source, place, known)
    except PrivateKubeError:
        raise
    except Exception as error:
        if not is_of_a_place(error):
            raise
        raise PrivateKubeError(
            Reason.DATA_UNWRITABLE,
            f"the result cannot be written to {place}: {why_it_fails(error)}",
        ) from error
    print(f"claim {known.name}: written to {place}")


def make_sure_it_consumed(claim: Claim, artifact: Artifact) -> None:
    """Refuse to let anything out on a claim's artifact that no Consume made."""
    request = artifact.metadata.get("consumed")
    response = claim.responses.get(request) if isinstance(request, str) else None
    spent = claim.request(response.request) if response is not None else None
    if spent is None or spent.kind != "consume" or response is None or response.denied:
        if claim.phase is Phase.RELEASED:
            raise released_already(claim.name, Reason.NOT_CONSUMED)
        raise PrivateKubeError(
            Reason.NOT_CONSUMED,
            f"claim {claim.name} has not consumed: nothing leaves before Consume has succeeded",
        )


def _publish(source: Path, uri: str, claim: Claim) -> None:
    import fsspec

    files, path = fsspec.core.url_to_fs(uri)
    note = {
        "claim": claim.name,
        "run": claim.owner,
        "stream": claim.stream,
        "sha256": _digest(source),
    }
    _refuse_a_second(files, f"{path}.claim.json", note)
    _leave_note(files, f"{path}.claim.json", {**note, "complete": False})
    if is_local(files):
        _replace(source, Path(path))
    elif source.is_dir():
        files.put(f"{source}/", f"{path}/", recursive=True)
    else:
        files.put_file(str(source), path)
    _leave_note(files, f"{path}.claim.json", {**note, "complete": True})


def _refuse_a_second(files: Any, path: str, note: Mapping[str, object]) -> None:
    """What was written here under the same claim must be the same."""
    before = json.loads(files.cat_file(path)) if files.exists(path) else {}
    if before.get("claim") == note["claim"] and before.get("sha256") != note["sha256"]:
        raise PrivateKubeError(
            Reason.ALREADY_PUBLISHED,
            f"claim {note['claim']} has published another result there already: a second one"
            " would need a budget of its own",
        )


def _leave_note(files: Any, path: str, note: Mapping[str, object]) -> None:
    text = json.dumps(note, indent=2) + "\n"
    if is_local(files):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        partial = Path(f"{path}.{uuid.uuid4().hex}.partial")
        partial.write_text(text)
        os.replace(partial, path)
    else:
        files.pipe_file(path, text.encode())


def _replace(source: Path, target: Path) -> None:
    """Put a copy in place: a file at once, a folder with an instant in which there is none."""
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
    try:
        if source.is_dir():
            shutil.copytree(source, partial)
            old = partial.with_suffix(".old")
            if target.exists():
                os.rename(target, old)
            os.rename(partial, target)
            shutil.rmtree(old, ignore_errors=True)
        else:
            shutil.copyfile(source, partial)
            os.replace(partial, target)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def _digest(source: Path) -> str:
    """Of a file's bytes; of a folder's names and bytes."""
    total = hashlib.sha256()
    parts = sorted(p for p in source.rglob("*") if p.is_file()) if source.is_dir() else [source]
    for part in parts:
        inner = hashlib.sha256()
        with part.open("rb") as opened:
            while chunk := opened.read(_CHUNK):
                inner.update(chunk)
        if not source.is_dir():
            return inner.hexdigest()
        total.update(f"{part.relative_to(source)}\0{inner.hexdigest()}\n".encode())
    return total.hexdigest()
