"""Training: how much accuracy privacy costs, and how much time, beside the twin without and Opacus.

Sample reviews are nobody's, real ones are public: accuracies here are told without noise. Real
reviews and vectors lie in a folder beside the project's own, if at all.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import torch
from opacus import PrivacyEngine
from opacus.layers import DPLSTM
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.report import Result, at_least, at_most
from privatekube_kfp.data.sample import CATEGORIES, reviews
from privatekube_kfp.dp import sources
from privatekube_kfp.dp.architectures import ARCHITECTURES, Architecture, Kind, architecture
from privatekube_kfp.dp.embeddings import Embeddings, from_file, stand_in
from privatekube_kfp.dp.evaluation import true_accuracy
from privatekube_kfp.dp.examples import Examples, Reader, examples
from privatekube_kfp.dp.models import Model, build
from privatekube_kfp.dp.planning import CLIP, LEARNING_RATES, calibrated, schedule
from privatekube_kfp.dp.randomness import seeded
from privatekube_kfp.dp.training import (
    PLAIN_LEARNING_RATES,
    Data,
    train,
    train_without_privacy,
)
from privatekube_kfp.dp.units import held_out, numbered
from privatekube_kfp.ledger.streams import Semantic

Say = Callable[[str], None]
REAL = Path(__file__).parents[2] / "shared/data"
EPSILONS = ("0.5", "1", "5")
_HELD_OUT = 20
_DAY = 86_400
_DAYS_OF_A_BLOCK = 10
# BERT is slow without a GPU.
_REVIEWS_FOR_BERT = 1_000


def measure(quick: bool, say: Say) -> list[Result]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [
            *_headline(quick, say),
            *_more_is_no_worse(quick, say),
            *_real(quick, say),
            *_speed(quick, say),
        ]
    finally:
        torch.set_num_threads(threads)


# Accuracy


@dataclass(frozen=True)
class Split:
    """A model's examples to train on and others to evaluate on."""

    row: Architecture
    vectors: Tensor
    made: Examples
    kept: Examples

    @property
    def majority(self) -> float:
        return float(np.bincount(self.kept.labels).max() / len(self.kept.labels))

    def private(self, epsilon: str, epochs: int, seed: int = 0) -> float:
        model = self._model(seed)
        units = self.made.units.count
        train(
            model,
            Data.of(model, self.made),
            calibrated(epsilon, schedule(units, epochs)),
            learning_rate=LEARNING_RATES[self.row.kind],
            randomness=seeded(seed),
        )
        return true_accuracy(model, Data.of(model, self.kept))

    def plain(self, epochs: int) -> float:
        model = self._model(0)
        rate = PLAIN_LEARNING_RATES[self.row.kind]
        train_without_privacy(model, Data.of(model, self.made), epochs=epochs, learning_rate=rate)
        return true_accuracy(model, Data.of(model, self.kept))

    def _model(self, seed: int) -> Model:
        if self.row.kind is Kind.BERT:
            return sources.bert(self.row, seed=seed)[0]
        return build(self.row, self.vectors, seed=seed)


def _split(
    table: pa.Table,
    row: Architecture,
    words: Embeddings,
    categories: Sequence[str],
    semantic: Semantic = Semantic.EVENT,
) -> Split:
    """Some users are held out; their reviews are evaluated on one by one, whatever the semantic."""
    users, names = numbered(table["user"])
    out = held_out(users, names, _HELD_OUT)
    reader: Reader = sources.bert(row)[1] if row.kind is Kind.BERT else words
    times = table["timestamp"].to_numpy()
    periods = (times - times.min()) // (_DAYS_OF_A_BLOCK * _DAY)

    def made(of: Semantic, only: np.ndarray) -> Examples:
        return examples(table, row, reader, of, categories=categories, periods=periods, only=only)

    vectors = torch.from_numpy(words.vectors)
    return Split(row, vectors, made(semantic, ~out), made(Semantic.EVENT, out))


