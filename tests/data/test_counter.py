"""The user counter: what it tells, what it keeps, and how sure it is."""

import json
import random
from fractions import Fraction

import numpy as np
import pytest

from privatekube_kfp.accounting import Counter
from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.data.counter import UserCounter, margin


def counter_of(epsilon="1", days=64, confidence="0.999", seed=1):
    return UserCounter(Counter(epsilon, days), confidence, random.Random(seed).randrange)


def test_the_margin_of_the_paper_is_less_than_a_third_of_its_bound():
    assert margin(Counter("0.1", 2**15), "0.999", 15) == 5_362


@pytest.mark.parametrize("nodes", [1, 2, 3, 6])
def test_the_margin_is_the_quantile_of_the_noise(nodes):
    """Against many sums of Laplace noise, at a confidence that draws can tell."""
    counter, confidence = Counter("0.01", 64), "0.36"
    chance = (1 - 0.36) / (2 * 64)
    rng = np.random.default_rng(1)
    sums = rng.laplace(scale=600.0, size=(400_000, nodes)).sum(axis=1)
    off = margin(counter, confidence, nodes) - (nodes + 1) // 2
    share = float((sums > off).mean())
    assert abs(share - chance) < 0.06 * chance
    assert margin(counter, "0.999", nodes) > off


def test_without_noise_it_counts():
    """Noise of next to nothing: the tree adds up on every day."""
    counted = counter_of(epsilon="9000", days=64)
    total = 0
    for day in range(1, 64):
        total += day % 5
        assert counted.end_day(day, day % 5).estimate == total


@pytest.mark.slow
def test_the_bounds_hold_as_often_as_they_say():
    """10,000 streams at 0.9: a bound that were too tight would fail more often than 1 in 10."""
    failed = {"lower": 0, "upper": 0, "either": 0}
    rng = random.Random(5)
    streams = 10_000
    for _ in range(streams):
        counted = UserCounter(Counter("2", 8), "0.9", rng.randrange)
        total, low, high = 0, False, False
        for day in range(1, 8):
            new = rng.randrange(5)
            total += new
            told = counted.end_day(day, new)
            low |= told.lower > total
            high |= told.upper < total
        failed["lower"] += low
        failed["upper"] += high
        failed["either"] += low or high
    for side, count in failed.items():
        assert count <= 0.1 * streams, side
        assert count > 0, f"{side} never failed: it is wider than it says, or nothing was tried"


def test_one_user_changes_one_day_and_its_nodes_alone():
    """The same noise, with a user more on one day: at most log2(days) nodes move, by one."""
    for extra in range(1, 16):
        nodes = [set(), set()]
        for version in (0, 1):
            counted = counter_of(days=16, seed=9)
            for day in range(1, 16):
                new = 3 + (version == 1 and day == extra)
                counted.end_day(day, new)
                for level, node in enumerate(counted.to_json()["nodes"]):
                    nodes[version].add((day >> level, level, *node, day & -day == 1 << level))
        completed = [{n[:4] for n in each if n[4]} for each in nodes]
        moved = {(n[0], n[1]) for n in completed[0] ^ completed[1]}
        assert 1 <= len(moved) <= 4, extra


def test_lower_bounds_never_fall():
    counted = counter_of(epsilon="0.5", days=256)
    last = 0
    for day in range(1, 256):
        told = counted.end_day(day, 20)
        assert last <= told.lower <= told.estimate <= told.upper
        last = told.lower
    assert last > 0


def test_a_restart_neither_redraws_nor_recounts():
    through, stopped = counter_of(seed=7), counter_of(seed=7)
    rng = random.Random(7)
    stopped._randbelow = rng.randrange
    for day in range(1, 64):
        kept = json.loads(json.dumps(stopped.to_json()))
        stopped = UserCounter.from_json(kept, rng.randrange)
        again = stopped.end_day(day, day)
        assert again == through.end_day(day, day)
        assert stopped.end_day(day, day) == again == stopped.last


def test_the_noise_of_a_node_is_used_again():
    """The node of the first two days is in the count of day 2 and of day 3, with one noise."""
    counted = counter_of(seed=3)
    counted.end_day(1, 5)
    second = counted.end_day(2, 5)
    noise = counted.to_json()["nodes"][1][1]
    assert second.estimate == max(10 + noise, second.lower)
    counted.end_day(3, 0)
    assert counted.to_json()["nodes"][1][1] == noise


@pytest.mark.parametrize(
    ("day", "users", "why"),
    [
        (3, 1, "the last that has is 1"),
        (0, 1, "the last that has is 1"),
        (1, 8, "count late ones with the next day"),
        (2, -1, "it must be a whole number from 0 on"),
        (2, 1.5, "it must be a whole number from 0 on"),
        (2, True, "it must be a whole number from 0 on"),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(day, users, why):
    counted = counter_of()
    counted.end_day(1, 7)
    before = counted.to_json()
    with pytest.raises(Invalid, match=why):
        counted.end_day(day, users)
    assert counted.to_json() == before


def test_it_ends_with_its_days():
    counted = counter_of(days=4)
    for day in (1, 2, 3):
        counted.end_day(day, 1)
    with pytest.raises(Invalid, match="made for 3 days"):
        counted.end_day(4, 1)


@pytest.mark.parametrize("confidence", ["0", "1", "1.5", "-0.5", "high", "nan"])
def test_a_confidence_is_a_probability(confidence):
    with pytest.raises(Invalid):
        counter_of(confidence=confidence)


def test_the_scale_is_what_the_price_is_of():
    """log2(days) nodes, each with epsilon / log2(days)."""
    assert counter_of("0.1", 2**15)._scale == Fraction(150)
