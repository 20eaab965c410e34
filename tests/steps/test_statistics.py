"""A statistic on a claim's data: its noise is paid for, and it is shown only then."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from privatekube_kfp.accounting import Counter, Weighted
from privatekube_kfp.core.budget import ceil_units, format_amount, renyi
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.streams import Semantic, StreamSpec
from privatekube_kfp.steps.claims import consume, release
from privatekube_kfp.steps.data import download
from privatekube_kfp.steps.statistics import dp_statistic, show_statistic
from tests.steps.pages_seen import Page

DAY = 86_400_000_000
SECRET = "xyzzy"


class Reviews:
    """Two days of a stream, of which each has a block."""

    def __init__(self, world, spec=None, users=(0, 9)):
        self.world = world
        spec = spec or StreamSpec("reviews", "10", "1e-7", ByPipelines(1))
        world.ledger.create_stream(spec)
        range_ = None if spec.semantic is Semantic.EVENT else users
        for day in range(2):
            path = world.folder / f"day-{day}.parquet"
            rows = 130
            table = {
                "user": [f"{SECRET}-{n % 3}" for n in range(rows)],
                "user_index": [n % 3 for n in range(rows)],
                "time": pyarrow.array(
                    [day * DAY + n for n in range(rows)], pyarrow.timestamp("us")
                ),
                "rating": [float(1 + n % 5) for n in range(rows)],
                "category": ["books", SECRET] * (rows // 2),
                "text": [f"{SECRET} " * (n % 7) for n in range(rows)],
            }
            pyarrow.parquet.write_table(pyarrow.table(table), path)
            times = {"start": day * DAY, "end": (day + 1) * DAY}
            if spec.semantic is Semantic.USER:
                times = {}
            world.ledger.create_block(
                f"day-{day}", "reviews", data_source=str(path), users=range_, **times
            )

    def claim(self, **asked):
        wanted = {"stream": "reviews", "epsilon": "0.5"}
        return self.world.allocate(**{**wanted, **asked})

    def data(self, claim):
        data = self.world.artifact("data")
        download(claim, data, run_id=self.world.run)
        return data.travelled()

    def compute(self, claim, statistic="reviews_total", data=None, **said):
        result = self.world.artifact("result")
        data = data or self.data(claim)
        dp_statistic(claim, data, result, run_id=self.world.run, statistic=statistic, **said)
        return result.travelled()

    def spend(self, claim, **what):
        consumed, report = self.world.artifact("consumed"), self.world.artifact("spent")
        consume(claim, consumed, report, run_id=self.world.run, **what)
        return consumed.travelled()

    def show(self, claim, result):
        metrics, report = self.world.artifact("metrics"), self.world.artifact("page")
        show_statistic(claim, result, metrics, report, run_id=self.world.run)
        return metrics.metadata, Path(report.path).read_text()


@pytest.fixture
def reviews(world):
    return Reviews(world)


def test_it_is_computed_paid_for_and_shown(reviews, capsys):
    claim = reviews.claim()
    result = reviews.compute(claim)
    found = json.loads(Path(result.path).read_text())
    said = capsys.readouterr().out
    assert "reviews_total: laplace noise of scale 2 on the count, for epsilon 0.5" in said
    assert str(found["value"]) not in said + json.dumps(result.metadata)
    assert abs(found["value"] - 260) < 100
    metrics, page = reviews.show(reviews.spend(claim), result)
    assert metrics == {"value": found["value"], "error95": found["error95"]}
    seen = Page(page)
    assert seen.title == "Reviews total"
    assert f"{found['value']}" in seen.lines
    assert "Error by noise: ± 6, in 95 of 100 runs." in seen.lines
    assert seen.facts["spent"] == "epsilon 0.5"
    assert seen.facts["of claim"] == "run-1.claim"
    assert "260" not in capsys.readouterr().out


def test_a_table_says_how_far_off_all_of_it_is(reviews):
    """What holds of each value in 95 of 100 runs holds of eleven at once in 57."""
    categories = ["books", *(f"none-{n}" for n in range(10))]
    claim = reviews.claim(epsilon="0.1")
    result = reviews.compute(claim, "reviews_per_category", categories=categories)
    found = json.loads(Path(result.path).read_text())
    assert (found["error95"], found["error95Each"]) == (54, 30)
    metrics, page = reviews.show(reviews.spend(claim), result)
    assert (metrics["error95"], metrics["error95_each"]) == (54, 30)
    assert set(categories) <= set(metrics)
    said = "Error by noise: ± 54 on all 11 values at once, in 95 of 100 runs (± 30 on each one"
    assert any(line.startswith(said) for line in Page(page).lines)


@pytest.mark.parametrize("delta", ["0", "1e-8"])
def test_what_is_logged_is_what_is_consumed(reviews, delta):
    claim = reviews.claim(delta=delta)
    result = reviews.compute(claim, "tokens_deviation", bounds=[0.0, 50.0])
    reviews.spend(claim)
    found = json.loads(Path(result.path).read_text())
    consumed = reviews.world.ledger.block("day-1").budget.consumed.to_json()
    assert found["cost"] == consumed
    if delta == "0":
        ratios = [Fraction(p["sensitivity"]) / Fraction(p["scale"]) for p in found["parts"]]
        assert format_amount(ceil_units(sum(ratios)), 12) == consumed["epsilon"] == "0.5"


def test_renyi_streams(world):
    spec = StreamSpec(
        *("reviews", "10", "1e-7", ByPipelines(1)),
        accounting=renyi(["4", "8", "64"]),
        conversion=Weighted(),
    )
    reviews = Reviews(world, spec)
    plan = {
        "steps": [
            {"name": "mean", "mechanism": "gaussian", "sigma": "20"},
            {"name": "total", "mechanism": "laplace", "epsilon": "0.1"},
        ]
    }
    claim = reviews.claim(epsilon="", plan=plan)
    data = reviews.data(claim)
    mean = reviews.compute(claim, "rating_mean", data, plan_step="mean")
    found = json.loads(Path(mean.path).read_text())
    assert found["noise"] == "gaussian"
    consumed = reviews.spend(claim, plan_step="mean")
    assert found["cost"] == world.ledger.block("day-1").budget.consumed.to_json()
    metrics, _ = reviews.show(consumed, mean)
    assert 1 <= metrics["value"] <= 5


@pytest.mark.parametrize(
    ("semantic", "rows", "most"), [(Semantic.USER, 100, 120), (Semantic.USER_TIME, 20, 120)]
)
def test_users_count_for_a_bounded_number_of_rows(world, semantic, rows, most):
    spec = StreamSpec(
        *("reviews", "9000", "1e-7", ByPipelines(1)), semantic=semantic, counter=Counter("1", 64)
    )
    reviews = Reviews(world, spec)
    claim = reviews.claim(epsilon="8000")
    found = json.loads(Path(reviews.compute(claim).path).read_text())
    assert found["unit"] == {"semantic": semantic.value, "rows": rows, "rowsPerDay": 20}
    assert found["parts"][0]["sensitivity"] == rows
    assert found["value"] == most  # so much budget that there is hardly any noise


# Refusals


def test_nothing_is_shown_that_is_not_paid_for(reviews, fails):
    plan = {
        "steps": [
            {"name": "one", "mechanism": "laplace", "epsilon": "0.1"},
            {"name": "two", "mechanism": "laplace", "epsilon": "0.1"},
        ]
    }
    claim = reviews.claim(epsilon="", plan=plan)
    data = reviews.data(claim)
    result = reviews.compute(claim, data=data, plan_step="one")
    why = fails(reviews.show, claim, result)
    assert why.startswith("NotConsumed: ")
    assert "nothing leaves before Consume has succeeded" in why
    other = reviews.spend(claim, plan_step="two")
    assert "has not consumed its step 'one'" in fails(reviews.show, other, result)
    reviews.show(reviews.spend(claim, plan_step="one"), result)


def test_a_step_that_is_consumed_pays_for_nothing_more(reviews, fails):
    plan = {
        "steps": [
            {"name": "one", "mechanism": "laplace", "epsilon": "0.1"},
            {"name": "two", "mechanism": "laplace", "epsilon": "0.1"},
        ]
    }
    claim = reviews.claim(epsilon="", plan=plan)
    data = reviews.data(claim)
    reviews.spend(claim, plan_step="one")
    why = fails(reviews.compute, claim, data=data, plan_step="one")
    assert "a second result for one price" in why
    reviews.spend(claim, plan_step="two")
    why = fails(reviews.compute, claim, data=data, plan_step="two")
    assert "only while it is Allocated" in why


def test_what_makes_no_sense_ends_in_a_sentence_and_costs_nothing(reviews, fails):
    claim = reviews.claim()
    data = reviews.data(claim)

    def why(statistic="reviews_total", **said):
        return fails(reviews.compute, claim, statistic, data, **said)

    assert "unknown statistic 'median'" in why("median")
    assert "has no step 'train'; it has all" in why(plan_step="train")
    assert "bounds are two numbers" in why("rating_mean", bounds=[1])
    assert "bounds are two numbers" in why("rating_mean", bounds="15")
    assert "whole numbers" in why("rating_mean", bounds=[1, 4.5])
    assert "low must be below high" in why("rating_mean", bounds=[5, 1])
    assert "no column 'stars'" in why("rating_mean", column="stars")
    assert "needs the list of categories" in why("reviews_per_category")
    assert "here rows are" in why(per_user=3)
    Path(data.path).write_text(SECRET)
    said = why()
    assert "could not be computed on the data (Arrow" in said
    assert SECRET not in said
    other = replace(data, metadata={**data.metadata, "claim": "another"})
    assert "data are not those of claim" in fails(reviews.compute, claim, data=other)
    assert reviews.world.epsilons("monday") == ("0", "0")
    release(run_id=reviews.world.run)
    assert "Released" in why()


def test_a_step_too_small_for_its_noise(reviews, fails):
    claim = reviews.claim(epsilon="0.000000000001")
    why = fails(reviews.compute, claim, "tokens_deviation", bounds=[0, 1000])
    assert "too small" in why


def test_a_full_disk_is_said_in_a_sentence_and_costs_nothing(reviews, fails):
    claim = reviews.claim()
    data = reviews.data(claim)
    partial = Path(f"{reviews.world.artifact('result').path}.partial")
    partial.symlink_to("/dev/full")
    why = fails(reviews.compute, claim, data=data)
    assert why.endswith("cannot be written: No space left on device")
    assert reviews.world.ledger.block("day-1").budget.consumed.is_zero
    partial.unlink()
    reviews.compute(claim, data=data)


def test_a_result_of_another_claim_is_not_shown(reviews, fails):
    claim = reviews.claim()
    result = reviews.compute(claim)
    other = reviews.world.allocate(claim_name="other", stream="reviews", epsilon="0.1")
    consumed, report = reviews.world.artifact("consumed"), reviews.world.artifact("spent")
    consume(other, consumed, report, run_id=reviews.world.run)
    assert "results are not those of claim run-1.other" in fails(
        reviews.show, consumed.travelled(), result
    )
