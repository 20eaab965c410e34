"""A claim's reviews as a model reads them, with some users held out to evaluate on.

What comes of it is as private as the data. With a public vocabulary it costs nothing, since nobody
is told anything; choosing the words by the data is a release, which a step of the plan pays for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow.parquet as parquet

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.blocks import blocks_of_rows
from privatekube_kfp.data.bounds import Mask
from privatekube_kfp.data.settings import DEFAULT_PER_USER, DEFAULT_PER_USER_PER_DAY
from privatekube_kfp.dp import planning, sources
from privatekube_kfp.dp.architectures import Architecture, Kind, Task, architecture
from privatekube_kfp.dp.embeddings import Embeddings
from privatekube_kfp.dp.examples import Examples, Reader
from privatekube_kfp.dp.examples import examples as examples_of
from privatekube_kfp.dp.folders import About, Array, Part, ReadyExamples, save_examples
from privatekube_kfp.dp.units import Units, held_out, numbered
from privatekube_kfp.ledger.streams import Semantic
from privatekube_kfp.steps.data import make_sure_it_is_allocated
from privatekube_kfp.steps.needs import check_torch, check_words
from privatekube_kfp.steps.paying import make_sure_it_belongs, payment_for, untold
from privatekube_kfp.steps.run import Artifact, claim_of_artifact, in_a_sentence, ledger_of_run

MOODS = ("bad", "good")


@in_a_sentence
def dp_preprocess(
    claim: Artifact,
    data: Artifact,
    examples: Artifact,
    *,
    run_id: str,
    task: str,
    model: str,
    categories: Sequence[str] | None = None,
    source: str = "",
    vocabulary: str = planning.PUBLIC,
    vocabulary_size: int = 5000,
    plan_step: str = planning.PREPROCESS,
    held_out_percent: int = 10,
    per_user_per_day: int = 0,
    per_user: int = 0,
) -> None:
    """Write the examples of a claim's data. A crash leaves a folder that nobody reads."""
    row = architecture(task, model)
    check_torch("dp_preprocess")
    check_words(source)
    if not 0 < held_out_percent < 100:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"{held_out_percent} percent of users cannot be held out: some must be, and some not",
        )
    paying = None
    with ledger_of_run() as ledger:
        known = claim_of_artifact(ledger, claim, run_id)
        make_sure_it_is_allocated(known, "used")
        semantic = ledger.stream(known.stream).spec.semantic
        if _is_private(vocabulary, row):
            paying = payment_for(ledger, claim, run_id, plan_step)
    make_sure_it_belongs(known, "data", data.metadata.get("claim"))
    reader, words = _reader(row, source)
    labels = tuple(categories or ()) if row.task is Task.PRODUCT else MOODS
    with untold("examples"):
        table = parquet.read_table(data.path)
        users, names = numbered(table["user"])
        periods = None
        if semantic is Semantic.USER_TIME:
            periods = blocks_of_rows(parquet.read_metadata(data.path))
        out = held_out(users, names, held_out_percent)

        def examples_for(reader: Reader, only: Mask) -> Examples:
            return examples_of(
                table,
                row,
                reader,
                semantic,
                categories=categories or (),
                periods=periods,
                only=only,
                per_day=per_user_per_day or DEFAULT_PER_USER_PER_DAY,
                per_user=per_user or DEFAULT_PER_USER,
            )

        train, chosen = examples_for(reader, ~out), None
        if paying is not None:
            # Here and below, since an image without PyTorch must be able to say so.
            from privatekube_kfp.dp.vocabulary import choose_words

            assert isinstance(reader, Embeddings)
            units = Units(train.rows, train.units.offsets)
            chosen = choose_words(
                table["text"], units, reader, paying.mechanism, size=vocabulary_size
            )
            reader = chosen.reader(reader)
            words = reader.name
            train = examples_for(reader, ~out)
        (training, held), vectors = _as_read(row, reader, train, examples_for(reader, out))
    about = About(known.name, task, model, str(semantic), labels, words, source)
    ready = ReadyExamples(about, training, held, vectors)
    if chosen is not None:
        ready = replace(ready, spent=(chosen.spent.to_json(),), vocabulary=chosen.numbers)
    save_examples(examples.path, ready)
    examples.metadata.update(claim=known.name, task=task, model=model, words=words)
    print(f"examples for {task} {model}, with {words}")


def _is_private(vocabulary: str, row: Architecture) -> bool:
    private = planning.check_vocabulary(vocabulary) == planning.PRIVATE
    if private and row.kind is Kind.BERT:
        raise Invalid(Reason.INVALID_REQUEST, "BERT has words of its own; none can be chosen")
    return private


def _reader(row: Architecture, source: str) -> tuple[Reader, str]:
    """What turns texts into numbers, and its name."""
    if row.kind is Kind.BERT:
        encoder, tokenizer = sources.bert(row, source)
        return tokenizer, encoder.name
    vectors = sources.word_vectors(source)
    return vectors, vectors.name


def _as_read(row: Architecture, reader: Reader, *made: Examples) -> tuple[list[Part], Array]:
    """Whatever is frozen is worked out here, and of the vectors only those that occur are kept."""
    if not isinstance(reader, Embeddings):
        inputs, vectors = [part.ids for part in made], np.zeros((0, 0), np.float32)
    elif row.kind is Kind.LSTM:
        used = np.unique(np.concatenate([[0], *(part.ids.ravel() for part in made)]))
        inputs = [np.searchsorted(used, part.ids) for part in made]
        vectors = reader.vectors[used]
    else:
        import torch

        from privatekube_kfp.dp.models import build

        model = build(row, torch.from_numpy(reader.vectors))
        inputs = [model.prepare(torch.from_numpy(part.ids))[0].numpy() for part in made]
        vectors = np.zeros((0, 0), np.float32)
    parts = [
        Part(read, part.labels, part.units.offsets) for read, part in zip(inputs, made, strict=True)
    ]
    return parts, vectors
