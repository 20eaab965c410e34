"""The eight models of `architectures`, as PyTorch modules.

Whatever is frozen is worked out once, before training: `prepare` turns token ids into features, and
`forward` takes the features of a batch. Linear and FF read the mean of a review's word vectors, so
their feature is 100 numbers and no embedding is looked up again. The LSTM reads the vectors in
order and its head the mean of its outputs. BERT keeps what its frozen layers say of each token.

Clipping shortens a gradient and leaves its direction, so the parts of it that are large are what is
learnt. The gradient of a head's biases is about 1 whatever was read, so what a head reads has to be
larger than that: vectors by their size (see `embeddings`), an LSTM's outputs by a constant.

A forward pass with a tape notes what `gradients` needs to tell one unit's gradient from another's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.dp.architectures import EMBEDDING_SIZE, Architecture, Kind

# Outputs of an LSTM are small. In short runs on sample reviews ten times the mean learnt more than
# the mean or five times it, and about as much as twenty times.
_POOLED = 10.0
Features = tuple[Tensor, ...]
"""What a model reads, each with a row per review."""


@dataclass(frozen=True)
class Record:
    """A linear map that a forward pass went through: outputs = inputs @ weight.T + biases.

    Both have a row per review; where they are three-dimensional, time comes before the reviews.
    """

    weight: Tensor
    biases: tuple[Tensor, ...]
    inputs: Tensor
    outputs: Tensor


Tape = list[Record]


class Model(nn.Module):
    """What training and evaluation ask of a model."""

    taped = True
    """Whether a tape tells the gradient whole; if not, Opacus works out each review's."""
    name: str
    """What it really is, for reports."""

    def prepare(self, ids: Tensor) -> Features:
        """What is frozen, worked out once for all reviews."""
        raise NotImplementedError

    def forward(self, *features: Tensor, tape: Tape | None = None) -> Tensor:
        """Scores: a row per review, a column per output."""
        raise NotImplementedError

    def trainable(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.parameters() if parameter.requires_grad]


def trainable_parameters(model: nn.Module) -> int:
    """How many numbers training may change."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


class FeedForward(Model):
    """The mean of a review's word vectors, through hidden layers if there are any."""

    def __init__(self, row: Architecture, vectors: Tensor) -> None:
        super().__init__()
        self.name = f"{row.task} {row.kind}"
        self.register_buffer("vectors", vectors, persistent=False)
        sizes = (vectors.shape[1], *row.hidden, row.outputs)
        self.layers = nn.ModuleList(
            nn.Linear(size, following) for size, following in pairwise(sizes)
        )

    def prepare(self, ids: Tensor) -> Features:
        means = [_mean_vectors(self.get_buffer("vectors"), part) for part in torch.split(ids, 4096)]
        return (torch.cat(means) if means else torch.zeros(0, EMBEDDING_SIZE),)

    def forward(self, *features: Tensor, tape: Tape | None = None) -> Tensor:
        (x,) = features
        for depth, layer in enumerate(self.layers):
            assert isinstance(layer, nn.Linear)
            x = _linear(layer, functional.relu(x) if depth else x, tape)
        return x


class Lstm(Model):
    """One direction, no dropout, PyTorch's parameters; the head reads the mean of the outputs.

    The parameters are named and drawn as in `torch.nn.LSTM`, whose outputs these are.
    """

    def __init__(self, row: Architecture, vectors: Tensor) -> None:
        super().__init__()
        self.name = f"{row.task} {row.kind}"
        (hidden,) = row.hidden
        self.register_buffer("vectors", vectors, persistent=False)
        self.weight_ih = nn.Parameter(torch.empty(4 * hidden, vectors.shape[1]))
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias_ih = nn.Parameter(torch.empty(4 * hidden))
        self.bias_hh = nn.Parameter(torch.empty(4 * hidden))
        for parameter in (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh):
            nn.init.uniform_(parameter, -1 / math.sqrt(hidden), 1 / math.sqrt(hidden))
        self.head = nn.Linear(hidden, row.outputs)

    def prepare(self, ids: Tensor) -> Features:
        return (ids,)

    def forward(self, *features: Tensor, tape: Tape | None = None) -> Tensor:
        (ids,) = features
        lengths = (ids != 0).sum(1)
        # Padding is on the right, so nobody's outputs are needed beyond the longest review.
        ids = ids[:, : max(1, int(lengths.max())) if len(ids) else 1].t()
        x = functional.embedding(ids, self.get_buffer("vectors"))
        gates = functional.linear(x, self.weight_ih, self.bias_ih + self.bias_hh)
        outputs, before = _Recurrence.apply(gates, self.weight_hh)  # type: ignore[no-untyped-call]
        if tape is not None:
            tape.append(Record(self.weight_ih, (self.bias_ih, self.bias_hh), x, gates))
            tape.append(Record(self.weight_hh, (), before.detach(), gates))
        real = (ids != 0).unsqueeze(2)
        mean = (outputs * real).sum(0) / lengths.clamp(min=1).unsqueeze(1)
        return _linear(self.head, mean * _POOLED, tape)


