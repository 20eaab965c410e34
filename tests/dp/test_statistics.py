"""Statistics: what one unit can change, how much noise there is, and what that costs."""

import json
import math
import random
import statistics as plain
from fractions import Fraction

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from privatekube_kfp.accounting import (
    Curve,
    DpSgd,
    EpsilonDelta,
    Gaussian,
    Laplace,
    PureEpsilon,
    gaussian_sigma,
)
from privatekube_kfp.accounting.enclosure import Enclosure
from privatekube_kfp.accounting.hockey_stick import renyi_epsilon
from privatekube_kfp.core.budget import BASIC, ceil_units, renyi
from privatekube_kfp.core.errors import PrivateKubeError, Reason
from privatekube_kfp.data.blocks import ROWS_OF_BLOCKS
from privatekube_kfp.data.sample import CATEGORIES, reviews
from privatekube_kfp.dp.contribution import Unit, unit_of
from privatekube_kfp.dp.noise import Kind, draw, noisy
from privatekube_kfp.dp.statistics import STATISTICS, calibrate, statistic
from privatekube_kfp.ledger.streams import Semantic

DAY = 86_400_000_000
RENYI = renyi(["2", "4", "8", "64"])
NAMES = list(STATISTICS)
SEMANTICS = list(Semantic)


def made(name, unit=None, **said):
    if name == "reviews_per_category":
        said.setdefault("categories", ["books", "toys"])
    return statistic(name, unit, **said)


def write(path, rows, blocks=None):
    """Rows are (user, time, rating, category, text)."""
    names = ("user", "time", "rating", "category", "text")
    kinds = (pa.string(), pa.timestamp("us", "UTC"), pa.float64(), pa.string(), pa.string())
    columns = list(zip(*rows, strict=True)) or [()] * 5
    arrays = [pa.array(c, k) for c, k in zip(columns, kinds, strict=True)]
    table = pa.table(dict(zip(names, arrays, strict=True)))
    with parquet.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        if blocks is not None:
            writer.add_key_value_metadata({ROWS_OF_BLOCKS: json.dumps(blocks)})
    return path


def unit(semantic):
    if semantic is Semantic.EVENT:
        return unit_of(semantic)
    periods = [(0, 2 * DAY), (2 * DAY, 4 * DAY)]
    return unit_of(semantic, per_user_per_day=3, per_user=5, periods=periods)


def no_noise(kind, scale):
    return 0


def world(seed):
    """Rows of two blocks: few users who do much, with everything that data may hold."""
    random_ = random.Random(seed)

    def row(block):
        return (
            random_.choice(["ann", "bob", "eve", "joe"]),
            int((2 * block + 2 * random_.random()) * DAY),
            random_.choice([1.0, 2.5, 5.0, 99.0, -7.0, None, math.nan, math.inf]),
            random_.choice(["books", "toys", "unheard of", None]),
            random_.choice(["", "a b c", "word " * 500, None, " one "]),
        )

    return [[row(block) for _ in range(random_.randrange(40))] for block in range(2)]


def units_in(semantic, blocks):
    """Every unit, as what is left of the data without it."""
    for number, block in enumerate(blocks):
        for place, row in enumerate(block):
            if semantic is Semantic.EVENT:
                without = [*block[:place], *block[place + 1 :]]
                yield [*blocks[:number], without, *blocks[number + 1 :]]
            elif semantic is Semantic.USER_TIME and row[0] not in {r[0] for r in block[:place]}:
                without = [r for r in block if r[0] != row[0]]
                yield [*blocks[:number], without, *blocks[number + 1 :]]
    if semantic is Semantic.USER:
        for user in sorted({row[0] for block in blocks for row in block}):
            yield [[row for row in block if row[0] != user] for block in blocks]


@pytest.mark.parametrize("semantic", SEMANTICS)
@pytest.mark.parametrize("name", NAMES)
def test_one_unit_changes_no_part_by_more_than_its_sensitivity(name, semantic, tmp_path):
    known = made(name, unit(semantic))

    def exact(blocks):
        rows = [row for block in blocks for row in block]
        return known.exact(write(tmp_path / "data.parquet", rows, [*map(len, blocks)]))

    furthest = [0] * len(known.parts)
    for seed in range(3):
        blocks = world(seed)
        whole = exact(blocks)
        for fewer in units_in(semantic, blocks):
            for n, (was, is_) in enumerate(zip(whole, exact(fewer), strict=True)):
                moved = sum(abs(a - b) for a, b in zip(was, is_, strict=True))
                furthest[n] = max(furthest[n], moved)
    for part, moved in zip(known.parts, furthest, strict=True):
        assert 0 < moved <= known.sensitivity(part)
    if semantic is Semantic.EVENT:
        # The bound is not loose: some row reaches it.
        assert furthest == [known.sensitivity(part) for part in known.parts]


