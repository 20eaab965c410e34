"""What a person sees with kubectl once a scheduler has done its work."""

import pytest

from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.kubernetes.api import Api
from privatekube_kfp.ledger.kubernetes.ledger import KubernetesLedger
from privatekube_kfp.ledger.requests import ConsumeRequest
from tests.contract.world import ask, basic_stream, renyi_stream
from tests.scheduler.running import clean, install, running, settle, until


@pytest.fixture
def seen(control_plane, namespace):
    """Looks with kubectl, a column at a time."""
    install(control_plane)
    with (
        running(control_plane, namespace) as scheduler,
        KubernetesLedger(Api(control_plane.client), namespace, answer_within=180) as ledger,
    ):
        ledger.create_stream(basic_stream("clicks", unlocking=ByPipelines(4)))
        ledger.create_stream(renyi_stream("reviews"))
        for block in ("monday", "tuesday"):
            ledger.create_block(block, "clicks")
        ledger.submit("train", ask("0.2", "monday", "tuesday", stream="clicks", owner="run-7"))
        ledger.submit("train", ConsumeRequest("consume"))
        ledger.submit("large", ask("0.7", "monday", stream="clicks", timeout=None))
        ledger.submit("never", ask("3", "monday", stream="clicks"))
        settle(scheduler)

        def see(*args):
            done = control_plane.kubectl(*args, "-n", namespace)
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield see
    clean(control_plane)


def rows(table):
    """A table without its ages."""
    return [line.split()[:-1] for line in table.splitlines() if line]


def test_get_shows_what_a_person_wants(seen):
    assert rows(seen("get", "pclaims")) == [
        ["NAME", "STREAM", "PHASE", "REASON", "BLOCKS", "OWNER"],
        ["large", "clicks", "Pending", "WaitingForUnlock", "1"],
        ["never", "clicks", "Denied", "ExceedsCapacity", "1"],
        ["train", "clicks", "Consumed", "Consumed", "2", "run-7"],
    ]
    assert rows(seen("get", "pblocks"))[1:] == [
        ["monday", "clicks", "Active", "20%"],
        ["tuesday", "clicks", "Active", "20%"],
    ]
    assert rows(seen("get", "pstreams"))[1:] == [
        ["clicks", "Event", "1", "1e-7", "Basic", "DPF", "2"],
        ["reviews", "Event", "10", "1e-7", "Renyi", "DPF"],
    ]
    assert "train" in seen("get", "pstreams,pblocks,pclaims")


def test_describe_tells_the_story(seen):
    shown = " ".join(seen("describe", "pclaim", "large").split())
    assert "block monday: epsilon 0.7 asked, 0.3 unlocked; more is still locked" in shown
    until(lambda: "ExceedsCapacity" in seen("describe", "pclaim", "never").partition("Events:")[2])
    story = seen("describe", "pclaim", "train").partition("Events:")[2]
    assert "epsilon 0.2 on 2 blocks" in story
    assert "all of it" in story
    block = " ".join(seen("describe", "pblock", "monday").split())
    assert "Consumed: Delta: 0 Epsilon: 0.2" in block
    assert "Declared: Stream: clicks" in block


def test_explain_says_how_to_ask(seen):
    assert "Only append to this list" in " ".join(seen("explain", "pclaims.spec.requests").split())
