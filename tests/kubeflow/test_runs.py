"""Whole runs of our pipelines, task by task in processes, with inputs such as Kubeflow makes them.

What each task puts out goes to the next as Kubeflow gives it back. Run by `kfp.local` instead, it
would arrive unchanged.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from privatekube_kfp.core.claim import Phase
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.data.sample import reviews as sample_reviews
from privatekube_kfp.dp.folders import load_model
from privatekube_kfp.ledger.ledger import Ledger
from privatekube_kfp.ledger.sqlite import SqliteLedger
from privatekube_kfp.ledger.streams import Semantic, StreamSpec
from privatekube_kfp.local.compiling import compile_file
from tests.e2e.reviews import open_shop
from tests.kubeflow.imitation import MOST_BYTES, ROOT, Kubeflow, TaskFailed, in_process
from tests.kubeflow.recordings import recorded

pytestmark = pytest.mark.slow
BLOCKS = 10_000


@dataclass
class Place:
    """A ledger in a file, and a Kubeflow beside it."""

    folder: Path
    ledger: Ledger
    kubeflow: Kubeflow

    def run(self, name, **arguments):
        """Run a pipeline of ours, as it is compiled."""
        compiled = compile_file(ROOT / "pipelines" / f"{name}.py").spec
        return self.kubeflow.run(compiled, **arguments)

    def claim(self, run):
        return self.ledger.claim(f"{run.id}.claim")

    @property
    def tasks(self):
        return [name.replace("-", "_") for name in self.kubeflow.handed]


@pytest.fixture
def place(tmp_path):
    environment = {"PRIVATEKUBE_LEDGER": f"sqlite:///{tmp_path}/ledger.db"}
    kubeflow = Kubeflow(str(tmp_path / "store"), in_process(environment))
    with SqliteLedger(str(tmp_path / "ledger.db"), create=True) as ledger:
        yield Place(tmp_path, ledger, kubeflow)
        assert ledger.verify().ok


@pytest.fixture
def visits(place):
    path = place.folder / "monday.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"minutes": [10, 20, 30] * 50}), path)
    place.ledger.create_stream(StreamSpec("visits", "1", "1e-7", ByPipelines(1)))
    place.ledger.create_block("monday", "visits", data_source=str(path))
    return place


def test_visits(visits):
    out = visits.folder / "published" / "average"
    run = visits.run("visits", epsilon="0.5", uri=str(out))
    assert visits.tasks == [task.name for task in recorded("visits")]
    assert out.read_text().endswith(" minutes\n")
    assert visits.claim(run).phase is Phase.CONSUMED
    consumed = visits.ledger.block("monday").budget.consumed
    assert consumed.to_json()["epsilon"] == "0.5"


def test_what_fails_gives_back(visits):
    """The exit task runs, and what was not consumed is given back."""
    (visits.folder / "monday.parquet").write_bytes(b"damaged")
    with pytest.raises(TaskFailed, match="the data of block monday") as failed:
        visits.run("visits", epsilon="0.5", uri=str(visits.folder / "out"))
    assert failed.value.task == "download"
    assert visits.tasks == ["allocate", "download", "release"]
    (claim,) = visits.ledger.claims()
    assert claim.phase is Phase.RELEASED


def test_a_statistic(place):
    open_shop(place, place.folder, 1_000, Semantic.EVENT)
    out = place.folder / "published" / "total.json"
    run = place.run("statistics_reviews_total", epsilon="10", uri=str(out))
    tasks = {task.name for task in recorded("statistics_reviews")}
    assert {*place.tasks} == tasks
    assert out.exists()
    assert place.claim(run).phase is Phase.CONSUMED


def one_review(path):
    table = pyarrow.Table.from_batches(sample_reviews(1))
    at = table["timestamp"].cast(pyarrow.int64()).to_numpy() * 1_000_000
    times = pyarrow.array(at, pyarrow.timestamp("us"))
    table = table.drop_columns(["timestamp"]).append_column("time", times)
    pyarrow.parquet.write_table(table, path)
    return str(path)


def test_ten_thousand_blocks_with_long_names(place):
    """A statistic and a model: each task's whole input is one argument of a real process."""
    source = one_review(place.folder / "review.parquet")
    place.ledger.create_stream(StreamSpec("reviews", "100", "1e-7", ByPipelines(1)))
    for number in range(BLOCKS):
        name = f"reviews-{number:05}".ljust(192, "x")
        place.ledger.create_block(name, "reviews", data_source=source)
    out = place.folder / "published"
    wanted = {"epsilon": "10", "last_blocks": BLOCKS}
    counted = place.run("statistics_reviews_total", **wanted, uri=str(out / "total.json"))
    total = json.loads((out / "total.json").read_text())["value"]
    assert total == pytest.approx(BLOCKS, rel=0.01)
    small = {"epochs": 1, "units": BLOCKS, "words": "stand-in"}
    trained = place.run("product_linear", **wanted, **small, uri=str(out / "model"))
    assert load_model(out / "model").about.claim == f"{trained.id}.claim"
    for run in (counted, trained):
        assert place.claim(run).phase is Phase.CONSUMED
        assert len(place.claim(run).bound()) == BLOCKS
    sizes = {task: len(json.dumps(given)) for task, given in place.kubeflow.handed.items()}
    assert max(sizes.values()) < 10_000 < MOST_BYTES, sizes


def test_product_lstm(place):
    open_shop(place, place.folder, 400, Semantic.EVENT)
    out = place.folder / "published" / "model"
    run = place.run(
        "product_lstm", epsilon="20", epochs=1, units=400, words="stand-in", uri=str(out)
    )
    assert {*place.tasks} == {task.name for task in recorded("product_lstm")}
    assert load_model(out).about.claim == f"{run.id}.claim"
    assert place.claim(run).phase is Phase.CONSUMED
