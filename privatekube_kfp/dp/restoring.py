"""Models and data as PyTorch has them, from the folders that steps hand on, and back."""

from __future__ import annotations

import numpy as np
import torch

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.dp.architectures import EMBEDDING_SIZE, Kind
from privatekube_kfp.dp.folders import About, Array, Part, ReadyModel, Weights
from privatekube_kfp.dp.models import Model, build
from privatekube_kfp.dp.sources import bert
from privatekube_kfp.dp.training import Data
from privatekube_kfp.dp.units import Units


def model_for(about: About, vectors: Array, *, seed: int) -> Model:
    """A new model for these examples, with the weights that the seed draws.

    All but BERT are so small that threads only wait for each other: from here on there is one.
    """
    row = about.architecture
    if row.kind is Kind.BERT:
        made, _ = bert(row, about.source, seed=seed)
        if made.name != about.words:
            raise Invalid(
                Reason.DATA_UNREADABLE,
                f"the examples were made for {about.words}, and here is {made.name}: name one BERT"
                " that every step can read",
            )
        return made
    torch.set_num_threads(1)
    if not len(vectors):
        vectors = np.zeros((1, EMBEDDING_SIZE), np.float32)  # what is read are vectors already
    return build(row, torch.from_numpy(vectors), seed=seed)


def trained_model(ready: ReadyModel, vectors: Array) -> Model:
    """A model as training left it."""
    model = model_for(ready.about, vectors, seed=ready.seed)
    weights = {name: torch.from_numpy(array) for name, array in ready.weights.items()}
    try:
        model.load_state_dict(weights)
    except RuntimeError:
        raise Invalid(
            Reason.DATA_UNREADABLE,
            f"the weights are not those of the model {ready.about.task} {ready.about.model}",
        ) from None
    return model.eval()


def weights_of(model: Model) -> Weights:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def data_for(model: Model, about: About, part: Part) -> Data:
    inputs = torch.from_numpy(part.inputs)
    with torch.no_grad():
        features = model.prepare(inputs) if about.architecture.kind is Kind.BERT else (inputs,)
    rows = np.arange(len(part.labels))
    return Data(features, torch.from_numpy(part.labels), Units(rows, part.offsets))
