"""The pipelines that train a model, from a table of reviews to what is published."""

from pathlib import Path

import pytest

from privatekube_kfp.accounting import mechanism_from_json
from privatekube_kfp.dp.architectures import ARCHITECTURES
from privatekube_kfp.dp.folders import load_model
from privatekube_kfp.ledger.streams import Semantic
from tests.e2e.conftest import TOP
from tests.e2e.reviews import open_shop

pytestmark = pytest.mark.slow
ROWS = 400
MODELS = [f"{row.task}_{row.kind}" for row in ARCHITECTURES.values()]
KERAS = [f"{task}_{kind}_keras" for task in ("product", "sentiment") for kind in ("linear", "ff")]


def run(shop, name, **arguments):
    """Train for an epoch, and see to it that all was paid for before it was let out."""
    small = {"units": ROWS, "epochs": 1, "words": "stand-in", "epsilon": "20"}
    ended = shop.run(TOP / "pipelines" / f"{name}.py", **{**small, **arguments})
    assert ended.code == 0, ended.told
    training = "dp-train-keras" if name in KERAS else "dp-train"
    computed = ["dp-preprocess", training, "dp-evaluate"]
    assert ended.tasks[:7] == ["plan-training", "allocate", "download", *computed, "consume"]
    assert {*ended.tasks[7:]} == {"show-model", "upload", "release"}
    return ended


def published_by(ended):
    """The model that a run on this machine has let out."""
    return Path(ended.document["folder"]) / "published" / "model"


@pytest.mark.parametrize("name", [*MODELS, *KERAS])
def test_each(on_a_file, tmp_path, name):
    shop = open_shop(on_a_file, tmp_path, ROWS, Semantic.EVENT)
    ended = run(shop, name)
    assert 0 <= ended.document["metrics"]["show-model"]["accuracy"] <= 1
    published = load_model(published_by(ended))
    row = published.about.architecture
    assert f"{row.task}_{row.kind}" == name.removesuffix("_keras")
    assert ("TensorFlow" in published.trainer) == (name in KERAS)
    assert sum(array.size for array in published.weights.values()) >= row.parameters
    # What was published says itself what training cost, and the ledger agrees on the whole.
    (consumed,) = ended.claim["consumed"]
    assert consumed == ended.claim["granted"][0]
    assert published.spent[-1] == published.planned
    training, _ = mechanism_from_json(published.planned).basic_price()
    assert training <= (0.9 if name in KERAS else 0.8) * 20 * 10**12
    (report,) = (a for a in ended.document["artifacts"] if a["name"] == "model_report")
    assert "Privacy" in Path(report["path"]).read_text()


@pytest.mark.parametrize("semantic", [Semantic.USER, Semantic.USER_TIME])
def test_users(on_a_file, tmp_path, semantic):
    """So many that there are groups of users."""
    shop = open_shop(on_a_file, tmp_path, 12_345, semantic)
    ended = run(shop, "product_linear", stream=semantic.value, epsilon="90", units=5_000)
    assert load_model(published_by(ended)).about.semantic == semantic


def test_a_vocabulary_of_the_data(on_a_file, tmp_path):
    shop = open_shop(on_a_file, tmp_path, ROWS, Semantic.EVENT)
    ended = run(shop, "sentiment_linear", vocabulary="private")
    published = load_model(published_by(ended))
    assert len(published.vocabulary) == 5000
    assert len(published.spent) == 2


def test_what_fails_costs_nothing(on_a_file, tmp_path):
    shop = open_shop(on_a_file, tmp_path, ROWS, Semantic.EVENT)
    path = TOP / "pipelines" / "product_linear.py"
    ended = shop.run(path, words="no/such/file.txt", units=ROWS)
    assert ended.code == 1
    assert "the word vectors no/such/file.txt cannot be read" in ended.told
    assert shop.epsilons("reviews-2018-01-04") == ("0", "0")


@pytest.mark.server
@pytest.mark.parametrize("name", ["product_lstm", "sentiment_ff"])
def test_in_a_cluster(in_a_cluster, tmp_path, name):
    """The budget is that of a real API server and its scheduler."""
    shop = open_shop(in_a_cluster, tmp_path, ROWS, Semantic.EVENT)
    ended = run(shop, name)
    (consumed,) = ended.claim["consumed"]
    allocated, spent = shop.epsilons("reviews-2018-01-04")
    assert (allocated, spent) == ("0", consumed["budget"]["epsilon"])