def test_of_each_unit_the_first_rows_count(tmp_path):
    rows = [("ann", day * DAY + n, 5.0, "books", "") for day in range(8) for n in range(30)]
    path = write(tmp_path / "a", [*rows, ("bob", 0, 5.0, "toys", "")], [120, 121])
    assert made("reviews_total").exact(path) == [[241]]
    assert made("reviews_total", unit_of(Semantic.USER)).exact(path) == [[101]]
    users = unit_of(Semantic.USER, per_user_per_day=2, per_user=50)
    assert made("reviews_total", users).exact(path) == [[17]]
    by_day = unit_of(Semantic.USER_TIME, periods=[(0, DAY), (DAY, 2 * DAY)])
    assert by_day == Unit(Semantic.USER_TIME, rows=20, per_day=20)
    # Late rows of other days are in a block too, and count towards its bound.
    assert made("reviews_total", by_day).exact(path) == [[41]]


def test_rows_of_a_period():
    def rows(*periods):
        return unit_of(Semantic.USER_TIME, periods=periods).rows

    assert rows((0, DAY)) == 20
    assert rows((DAY // 2, DAY + DAY // 2)) == 40
    assert rows((0, DAY), (DAY, 4 * DAY)) == 60
    assert rows((0, 30 * DAY)) == 100
    assert rows((0, DAY), (None, None)) == 100
    assert unit_of(Semantic.USER, periods=[(0, DAY)]).rows == 100


def test_values_are_clamped_and_what_makes_no_sense_is_left_out(tmp_path):
    rows = [
        ("a", 0, 9.0, "books", "one two"),
        ("b", 0, 0.0, "books", " "),
        ("c", 0, math.nan, "gone", "w " * 1000),
        ("d", 0, None, None, None),
        ("e", 0, 2.0004, "toys", "one"),
    ]
    path = write(tmp_path / "a", rows)
    assert made("reviews_total").exact(path) == [[5]]
    assert made("reviews_per_category").exact(path) == [[2, 1]]
    assert made("tokens_total").exact(path) == [[2 + 0 + 200 + 1]]
    mean = calibrate(made("rating_mean"), Laplace("1"), BASIC).run(path, no_noise)
    assert mean.value == pytest.approx((5 + 1 + 2) / 3, abs=1e-9)
    assert mean.sums[1] == (3,)
    spread = calibrate(made("tokens_deviation"), Laplace("1"), BASIC).run(path, no_noise)
    assert spread.value == pytest.approx(plain.pstdev([2, 0, 200, 1]))


@pytest.mark.parametrize("semantic", SEMANTICS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows", [[], [("ann", 0, 3.0, "books", "a b")]])
def test_no_data_and_one_row_have_answers(name, semantic, rows, tmp_path):
    path = write(tmp_path / "a", rows, [len(rows)])
    planned = calibrate(made(name, unit(semantic)), Laplace("0.1"), BASIC)
    for noise in (lambda kind, scale: 0, lambda kind, scale: -int(9 * scale)):
        release = planned.run(path, noise)
        values = release.value.values() if isinstance(release.value, dict) else [release.value]
        assert all(math.isfinite(value) and value >= 0 for value in values)
        json.dumps(release.to_json(), allow_nan=False)


# Noise


@pytest.mark.parametrize("step", [Laplace("0.5"), EpsilonDelta("0.5", "1e-7")], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_the_spread_is_that_of_the_calibrated_scale(name, step, tmp_path):
    rows = [("ann", 0, 3.0, "books", "a b"), ("bob", 0, 4.0, "toys", "a b c")] * 20
    path = write(tmp_path / "a", rows)
    planned = calibrate(made(name), step, BASIC)
    exact = planned.statistic.exact(path)
    runs = 400
    released = [planned.run(path).sums for _ in range(runs)]
    for n, part in enumerate(planned.statistic.parts):
        share, sensitivity = part.share, planned.statistic.sensitivity(part)
        if planned.kind is Kind.LAPLACE:
            expected = sensitivity / (Fraction(step.epsilon) * share)
        else:
            expected = (
                sensitivity * Fraction(gaussian_sigma("0.5", "1e-7")) / Fraction(math.sqrt(share))
            )
            assert 1 < planned.scales[n] / float(expected) < 1.1
            expected = Fraction(planned.scales[n])
        assert planned.scales[n] == pytest.approx(float(expected), rel=1e-12)
        for at in range(part.width):
            off = [abs(sums[n][at] - exact[n][at]) for sums in released]
            mean = float(expected)
            if planned.kind is Kind.GAUSSIAN:
                mean *= math.sqrt(2 / math.pi)
            # The mean of a size is known to within its own spread over sqrt(runs).
            assert plain.mean(off) == pytest.approx(mean, rel=6 / math.sqrt(runs))


# Cost


def recomputed(document, accounting, delta=0):
    """What was spent, of nothing but what a release says of itself."""
    ratios = [Fraction(p["sensitivity"]) / Fraction(p["scale"]) for p in document["parts"]]
    if document["noise"] == "laplace":
        return accounting.budget((ceil_units(sum(ratios)), 0))
    precision = sum(ratio**2 for ratio in ratios)
    if accounting.is_renyi:
        orders = accounting.order_values
        return accounting.budget(ceil_units(Fraction(a) * precision / 2) for a in orders)
    curve = renyi_epsilon(lambda a: Enclosure.of(Fraction(a) * precision / 2).high, delta)
    return accounting.budget((curve, delta))


@pytest.mark.parametrize("semantic", SEMANTICS)
@pytest.mark.parametrize("name", NAMES)
def test_the_noise_costs_the_step_to_the_last_unit(name, semantic, tmp_path):
    known = made(name, unit(semantic))
    path = write(tmp_path / "a", [], [0])
    for step, accounting in (
        (Laplace("0.1"), BASIC),
        (PureEpsilon("0.30000000007"), BASIC),
        (EpsilonDelta("3", "0"), BASIC),
        (EpsilonDelta("0.1", "1e-9"), BASIC),
        (Gaussian("17.3", "1e-7"), BASIC),
        (Gaussian("17.3"), RENYI),
    ):
        planned = calibrate(known, step, accounting)
        document = json.loads(json.dumps(planned.run(path).to_json()))
        price = step.price(accounting)
        delta = 0 if accounting.is_renyi else price.amounts[1]
        assert recomputed(document, accounting, delta) == price
        assert planned.cost == price
    for step in (Laplace("0.1"), PureEpsilon("0.1")):
        planned = calibrate(known, step, RENYI)
        assert planned.cost == Laplace("0.1").price(RENYI)
        assert step.price(RENYI).covers(planned.cost)


def test_laplace_curves_of_parts_are_below_that_of_their_sum():
    for accounting in (RENYI, renyi(["1.1", "1000"])):
        for share in ("0.1", "0.25", "0.5"):
            parts = Laplace(share).price(accounting) + Laplace(str(1 - float(share))).price(
                accounting
            )
            assert Laplace("1").price(accounting).covers(parts)


# Refusals


def refused(reason, run, *said, **more):
    with pytest.raises(PrivateKubeError) as error:
        run(*said, **more)
    assert error.value.reason is reason
    return error.value.message


def test_steps_that_pay_for_no_statistic():
    known = made("tokens_mean")
    for step in (DpSgd("1", "0.1", 10, "1e-9"), Curve({"2": "0.1"})):
        accounting = RENYI if step.kind == "curve" else BASIC
        message = refused(Reason.INVALID_PLAN, calibrate, known, step, accounting)
        assert step.kind in message
    assert "no Renyi curve" in refused(
        Reason.CANNOT_PRICE, calibrate, known, EpsilonDelta("0.1", "1e-9"), RENYI
    )
    assert "delta" in refused(Reason.CANNOT_PRICE, calibrate, known, Gaussian("2"), BASIC)


@pytest.mark.parametrize(
    "step", [Laplace("0.000000000001"), EpsilonDelta("0.0001", "1e-9"), EpsilonDelta("0", "1e-9")]
)
def test_a_step_too_small_for_any_noise(step):
    known = made("tokens_deviation", unit(Semantic.USER))
    message = refused(Reason.INVALID_BUDGET, calibrate, known, step, BASIC)
    assert "too small" in message or "no epsilon" in message


@pytest.mark.parametrize(
    ("name", "said", "word"),
    [
        ("nothing", {}, "unknown statistic"),
        ("reviews_total", {"low": 1}, "has no low"),
        ("rating_mean", {"categories": ["a"]}, "has no categories"),
        ("rating_mean", {"low": 5}, "low must be below high"),
        ("rating_mean", {"low": 7}, "low must be below high"),
        ("rating_mean", {"high": math.nan}, "whole numbers"),
        ("rating_mean", {"high": "5"}, "whole numbers"),
        ("rating_mean", {"high": True}, "whole numbers"),
        ("rating_mean", {"high": 10**9}, "beyond"),
        ("tokens_mean", {"low": -1}, "fewer than 0"),
        ("tokens_total", {"high": 2**40}, "beyond"),
        ("reviews_per_category", {"categories": []}, "needs the list"),
        ("reviews_per_category", {"categories": "books"}, "needs the list"),
        ("reviews_per_category", {"categories": ["a", "a"]}, "twice"),
        ("reviews_per_category", {"categories": ["a", ""]}, "empty"),
        ("reviews_per_category", {"categories": ["a", 3]}, "texts"),
    ],
)
def test_bad_bounds(name, said, word):
    assert word in refused(Reason.INVALID_REQUEST, statistic, name, **said)


def test_the_list_of_categories_is_needed():
    message = refused(Reason.INVALID_REQUEST, statistic, "reviews_per_category")
    assert "cannot be taken from the data" in message


def test_bounds_on_users_who_are_not_protected():
    assert "rows are" in refused(Reason.INVALID_REQUEST, unit_of, Semantic.EVENT, per_user=3)
    assert "above 0" in refused(Reason.INVALID_REQUEST, unit_of, Semantic.USER, per_user=-3)


def test_columns_that_are_missing_or_hold_something_else(tmp_path):
    path = tmp_path / "a"
    secret = "a-secret"
    parquet.write_table(pa.table({"rating": [secret], secret: [1], "text": [7]}), path)
    for name, unit_, word in (
        ("rating_mean", None, "'rating' does not hold numbers"),
        ("tokens_mean", None, "'text' does not hold texts"),
        ("reviews_per_category", None, "no column 'category'"),
        ("reviews_total", unit(Semantic.USER), "no column 'user'"),
    ):
        message = refused(Reason.WRONG_COLUMNS, made(name, unit_).exact, path)
        assert word in message
        assert secret not in message
        # Whether it is refused does not tell whether there are any rows.
        empty = parquet.read_table(path).slice(0, 0)
        parquet.write_table(empty, tmp_path / "b")
        assert refused(Reason.WRONG_COLUMNS, made(name, unit_).exact, tmp_path / "b") == message


def test_user_time_needs_to_know_the_blocks(tmp_path):
    known = made("reviews_total", unit(Semantic.USER_TIME))
    row = ("ann", 0, 5.0, "books", "")
    for blocks in (None, [], [2]):
        path = write(tmp_path / "a", [row], blocks)
        message = refused(Reason.DATA_UNREADABLE, known.exact, path)
        assert "which rows are of which block" in message


# Usefulness


@pytest.mark.parametrize("epsilon", ["0.003", "0.1", "1", "1.2", "3", "10", "100"])
def test_the_error_that_is_told_is_the_least_that_holds_in_95_of_100_runs(epsilon):
    planned = calibrate(made("reviews_total"), Laplace(epsilon), BASIC)
    (size,), (scale,) = planned.sizes(), planned.scales

    def beyond(size):
        """How often rounded noise is, as it is drawn."""
        return math.exp(-(size + 0.5) / scale)

    assert beyond(size) <= 0.05
    assert size == 0 or beyond(size - 1) > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("step", [PureEpsilon("0.1"), EpsilonDelta("0.1", "1e-9")], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_within_five_percent_at_a_tenth(name, step, sample):
    """On 100,000 reviews, in 95 of 100 runs; each category by itself.

    Of a thousand runs about 50 are beyond what is told as their error: 100 less than once in a
    million times.
    """
    said = {"categories": CATEGORIES} if "category" in name else {}
    if name == "tokens_deviation" and isinstance(step, EpsilonDelta):
        said = {"high": 100}  # Gaussian noise for so small a delta is four times as much
    known = made(name, **said)
    planned = calibrate(known, step, BASIC)
    exact = known.exact(sample)
    truth, runs = known.value(exact), 1000
    good = covered = 0
    for _ in range(runs):
        # As `run` does, without reading the file each time.
        sums = [
            [noisy(value, draw(planned.kind, scale)) for value in part]
            for part, scale in zip(exact, planned.scales, strict=True)
        ]
        pairs = zip(_listed(known.value(sums)), _listed(truth), strict=True)
        offs = [(abs(a - b), b) for a, b in pairs]
        good += max(off / true for off, true in offs) < 0.05
        covered += offs[0][0] <= known.error(sums, planned.sizes())
    assert good / runs > 0.95
    assert covered / runs > 0.9


def _listed(value):
    return list(value.values()) if isinstance(value, dict) else [value]


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    path = tmp_path_factory.mktemp("sample") / "reviews.parquet"
    parquet.write_table(pa.Table.from_batches(list(reviews(100_000))), path)
    return path
