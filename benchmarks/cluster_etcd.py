"""Many claims quickly: written straight into etcd, in the form in which the API server keeps them.

Only for setting up a past, where 50,000 claims through the API server take ten minutes. The first
claim of each phase and number of blocks goes through the API server. How it is then kept, with all
that the server adds, is the pattern for its like: they differ in name, uid, spec and status.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import urllib3

from benchmarks.cluster_claims import side_by_side
from privatekube_kfp.ledger.kubernetes.api import CLAIMS, Api, Object

_AT_ONCE = 50
_THREADS = 2
_ADDRESS = "--listen-client-urls="


class Etcd:
    """Keys and values of an etcd, over its JSON interface."""

    def __init__(self, pid: int) -> None:
        """The process says where it listens: it was told on its command line."""
        arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        [self._address] = [a.removeprefix(_ADDRESS) for a in arguments if a.startswith(_ADDRESS)]
        self._pool = urllib3.PoolManager(maxsize=_THREADS)

    def get(self, key: str) -> bytes:
        [found] = self._call("range", {"key": _encoded(key.encode())})["kvs"]
        return base64.b64decode(found["value"])

    def put(self, pairs: Iterable[tuple[str, bytes]]) -> None:
        """All of them, in one transaction."""
        puts = [
            {"requestPut": {"key": _encoded(key.encode()), "value": _encoded(value)}}
            for key, value in pairs
        ]
        self._call("txn", {"success": puts})

    def _call(self, what: str, said: Object) -> Any:
        answer = self._pool.request("POST", f"{self._address}/v3/kv/{what}", json=said)
        if answer.status != 200:
            raise RuntimeError(f"etcd will not {what}: {answer.data.decode()[:300]}")
        return answer.json()


def write_claims(etcd: Etcd, api: Api, claims: Iterable[Object]) -> None:
    """Have claims with these specs and statuses in the cluster."""
    patterns: dict[tuple[str, int], Object] = {}

    def kept() -> Iterator[tuple[str, bytes]]:
        for claim in claims:
            like = claim["status"]["phase"], claim["status"]["blocks"]
            if like not in patterns:
                patterns[like] = _through_the_server(etcd, api, claim)
                continue
            pattern = patterns[like]
            meta = {**pattern["metadata"], "name": claim["metadata"]["name"], "uid": _new_uid()}
            spec, status = claim["spec"], claim["status"]
            whole = {**pattern, "metadata": meta, "spec": spec, "status": status}
            yield _key(claim), json.dumps(whole, separators=(",", ":")).encode() + b"\n"

    pairs = kept()
    batches = iter(lambda: list(islice(pairs, _AT_ONCE)), [])
    side_by_side(_THREADS, etcd.put, batches)


def _through_the_server(etcd: Etcd, api: Api, claim: Object) -> Object:
    made = api.create(CLAIMS, {key: value for key, value in claim.items() if key != "status"})
    api.replace_status(CLAIMS, {**made, "status": claim["status"]})
    pattern: Object = json.loads(etcd.get(_key(claim)))
    return pattern


def _key(claim: Object) -> str:
    meta = claim["metadata"]
    return f"/registry/{CLAIMS.group}/{CLAIMS.plural}/{meta['namespace']}/{meta['name']}"


def _new_uid() -> str:
    return str(uuid.uuid4())


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
