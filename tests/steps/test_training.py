"""Training on a claim's data: planned before, paid by steps of the plan, shown only then."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from privatekube_kfp.accounting import Counter, Weighted, mechanism_from_json
from privatekube_kfp.core.budget import renyi
from privatekube_kfp.core.claim import Phase
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.data.sample import CATEGORIES
from privatekube_kfp.data.sample import reviews as sample_reviews
from privatekube_kfp.dp.folders import load_examples, load_model, save_model
from privatekube_kfp.ledger.streams import Semantic, StreamSpec
from privatekube_kfp.steps.claims import consume, release
from privatekube_kfp.steps.data import download
from privatekube_kfp.steps.evaluation import dp_evaluate, show_model
from privatekube_kfp.steps.preprocessing import dp_preprocess
from privatekube_kfp.steps.training import dp_train, plan_training
from tests.steps.conftest import Artifact

SECRET = "xyzzy"
ROWS = 600
ORDERS = renyi(["2", "4", "8", "16", "64"])
STREAMS = {
    "basic": {},
    "renyi": {"accounting": ORDERS, "conversion": Weighted()},
    "user": {"semantic": Semantic.USER, "counter": Counter("1", 64)},
    "user-time": {"semantic": Semantic.USER_TIME, "counter": Counter("1", 64)},
}


class Classification(Artifact):
    def log_confusion_matrix(self, categories, matrix):
        assert all(type(cell) is int for row in matrix for cell in row)
        self.metadata["confusionMatrix"] = {"labels": categories, "rows": matrix}


class Shop:
    """Two blocks of reviews, and a run that trains on them."""

    def __init__(self, world, kind="basic", table=None):
        self.world = world
        self.spec = StreamSpec("reviews", "100", "1e-7", ByPipelines(1), **STREAMS[kind])
        world.ledger.create_stream(self.spec)
        table = table if table is not None else self.table()
        users = None if self.spec.semantic is Semantic.EVENT else (0, 999)
        for number, part in enumerate((table.slice(0, ROWS // 2), table.slice(ROWS // 2))):
            path = world.folder / f"part-{number}.parquet"
            pyarrow.parquet.write_table(part, path)
            times = {"start": number * 10**12, "end": (number + 1) * 10**12}
            if self.spec.semantic is Semantic.USER:
                times = {}
            world.ledger.create_block(
                f"part-{number}", "reviews", data_source=str(path), users=users, **times
            )

    @staticmethod
    def table(rows=ROWS):
        table = pa.Table.from_batches(sample_reviews(rows))
        times = table["timestamp"].cast(pa.int64())
        times = pa.chunked_array([pa.array(np.asarray(times) * 1_000_000, pa.timestamp("us"))])
        table = table.drop_columns(["timestamp"]).append_column("time", times)
        return table.append_column("user_index", pa.array(np.zeros(len(table), np.int64)))

    def plan(self, **said):
        wanted = {"stream": "reviews", "task": "product", "model": "linear", "epsilon": "1"}
        plan = plan_training(**{**wanted, "units": ROWS, "epochs": 3, **said})
        return json.loads(json.dumps(plan), parse_int=float)  # as Kubeflow hands it on

    def claim(self, **said):
        return self.world.allocate(stream="reviews", epsilon="", plan=self.plan(**said))

    def data(self, claim):
        data = self.world.artifact("data")
        download(claim, data, run_id=self.world.run)
        return data.travelled()

    def examples(self, claim, data=None, **said):
        examples = self.world.artifact("examples")
        wanted = {"task": "product", "model": "linear", "source": "stand-in"}
        if said.get("task", "product") == "product":
            wanted["categories"] = list(CATEGORIES)
        dp_preprocess(
            *(claim, data or self.data(claim), examples),
            run_id=self.world.run,
            **{**wanted, **said},
        )
        return examples.travelled()

    def train(self, claim, examples, **said):
        model = self.world.artifact("model")
        spent = dp_train(claim, examples, model, run_id=self.world.run, **said)
        return model.travelled(), json.loads(json.dumps(spent), parse_int=float)

    def evaluate(self, claim, examples, model, **said):
        evaluation = self.world.artifact("evaluation")
        spent = dp_evaluate(claim, examples, model, evaluation, run_id=self.world.run, **said)
        return evaluation.travelled(), json.loads(json.dumps(spent), parse_int=float)

    def spend(self, claim, **what):
        consumed, report = self.world.artifact("consumed"), self.world.artifact("spent")
        consume(claim, consumed, report, run_id=self.world.run, **what)
        return consumed.travelled()

    def show(self, claim, model, evaluation):
        metrics, report = self.world.artifact("metrics"), self.world.artifact("page")
        table = Classification(str(self.world.folder / "artifacts" / "classification"))
        show_model(*(claim, model, evaluation, metrics, table, report), run_id=self.world.run)
        return metrics.metadata, table.metadata, Path(report.path).read_text()


@pytest.fixture
def shop(world):
    return Shop(world)


@pytest.mark.parametrize("kind", STREAMS)
def test_it_is_planned_trained_evaluated_paid_for_and_shown(world, kind, capsys):
    shop = Shop(world, kind)
    claim = shop.claim(epsilon="20")  # on so few reviews, or its noise leaves nothing to tell
    examples = shop.examples(claim)
    model, _ = shop.train(claim, examples, looks=2)
    evaluation, spent = shop.evaluate(claim, examples, model)
    found = json.loads(Path(evaluation.path).read_text())
    said = capsys.readouterr().out
    assert "1,111 trained parameters; hashed stand-in vectors" in said
    assert str(found["right"]) not in said
    paid = shop.spend(claim, amounts=spent, name="model")
    metrics, table, page = shop.show(paid, model, evaluation)
    assert metrics == {key: round(found[key], 4) for key in ("accuracy", "margin")}
    assert table["confusionMatrix"]["labels"] == list(CATEGORIES)
    assert f"{found['accuracy']:.1%} (± {100 * found['margin']:.1f})" in page
    assert "Accuracy over epochs" in page
    if kind == "renyi":
        # Two small releases cost less than a large one: something is left of the evaluation.
        assert world.claim().phase is Phase.ALLOCATED
    else:
        # What was granted is spent to the last unit, by what was reported and the two looks.
        assert world.claim().phase is Phase.CONSUMED


def test_epsilon_from_what_was_logged_is_what_was_consumed(world):
    shop = Shop(world)
    claim = shop.claim()
    examples = shop.examples(claim)
    model, _ = shop.train(claim, examples, looks=0)
    evaluation, spent = shop.evaluate(claim, examples, model)
    shop.spend(claim, amounts=spent, name="model")
    logged = [
        mechanism_from_json(said) for said in json.loads(Path(evaluation.path).read_text())["spent"]
    ]
    accounting = shop.spec.accounting
    total = sum((part.price(accounting) for part in logged), start=accounting.zero())
    assert world.ledger.block("part-1").budget.consumed == total


def test_the_report_counts_what_was_really_trained(shop):
    """Another BERT than the paper's has another number of parameters."""
    claim = shop.claim()
    examples = shop.examples(claim)
    model, _ = shop.train(claim, examples)
    evaluation, spent = shop.evaluate(claim, examples, model)
    paid = shop.spend(claim, amounts=spent, name="model")
    assert "<td>1,111</td>" in shop.show(paid, model, evaluation)[2]
    trained = load_model(model.path)
    save_model(model.path, replace(trained, weights={"last": np.zeros((23, 100))}))
    assert "<td>2,300</td>" in shop.show(paid, model, evaluation)[2]


