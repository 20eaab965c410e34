"""A day of claims that come, are spent and are deleted: a scheduler's memory does not grow."""

import gc
import tracemalloc

import pytest

from privatekube_kfp.core.unlocking import MICROSECONDS, AtOnce, ByTime
from privatekube_kfp.ledger.kubernetes.api import CLAIMS, Api
from privatekube_kfp.ledger.kubernetes.ledger import KubernetesLedger
from privatekube_kfp.ledger.requests import ConsumeRequest, ReleaseRequest
from tests.contract.world import ManualClock, ask, basic_stream, spend
from tests.scheduler.running import TOP, clean, install, running, settle

HOUR = MICROSECONDS["h"]
CLAIMS_AN_HOUR = 8
OURS = [
    tracemalloc.Filter(True, f"{TOP}/scheduler/*"),
    tracemalloc.Filter(True, f"{TOP}/privatekube_kfp/*"),
]


@pytest.mark.slow
def test_a_day_of_virtual_time(control_plane, namespace, monkeypatch):
    """24 hours, with finished claims kept for one: those that are gone leave nothing behind."""
    monkeypatch.setattr("scheduler.leaving.LOOK_FOR_FINISHED", 0.0)
    install(control_plane)
    clock = ManualClock()
    kept = []
    with (
        running(control_plane, namespace, clock, keep_finished=HOUR) as scheduler,
        KubernetesLedger(
            Api(control_plane.client), namespace, answer_within=180, clock=clock
        ) as ledger,
    ):
        ledger.create_stream(basic_stream("s", epsilon="100", unlocking=AtOnce()))
        ledger.create_stream(basic_stream("t", unlocking=ByTime(48 * HOUR, HOUR)))
        for block in range(3):
            ledger.create_block(f"s{block}", "s")
            ledger.create_block(f"t{block}", "t")
        tracemalloc.start()
        try:
            for hour in range(24):
                _an_hour(ledger, clock, hour)
                settle(scheduler)
                gc.collect()
                kept.append(tracemalloc.take_snapshot().filter_traces(OURS))
        finally:
            tracemalloc.stop()
        there, _ = ledger._api.list_all(CLAIMS, namespace)
        assert len(there) < 3 * CLAIMS_AN_HOUR, "finished claims were not deleted"
        assert len(scheduler.term.registers["s"].claims) < 3 * CLAIMS_AN_HOUR
        verdict = ledger.verify()
        assert verdict.ok, verdict.difference
    clean(control_plane)
    sizes = [sum(trace.size for trace in snapshot.traces) for snapshot in kept]
    grown = "\n".join(str(line) for line in kept[-1].compare_to(kept[4], "lineno")[:12])
    # What Python keeps for reuse still grows a little; a claim that is kept is some kilobytes.
    a_claim = (min(sizes[-6:]) - min(sizes[3:9])) / (15 * CLAIMS_AN_HOUR)
    assert a_claim < 500, f"{a_claim:.0f} bytes for each claim\n{sizes}\n{grown}"


def _an_hour(ledger, clock, hour):
    for number in range(CLAIMS_AN_HOUR):
        clock.now += HOUR // CLAIMS_AN_HOUR
        stream = "st"[number % 2]
        name = f"c-{hour}-{number}"
        ledger.submit(name, ask("0.001", f"{stream}0", f"{stream}1", stream=stream))
        ledger.submit(name, spend("0.0005", "some"))
        ledger.submit(name, ConsumeRequest("rest") if number % 3 else ReleaseRequest("release"))
