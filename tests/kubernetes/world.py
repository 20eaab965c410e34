"""A cluster, a ledger to look at it, and a scheduler, for tests of what happens to objects."""

import contextlib
import uuid

from privatekube_kfp.ledger.kubernetes.api import CLAIMS, EVENTS, Api, Conflict
from privatekube_kfp.ledger.kubernetes.objects import request_item
from tests.contract.world import ManualClock, ask, basic_stream, spend
from tests.scheduler.running import SettledLedger, clean, install, running, until


@contextlib.contextmanager
def a_world(control_plane, namespace, **how):
    """A world whose scheduler runs, until it is left."""
    install(control_plane)
    made = World(control_plane, namespace)
    made.note_events()
    made.start(**how)
    try:
        yield made
    finally:
        made.close()


class World:
    """A cluster, a ledger to look at it, and a scheduler that can be stopped and started."""

    def __init__(self, control_plane, namespace):
        self.control_plane = control_plane
        self.namespace = namespace
        self.clock = ManualClock()
        self.api = Api(control_plane.client)
        self.ledger = SettledLedger(self.api, namespace, clock=self.clock)
        self._running = contextlib.ExitStack()

    def start(self, **how):
        self.ledger.scheduler = self._running.enter_context(
            running(self.control_plane, self.namespace, self.clock, **how)
        )

    def stop(self):
        self._running.close()

    def restart(self, **how):
        self.stop()
        self.start(**how)

    @property
    def scheduler(self):
        return self.ledger.scheduler

    def find(self, kind, name):
        return self.api.find(kind, name, self.namespace if kind.namespaced else None)

    def create(self, kind, name, spec, **metadata):
        """An object as somebody writes it who does not use the library."""
        if kind.namespaced:
            metadata["namespace"] = self.namespace
        return self.api.create(
            kind,
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {"name": name, **metadata},
                "spec": spec,
            },
        )

    def claim(self, name, *requests, stream="s", **spec):
        return self.create(CLAIMS, name, {"stream": stream, "requests": list(requests), **spec})

    def edit(self, kind, name, change):
        """Change an object's spec or metadata in place, as with `kubectl edit`.

        The scheduler may write to it at the same time: then the newer version is changed.
        """
        while True:
            obj = self.find(kind, name)
            change(obj)
            with contextlib.suppress(Conflict):
                return self.api.replace(kind, obj)

    def edit_status(self, kind, name, change):
        while True:
            obj = self.find(kind, name)
            change(obj["status"])
            with contextlib.suppress(Conflict):
                return self.api.replace_status(kind, obj)

    def delete(self, kind, name):
        self.api.delete(kind, self.find(kind, name))

    def is_gone(self, kind, *names):
        return all(self.find(kind, name) is None for name in names)

    def remove_by_force(self, kind, name):
        """What an administrator does who takes the finalizer for something that is stuck."""
        self.edit(kind, name, lambda obj: obj["metadata"].update(finalizers=[]))
        self.delete(kind, name)
        assert self.is_gone(kind, name)

    def events(self, name, reason):
        """The messages of the events of this reason about objects of this name, of this test."""
        objects, _ = self.api.list_all(EVENTS)
        return [
            event["message"]
            for event in objects
            if event["involvedObject"]["name"] == name
            and event["reason"] == reason
            and event["involvedObject"].get("uid") not in self._before
        ]

    def note_events(self):
        """Forget the events of tests before, whose streams and blocks had the same names.

        Some events of others have no uid.
        """
        objects, _ = self.api.list_all(EVENTS)
        self._before = {event["involvedObject"].get("uid") for event in objects}

    def answer(self, claim, request="allocate"):
        """The response in a claim's status, once it is there."""

        def there():
            obj = self.find(CLAIMS, claim) or {}
            responses = obj.get("status", {}).get("responses", ())
            return next((said for said in responses if said["id"] == request), None)

        return until(there)

    def condition(self, kind, name, type):
        """A condition in an object's status, once it is there."""

        def there():
            conditions = (self.find(kind, name) or {}).get("status", {}).get("conditions", ())
            return next((said for said in conditions if said["type"] == type), None)

        return until(there)

    def verify(self):
        verdict = self.ledger.verify()
        assert verdict.ok, verdict.difference

    def close(self):
        self.stop()
        self.ledger.close()
        clean(self.control_plane)


def stream_with_blocks(ledger, *names, stream=None):
    stream = stream or basic_stream()
    ledger.create_stream(stream)
    for name in names:
        ledger.create_block(name, stream.name)


def consumed_half(world, name="c"):
    """A claim that holds 0.3 and has spent 0.2 on b1."""
    world.ledger.submit(name, ask("0.5", "b1"))
    world.ledger.submit(name, spend("0.2", "consume"))
    return name


def others_go_on(world, *, stream="s", block="b2"):
    """Whether a good claim that is made now is granted."""
    name = f"good-{uuid.uuid4().hex[:8]}"
    world.claim(name, request_item(ask("0.001", block, stream=stream)), stream=stream)
    return world.answer(name)["state"] == "Done"


def is_well(world):
    verdict = world.ledger.verify()
    assert verdict.ok, verdict.difference
    return True


def metric(world, name, **labels):
    return world.scheduler._metrics.registry.get_sample_value(f"privatekube_{name}", labels)


def is_set_aside(world, kind, name, reason):
    """Whether people can see that an object is not followed, and why: status, event, metric."""
    said = world.condition(kind, name, "Followed")
    assert (said["status"], said["reason"]) == ("False", reason)
    until(lambda: said["message"] in world.events(name, reason))
    assert metric(world, "bad_objects_seen_total", kind=kind.label, reason=reason) >= 1
    until(lambda: metric(world, "bad_objects", kind=kind.label) == 1)
    return said["message"]


def intact(world, kind, name):
    """What is said of an object that somebody changed."""
    said = world.condition(kind, name, "Intact")
    assert said["status"] == "False"
    return said
