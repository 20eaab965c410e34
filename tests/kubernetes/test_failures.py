"""Leaders that are frozen, servers that restart, watches that break: never more than there is."""

import gc
import itertools
import os
import random
import signal
import threading
import time

import pytest

from privatekube_kfp.core.errors import Reason
from privatekube_kfp.core.stream import Block, BlockPhase
from privatekube_kfp.core.unlocking import AtOnce, ByPipelines
from privatekube_kfp.ledger.kubernetes.api import (
    BLOCKS,
    CLAIMS,
    LEASES,
    STREAMS,
    Api,
    Expired,
    Unreachable,
    _NoAnswer,
)
from privatekube_kfp.ledger.kubernetes.ledger import KubernetesLedger
from privatekube_kfp.ledger.kubernetes.objects import block_object, claim_object, stream_object
from privatekube_kfp.ledger.requests import ConsumeRequest, ReleaseRequest
from tests.contract.world import ask, basic_stream, spend
from tests.scheduler.dying import Nursery
from tests.scheduler.running import (
    assert_verified,
    clean,
    install,
    is_stopped,
    running,
    start_process,
    until,
)

# A server that is killed takes connections with it which urllib3 drops without closing them.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")


@pytest.fixture
def ledger(control_plane, namespace):
    install(control_plane)
    with KubernetesLedger(Api(control_plane.client), namespace, answer_within=180) as made:
        yield made
    clean(control_plane)


def phases(ledger):
    objects, _ = ledger._api.list_all(CLAIMS, ledger.namespace)
    return {o["metadata"]["name"]: o.get("status", {}).get("phase") for o in objects}


def create(ledger, name, request):
    ledger._api.create(CLAIMS, claim_object(name, ledger.namespace, request))


def assert_sound(ledger):
    assert_verified(ledger)
    for record in ledger.blocks():
        spent = record.budget.allocated + record.budget.consumed
        assert spent.is_zero or spent.fits(record.budget.capacity, record.budget.capacity)


@pytest.mark.slow
@pytest.mark.parametrize("frozen_at", range(1, 8))
def test_a_frozen_leader_is_fenced(control_plane, namespace, ledger, tmp_path, frozen_at):
    """SIGSTOP in the middle of a batch; another leads and grants; the first one wakes up.

    Where it stops depends on the number: between the commit and the first claim, between two
    claims, while it folds. In the end all budget is granted exactly once.
    """
    writes = tmp_path / "writes"
    nursery = Nursery(control_plane.kubeconfig, namespace)
    second = None
    try:
        first = nursery.start(tmp_path / "earlier")
        ledger.create_stream(basic_stream(unlocking=AtOnce()))
        ledger.create_block("b", "s")
        ledger.submit("spent", ask("0.1", "b"))
        ledger.submit("spent", ConsumeRequest("consume"))
        os.kill(first, signal.SIGTERM)
        assert nursery.ended() == 0
        ledger._api.delete(CLAIMS, ledger._api.get(CLAIMS, "spent", namespace))
        for number in range(6):
            create(ledger, f"c{number}", ask("0.2", "b", timeout=None))
        first = nursery.start(writes, freeze_at=frozen_at, identity="first")
        until(lambda: is_stopped(first))
        second = start_process(control_plane.kubeconfig, namespace, "--identity=second")
        until(lambda: _holder(ledger, namespace) == "second")
        until(lambda: list(phases(ledger).values()).count("Allocated") == 4)
        granted = {name for name, phase in phases(ledger).items() if phase == "Allocated"}
        spender = min(granted)
        assert ledger.submit(spender, ConsumeRequest("consume")).done
        os.kill(first, signal.SIGCONT)
        time.sleep(1.0)  # it does whatever it still does
        assert ledger.claim(spender).phase == "Consumed"
        assert {n for n, p in phases(ledger).items() if p in ("Allocated", "Consumed")} == granted
        assert_sound(ledger)
        # And it can lead again: at the latest now, earlier if a slow machine let the lease run out.
        second.kill()
        second.wait()
        release = sorted(granted)[-1]
        assert ledger.submit(release, ReleaseRequest("release")).done
        assert_sound(ledger)
        until(lambda: list(phases(ledger).values()).count("Allocated") == 3)
        assert_sound(ledger)
        os.kill(first, signal.SIGTERM)
        assert nursery.ended() == 0
    finally:
        if second is not None and second.poll() is None:
            second.kill()
            second.wait()
        nursery.close()


