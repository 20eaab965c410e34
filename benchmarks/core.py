"""The scheduling core: does a pass cost what changed, and not what waits?"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.report import Result, at_least, at_most
from benchmarks.sort_and_scan import SortAndScan, VectorScan
from benchmarks.workload import PIPELINES, Stream

Say = Callable[[str], None]
CURVES = 36


def measure(quick: bool, say: Say) -> list[Result]:
    few, many = (1_000, 5_000) if quick else (10_000, 1_000_000)
    say(
        f"Scheduling core: 1,000 blocks, 12 Renyi orders, 1 to 500 blocks a claim, {CURVES}"
        f" distinct demands, budget unlocked over {PIPELINES:,} pipelines, seeds fixed."
    )
    judged = not quick
    # The large pool goes first: what the process has grown by is then the pool's alone.
    large, results = fill_large(many, judged, say)
    results += arrivals_side_by_side(few, large, judged, say)
    del large
    gc.collect()
    results += against_sort_and_scan(few, 10 if quick else 40, judged, say)
    results += distinct_demands(few if quick else 20_000, say)
    return results


def resident_bytes() -> int | None:
    """What the process holds in memory now; unknown where there is no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * 4096


def fill_large(many: int, judged: bool, say: Say) -> tuple[Stream, list[Result]]:
    say(f"Letting claims arrive until {many:,} wait: minutes at full size ...")
    large = Stream(arrivals=2 * many + 100_000, curves=CURVES, seed=1)
    gc.collect()
    before, started = resident_bytes(), perf_counter()
    large.fill(many)
    took = perf_counter() - started
    gc.collect()
    after = resident_bytes()
    say(f"  {large.arrived:,} arrived, {large.granted:,} were granted, in {took:.0f} s")
    results = [
        Result("arrivals handled, grants settled, while filling", large.arrived / took, "1/s"),
        Result("grants made while filling", large.granted / took, "1/s"),
    ]
    # Claims over consecutive blocks keep no list of them, so there is nothing to take off.
    if before is not None and after is not None:
        name = f"memory per waiting claim, {many:,} waiting (resident)"
        results.append(at_most(name, (after - before) / many, "bytes", 1024, judged))
    counted = min(many, 20_000)
    say(f"Counting the memory of {counted:,} waiting claims allocation by allocation ...")
    traced = traced_bytes_per_claim(counted, CURVES)
    name = f"memory per waiting claim, {counted:,} waiting (traced)"
    return large, [*results, Result(name, traced, "bytes")]


def traced_bytes_per_claim(waiting: int, curves: int) -> float:
    stream = Stream(arrivals=2 * waiting + 10_000, curves=curves, seed=2)
    gc.collect()
    tracemalloc.start()
    stream.fill(waiting)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / waiting


def distinct_demands(waiting: int, say: Say) -> list[Result]:
    say(f"The same with {waiting:,} claims that each ask for something else ...")
    stream = Stream(arrivals=2 * waiting, curves=2 * waiting, seed=3)
    started = perf_counter()
    stream.fill(waiting)
    per_arrival = (perf_counter() - started) / stream.arrived * 1e6
    traced = traced_bytes_per_claim(waiting, curves=2 * waiting)
    return [
        Result(f"cost per arrival, {waiting:,} distinct demands waiting", per_arrival, "us"),
        Result(f"memory per claim, {waiting:,} distinct demands waiting", traced, "bytes"),
    ]


def arrivals_side_by_side(few: int, large: Stream, judged: bool, say: Say) -> list[Result]:
    small = Stream(arrivals=2 * few + 100_000, curves=CURVES, seed=1)
    small.fill(few)
    batches, size = (30, 200) if judged else (10, 50)
    many = large.pool.waiting
    say(f"{batches * size:,} arrivals each at {few:,} and {many:,} waiting, in turns of {size} ...")
    times: dict[int, list[float]] = {few: [], many: []}
    granted = {few: small.granted, many: large.granted}
    for _ in range(batches):
        for waiting, stream in ((few, small), (many, large)):
            arrivals = list(stream.next_arrivals(size))
            times[waiting].append(timed_arrivals(stream, arrivals) / size * 1e6)
    results = []
    for waiting, stream in ((few, small), (many, large)):
        made = stream.granted - granted[waiting]
        say(f"  at {waiting:,} waiting, {made:,} were granted meanwhile")
        name = f"cost per arrival and pass, {waiting:,} waiting"
        results.append(Result(name, median(times[waiting]), "us"))
    ratio = median(large / small for small, large in zip(times[few], times[many], strict=True))
    name = f"cost per arrival, {many:,} waiting over {few:,}"
    return [*results, at_most(name, ratio, "times", 2, judged)]


def timed_arrivals(stream: Stream, arrivals: list) -> float:
    """Seconds in which these arrive, with a pass each; settling grants is not counted."""
    total = 0.0
    for claim, demand in arrivals:
        started = perf_counter()
        granted = stream.arrive(claim, demand)
        total += perf_counter() - started
        stream.finish(granted)
    return total


def against_sort_and_scan(few: int, repeats: int, judged: bool, say: Say) -> list[Result]:
    say(f"One unlock and one pass, {repeats} times, at {few:,} waiting: Pool and two scans ...")
    stream = Stream(arrivals=2 * few + 100_000, curves=CURVES, seed=1)
    waiting: set[int] = set()
    while stream.pool.waiting < few:
        for claim, demand in stream.next_arrivals(1):
            granted = stream.arrive(claim, demand)
            waiting = (waiting | {claim}) - set(map(int, granted))
            stream.finish(granted)
    scans = {"plain": SortAndScan(stream, waiting), "vectorised": VectorScan(stream, waiting)}
    times: dict[str, list[float]] = {"Pool": [], "plain": [], "vectorised": []}
    for claim, demand in stream.next_arrivals(repeats):
        started = perf_counter()
        granted = list(map(int, stream.arrive(claim, demand)))
        times["Pool"].append(perf_counter() - started)
        for name, scan in scans.items():
            started = perf_counter()
            scanned = scan.arrive(claim)
            times[name].append(perf_counter() - started)
            if scanned != granted:
                raise AssertionError(f"the {name} scan grants {scanned}, the pool {granted}")
    medians = {name: median(taken) * 1e6 for name, taken in times.items()}
    faster, slower = medians["Pool"], medians["plain"]
    return [
        Result(f"arrival and pass, {few:,} waiting: Pool", faster, "us"),
        Result(f"arrival and pass, {few:,} waiting: sort and scan", slower, "us"),
        at_least("Pool faster than sort and scan", slower / faster, "times", 100, judged),
        Result(
            "Pool faster than a scan vectorised over claims (consecutive blocks, few curves only)",
            medians["vectorised"] / faster,
            "times",
        ),
    ]
