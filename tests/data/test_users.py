"""Who has appeared: numbered once, in the order of appearance, however they are kept."""

import random

import numpy as np
import pytest

from privatekube_kfp.data import users as module
from privatekube_kfp.data.users import Users


def feed(users, names, period=0):
    """Names as they come, with repetitions, in batches as ingest makes them."""
    unique = list(dict.fromkeys(names))
    numbers = users.number(unique, np.full(len(unique), period, np.int64))
    return dict(zip(unique, numbers.tolist(), strict=True))


@pytest.mark.parametrize("bits", [64, 6])
def test_everybody_gets_one_number_in_the_order_of_appearance(bits, monkeypatch):
    """Also where words that are to tell users apart are the same for many of them."""
    real = module._digests

    def weak(names, tries=0):
        words = real(names, tries).copy()
        words[:, 0] &= (1 << bits) - 1 if bits < 64 else -1
        return words

    monkeypatch.setattr(module, "_digests", weak)
    rng, many = random.Random(bits), 40 if bits < 64 else 3_000
    users, model = Users(), {}
    for batch in range(12):
        names = [f"user {rng.randrange(many)}" for _ in range(rng.randrange(1, 400))]
        for name in names:
            model.setdefault(name, len(model))
        told = feed(users, names, batch)
        assert told == {name: model[name] for name in told}
    assert users.count == len(model)


def test_kept_pieces_bring_everybody_back():
    rng = random.Random(1)
    users, kept = Users(), Users()
    for batch in range(6):
        before = users.count
        names = [f"ü{rng.randrange(500)}" for _ in range(200)]
        feed(users, names, batch)
        kept.add_kept(users.since(before))
    assert kept.periods.tolist() == users.periods.tolist()
    everybody = [f"ü{number}" for number in range(500)]
    assert feed(kept, everybody, 9) == feed(users, everybody, 9)


def test_the_first_period_counts():
    users = Users()
    feed(users, ["a", "b"], 3)
    feed(users, ["b", "c"], 5)
    assert users.periods.tolist() == [3, 3, 5]


def test_nobody_is_kept_by_name():
    users = Users()
    feed(users, ["somebody@example.org"])
    assert users.since(0).column_names == ["first", "second", "period"]