class _Recurrence(torch.autograd.Function):
    """An LSTM from its gates' inputs on, time first: its outputs, and the output before each.

    Autograd would keep a graph of a dozen small operations for every token. This works out the
    gradient of all gates by hand, which is all that the gradients of the weights are made of.
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        steps, rows, size = gates.shape
        size //= 4
        outputs = gates.new_zeros(steps + 1, rows, size)
        cells = gates.new_zeros(steps + 1, rows, size)
        shapes = gates.new_empty(steps, rows, size)
        opened = torch.empty_like(gates)
        turned = weight.t()
        for t in range(steps):
            z = torch.addmm(gates[t], outputs[t], turned, out=opened[t])
            z[:, : 2 * size].sigmoid_()
            z[:, 2 * size : 3 * size].tanh_()
            z[:, 3 * size :].sigmoid_()
            keep, forget, new, out = torch.split(z, size, 1)
            torch.mul(forget, cells[t], out=cells[t + 1]).addcmul_(keep, new)
            torch.mul(torch.tanh(cells[t + 1], out=shapes[t]), out, out=outputs[t + 1])
        ctx.save_for_backward(outputs, cells, shapes, opened, weight)
        ctx.mark_non_differentiable(before := outputs[:-1].clone())
        return outputs[1:].clone(), before

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None]:
        outputs, cells, shapes, opened, weight = ctx.saved_tensors
        steps, rows, size = shapes.shape
        keep, forget, new, out = torch.split(opened, size, 2)
        of_cell = out * (1 - shapes * shapes)
        of_out = shapes * out * (1 - out)
        of_rest = torch.stack(
            [new * keep * (1 - keep), cells[:-1] * forget * (1 - forget), keep * (1 - new * new)], 2
        )
        result = opened.new_empty(steps, rows, 4, size)
        later = opened.new_zeros(rows, size)
        cell = opened.new_zeros(rows, size)
        for t in reversed(range(steps)):
            output = grads[0][t] + later
            cell.addcmul_(output, of_cell[t])
            torch.mul(cell.unsqueeze(1), of_rest[t], out=result[t, :, :3])
            torch.mul(output, of_out[t], out=result[t, :, 3])
            later = result[t].view(rows, 4 * size) @ weight
            cell.mul_(forget[t])
        gates = result.view(steps, rows, 4 * size)
        if not ctx.needs_input_grad[1]:
            return gates, None
        return gates, gates.flatten(0, 1).t() @ outputs[:-1].flatten(0, 1)


def build(row: Architecture, vectors: Tensor, *, seed: int = 0) -> Model:
    """A new model of this row (BERT: see `bert`), its weights drawn with this seed.

    What it starts from says nothing of the data, so that anybody may know the seed.
    """
    if vectors.shape[1] != EMBEDDING_SIZE:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"the word vectors have {vectors.shape[1]} numbers; the models read {EMBEDDING_SIZE}",
        )
    with seeded(seed):
        match row.kind:
            case Kind.LINEAR | Kind.FF:
                return FeedForward(row, vectors)
            case Kind.LSTM:
                return Lstm(row, vectors)
            case Kind.BERT:
                raise Invalid(Reason.INVALID_REQUEST, "BERT reads no word vectors; see `dp.bert`")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch draws from this seed in here, and goes on afterwards as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _linear(layer: nn.Linear, x: Tensor, tape: Tape | None) -> Tensor:
    outputs: Tensor = layer(x)
    if tape is not None:
        tape.append(Record(layer.weight, (layer.bias,), x.detach(), outputs))
    return outputs


def _mean_vectors(vectors: Tensor, ids: Tensor) -> Tensor:
    """The mean over the words there are; of none, zeros. The vector of padding is zero."""
    total = functional.embedding(ids, vectors).sum(1)
    return total / (ids != 0).sum(1, keepdim=True).clamp(min=1)
