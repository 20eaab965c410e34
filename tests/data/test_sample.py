"""Reviews that nobody wrote: the same for the same seed, and worth learning from."""

import numpy as np
import pyarrow
import pytest

from privatekube_kfp.data.sample import CATEGORIES, reviews


def table(count, **how):
    return pyarrow.Table.from_batches(reviews(count, **how))


def test_what_they_are():
    made = table(1_000, start=1_000_000, days=10)
    assert made.column_names == ["user", "product", "timestamp", "rating", "category", "text"]
    assert made.num_rows == 1_000
    assert set(made["category"].to_pylist()) == set(CATEGORIES)
    assert len(CATEGORIES) == 11
    assert set(made["rating"].to_pylist()) == {1, 2, 3, 4, 5}
    times = made["timestamp"].to_pylist()
    assert times == sorted(times)
    assert times[0] == 1_000_000
    assert 9 * 86_400 < times[-1] - times[0] < 10 * 86_400
    assert all(8 <= len(text.split()) <= 60 for text in made["text"].to_pylist())


def test_users_come_back():
    users = table(10_000)["user"].to_pylist()
    assert 6_500 < len(set(users)) < 8_000


def test_the_same_seed_gives_the_same():
    assert table(2_000, seed=3) == table(2_000, seed=3)
    assert table(2_000, seed=3) != table(2_000, seed=4)


def test_the_first_of_many_are_the_same():
    few, many = table(100, days=1), table(60_000, days=1)
    without_time = ["user", "product", "rating", "category", "text"]
    assert few.select(without_time) == many.slice(0, 100).select(without_time)


def test_batches_are_of_bounded_size():
    sizes = [batch.num_rows for batch in reviews(120_000)]
    assert sizes == [50_000, 50_000, 20_000]
    assert list(reviews(0)) == []


@pytest.mark.slow
def test_categories_can_be_learnt_but_not_trivially():
    """A linear model on words that occur: naive Bayes, 20,000 reviews to learn from."""
    made = table(25_000, seed=11)
    labels = np.array([CATEGORIES.index(name) for name in made["category"].to_pylist()])
    texts = [set(text.split()) for text in made["text"].to_pylist()]
    words = {word: n for n, word in enumerate(sorted(set().union(*texts)))}
    seen = np.zeros((len(texts), len(words)))
    for row, text in enumerate(texts):
        seen[row, [words[word] for word in text]] = 1
    learn, check = slice(0, 20_000), slice(20_000, None)
    shares = np.array(
        [(seen[learn][labels[learn] == c].sum(axis=0) + 1) for c in range(len(CATEGORIES))]
    )
    shares /= np.array([(labels[learn] == c).sum() + 2 for c in range(len(CATEGORIES))])[:, None]
    scores = seen[check] @ np.log(shares / (1 - shares)).T + np.log(1 - shares).sum(axis=1)
    accuracy = (scores.argmax(axis=1) == labels[check]).mean()
    assert 0.7 <= accuracy <= 0.8
