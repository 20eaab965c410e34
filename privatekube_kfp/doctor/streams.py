"""What there is to claim: streams, and their blocks."""

from __future__ import annotations

from dataclasses import dataclass

from privatekube_kfp.doctor.cluster import Cluster
from privatekube_kfp.doctor.findings import Finding, Unknown, ok, unchecked, warning
from privatekube_kfp.ledger.kubernetes.api import BLOCKS, STREAMS

CHECK = "streams"
_MOST_BLOCKS = 10_000


@dataclass(frozen=True)
class StreamFacts:
    streams: list[str] | Unknown
    with_blocks: set[str] | Unknown
    """The streams of the blocks that were looked at."""
    all_blocks: bool = True
    """Whether every block was looked at."""


def look(cluster: Cluster) -> StreamFacts:
    streams = cluster.list(STREAMS)
    if isinstance(streams, Unknown):
        return StreamFacts(streams, set())
    names = [each["metadata"]["name"] for each in streams]
    blocks = cluster.list(BLOCKS, most=_MOST_BLOCKS)
    if isinstance(blocks, Unknown):
        return StreamFacts(names, blocks)
    found = {str(each.get("spec", {}).get("stream")) for each in blocks}
    return StreamFacts(names, found, len(blocks) < _MOST_BLOCKS)


def check(facts: StreamFacts) -> list[Finding]:
    if isinstance(facts.streams, Unknown):
        return [unchecked(CHECK, facts.streams)]
    if isinstance(facts.with_blocks, Unknown):
        return [unchecked(CHECK, facts.with_blocks)]
    if not facts.streams:
        said = "no stream is declared, so that there is no budget to claim"
        mend = "privatekube stream create --help"
        return [warning(CHECK, "NoStreams", said, mend)]
    empty = [name for name in facts.streams if name not in facts.with_blocks]
    if empty and facts.all_blocks:
        more = f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
        said = f"stream {empty[0]}{more} has no blocks, so that there is no budget to claim"
        mend = f"privatekube --ledger kubernetes block create NAME --stream {empty[0]}"
        return [warning(CHECK, "StreamEmpty", said, mend)]
    count = len(facts.streams)
    return [ok(CHECK, f"{count} {'stream' if count == 1 else 'streams'}, each with blocks")]
