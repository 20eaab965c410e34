"""What a task needs, beside data and budget, is checked before budget is asked for."""

import sys

import pytest

from privatekube_kfp import __version__
from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.ledger.ledger import PublishedCount
from privatekube_kfp.steps.needs import check_words
from tests.steps.test_training import Shop

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


@pytest.fixture
def shop(world):
    return Shop(world)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"categories": ["books", 3]}, "categories are texts such as books, not 3"),
        ({"categories": ["books"]}, "needs the list of 2 to 11 different categories"),
        ({"categories": []}, "needs the list of 2 to 11 different categories"),
        ({"model": "tree"}, "there is no model 'tree'"),
    ],
)
def test_a_plan_refuses_what_would_stop_the_training(shop, fails, said, sentence):
    assert sentence in fails(shop.plan, **said)
    assert list(shop.world.ledger.claims()) == []


def test_a_plan_checks_categories_only_where_they_count(shop):
    assert shop.plan(task="sentiment", categories=[])["steps"]
    assert shop.plan(categories=["books", "music"], words="stand-in")["steps"]


def test_on_a_cluster_words_are_never_chosen_by_what_is_there():
    with pytest.raises(Invalid, match=r"name the words to train with .*stand-in"):
        check_words("", IN_A_POD)
    check_words("stand-in", IN_A_POD)
    check_words("s3://vectors/glove.txt", IN_A_POD)


def test_elsewhere_the_best_that_is_here_will_do():
    check_words("", {})
    # A notebook is in a pod, too: with a ledger of its own it is a laptop.
    check_words("", {**IN_A_POD, "PRIVATEKUBE_LEDGER": "sqlite:///ledger.db"})


def test_a_plan_and_examples_without_words_on_a_cluster(shop, fails, monkeypatch):
    claim = shop.claim()
    data = shop.data(claim)
    monkeypatch.setattr("privatekube_kfp.steps.needs._on_a_cluster", lambda environment: True)
    assert "name the words to train with" in fails(shop.plan, words="")
    assert "name the words to train with" in fails(shop.examples, claim, data, source="")
    assert shop.plan()["steps"], "words that were not told to the plan are not its business"


def test_an_image_without_torch_says_which_one_has_it(shop, fails, monkeypatch):
    claim = shop.claim()
    examples = shop.examples(claim)
    model, _ = shop.train(claim, examples, looks=0)
    monkeypatch.setitem(sys.modules, "torch", None)
    image = f"run it in the image privatekube/python-torch:{__version__}"
    for sentence in (
        fails(shop.examples, claim),
        fails(shop.train, claim, examples),
        fails(shop.evaluate, claim, examples, model),
    ):
        assert image in sentence
    assert shop.plan()["steps"], "planning needs no PyTorch"


def test_a_published_count_of_users_is_not_said_to_be_missing(world, fails):
    shop = Shop(world, "user-time")
    assert "the stream has published no number" in fails(shop.plan, units=0)
    world.ledger.publish_count("reviews", PublishedCount(500, 400, 600, "0.999", 10**12))
    sentence = fails(shop.plan, units=0)
    assert "say about how many users in each block" in sentence
    assert "the number that the stream has published is that of all its users" in sentence
