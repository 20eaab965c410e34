"""`privatekube demo`: from reviews that nobody wrote to a model that kept to its budget."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privatekube_kfp.cli.errors import DONE, REFUSED, Failure, needing_pyarrow
from privatekube_kfp.cli.options import json_option
from privatekube_kfp.cli.output import print_facts, print_table, say
from privatekube_kfp.cli.pipelines import in_a_sentence, read_pipeline
from privatekube_kfp.cli.progress import Progress
from privatekube_kfp.cli.run import conclude, tell_why
from privatekube_kfp.cli.session import Session
from privatekube_kfp.cli.values import WHOLE
from privatekube_kfp.core.errors import PrivateKubeError, Reason
from privatekube_kfp.core.unlocking import MICROSECONDS, ByPipelines
from privatekube_kfp.ledger.opening import open_ledger
from privatekube_kfp.ledger.streams import StreamSpec
from privatekube_kfp.ledger.times import parse_time
from privatekube_kfp.local.folder import RunFolder, new_run_id
from privatekube_kfp.local.running import Ending, Order, run_pipeline

if TYPE_CHECKING:
    from privatekube_kfp.ledger.ledger import Ledger

_PIPELINE = Path("pipelines", "product_lstm.py")
_STREAM = "reviews"
_START = "2018-01-01"
_WEEKS = 4
_CAPACITY = "10"
_RUNS = 10
_BAR = 24
_EPOCHS_WITHOUT_PRIVACY = 5


@click.command(short_help="Train a model with a budget, on reviews that nobody wrote.")
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default="privatekube-demo",
    help="Where all of it goes.",
)
@click.option("--rows", type=WHOLE, default="20000", help="How many reviews.")
@click.option("--epochs", type=WHOLE, default="0", help="How long to train; 0 for what is good.")
@click.option("-q", "--quiet", is_flag=True, help="Show tasks, but not what they print.")
@json_option
@click.pass_obj
def demo(session: Session, folder: Path, rows: int, epochs: int, quiet: bool) -> int:
    """Run the pipeline product_lstm from beginning to end, from the top of a checkout.

    Makes reviews, brings four weeks of them into private blocks, asks for epsilon 1 of each, trains
    an LSTM that tells a review's category, pays, and publishes model and report. Then trains it
    once more without privacy, to compare. Each call spends more of the same blocks.

    \b
    Examples:
      privatekube demo
      privatekube demo --folder /tmp/demo --rows 5000 --epochs 3
    """
    if not _PIPELINE.exists():
        raise Failure(
            "MissingPipeline", f"there is no {_PIPELINE} here: run it from the top of a checkout"
        )
    place = folder.resolve()
    place.mkdir(parents=True, exist_ok=True)
    address = f"sqlite:///{place}/ledger.db"
    _tell(f"1. {rows:,} reviews that nobody wrote, into a private block for each of {_WEEKS} weeks")
    with open_ledger(address, create=True) as ledger:
        _bring_in(ledger, place, rows)
        before = _left(ledger)
    if min(before.values()) < 1:
        raise PrivateKubeError(
            Reason.EXCEEDS_CAPACITY,
            f"the blocks in {folder} are spent: that is what a budget is for. Begin anew with"
            " another --folder",
        )
    _tell(f"2. {_PIPELINE}, with epsilon 1 of the {_CAPACITY} that each block has")
    ending, run_folder = _run(place, address, rows, epochs, quiet)
    if ending.problem is not None:
        tell_why(ending)
        conclude(run_folder, ending)
        return REFUSED
    _tell("3. The same model without privacy, to compare: nobody is in these reviews")
    accuracies = {"with epsilon 1": ending.tasks["show-model"].metrics.get("accuracy")}
    accuracies |= _compared(_artifact(ending, "dp-preprocess", "examples"))
    with open_ledger(address) as ledger:
        after = _left(ledger)
    report = Path(_artifact(ending, "show-model", "model_report"))
    page = place / "report.html"
    page.write_bytes(report.read_bytes())
    document = {
        "accuracy": accuracies,
        "left": {"before": before, "after": after},
        "report": str(page),
        "model": str(place / "published" / "product_lstm"),
        "ledger": address,
    }
    session.answer(document, lambda: _summarize(accuracies, before, after, page, address))
    return DONE


def _bring_in(ledger: Ledger, place: Path, rows: int) -> None:
    """The reviews' stream and blocks; nothing new if they are there already."""
    with needing_pyarrow():
        import pyarrow
        from pyarrow import parquet

        from privatekube_kfp.data.ingest import ingest
        from privatekube_kfp.data.sample import reviews
        from privatekube_kfp.data.tables import Source

    start, days = parse_time(_START), 7 * _WEEKS
    path = place / "reviews.parquet"
    if not path.exists():
        made = reviews(rows, start=start // MICROSECONDS["s"], days=days)
        parquet.write_table(pyarrow.Table.from_batches(made), path)
    ledger.create_stream(StreamSpec(_STREAM, _CAPACITY, "1e-7", ByPipelines(_RUNS)))
    ingest(
        ledger,
        _STREAM,
        [Source(path)],
        str(place / "store"),
        start=start,
        interval=7 * MICROSECONDS["d"],
        until=start + days * MICROSECONDS["d"],
    )


def _left(ledger: Ledger) -> dict[str, float]:
    """Epsilon that is not consumed, by block."""
    records = ledger.blocks(_STREAM)
    return {r.block.name: float(str(r.budget.left.to_json()["epsilon"])) for r in records}


def _run(
    place: Path, address: str, rows: int, epochs: int, quiet: bool
) -> tuple[Ending, RunFolder]:
    pipeline = read_pipeline(_PIPELINE, None)
    folder = RunFolder(place / "runs", new_run_id(pipeline.name))
    arguments = {"units": rows, "epochs": epochs, "uri": str(place / "published" / "product_lstm")}
    order = Order(pipeline, arguments, folder, address)
    with in_a_sentence(), Progress(verbose=not quiet) as progress:
        return run_pipeline(order, progress), folder


def _artifact(ending: Ending, task: str, name: str) -> str:
    return next(one["path"] for one in ending.tasks[task].artifacts if one["name"] == name)


def _compared(examples: str) -> dict[str, float]:
    """How often the model is right without privacy, and how often whoever always says the same."""
    import numpy as np

    from privatekube_kfp.dp.evaluation import true_accuracy
    from privatekube_kfp.dp.folders import load_examples
    from privatekube_kfp.dp.restoring import data_for, model_for
    from privatekube_kfp.dp.training import PLAIN_LEARNING_RATES, train_without_privacy

    ready = load_examples(examples)
    model = model_for(ready.about, ready.vectors, seed=0)
    row = ready.about.architecture
    train_without_privacy(
        model,
        data_for(model, ready.about, ready.train),
        epochs=_EPOCHS_WITHOUT_PRIVACY,
        learning_rate=PLAIN_LEARNING_RATES[row.kind],
    )
    commonest = np.bincount(ready.train.labels).argmax()
    return {
        "without privacy": true_accuracy(model, data_for(model, ready.about, ready.held_out)),
        "always the commonest": float((ready.held_out.labels == commonest).mean()),
    }


def _summarize(
    accuracies: dict[str, float | None],
    before: dict[str, float],
    after: dict[str, float],
    page: Path,
    address: str,
) -> None:
    say("")
    rows = [
        (name, _bar(share or 0.0, 1.0), "not known" if share is None else f"{share:.1%}")
        for name, share in accuracies.items()
    ]
    print_table(["ACCURACY", "", ">OF HELD-OUT REVIEWS"], rows)
    say("")
    capacity = float(_CAPACITY)
    budgets = [
        (
            name,
            _bar(left, capacity),
            f"{left:.2f}",
            _bar(after[name], capacity),
            f"{after[name]:.2f}",
        )
        for name, left in before.items()
    ]
    print_table(["EPSILON LEFT ON", "BEFORE", ">", "AFTER", ">"], budgets)
    say("")
    print_facts(
        [
            ("report", str(page)),
            ("model", str(page.parent / "published" / "product_lstm")),
            ("ledger", address),
        ]
    )


def _bar(amount: float, whole: float) -> str:
    full = round(_BAR * max(0.0, min(1.0, amount / whole)))
    return "█" * full + "░" * (_BAR - full)


def _tell(line: str) -> None:
    """On standard error, if anybody reads it."""
    with suppress(OSError, ValueError, AttributeError):
        print(line, file=sys.stderr, flush=True)
