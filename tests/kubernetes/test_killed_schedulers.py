"""A scheduler killed at every write that it makes: the next one ends where none would have died."""

import contextlib
import os
import signal
from itertools import count

import pytest

from privatekube_kfp.accounting import Plan, PureEpsilon
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.kubernetes.api import BLOCKS, CLAIMS, Api
from privatekube_kfp.ledger.kubernetes.ledger import KubernetesLedger
from privatekube_kfp.ledger.kubernetes.objects import claim_object, request_item, stream_object
from privatekube_kfp.ledger.requests import ConsumeRequest, ReleaseRequest
from tests.contract.world import ask, basic_stream, spend
from tests.scheduler.running import clean, until

STEPS = Plan.of({"prepare": PureEpsilon("0.03"), "train": PureEpsilon("0.05")})


class World:
    """A stream with something of everything to do for the scheduler that comes next."""

    def __init__(self, control_plane, namespace):
        self.api = Api(control_plane.client)
        self.namespace = namespace
        self.ledger = KubernetesLedger(self.api, namespace, answer_within=180)

    def claim(self, name, first, *more, guarded=True, **spec):
        obj = claim_object(name, self.namespace, first)
        obj["spec"]["requests"] += [request_item(request) for request in more]
        obj["spec"] |= spec
        if not guarded:
            del obj["metadata"]["finalizers"]
        self.api.create(CLAIMS, obj)

    def begin(self):
        """With a scheduler: some claims have their answers."""
        self.ledger.create_stream(basic_stream(unlocking=ByPipelines(10)))
        for block in "abc":
            self.ledger.create_block(block, "s")
        self.ledger.submit("spent", ask("0.1", "a", "b", "c"))
        self.ledger.submit("spent", ConsumeRequest("consume"))
        self.ledger.submit("partly", ask("0.06", "a", "b"))
        self.ledger.submit("partly", spend("0.02", "some"))
        self.ledger.submit("holder", ask("0.05", "a"))
        self.ledger.submit("lasting", ask("0.01", "b"))

    def go_on(self):
        """Without one: new work of every kind."""
        for name in ("spent", "partly", "holder"):
            self.api.delete(CLAIMS, self.api.get(CLAIMS, name, self.namespace))
        self.api.create(BLOCKS, {**_block("d"), "metadata": {"name": "d"}})
        self.claim("n1", ask("0.1", "a", "d", timeout=None))
        self.claim("n2", ask("0.1", "b", timeout=None), ConsumeRequest("consume"))
        self.claim("n3", ask("0.02", "c", timeout=None), guarded=False)
        self.claim(
            "n4",
            ask(STEPS, "d", timeout=None),
            ConsumeRequest("prepare", step="prepare"),
            ReleaseRequest("release"),
        )
        self.claim("n5", ask("5", "a", timeout=None))
        self.claim("n6", ask("0.1", "a", timeout=None), deadline="2020-01-01T00:00:00Z")
        self.claim("n7", ask("0.9", "a", timeout=None))
        lasting = self.api.get(CLAIMS, "lasting", self.namespace)
        lasting["spec"]["requests"].append(request_item(ConsumeRequest("consume")))
        self.api.replace(CLAIMS, lasting)

    def is_done(self):
        """Whether everything is decided, told, folded and shown."""
        claims = {c["metadata"]["name"]: c for c in self.api.list_all(CLAIMS, self.namespace)[0]}
        if claims.keys() & {"spent", "partly", "holder"}:
            return False
        for claim in claims.values():
            status = claim.get("status", {})
            if len(status.get("receipts", ())) < len(claim["spec"]["requests"]):
                return False
            if claim["metadata"]["name"] != "n7" and len(status["responses"]) < len(
                status["receipts"]
            ):
                return False
        return self.ledger._verify_once().ok

    def outcome(self):
        """All that counts in the end: answers without times, and where the budgets are."""
        claims = {
            claim.name: (
                claim.phase,
                claim.bound(),
                [
                    (request.id, response and (response.done, response.reason, response.amounts))
                    for request in claim.requests
                    for response in [claim.responses.get(request.id)]
                ],
            )
            for claim in self.ledger.claims()
        }
        blocks = {r.block.name: (r.budget, r.phase) for r in self.ledger.blocks()}
        folded = {
            obj["metadata"]["name"]: {
                key: value
                for key, value in obj["status"].get("folded", {}).items()
                if key != "claims"
            }
            for obj in self.api.list_all(BLOCKS)[0]
        }
        return claims, blocks, folded


def _block(name):
    return {
        "apiVersion": BLOCKS.api_version,
        "kind": BLOCKS.kind,
        "metadata": {"name": name},
        "spec": {"stream": stream_object(basic_stream())["metadata"]["name"]},
    }


@pytest.fixture
def lived_through(control_plane, namespace, nursery, tmp_path):
    """The whole story, with a death in its middle.

    The outcome, the writes until then, and whether there was a death: how many writes there are
    depends a little on how fast the scheduler is, since it shows blocks while it does the rest.
    """
    numbers = count()

    def live(die_at, when):
        clean(control_plane)
        world = World(control_plane, namespace)
        number = next(numbers)
        undisturbed = tmp_path / f"writes-{number}-undisturbed"
        first = nursery.start(undisturbed)
        world.begin()
        os.kill(first, signal.SIGTERM)
        assert nursery.ended() == 0
        world.go_on()
        writes = tmp_path / f"writes-{number}"
        second = nursery.start(writes, die_at=die_at, when=when)
        until(lambda: not _lives(second) or world.is_done())
        with contextlib.suppress(ProcessLookupError):
            os.kill(second, signal.SIGTERM)
        ended = nursery.ended()
        died = ended == -signal.SIGKILL
        assert died or ended == 0
        if died:
            third = nursery.start(undisturbed)
            until(world.is_done)
            os.kill(third, signal.SIGTERM)
            assert nursery.ended() == 0
        verdict = world.ledger.verify()
        assert verdict.ok, verdict.difference
        outcome = world.outcome()
        world.ledger.close()
        return outcome, writes.read_text().splitlines(), died

    return live


def _lives(pid):
    """Whether a scheduler of the nursery, which knows when one ends, has not ended yet."""
    return os.path.exists(f"/proc/{pid}")


@pytest.mark.slow
def test_killed_before_and_after_every_write(lived_through):
    """Killed before a write it leaves what one leaves that was killed after the write before.

    So one death for each number of writes that were made is enough, none and all included.
    """
    expected, writes, _ = lived_through(None, "before")
    shown = "\n".join(writes)
    for what in ("privatedatastreams/s/status", "privatedatablocks/d", "privacyclaims/n1/status"):
        assert what in shown, what
    assert len(writes) > 20, shown
    deaths = 0
    for number, when in ((1, "before"), *((n, "after") for n in range(1, len(writes) + 1))):
        outcome, _, died = lived_through(number, when)
        deaths += died
        assert outcome == expected, f"killed {when} write {number}: {writes[number - 1]}"
    assert deaths > 20
