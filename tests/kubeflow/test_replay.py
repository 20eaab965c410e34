"""What a real Kubeflow handed to tasks, through the components as they are now.

Claim artifacts of an older version name all blocks in a list, which Kubeflow gives back as
{"list": [...]}; those of today have their number and a digest.
"""

import importlib.util
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from kfp.dsl.executor import Executor

from privatekube_kfp.core.claim import Phase
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.sqlite import SqliteLedger
from privatekube_kfp.ledger.streams import StreamSpec
from privatekube_kfp.local.compiling import compile_file
from tests.kubeflow.imitation import ROOT, Component, component
from tests.kubeflow.recordings import STORE, recorded

DAYS = tuple(f"reviews-2018-01-0{day}" for day in range(1, 5))
STREAMS = {
    "visits": ("visits", ("monday", "tuesday")),
    "visits_with_lists": ("visits", None),
    "statistics_reviews": ("reviews", DAYS),
    "statistics_reviews_with_lists": ("reviews", None),
}
"""The stream of each run, and the names of its blocks where its artifacts do not have them."""
ROWS = {"minutes": [10, 20, 30], "text": ["a b", "c", "d e f"], "rating": [1.0, 4.0, 5.0]}


@pytest.fixture(params=STREAMS)
def run(request, tmp_path, monkeypatch):
    """A recorded run; its stream and blocks are there."""
    tasks = recorded(request.param)
    stream, names = STREAMS[request.param]
    if names is None:
        (names,) = {
            tuple(task.artifacts["claim"]["metadata"]["blocks"]["list"])
            for task in tasks
            if "claim" in task.artifacts
        }
    monkeypatch.setenv("PRIVATEKUBE_LEDGER", f"sqlite:///{tmp_path}/ledger.db")
    monkeypatch.setenv("PRIVATEKUBE_RESULTS", str(tmp_path / "store" / "published"))
    with SqliteLedger(str(tmp_path / "ledger.db"), create=True) as ledger:
        ledger.create_stream(StreamSpec(stream, "1", "1e-7", ByPipelines(1)))
        for name in names:
            path = tmp_path / f"{name}.parquet"
            pyarrow.parquet.write_table(pyarrow.table(ROWS), path)
            ledger.create_block(name, stream, data_source=str(path))
        yield tasks, ledger
        assert ledger.verify().ok


def component_of(task):
    if task.name != "average":
        return Component.shipped(task.name)
    compiled = compile_file(ROOT / "pipelines" / "visits.py").spec
    return component(compiled, compiled["components"]["comp-average"])


def execute(component, executor_input, folder):
    """As kfp does in the pod: the component is a file of Python, with one function."""
    path = folder / "ephemeral_component.py"
    path.write_text(component.command[-1])
    spec = importlib.util.spec_from_file_location("ephemeral_component", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, component.args[-1])
    Executor(executor_input=executor_input, function_to_execute=function).execute()


def here(executor_input, component, folder):
    """The same with files in place of the object store, and with the outputs of today."""
    text = json.dumps(executor_input).replace(STORE, str(folder)).replace("/minio/mlpipeline", "")
    given = json.loads(text.replace("s3://private", str(folder)))
    outputs = given["outputs"]
    logs = outputs["artifacts"]["executor-logs"]["artifacts"][0]
    for name, said in component.outputs.get("artifacts", {}).items():
        uri = str(Path(logs["uri"]).with_name(name))
        made = {"name": name, "type": said["artifactType"], "uri": uri}
        outputs["artifacts"][name] = {"artifacts": [made]}
    outputs["outputFile"] = str(Path(logs["uri"]).with_name("output_metadata.json"))
    return given


def test_each_task(run, tmp_path):
    tasks, ledger = run
    for task in tasks:
        component = component_of(task)
        execute(component, here(task.executor_input, component, tmp_path / "store"), tmp_path)
    (claim,) = ledger.claims()
    assert claim.phase is Phase.CONSUMED
    assert list((tmp_path / "store" / "published").iterdir())
