"""Killed at any instant, an ingest goes on: in the end everything is as if nothing had been."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from privatekube_kfp.ledger.opening import open_ledger
from tests.data.samples import sample_file
from tests.data.world import bytes_of, numbers, stream_of

TOP = Path(__file__).parents[2]
STAYS = ("blocks/", "users/", "ingest.json")


class Nursery:
    """Where ingests come from."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.data.ingesting"],
            cwd=TOP,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, **args):
        """Begin one; its pid."""
        self._process.stdin.write(json.dumps(args) + "\n")
        self._process.stdin.flush()
        return int(self.hear())

    def hear(self):
        return self._process.stdout.readline().strip()

    def end(self):
        """What it said until it ended, and how it did."""
        said = []
        while not (line := self.hear()).startswith("ended"):
            assert line, "the nursery is gone"
            said.append(line)
        return said, int(line.split()[1])

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait() == 0


@pytest.fixture
def nursery():
    nursery = Nursery()
    yield nursery
    nursery.close()


class Place:
    """A folder with a ledger and a store, made anew for every round."""

    def __init__(self, nursery, folder, semantic, source, *, days, interval, run_bytes):
        self.folder = folder
        self._nursery = nursery
        self._semantic = semantic
        self._args = {
            "source": str(source),
            "place": f"{folder}/store",
            "ledger": f"sqlite:///{folder}/ledger.db",
            "until": days,
            "interval": interval,
            "run_bytes": run_bytes,
        }
        self.clear()

    def clear(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        with self.ledger(create=True) as ledger:
            ledger.create_stream(stream_of(self._semantic, epsilon="1", days=512))

    def ledger(self, **how):
        return open_ledger(self._args["ledger"], **how)

    def finish(self):
        """Undisturbed; how long it took, and its peak memory."""
        began = time.monotonic()
        self._nursery.begin(**self._args)
        said, code = self._nursery.end()
        assert code == 0
        return time.monotonic() - began, int(said[-1])

    def kill_after(self, seconds):
        """Whether it was killed, and what it was doing then."""
        pid = self._nursery.begin(**self._args)
        time.sleep(seconds)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        said, code = self._nursery.end()
        assert code in (0, -signal.SIGKILL)
        return code != 0, said[-1:] or ["beginning"]

    def result(self):
        """The data byte for byte, the ledger number for number."""
        with self.ledger() as ledger:
            count, blocks = numbers(ledger)
            assert ledger.verify().ok
        here = str(self.folder)
        blocks = [(*b[:4], b[4].replace(here, ""), b[5]) for b in blocks]
        files = bytes_of(self.folder / "store")
        return {n: d for n, d in files.items() if n.startswith(STAYS)}, count, blocks


def kill_often(nursery, tmp_path, semantic, source, kills, **how):
    """Kill an ingest at random moments, let it get to its end, compare; and so on with another.

    Returns what it was doing when it was killed.
    """
    alone = Place(nursery, tmp_path / "alone", semantic, source, **how)
    lasts, _ = alone.finish()
    expected = alone.result()
    assert len(expected[2]) > 3
    rng = random.Random(semantic)
    place = Place(nursery, tmp_path / "killed", semantic, source, **how)
    interrupted = []
    while len(interrupted) < kills:
        place.clear()
        for _ in range(5):
            # Sooner rather than later: whoever was killed before has less left to do, and would
            # often be done first.
            killed, doing = place.kill_after(rng.uniform(0.0, 1.0) ** 2 * lasts)
            if not killed:
                break
            interrupted += doing
        else:
            place.finish()
        assert place.result() == expected
    return set(interrupted)


@pytest.mark.slow
@pytest.mark.parametrize("semantic", ["event", "user-time"])
def test_killed_at_random_moments(nursery, tmp_path, semantic):
    source = sample_file(tmp_path, 40_000)
    interrupted = kill_often(
        nursery, tmp_path, semantic, source, 25, days=91, interval=7, run_bytes=1_000_000
    )
    assert {"reading", "writing"} & interrupted


@pytest.mark.slow
def test_killed_fifty_times(nursery, tmp_path):
    """Often enough to fall into every phase, with more data than is held in memory at a time."""
    source = sample_file(tmp_path, 250_000)
    interrupted = kill_often(
        nursery, tmp_path, "user", source, 50, days=91, interval=7, run_bytes=8 * 1024 * 1024
    )
    assert {"reading", "writing"} & interrupted


@pytest.mark.slow
def test_memory_does_not_grow_with_the_input(nursery, tmp_path):
    """Four times the rows: at most a gigabyte, and more memory for more users only."""
    peaks = []
    for rows in (500_000, 2_000_000):
        source = sample_file(tmp_path, rows)
        place = Place(
            nursery,
            tmp_path / f"{rows}",
            "user",
            source,
            days=91,
            interval=7,
            run_bytes=32 * 1024 * 1024,
        )
        peaks.append(place.finish()[1])
        shutil.rmtree(place.folder)
        source.unlink()
    assert max(peaks) < 2**30
    assert peaks[1] < 1.5 * peaks[0]
