"""The six pipelines of statistics, from a table of reviews to what is published."""

import json
from pathlib import Path

import pytest

from privatekube_kfp.data.sample import CATEGORIES
from privatekube_kfp.dp.statistics import STATISTICS
from privatekube_kfp.ledger.streams import Semantic
from tests.e2e.conftest import TOP, tells
from tests.e2e.reviews import open_shop

pytestmark = pytest.mark.slow
ROWS = 12_345
AROUND = {
    "reviews_total": ROWS,
    "tokens_total": 34 * ROWS,
    "tokens_mean": 34,
    "tokens_deviation": 15,
    "rating_mean": 4.2,
}
TASKS = {"allocate", "download", "dp-statistic", "consume", "show-statistic", "upload", "release"}


@pytest.fixture
def shop(on_a_file, tmp_path):
    return open_shop(on_a_file, tmp_path, ROWS, *Semantic)


def run(shop, name, **arguments):
    ended = shop.run(TOP / "pipelines" / f"statistics_{name}.py", **arguments)
    assert ended.code == 0, ended.told
    assert {*ended.tasks} == TASKS
    assert ended.tasks.index("show-statistic") > ended.tasks.index("consume")
    folder = Path(ended.document["folder"]) / "published"
    published = json.loads((folder / f"{name}.json").read_text())
    shown = ended.document["metrics"]
    assert {*shown} <= {"allocate", "show-statistic", "release"}
    return ended, published, shown["show-statistic"]


@pytest.mark.parametrize("name", STATISTICS)
def test_each(shop, name):
    ended, published, shown = run(shop, name, epsilon="4")
    (granted,) = ended.claim["consumed"]
    assert published["cost"] == granted["budget"] == {"epsilon": "4", "delta": "0"}
    assert shop.epsilons("reviews-2018-01-04") == ("0", "4")
    if name == "reviews_per_category":
        assert {*published["value"]} == {*CATEGORIES}
        assert shown["books"] == published["value"]["books"]
        assert sum(published["value"].values()) == pytest.approx(ROWS, rel=0.05)
    else:
        # Noise would have to be 25 times its scale, even of the deviation.
        assert shown["value"] == published["value"] == pytest.approx(AROUND[name], rel=0.1)


def test_gaussian(shop):
    ended, published, _ = run(shop, "rating_mean", epsilon="1", delta="1e-8")
    assert published["noise"] == "gaussian"
    assert published["cost"] == ended.claim["consumed"][0]["budget"]
    assert published["cost"] == {"epsilon": "1", "delta": "0.00000001"}


@pytest.mark.parametrize(("semantic", "rows"), [("user", 100), ("user-time", 20)])
def test_users(shop, semantic, rows):
    _, published, _ = run(shop, "reviews_total", epsilon="50", stream=semantic)
    assert published["unit"]["rows"] == rows
    assert published["parts"][0]["scale"] == rows / 50
    blocks = shop.ledger.blocks(semantic)
    assert shop.epsilons(blocks[-1].block.name) == ("0", "50")


def test_true_counts_are_told_nobody(shop):
    path = TOP / "pipelines" / "statistics_reviews_total.py"
    ended = shop.run(path, "-v", epsilon="0.000000001", uri="out.json")
    assert ended.code == 0, ended.told
    left = [
        path.read_bytes()
        for path in Path(shop.folder, "runs").rglob("*")
        if path.is_file() and "download" not in path.parts
    ]
    everything = ended.told + json.dumps(ended.document) + b"\n".join(left).decode(errors="replace")
    assert not tells(everything, ROWS)
    released = json.loads((shop.folder / "out.json").read_text())["value"]
    assert tells(everything, int(released))


def test_a_statistic_that_cannot_be_computed_costs_nothing(shop):
    path = TOP / "pipelines" / "statistics_tokens_mean.py"
    ended = shop.run(path, bounds=[5, 1])
    assert ended.code == 1
    assert "low must be below high" in ended.told
    assert shop.epsilons("reviews-2018-01-04") == ("0", "0")
    assert not (Path(ended.document["folder"]) / "published").exists()


@pytest.mark.server
@pytest.mark.parametrize("name", ["reviews_total", "rating_mean"])
def test_in_a_cluster(in_a_cluster, tmp_path, name):
    """The budget is that of a real API server and its scheduler."""
    shop = open_shop(in_a_cluster, tmp_path, ROWS, Semantic.EVENT)
    ended, published, shown = run(shop, name, epsilon="1")
    assert published["cost"] == ended.claim["consumed"][0]["budget"]
    assert shown["value"] == pytest.approx(AROUND[name], rel=0.1)
    assert shop.epsilons("reviews-2018-01-04") == ("0", "1")