def test_fewer_categories_than_the_model_has_scores(world):
    """All reviews are of three categories, and none is taken for another than these."""
    table = Shop.table()
    kinds = pa.array([("toys", "books", "games")[n % 3] for n in range(len(table))])
    table = table.set_column(table.column_names.index("category"), "category", kinds)
    shop = Shop(world, "basic", table)
    claim = shop.claim(epsilon="90")
    examples = shop.examples(claim, categories=["books", "games", "toys"])
    # Trained at no rate it guesses, among all the scores that it has.
    model, _ = shop.train(claim, examples, learning_rate=1e-30)
    evaluation, spent = shop.evaluate(claim, examples, model)
    paid = shop.spend(claim, amounts=spent, name="model")
    _, shown, _ = shop.show(paid, model, evaluation)
    rows = shown["confusionMatrix"]["rows"]
    held_out = len(load_examples(examples.path).held_out.labels)
    # Nine cells have noise of scale 2/9 each: in sum, never as much as 12.
    assert abs(sum(map(sum, rows)) - held_out) < 12


def test_stopping_early_spends_less_and_the_rest_is_given_back(shop, world):
    claim = shop.claim(epochs=50)
    examples = shop.examples(claim)
    # With a rate of nothing it gets no better, but for the noise of a look, which goes up and down.
    model, spent = shop.train(claim, examples, looks=20, patience=1, learning_rate=1e-30)
    planned, ran = load_model(model.path).planned, spent[-1]
    assert ran["steps"] < planned["steps"]
    assert len(load_model(model.path).curve) < 20
    _, spent = shop.evaluate(claim, examples, model)
    shop.spend(claim, amounts=spent, name="model")
    before = world.ledger.block("part-0").budget
    assert not before.allocated.is_zero
    release(run_id=world.run)
    after = world.ledger.block("part-0").budget
    assert after.allocated.is_zero
    assert after.consumed == before.consumed