def _holder(ledger, namespace):
    lease = ledger._api.find(LEASES, "privatekube-scheduler", namespace)
    return lease and lease["spec"].get("holderIdentity")


class Load:
    """Pipelines that come and go until told to stop; every answer is kept."""

    def __init__(self, control_plane, namespace, workers=3):
        self._stop = threading.Event()
        self.errors = []
        self.answers = {}
        self._threads = [
            threading.Thread(target=self._work, args=(control_plane, namespace, worker))
            for worker in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, control_plane, namespace, worker):
        rng = random.Random(worker)
        with KubernetesLedger(
            Api(control_plane.client, patience=120.0), namespace, answer_within=120
        ) as ledger:
            number = 0
            while not self._stop.is_set():
                name = f"load-{worker}-{number}"
                number += 1
                try:
                    blocks = rng.sample("abc", rng.randrange(1, 4))
                    self._ask(ledger, name, ask("0.01", *blocks, timeout=0))
                    if rng.random() < 0.7:
                        self._ask(ledger, name, ConsumeRequest("consume"))
                    self._ask(ledger, name, ReleaseRequest("release"))
                except Exception as error:
                    self.errors.append(error)
                    return

    def _ask(self, ledger, name, request):
        self.answers[name, request.id] = ledger.submit(name, request)

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=180)
            assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["etcd", "api-server", "scheduler"])
def test_restarts_under_load(own_control_plane, namespace, ledger, what):
    """Killed and started again while claims come and go: nothing is lost, nobody errs."""
    control_plane = own_control_plane
    processes = [start_process(control_plane.kubeconfig, namespace) for _ in range(2)]
    try:
        ledger.create_stream(basic_stream(epsilon="20", unlocking=ByPipelines(50)))
        for block in "abc":
            ledger.create_block(block, "s")
        load = Load(control_plane, namespace)
        try:
            for _ in range(2):
                seen = len(load.answers)
                until(lambda seen=seen: len(load.answers) > seen + 20 or load.errors)
                if what == "etcd":
                    control_plane.restart_etcd(signal.SIGKILL)
                elif what == "api-server":
                    control_plane.restart_api_server(signal.SIGKILL)
                else:
                    processes[0].kill()
                    processes[0].wait()
                    processes.append(start_process(control_plane.kubeconfig, namespace))
                    processes.pop(0)
            seen = len(load.answers)
            until(lambda: len(load.answers) > seen + 20 or load.errors, timeout=180)
        finally:
            load.stop()
        assert not load.errors
        assert_sound(ledger)
        claims = {claim.name: claim for claim in ledger.claims()}
        for (name, request), answer in load.answers.items():
            assert claims[name].responses[request] == answer
    finally:
        for process in processes:
            until(lambda process=process: process.poll() is not None or _heeds_sigterm(process.pid))
            process.terminate()
        for process in processes:
            assert process.wait(timeout=180) == 0
        gc.collect()


def _heeds_sigterm(pid):
    """Whether a process has got as far as being told to stop, rather than just ended by it."""
    with open(f"/proc/{pid}/status") as status:
        (caught,) = [line.split()[1] for line in status if line.startswith("SigCgt:")]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


class CutOffApi(Api):
    """Watches that break off after a few changes, or are told that they come too late."""

    rng = random.Random(3)

    def watch(self, *args, **kwargs):
        watching = super().watch(*args, **kwargs)
        return _CutOff(watching, self.rng)


class _CutOff:
    def __init__(self, watching, rng):
        self._watching = watching
        self._rng = rng

    def __iter__(self):
        for change in self._watching:
            chance = self._rng.random()
            if chance < 0.15:
                self._watching.close()
                raise Unreachable(Reason.CLUSTER_UNREACHABLE, "cut off")
            if chance < 0.3:
                self._watching.close()
                raise Expired(Reason.CLUSTER_UNREACHABLE, "too old")
            yield change

    def close(self):
        self._watching.close()


