"""A day of claims that come, are spent and are deleted: a scheduler's memory does not grow."""

import gc
import tracemalloc

import pytest

from privatekube_kfp.core.unlocking import MICROSECONDS, AtOnce, ByTime
from privatekube_kfp.ledger.kubernetes.api import CLAIMS
from privatekube_kfp.ledger.kubernetes.objects import request_item
from privatekube_kfp.ledger.requests import ConsumeRequest, ReleaseRequest
from tests.contract.world import ask, basic_stream, spend
from tests.kubernetes.world import a_world
from tests.scheduler.running import TOP, settle

HOUR = MICROSECONDS["h"]
CLAIMS_AN_HOUR = 8
CYCLES_AN_HOUR = 25
OURS = [
    tracemalloc.Filter(True, f"{TOP}/scheduler/*"),
    tracemalloc.Filter(True, f"{TOP}/privatekube_kfp/*"),
]


@pytest.mark.slow
def test_a_day_of_virtual_time(control_plane, namespace, monkeypatch):
    """24 hours, with finished claims kept for one: those that are gone leave nothing behind."""
    monkeypatch.setattr("scheduler.leaving.LOOK_FOR_FINISHED", 0.0)
    kept = []
    with a_world(control_plane, namespace, keep_finished=HOUR) as world:
        ledger = world.ledger
        ledger.create_stream(basic_stream("s", epsilon="100", unlocking=AtOnce()))
        ledger.create_stream(basic_stream("t", unlocking=ByTime(48 * HOUR, HOUR)))
        for block in range(3):
            ledger.create_block(f"s{block}", "s")
            ledger.create_block(f"t{block}", "t")
        tracemalloc.start()
        try:
            for hour in range(24):
                _an_hour(world, hour)
                gc.collect()
                kept.append(tracemalloc.take_snapshot().filter_traces(OURS))
        finally:
            tracemalloc.stop()
        there, _ = world.api.list_all(CLAIMS, namespace)
        assert len(there) < 3 * CLAIMS_AN_HOUR, "finished claims were not deleted"
        assert len(world.scheduler.term.registers["s"].claims) < 3 * CLAIMS_AN_HOUR
        world.verify()
    sizes = [sum(trace.size for trace in snapshot.traces) for snapshot in kept]
    grown = "\n".join(str(line) for line in kept[-1].compare_to(kept[4], "lineno")[:12])
    # What Python keeps for reuse still grows a little; a claim that is kept is some kilobytes.
    a_claim = (min(sizes[-6:]) - min(sizes[3:9])) / (15 * CLAIMS_AN_HOUR)
    assert a_claim < 500, f"{a_claim:.0f} bytes for each claim\n{sizes}\n{grown}"


def _an_hour(world, hour):
    """Claims that arrive apart, spend some, and later the rest or give it back."""
    names = {f"c-{hour}-{number}": number for number in range(CLAIMS_AN_HOUR)}
    for name, number in names.items():
        world.clock.now += HOUR // CLAIMS_AN_HOUR
        stream = "st"[number % 2]
        allocate = ask("0.001", f"{stream}0", f"{stream}1", stream=stream)
        spending = spend("0.0005", "some")
        world.claim(name, request_item(allocate), request_item(spending), stream=stream)
    settle(world.scheduler)
    for name, number in names.items():
        last = ConsumeRequest("last") if number % 3 else ReleaseRequest("last")
        world.edit(
            CLAIMS, name, lambda obj, last=last: obj["spec"]["requests"].append(request_item(last))
        )
    for name, number in names.items():
        # In the first hour nothing of the stream `t` is unlocked.
        assert world.answer(name, "last")["state"] == "Done" or number % 2
    for _ in range(CYCLES_AN_HOUR):
        settle(world.scheduler)
