"""BERT with its last layer, pooler and a new head tuned; all else frozen and worked out once.

Weights and tokenizer come from a directory, as transformers saves them, or from a hub. Any BERT
will do; the paper's has 4 layers, 256 wide, with 4 heads, and only with that the parameters are the
paper's. With none there is a stand-in: the paper's architecture with weights that are drawn and
words that are hashed. It has learnt no language, and `name` says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel
from transformers.utils import logging

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.data.bounds import Ints
from privatekube_kfp.dp.architectures import Architecture
from privatekube_kfp.dp.embeddings import stand_in_number, tokens
from privatekube_kfp.dp.models import Features, Model, Tape, seeded

STAND_IN = "random stand-in for BERT L4-H256-A4 (no pretrained weights)"
MAX_KEPT = 1 << 30
"""How many bytes of the frozen layers' outputs are kept; beyond, they are worked out each time."""
_ROWS_AT_ONCE = 256
_PAPER = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
_START, _END, _FIRST_WORD = 101, 102, 1000


class Bert(Model):
    """A pretrained encoder of which all but the end is frozen, and a linear head."""

    taped = False

    def __init__(self, row: Architecture, encoder: BertModel, name: str) -> None:
        super().__init__()
        self.name = name
        encoder.requires_grad_(False)
        *frozen, last = encoder.encoder.layer
        # Not among the module's children: what is frozen is no part of what is trained or saved.
        self._frozen = (encoder.embeddings.eval(), [layer.eval() for layer in frozen])
        self.last = last.requires_grad_(True)
        self.pooler = encoder.pooler.requires_grad_(True)
        self.head = nn.Linear(encoder.config.hidden_size, row.outputs)
        self._width: int = encoder.config.hidden_size

    def prepare(self, ids: Tensor) -> Features:
        """What the frozen layers say of every token, and which tokens there are.

        If that is more than `MAX_KEPT`, the tokens themselves.
        """
        if ids.numel() * self._width * 4 > MAX_KEPT:
            return (ids, ids != 0)
        parts = [self._through_frozen(part) for part in torch.split(ids, _ROWS_AT_ONCE)]
        return (torch.cat(parts), ids != 0)

    def forward(self, *features: Tensor, tape: Tape | None = None) -> Tensor:
        states, real = features
        if not states.is_floating_point():
            states = self._through_frozen(states)
        if torch.is_grad_enabled():
            # Opacus' hooks want a gradient of what they read, needed or not.
            states = states.detach().requires_grad_()
        states = self.last(states, _attention(real))
        scores: Tensor = self.head(self.pooler(states))
        return scores

    def _through_frozen(self, ids: Tensor) -> Tensor:
        embeddings, layers = self._frozen
        with torch.no_grad():
            states: Tensor = embeddings(input_ids=ids)
            for layer in layers:
                states = layer(states, _attention(ids != 0))
        return states


@dataclass(frozen=True)
class Wordpieces:
    """A pretrained tokenizer."""

    tokenizer: Any

    def ids(self, texts: Iterable[str | None], length: int) -> Ints:
        known = [text or "" for text in texts]
        if not known:
            return np.zeros((0, length), np.int64)
        made = self.tokenizer(known, truncation=True, max_length=length, padding="max_length")
        # Padding is 0, whatever its number is in this vocabulary.
        return np.array(made["input_ids"], np.int64) * np.array(made["attention_mask"], np.int64)


@dataclass(frozen=True)
class HashedWords:
    """Words by their hash, between a start and an end, as the stand-in reads them."""

    def ids(self, texts: Iterable[str | None], length: int) -> Ints:
        rows = []
        for text in texts:
            words = [_FIRST_WORD + stand_in_number(w, 29_000) for w in tokens(text or "")]
            row = [_START, *words[: length - 2], _END]
            rows.append(row + [0] * (length - len(row)))
        return np.array(rows, np.int64).reshape(-1, length)


def stand_in(row: Architecture, *, seed: int = 0) -> tuple[Bert, HashedWords]:
    """The paper's architecture with drawn weights, and its way to read."""
    with seeded(seed):
        config = BertConfig(
            **_PAPER,
            intermediate_size=1024,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="eager",
        )
        return Bert(row, BertModel(config), STAND_IN), HashedWords()


def from_directory(
    row: Architecture, directory: str | Path, *, seed: int = 0, name: str = ""
) -> tuple[Bert, Wordpieces]:
    """A BERT and its tokenizer from a directory, such as one that transformers saved."""
    directory = Path(directory)
    if not (directory / "config.json").is_file():
        raise Invalid(
            Reason.DATA_UNREADABLE,
            f"there is no BERT in {directory}: it has no config.json; save one there with"
            " transformers' save_pretrained, its tokenizer too",
        )
    return _pretrained(row, str(directory), name or directory.name, seed, local_files_only=True)


def from_hub(row: Architecture, repository: str, *, seed: int = 0) -> tuple[Bert, Wordpieces]:
    """A BERT and its tokenizer by a name such as `google/bert_uncased_L-4_H-256_A-4`."""
    return _pretrained(row, repository, repository, seed, local_files_only=False)


def _pretrained(
    row: Architecture, where: str, name: str, seed: int, *, local_files_only: bool
) -> tuple[Bert, Wordpieces]:
    logging.disable_progress_bar()
    try:
        encoder = AutoModel.from_pretrained(
            where,
            local_files_only=local_files_only,
            attn_implementation="eager",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        tokenizer = AutoTokenizer.from_pretrained(where, local_files_only=local_files_only)
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise Invalid(Reason.DATA_UNREADABLE, f"the BERT {where} cannot be read: {why}") from None
    if not isinstance(encoder, BertModel) or encoder.pooler is None:
        raise Invalid(
            Reason.DATA_UNREADABLE,
            f"the model {where} is a {type(encoder).__name__}, not a BERT with a pooler",
        )
    config = encoder.config
    shape = f"L{config.num_hidden_layers}-H{config.hidden_size}-A{config.num_attention_heads}"
    with seeded(seed):
        return Bert(row, encoder, f"{name} (BERT {shape})"), Wordpieces(tokenizer)


def _attention(real: Tensor) -> Tensor:
    """Nobody attends to padding."""
    lowest = torch.finfo(torch.float32).min
    return torch.where(real, 0.0, lowest)[:, None, None, :]
