"""Killed at any instant, an ingest goes on: in the end everything is as if nothing had been."""

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from privatekube_kfp.ledger.opening import open_ledger
from tests.data.samples import sample_file
from tests.data.world import bytes_of, numbers, stream_of

TOP = Path(__file__).parents[2]
STAYS = ("blocks/", "users/", "ingest.json")


class Place:
    """A folder with a ledger and a store, made anew for every round."""

    def __init__(self, folder, semantic, source, *, days, interval, run_bytes):
        self.folder = folder
        self._semantic = semantic
        self._args = (source, days, interval, run_bytes)
        self.clear()

    def clear(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        with self.ledger(create=True) as ledger:
            ledger.create_stream(stream_of(self._semantic, epsilon="1", days=512))

    def ledger(self, **how):
        return open_ledger(f"sqlite:///{self.folder}/ledger.db", **how)

    def start(self):
        source, days, interval, run_bytes = map(str, self._args)
        args = [source, f"{self.folder}/store", f"sqlite:///{self.folder}/ledger.db"]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.data.ingesting", *args, days, interval, run_bytes],
            cwd=TOP,
            stdout=subprocess.PIPE,
            text=True,
        )

    def finish(self):
        process = self.start()
        out, _ = process.communicate()
        assert process.returncode == 0
        return out

    def result(self):
        """The data byte for byte, the ledger number for number."""
        with self.ledger() as ledger:
            count, blocks = numbers(ledger)
            assert ledger.verify().ok
        here = str(self.folder)
        blocks = [(*b[:4], b[4].replace(here, ""), b[5]) for b in blocks]
        files = bytes_of(self.folder / "store")
        return {n: d for n, d in files.items() if n.startswith(STAYS)}, count, blocks


def kill_often(tmp_path, semantic, source, kills, **how):
    """Kill an ingest at random moments; whenever it got to its end, compare, and begin another."""
    alone = Place(tmp_path / "alone", semantic, source, **how)
    began = time.monotonic()
    alone.finish()
    lasts = time.monotonic() - began
    expected = alone.result()
    assert len(expected[2]) > 3
    rng = random.Random(semantic)
    place = Place(tmp_path / "killed", semantic, source, **how)
    rounds = killed = 0
    interrupted = set()
    while killed < kills:
        process = place.start()
        with process:
            time.sleep(rng.uniform(0.0, 1.0) * lasts)
            process.kill()
            said = process.stdout.read().split()
        if process.returncode == 0:
            assert place.result() == expected
            place.clear()
            rounds += 1
            continue
        killed += 1
        interrupted.update(said[-1:])
    place.finish()
    assert place.result() == expected
    return rounds, interrupted


@pytest.mark.slow
@pytest.mark.parametrize("semantic", ["event", "user-time"])
def test_killed_at_random_moments(tmp_path, semantic):
    source = sample_file(tmp_path, 40_000)
    _, interrupted = kill_often(
        tmp_path, semantic, source, 15, days=91, interval=7, run_bytes=1_000_000
    )
    assert "writing" in interrupted or "reading" in interrupted


@pytest.mark.slow
def test_a_million_reviews_killed_fifty_times(tmp_path):
    source = sample_file(tmp_path, 1_000_000)
    _, interrupted = kill_often(
        tmp_path, "user", source, 50, days=91, interval=7, run_bytes=32 * 1024 * 1024
    )
    assert {"reading", "writing"} <= interrupted


@pytest.mark.slow
def test_memory_does_not_grow_with_the_input(tmp_path):
    """Four times the rows: at most a gigabyte, and more memory for more users only."""
    peaks = []
    for rows in (500_000, 2_000_000):
        source = sample_file(tmp_path, rows)
        place = Place(
            tmp_path / f"{rows}", "user", source, days=91, interval=7, run_bytes=32 * 1024 * 1024
        )
        peaks.append(int(place.finish().split()[-1]))
        shutil.rmtree(place.folder)
        source.unlink()
    assert max(peaks) < 2**30
    assert peaks[1] < 1.5 * peaks[0]