def test_looks_are_paid_before_the_first_and_a_second_try_has_none(shop, world, capsys):
    claim = shop.claim()
    examples = shop.examples(claim)
    shop.train(claim, examples, looks=3)
    assert world.ledger.block("part-0").budget.consumed.to_json()["epsilon"] == "0.1"
    assert capsys.readouterr().out.count("accuracy about") == 3
    model, _ = shop.train(claim, examples, looks=3)
    said = capsys.readouterr().out
    assert "a try before this one has looked" in said
    assert "accuracy about" not in said
    assert load_model(model.path).curve == ()
    assert world.ledger.block("part-0").budget.consumed.to_json()["epsilon"] == "0.1"


def test_a_plan_without_looks(shop, fails):
    claim = shop.claim(shares={"train": "90", "evaluate": "10"})
    examples = shop.examples(claim)
    model, _ = shop.train(claim, examples)
    assert load_model(model.path).curve == ()
    assert "only by looks that are paid for" in fails(shop.train, claim, examples, patience=1)


def test_an_epsilon_and_a_delta_are_filled_by_a_schedule(shop, world):
    claim = world.allocate(stream="reviews", epsilon="1", delta="1e-9")
    examples = shop.examples(claim)
    _, spent = shop.train(claim, examples, plan_step="all", units=ROWS, epochs=2)
    assert spent[0]["mechanism"] == "dp-sgd"
    shop.spend(claim, amounts=spent, name="model")
    consumed = world.ledger.block("part-0").budget.consumed.to_json()
    assert 0.999 < float(consumed["epsilon"]) <= 1


def test_nothing_is_shown_that_is_not_paid_for(shop, world, fails):
    claim = shop.claim()
    examples = shop.examples(claim)
    model, trained = shop.train(claim, examples)
    evaluation, spent = shop.evaluate(claim, examples, model)
    assert "has not consumed" in fails(shop.show, claim, model, evaluation)
    paid = shop.spend(claim, amounts=trained, name="training-alone")
    assert "the model and its evaluation cost" in fails(shop.show, paid, model, evaluation)
    paid = shop.spend(claim, amounts=spent[len(trained) :], name="evaluation")
    shop.show(paid, model, evaluation)


def test_training_is_refused_where_its_step_has_paid(shop, fails):
    claim = shop.claim()
    examples = shop.examples(claim)
    _, spent = shop.train(claim, examples)
    shop.spend(claim, amounts=spent, name="model")
    assert "it has consumed that already" in fails(shop.train, claim, examples)


