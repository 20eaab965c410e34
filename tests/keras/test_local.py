"""A component of the Keras image runs here, in the environment that `make keras` made."""

from __future__ import annotations

from pathlib import Path

import pytest

from privatekube_kfp.local.interpreters import KERAS_PYTHON_VARIABLE
from tests.cli.running import Run
from tests.local.world import DATA, World

pytestmark = pytest.mark.slow

PIPELINE = """
@dsl.component(base_image="privatekube/keras:0.1.0", install_kfp_package=False)
def train_there(claim: Input[PrivacyClaim], model: Output[Model], metrics: Output[Metrics]) -> str:
    # privatekube.io/role: compute
    import numpy as np
    import tensorflow as tf
    from privatekube_kfp.accounting import DpSgd
    from privatekube_kfp.dp import keras

    data = keras.Data(np.ones((4, 100), np.float32), np.zeros(4, np.int64), np.arange(5))
    step = DpSgd("1.5", "0.5", 3, "1e-9")
    weights = keras.initial_weights((), inputs=100, outputs=11)
    trained = keras.train(keras.Network(weights), data, step, learning_rate=0.02)
    np.savez(model.path, *trained.weights)
    metrics.log_metric("steps", trained.steps)
    return f"{tf.__version__} for {claim.metadata['claim']}"

@component
def note(words: str, model: Input[Model], file: str):
    import numpy as np
    arrays = np.load(f"{model.path}.npz")
    open(file, "w").write(f"{words}: {[arrays[name].shape for name in arrays]}")

@dsl.pipeline(name="keras")
def pipeline():
    with privacy_budget(**ASK, epsilon="0.5") as budget:
        trained = train_there(claim=budget.claim)
        budget.consume(after=[trained])
        note(words=trained.outputs["Output"], model=trained.outputs["model"], file="noted")
"""


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> World:
    monkeypatch.chdir(tmp_path)
    for variable in ("PRIVATEKUBE_LEDGER", KERAS_PYTHON_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "data.yaml").write_text(DATA)
    return World(tmp_path, Run(capsys))


def test_a_pipeline_trains_there_and_goes_on_here(world: World) -> None:
    result = world.run(PIPELINE, "--data", "data.yaml", "--json")
    assert result.code == 0, result.err
    assert result.json["metrics"]["train-there"] == {"steps": 3}
    (claim,) = world.claims()
    noted = (world.folder / "noted").read_text()
    assert noted == f"2.15.1 for {claim.name}: [(11, 100), (11,)]"
