"""Training in pods, in the images with PyTorch and TensorFlow: gigabytes, `make test-images`."""

import pytest

from privatekube_kfp.core.claim import Phase
from tests.node import images
from tests.node.conftest import ROWS
from tests.node.tasks import Pods

pytestmark = pytest.mark.images


@pytest.mark.parametrize("pipeline", ["product_lstm", "sentiment_bert", "product_linear_keras"])
def test_every_task_of_a_training_in_a_pod(installed, ingested, store, ledger, pipeline):
    pods = Pods(installed, store, (images.PYTHON, images.TORCH, images.KERAS))
    pods.begin_run()
    said = {"epsilon": "20", "epochs": 1, "units": ROWS, "words": "stand-in"}
    _, ran = pods.run_pipeline(pipeline, **said, uri=f"s3://results/{pipeline}")
    pods.end_run()
    assert (store.folder / "results" / pipeline / "model.json").exists()
    assert ledger.claim(f"{ran.id}.claim").phase in (Phase.CONSUMED, Phase.RELEASED)
