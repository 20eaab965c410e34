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


@pytest.mark.parametrize("bits", [64, 6, 1])
def test_everybody_gets_one_number_in_the_order_of_appearance(bits, monkeypatch):
    """Also where the word that says where to look is the same for many of them."""
    real = module._hashes

    def weak(names, mark=""):
        words = real(names, mark)
        return words if mark or bits == 64 else words & ((1 << bits) - 1)

    monkeypatch.setattr(module, "_hashes", weak)
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
        names = [f"ü{rng.randrange(500)}" for _ in range(200)]
        feed(users, names, batch)
        kept.add_kept(users.new().to_batches())
        assert users.new().num_rows == kept.new().num_rows == 0
    assert kept.periods.tolist() == users.periods.tolist()
    everybody = [f"ü{number}" for number in range(500)]
    assert feed(kept, everybody, 9) == feed(users, everybody, 9)


def test_the_first_period_counts():
    users = Users()
    feed(users, ["a", "b"], 3)
    feed(users, ["b", "c"], 5)
    assert users.periods.tolist() == [3, 3, 5]
