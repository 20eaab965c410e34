"""BERT: the paper's parameters, units by Opacus' gradients, and weights from a directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer

from privatekube_kfp.accounting import DpSgd
from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.dp import bert
from privatekube_kfp.dp.architectures import architecture
from privatekube_kfp.dp.bert import STAND_IN, Bert, from_directory, stand_in
from privatekube_kfp.dp.evaluation import true_accuracy
from privatekube_kfp.dp.examples import Examples
from privatekube_kfp.dp.gradients import Batch, UnitGradients, losses
from privatekube_kfp.dp.models import seeded as seeded_weights
from privatekube_kfp.dp.models import trainable_parameters
from privatekube_kfp.dp.randomness import seeded
from privatekube_kfp.dp.training import Data, train, train_without_privacy
from privatekube_kfp.dp.units import Units

PRODUCT = architecture("product", "bert")
TEXTS = ["a fine book", "", "tea " * 90, None, "a worn tire"]
LABELS = torch.tensor([0, 1, 2, 3, 4])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT as transformers saves it."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    config = BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
    )
    with seeded_weights(0):
        BertModel(config).save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "fine", "book", "tea"]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(vocab={word: i for i, word in enumerate(words)}).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("task", "count"), [("product", 858_379), ("sentiment", 855_809)])
def test_trains_as_many_parameters_as_in_the_paper(task: str, count: int) -> None:
    row = architecture(task, "bert")
    model, _ = stand_in(row)
    assert trainable_parameters(model) == row.parameters == count
    assert sum(value.numel() for value in model.state_dict().values()) == count
    assert model.name == STAND_IN


def test_what_is_frozen_is_worked_out_once_or_each_time_where_it_is_large(monkeypatch) -> None:
    model, reader = stand_in(PRODUCT)
    ids = torch.from_numpy(reader.ids(TEXTS, 12))
    assert ids.shape == (5, 12)
    kept = model.prepare(ids)
    monkeypatch.setattr(bert, "MAX_KEPT", 0)
    worked_out = model.prepare(ids)
    assert worked_out[0] is ids
    torch.testing.assert_close(model(*kept), model(*worked_out))
    padded = torch.cat([ids, torch.zeros(5, 4, dtype=torch.long)], 1)
    torch.testing.assert_close(model(*model.prepare(padded)), model(*kept), rtol=1e-4, atol=1e-5)


def test_the_sum_is_that_of_each_units_clipped_gradient(directory: Path) -> None:
    model, reader = from_directory(PRODUCT, directory)
    features = model.prepare(torch.from_numpy(reader.ids(TEXTS, 12)))
    unit = torch.tensor([0, 0, 1, 2, 2])
    expected = torch.zeros(trainable_parameters(model))
    for which in range(3):
        rows = unit == which
        loss = losses(model(*(feature[rows] for feature in features)), LABELS[rows]).mean()
        grads = torch.autograd.grad(loss, model.trainable())
        grad = torch.cat([part.flatten() for part in grads])
        assert grad.norm() > 0.1
        expected += grad * 0.1 / grad.norm()
    gradients = UnitGradients(model, 0.1)
    sums = gradients.clipped_sum(Batch(features, LABELS, unit, 3))
    gradients.close()
    torch.testing.assert_close(
        torch.cat([part.flatten() for part in sums]), expected, rtol=1e-3, atol=1e-6
    )


def test_it_trains_with_privacy_and_without(directory: Path) -> None:
    model, reader = from_directory(PRODUCT, directory)
    ids = reader.ids(TEXTS, 12)
    made = Examples(ids, LABELS.numpy(), Units(np.arange(5), np.arange(6)), 0)
    data = Data.of(model, made)
    step = DpSgd("1", "0.5", 3, "1e-9")
    before = [parameter.detach().clone() for parameter in model.trainable()]
    assert train(model, data, step, learning_rate=0.01, randomness=seeded(0)).spent == step
    for old, new in zip(before, model.trainable(), strict=True):
        assert not torch.equal(old, new)
    model, _ = from_directory(PRODUCT, directory)
    train_without_privacy(model, data, epochs=150, learning_rate=0.005)
    assert true_accuracy(model, data) > 0.5


def test_weights_and_words_come_from_a_directory(directory: Path) -> None:
    model, reader = from_directory(PRODUCT, directory)
    assert isinstance(model, Bert)
    assert model.name == "tiny (BERT L2-H8-A2)"
    ids = reader.ids(TEXTS, 6)
    assert ids.tolist()[:2] == [[2, 5, 6, 7, 3, 0], [2, 3, 0, 0, 0, 0]]
    assert reader.ids([], 6).shape == (0, 6)


def test_directories_without_a_bert_are_told_in_a_sentence(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"there is no BERT in .*nowhere: it has no config.json"):
        from_directory(PRODUCT, tmp_path / "nowhere")
    broken = tmp_path / "broken"
    shutil.copytree(directory, broken)
    (broken / "model.safetensors").unlink()
    with pytest.raises(Invalid, match=r"the BERT .*broken cannot be read: "):
        from_directory(PRODUCT, broken)
    other = tmp_path / "other"
    shutil.copytree(directory, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"model_type": "no-such-model"}))
    with pytest.raises(Invalid, match=r"the BERT .*other cannot be read: "):
        from_directory(PRODUCT, other)
