"""The models are those of the paper's table, and the LSTM is PyTorch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.dp.architectures import ARCHITECTURES, Architecture, Kind, architecture
from privatekube_kfp.dp.models import Lstm, build, trainable_parameters
from privatekube_kfp.ledger.streams import Semantic

VECTORS = torch.randn(50, 100, generator=torch.Generator().manual_seed(1))
VECTORS[0] = 0


@pytest.mark.parametrize(
    ("task", "kind", "length", "count"),
    [
        ("product", "linear", 75, 1_111),
        ("product", "ff", 60, 48_246),
        ("product", "lstm", 30, 23_171),
        ("sentiment", "linear", 50, 101),
        ("sentiment", "ff", 30, 31_871),
        ("sentiment", "lstm", 50, 22_761),
    ],
)
def test_trains_as_many_parameters_as_in_the_paper(
    task: str, kind: str, length: int, count: int
) -> None:
    row = architecture(task, kind)
    assert row.length == length
    assert row.parameters == count
    assert trainable_parameters(build(row, VECTORS)) == count


def test_word_vectors_are_frozen_and_not_part_of_what_is_trained() -> None:
    for row in _with_vectors():
        assert "vectors" not in build(row, VECTORS).state_dict()


def test_the_same_seed_gives_the_same_model_and_leaves_torch_alone() -> None:
    row = architecture("product", "lstm")
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first, again, other = (build(row, VECTORS, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(first.trainable()[0], again.trainable()[0])
    assert not torch.equal(first.trainable()[0], other.trainable()[0])


def test_the_lstm_computes_what_torchs_does() -> None:
    ours = build(architecture("product", "lstm"), VECTORS)
    assert isinstance(ours, Lstm)
    theirs = nn.LSTM(100, 40)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.weight_ih)
        theirs.weight_hh_l0.copy_(ours.weight_hh)
        theirs.bias_ih_l0.copy_(ours.bias_ih)
        theirs.bias_hh_l0.copy_(ours.bias_hh)
    ids = torch.randint(1, 50, (6, 30), generator=torch.Generator().manual_seed(2))
    scores = ours(ids)
    expected = ours.head(theirs(VECTORS[ids.t()])[0].mean(0) * 10)
    torch.testing.assert_close(scores, expected)

    scores.square().sum().backward()
    mine = [parameter.grad for parameter in (ours.weight_ih, ours.weight_hh, ours.bias_hh)]
    expected.square().sum().backward()
    for grad, name in zip(mine, ("weight_ih_l0", "weight_hh_l0", "bias_hh_l0"), strict=True):
        torch.testing.assert_close(grad, getattr(theirs, name).grad)


def test_padding_changes_nothing_and_no_words_are_no_error() -> None:
    for row in _with_vectors():
        model = build(row, VECTORS)
        short = torch.tensor([[3, 4, 0], [0, 0, 0]])
        long = torch.cat([short, torch.zeros(2, 5, dtype=torch.long)], 1)
        scores = model(*model.prepare(short))
        assert scores.shape == (2, row.outputs)
        assert torch.isfinite(scores).all()
        torch.testing.assert_close(model(*model.prepare(long)), scores)
        assert model(*model.prepare(short[:0])).shape == (0, row.outputs)


def test_epochs_follow_the_paper() -> None:
    lstm, bert = architecture("product", "lstm"), architecture("product", "bert")
    assert [lstm.epochs(semantic) for semantic in Semantic] == [15, 60, 15]
    assert [bert.epochs(semantic) for semantic in Semantic] == [3, 5, 3]


def test_unknown_models_and_vectors_of_another_size_are_refused() -> None:
    with pytest.raises(Invalid, match="no model 'cnn' for the task 'product'; tasks are product"):
        architecture("product", "cnn")
    with pytest.raises(Invalid, match="have 50 numbers; the models read 100"):
        build(architecture("product", "linear"), torch.zeros(3, 50))


def _with_vectors() -> list[Architecture]:
    return [row for row in ARCHITECTURES.values() if row.kind is not Kind.BERT]