def test_watches_that_break_lose_nothing(control_plane, namespace, ledger):
    with running(control_plane, namespace, make_api=CutOffApi):
        ledger.create_stream(basic_stream(unlocking=AtOnce()))
        ledger.create_block("b", "s")
        for number in range(12):
            answer = ledger.submit(f"c{number}", ask("0.1", "b"))
            assert answer.done == (number < 10)
        ledger.submit("c0", ConsumeRequest("consume"))
        ledger.submit("c1", ReleaseRequest("release"))
        assert ledger.submit("late", ask("0.1", "b")).done
        assert_sound(ledger)


class BusyApi(Api):
    """A server that has no time for every other watch."""

    watches = itertools.count()

    def _send(self, verb, *args, **kwargs):
        if verb == "watch" and next(self.watches) % 2 == 0:
            raise _NoAnswer("503: server is starting")
        return super()._send(verb, *args, **kwargs)


def test_watches_that_get_no_answer_lose_nothing(control_plane, namespace, ledger):
    with (
        running(control_plane, namespace, make_api=BusyApi),
        KubernetesLedger(BusyApi(control_plane.client), namespace, answer_within=180) as busy,
    ):
        busy.create_stream(basic_stream(unlocking=AtOnce()))
        busy.create_block("b", "s")
        for number in range(4):
            assert busy.submit(f"c{number}", ask("0.1", "b")).done
            assert busy.submit(f"c{number}", ConsumeRequest("consume")).done
        busy.retire_block("b")
        assert_sound(ledger)


class ForgetfulApi(Api):
    """A server that does what it is told, but often its answer is lost: then it is told again."""

    rng = random.Random(5)

    def _send(self, verb, kind, method, *args, **kwargs):
        if method != "GET" and self.rng.random() < 0.5:
            super()._send(verb, kind, method, *args, **kwargs)
        return super()._send(verb, kind, method, *args, **kwargs)


def test_writes_whose_answers_are_lost_count_once(control_plane, namespace, ledger):
    names = [f"c{number}" for number in range(10)]
    with (
        running(control_plane, namespace, make_api=ForgetfulApi),
        KubernetesLedger(ForgetfulApi(control_plane.client), namespace, answer_within=180) as mine,
    ):
        mine.create_stream(basic_stream(unlocking=ByPipelines(10)))
        for block in "abc":
            mine.create_block(block, "s")
        for name in names:
            assert mine.submit(name, ask("0.1", "a", "b")).done
            assert mine.submit(name, spend("0.03", "some")).done
        for name in names[:5]:
            assert mine.submit(name, ReleaseRequest("release")).done
        api = mine._api
        for number, name in enumerate(names, 1):
            api.delete(CLAIMS, api.get(CLAIMS, name, namespace))
            until(lambda name=name: api.find(CLAIMS, name, namespace) is None)
            until(lambda: not any(_folded(ledger, block)["claims"] for block in "ab"))
            for block in "ab":
                assert _folded(ledger, block)["consumed"]["epsilon"] == f"{0.03 * number:.2g}"
                assert _folded(ledger, block)["arrivals"] == number
        assert_sound(ledger)
        mine.retire_block("c")
        api.delete(BLOCKS, api.get(BLOCKS, "c"))
        until(lambda: api.find(BLOCKS, "c") is None)
        mine.create_stream(basic_stream("t"))
        mine.delete_stream("t")
        assert_sound(ledger)


def _folded(ledger, block):
    return {"claims": (), **ledger._api.get(BLOCKS, block)["status"].get("folded", {})}


class LateApi(Api):
    """A watch of streams that never gets round to saying that one went and another came."""

    def watch(self, kind, *args, **kwargs):
        watching = super().watch(kind, *args, **kwargs)
        return _Late(watching) if kind is STREAMS else watching


class _Late:
    def __init__(self, watching):
        self._watching = watching
        self.close = watching.close
        self._late = False

    def __iter__(self):
        for change in self._watching:
            self._late = self._late or change.type == "DELETED"
            if not self._late:
                yield change