def test_weights_that_are_no_numbers_cost_the_steps_up_to_there(shop, world, fails):
    claim = shop.claim()
    examples = shop.examples(claim)
    sentence = fails(shop.train, claim, examples, looks=0, learning_rate=1e30)
    assert "training diverged at step" in sentence
    release(run_id=world.run)
    consumed = world.ledger.block("part-0").budget.consumed
    assert 0 < float(consumed.to_json()["epsilon"]) < 0.8


@pytest.mark.parametrize("task", ["product", "sentiment"])
@pytest.mark.parametrize("model", ["linear", "ff", "lstm", "bert"])
def test_examples_of_each_model(shop, task, model):
    claim = shop.claim()
    ready = load_examples(shop.examples(claim, task=task, model=model).path)
    assert len(ready.train.labels) + len(ready.held_out.labels) == ROWS
    assert len(ready.train.labels) > 4 * len(ready.held_out.labels) > 0
    assert ready.about.labels == (tuple(CATEGORIES) if task == "product" else ("bad", "good"))
    if model == "lstm":
        assert ready.train.inputs.max() == len(ready.vectors) - 1
        assert not ready.vectors[0].any()


@pytest.mark.parametrize("kind", ["basic", "renyi"])
def test_a_vocabulary_of_the_data_is_paid_for(world, kind):
    shop = Shop(world, kind)
    claim = shop.claim(vocabulary="private")
    examples = shop.examples(claim, model="lstm", vocabulary="private", vocabulary_size=50)
    ready = load_examples(examples.path)
    assert len(ready.vectors) <= 51
    assert "50 words chosen with differential privacy" in ready.about.words
    assert [said["epsilon"] for said in ready.spent] == ["0.1"]
    model, _ = shop.train(claim, examples)
    assert load_model(model.path).vocabulary.tolist() == ready.vocabulary.tolist()
    evaluation, spent = shop.evaluate(claim, examples, model)
    shop.show(shop.spend(claim, amounts=spent, name="model"), model, evaluation)


def test_a_vocabulary_that_nobody_has_paid_for(shop, fails):
    sentence = fails(shop.examples, shop.claim(), vocabulary="private")
    assert "has no step 'preprocess'; it has train, validate, evaluate" in sentence


def test_user_time_units_are_told_by_the_blocks(world):
    table = Shop.table()
    one_user = table.set_column(0, "user", pa.array([SECRET] * len(table)))
    shop = Shop(world, "user-time", one_user)
    ready = load_examples(shop.examples(shop.claim()).path)
    sizes = [len(part.offsets) - 1 for part in (ready.train, ready.held_out)]
    assert sorted(sizes) == [0, 2]


def test_odd_reviews(world):
    """A category never seen, no text, and hardly a review: trained all the same."""
    table = Shop.table(rows=ROWS // 2 + 1)
    texts = pa.array([""] + [None] * (len(table) - 1), pa.string())
    kinds = pa.array([SECRET] * (len(table) - 1) + ["books"])
    for name, column in (("text", texts), ("category", kinds)):
        table = table.set_column(table.column_names.index(name), name, column)
    shop = Shop(world, "basic", table)
    claim = shop.claim()
    examples = shop.examples(claim)
    model, _ = shop.train(claim, examples)
    evaluation, spent = shop.evaluate(claim, examples, model)
    shop.show(shop.spend(claim, amounts=spent, name="model"), model, evaluation)
    ready = load_examples(examples.path)
    assert len(ready.train.labels) + len(ready.held_out.labels) == 1


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"task": "weather"}, "there is no model 'linear' for the task 'weather'"),
        ({"units": 0}, "say about how many reviews there are"),
        ({"epsilon": "0"}, "epsilon"),
        ({"epsilon": "0.000000000001"}, "would get nothing"),
        ({"delta": "0"}, "delta"),
        ({"shares": {"evaluate": "100"}}, "'train' is not there"),
        ({"shares": {"train": "50"}}, "must add up to exactly 100"),
        ({"stream": "nothing"}, "nothing"),
    ],
)
def test_plans_that_cannot_be_made(shop, fails, said, sentence):
    assert sentence in fails(shop.plan, **said)