def _sample(count: int) -> pa.Table:
    """So many to train on, about, when some are held out."""
    return pa.Table.from_batches(reviews(count * 100 // (100 - _HELD_OUT)))


@dataclass(frozen=True)
class Figures:
    """A model's accuracy with privacy, the mean of some seeds."""

    split: Split
    by_epsilon: dict[str, float]
    fewer: float
    """With a quarter of the reviews, at epsilon 1."""

    def gains(self) -> list[tuple[str, float]]:
        budgets = [later - before for before, later in pairwise(self.by_epsilon.values())]
        return [
            (f"least gain from more budget (epsilon {', '.join(self.by_epsilon)})", min(budgets)),
            ("gain from four times the reviews, epsilon 1", self.by_epsilon["1"] - self.fewer),
        ]


def _figures(row: Architecture, count: int, epochs: int, seeds: int, say: Say) -> Figures:
    words = stand_in()
    say(f"Training: {row.task} {row.kind} on sample reviews, {epochs} epochs, {seeds} seeds ...")
    whole = _split(_sample(count), row, words, CATEGORIES)
    by_epsilon = {
        epsilon: _mean(f"{count:,} reviews", whole, epsilon, epochs, seeds, say)
        for epsilon in EPSILONS
    }
    part = _split(_sample(count // 4), row, words, CATEGORIES)
    return Figures(
        whole, by_epsilon, _mean(f"{count // 4:,} reviews", part, "1", epochs, seeds, say)
    )


def _mean(name: str, split: Split, epsilon: str, epochs: int, seeds: int, say: Say) -> float:
    found = [split.private(epsilon, epochs, seed) for seed in range(seeds)]
    say(f"  {name}, epsilon {epsilon}: {mean(found):.1%} +- {stdev(found):.1%}")
    return mean(found)


def _headline(quick: bool, say: Say) -> list[Result]:
    count, seeds, epochs = (2_000, 2, 2) if quick else (50_000, 3, 15)
    found = _figures(architecture("product", "lstm"), count, epochs, seeds, say)
    private, majority, plain = (
        found.by_epsilon["1"],
        found.split.majority,
        found.split.plain(epochs),
    )
    say(f"  majority {majority:.1%}, not private {plain:.1%}")
    over, below = 100 * (private - majority), 100 * (plain - private)
    name = "product lstm, epsilon 1"
    return [
        at_least(f"{name}, over the majority class", over, "points", 15, not quick),
        at_most(f"{name}, below its twin without privacy", below, "points", 12, not quick),
        *(
            at_least(f"product lstm: {what}", 100 * gain, "points", 0, not quick)
            for what, gain in found.gains()
        ),
    ]


def _more_is_no_worse(quick: bool, say: Say) -> list[Result]:
    """Product linear, with which users can be trained on in a reasonable time."""
    count, seeds, epochs = (2_000, 2, 2) if quick else (50_000, 3, 15)
    row = architecture("product", "linear")
    found = _figures(row, count, epochs, seeds, say)
    event = found.by_epsilon["1"]
    users: dict[Semantic, float] = {}
    for semantic in (Semantic.USER_TIME, Semantic.USER):
        split = _split(_sample(count), row, stand_in(), CATEGORIES, semantic)
        turns = epochs if quick else row.epochs(semantic)
        users[semantic] = _mean(f"{semantic}, {turns} epochs", split, "1", turns, seeds, say)
    ties = {
        "event over user-time": event - users[Semantic.USER_TIME],
        "user-time over user": users[Semantic.USER_TIME] - users[Semantic.USER],
    }
    return [
        *(
            at_least(f"product linear: {what}", 100 * gain, "points", 0, not quick)
            for what, gain in found.gains()
        ),
        *(
            at_least(
                *(f"product linear: {what}, epsilon 1 (-1 is a tie)", 100 * gain, "points", -1),
                not quick,
            )
            for what, gain in ties.items()
        ),
    ]


def _real(quick: bool, say: Say) -> list[Result]:
    """All eight models on real reviews, as a table. Nothing is promised of them."""
    source, vectors = REAL / "amazon_reviews.parquet", REAL / "glove.100d.20k.txt.gz"
    if not (source.exists() and vectors.exists()):
        say("Training: real reviews and vectors are not there, so that part is left out.")
        return []
    words, table = from_file(vectors), parquet.read_table(source)
    categories = sorted(set(table["category"].to_pylist()))
    some = table.take(np.sort(np.random.default_rng(0).permutation(len(table))[:_REVIEWS_FOR_BERT]))
    encoder, _ = sources.bert(architecture("product", "bert"))
    say(f"Training: real reviews, with {words.name}; {encoder.name}, on {len(some):,} reviews ...")
    say("| model | majority | " + " | ".join(f"epsilon {e}" for e in EPSILONS) + " | not private |")
    say("|---" * (len(EPSILONS) + 3) + "|")
    results: list[Result] = []
    for row in ARCHITECTURES.values():
        if quick and row.kind in (Kind.LSTM, Kind.BERT):
            continue
        split = _split(some if row.kind is Kind.BERT else table, row, words, categories)
        epochs = 1 if quick else row.epochs(Semantic.EVENT)
        found = [*(split.private(e, epochs) for e in EPSILONS), split.plain(epochs)]
        shown = " | ".join(f"{accuracy:.1%}" for accuracy in (split.majority, *found))
        name = f"{row.task} {row.kind}"
        say(f"| {name} | {shown} |")
        for how, accuracy in zip(
            [f"epsilon {e}" for e in EPSILONS] + ["plain"], found, strict=True
        ):
            results.append(Result(f"real reviews, {name}, {how}", 100 * accuracy, "% right"))
    return results


# Speed


class OpacusFeedForward(nn.Module):
    """What `models.FeedForward` computes, of plain modules."""

    def __init__(self, row: Architecture) -> None:
        super().__init__()
        sizes = [100, *row.hidden, row.outputs]
        layers: list[nn.Module] = []
        for size, following in pairwise(sizes):
            layers += [nn.Linear(size, following), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, means: Tensor) -> Tensor:
        scores: Tensor = self.layers(means)
        return scores


class OpacusLstm(nn.Module):
    """What `models.Lstm` computes, with the LSTM that Opacus can tell gradients of."""

    def __init__(self, row: Architecture, vectors: Tensor) -> None:
        super().__init__()
        self.vectors = nn.Embedding.from_pretrained(vectors, freeze=True)
        self.lstm = DPLSTM(100, row.hidden[0], batch_first=True)
        self.head = nn.Linear(row.hidden[0], row.outputs)

    def forward(self, ids: Tensor) -> Tensor:
        outputs, _ = self.lstm(self.vectors(ids))
        real = (ids != 0).unsqueeze(2)
        scores: Tensor = self.head((outputs * real).sum(1) / real.sum(1).clamp(min=1))
        return scores


def _speed(quick: bool, say: Say) -> list[Result]:
    count, turns = (1_000, 1) if quick else (10_000, 5)
    say(f"Training: an epoch of {count:,} sample reviews beside plain Opacus, {turns} turns ...")
    results = []
    words = stand_in()
    for kind in ("linear", "ff", "lstm"):
        row = architecture("product", kind)
        split = _split(_sample(count), row, words, CATEGORIES)
        ratios = []
        for turn in range(turns):
            ours, theirs = _our_epoch(split, turn), _opacus_epoch(split)
            ratios.append(ours / theirs)
        say(f"  {kind}: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        name = f"an epoch of product {kind} over one of plain Opacus"
        results.append(at_most(name, median(ratios), "times", 1.3, not quick))
        if row.kind is Kind.LSTM:
            name = "product lstm: faster than DPLSTM out of the box"
            results.append(at_least(name, 1 / median(ratios), "times", 2, not quick))
    return results


def _our_epoch(split: Split, seed: int) -> float:
    model = build(split.row, split.vectors)
    data = Data.of(model, split.made)
    step = calibrated("1", schedule(split.made.units.count, 1))
    began = time.perf_counter()
    train(model, data, step, learning_rate=0.001, randomness=seeded(seed))
    return time.perf_counter() - began


def _opacus_epoch(split: Split) -> float:
    """As its documentation has it: Poisson sampling, hooks, flat clipping."""
    features = build(split.row, split.vectors).prepare(torch.from_numpy(split.made.ids))
    data = TensorDataset(*features, torch.from_numpy(split.made.labels))
    lstm = split.row.kind is Kind.LSTM
    plain = OpacusLstm(split.row, split.vectors) if lstm else OpacusFeedForward(split.row)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: Any
        model, optimizer, loader = PrivacyEngine().make_private(
            module=plain,
            optimizer=torch.optim.AdamW([p for p in plain.parameters() if p.requires_grad]),
            data_loader=DataLoader(data, batch_size=round(len(data) ** 0.5)),
            noise_multiplier=1.5,
            max_grad_norm=CLIP,
        )
        began = time.perf_counter()
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        return time.perf_counter() - began