def test_a_block_is_not_adopted_into_a_stream_of_the_past(control_plane, namespace, ledger):
    with running(control_plane, namespace, make_api=LateApi):
        ledger.create_stream(basic_stream(epsilon="1"))
        until(lambda: ledger._api.get(STREAMS, "s").get("status", {}).get("commit"))
        ledger.delete_stream("s")
        ledger.create_stream(basic_stream(epsilon="2", unlocking=AtOnce()))
        ledger.create_block("b", "s")
        assert ledger.submit("c", ask("2", "b")).done
        assert_sound(ledger)


class SlowListApi(Api):
    """Whoever follows the blocks has to list them anew, and is slow to hand the list over."""

    expired = False
    listed = threading.Event()
    go_on = threading.Event()

    def watch(self, kind, *args, **kwargs):
        if kind is BLOCKS and not SlowListApi.expired:
            SlowListApi.expired = True
            raise Expired(Reason.CLUSTER_UNREACHABLE, "too old")
        return super().watch(kind, *args, **kwargs)

    def list_all(self, kind, *args, **kwargs):
        found = super().list_all(kind, *args, **kwargs)
        if threading.current_thread().name == "following-blocks":
            self.listed.set()
            self.go_on.wait()
        return found


def test_a_block_that_is_newer_than_a_list_is_not_gone(control_plane, namespace, ledger):
    with running(control_plane, namespace, make_api=SlowListApi):
        assert SlowListApi.listed.wait(180)
        ledger.create_stream(basic_stream(unlocking=AtOnce()))
        ledger._api.create(BLOCKS, block_object(Block("b", "s", 0)))
        create(ledger, "c", ask("0.4", "b"))
        until(lambda: phases(ledger) == {"c": "Allocated"})
        SlowListApi.go_on.set()
        ledger.create_block("later", "s")
        assert ledger.block("b").phase is BlockPhase.ACTIVE
        assert ledger.submit("d", ask("0.4", "b")).done
        assert_sound(ledger)


class ReplacedApi(Api):
    """Whoever puts a finalizer on the stream finds that another one has its name by now."""

    came = False

    def patch(self, kind, obj, change):
        if kind is STREAMS and not ReplacedApi.came:
            ReplacedApi.came = True
            super().delete(kind, obj)
            super().create(kind, stream_object(basic_stream(epsilon="2", unlocking=AtOnce())))
        return super().patch(kind, obj, change)


def test_a_stream_that_is_made_anew_while_it_is_taken_over(control_plane, namespace, ledger):
    """A leader that knew the former one must not lead on the later one by its spec."""
    ledger.create_stream(basic_stream(epsilon="1"))
    with running(control_plane, namespace, make_api=ReplacedApi):
        ledger.create_block("b", "s")
        assert ReplacedApi.came
        assert ledger.submit("c", ask("2", "b")).done
        assert_sound(ledger)


def test_a_stream_that_goes_before_anybody_led_on_it(control_plane, namespace, ledger):
    """What is seen of it may be seen too late; the next of its name is another."""
    with running(control_plane, namespace):
        for number in range(20):
            ledger.create_stream(basic_stream(epsilon=str(number + 1), unlocking=AtOnce()))
            ledger.delete_stream("s")
        ledger.create_stream(basic_stream(epsilon="2", unlocking=AtOnce()))
        ledger.create_block("b", "s")
        assert ledger.submit("c", ask("2", "b")).done
        assert_sound(ledger)


def test_a_leader_that_stops_hands_over_at_once(control_plane, namespace, ledger):
    """SIGTERM gives the lease up: the standby need not wait for it to run out."""
    flags = ("--lease-duration=1h", "--renew-deadline=59m", "--retry-period=200ms")
    first = start_process(control_plane.kubeconfig, namespace, *flags, "--identity=first")
    second = None
    try:
        until(lambda: _holder(ledger, namespace) == "first")
        ledger.create_stream(basic_stream())
        ledger.create_block("b", "s")
        second = start_process(control_plane.kubeconfig, namespace, *flags, "--identity=second")
        ledger.submit("c1", ask("0.4", "b"))
        first.terminate()
        assert first.wait(timeout=180) == 0
        until(lambda: _holder(ledger, namespace) == "second")
        assert ledger.submit("c2", ask("0.4", "b")).done
        record = ledger._api.get(STREAMS, "s")["status"]["commit"]
        assert record["holder"] == "second"
        assert_sound(ledger)
    finally:
        for process in (first, second):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(timeout=180)