def test_the_published_count_is_used_where_users_are_protected(world, fails):
    shop = Shop(world, "user")
    assert "say about how many users there are" in fails(shop.plan, units=0)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"held_out_percent": 0}, "cannot be held out"),
        ({"categories": []}, "needs the list of 2 to 11 different categories"),
        ({"source": "no/such/vectors.txt"}, "cannot be read"),
        ({"source": "memory://nothing.txt"}, "cannot be read"),
        ({"model": "bert", "source": "no/such/directory/bert"}, "there is no BERT"),
        ({"model": "tree"}, "there is no model 'tree'"),
        ({"vocabulary": "secret"}, "a vocabulary is public or private, not 'secret'"),
        ({"model": "bert", "vocabulary": "private"}, "BERT has words of its own"),
    ],
)
def test_examples_that_cannot_be_made(shop, fails, said, sentence):
    assert sentence in fails(shop.examples, shop.claim(), **said)


def test_vectors_of_another_size(shop, fails, tmp_path):
    short = tmp_path / "vectors.txt"
    short.write_text("good 0.1 0.2\n")
    assert "has 2 numbers after the word, not 100" in fails(
        shop.examples, shop.claim(), source=str(short)
    )


def test_columns_that_are_missing_are_no_traceback(world, fails):
    shop = Shop(world, "basic", Shop.table().drop_columns(["text"]))
    sentence = fails(shop.examples, shop.claim())
    assert "the data have no column 'text'" in sentence


def test_examples_and_models_of_another_claim(shop, world, fails):
    claim = shop.claim()
    examples = shop.examples(claim)
    model, _ = shop.train(claim, examples)
    path = Path(examples.path, "examples.json")
    path.write_text(path.read_text().replace("run-1.claim", "run-2.claim"))
    assert "the examples are not those of claim run-1.claim" in fails(shop.train, claim, examples)
    Path(examples.path, "examples.json").unlink()
    assert "holds no examples" in fails(shop.evaluate, claim, examples, model)


def test_no_space_for_an_evaluation_or_a_report(shop, world, fails):
    claim = shop.claim()
    examples = shop.examples(claim)
    model, _ = shop.train(claim, examples, looks=0)
    partial = Path(f"{world.artifact('evaluation').path}.partial")
    partial.symlink_to("/dev/full")
    full = "cannot be written: No space left on device"
    assert fails(shop.evaluate, claim, examples, model).endswith(full)
    assert world.ledger.block("part-0").budget.consumed.is_zero
    partial.unlink()
    evaluation, spent = shop.evaluate(claim, examples, model)
    paid = shop.spend(claim, amounts=spent, name="model")
    Path(world.artifact("page").path).symlink_to("/dev/full")
    assert fails(shop.show, paid, model, evaluation).endswith(full)


def test_no_space_is_said_in_a_sentence(tmp_path):
    """A real limit on how large a file may be, in a process of its own."""
    script = f"""
import numpy as np, resource, signal
from privatekube_kfp.core.errors import PrivateKubeError
from privatekube_kfp.dp.folders import About, Part, ReadyExamples, save_examples
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
part = Part(np.zeros((500, 100), np.float32), np.zeros(500, np.int64), np.arange(501))
about = About("c", "product", "linear", "event", ("a", "b"), "words")
try:
    save_examples({str(tmp_path / "examples")!r}, ReadyExamples(about, part, part, part.inputs))
except PrivateKubeError as error:
    print(error.reason, error.message)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "DataUnwritable" in done.stdout, done.stderr
    assert "cannot be written" in done.stdout
    assert not (tmp_path / "examples" / "examples.json").exists()
