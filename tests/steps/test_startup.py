"""What a task imports before it begins: in a pod that is most of the time that it takes."""

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "tensorflow", "pyarrow", "fsspec", "kubernetes", "rich", "scipy"}
READS_DATA = {"pyarrow", "fsspec"}
STEPS = {
    "claims.allocate": set(),
    "claims.consume": set(),
    "claims.release": set(),
    "data.upload": set(),
    "data.download": set(),
    "training.plan_training": set(),
    "evaluation.show_model": set(),
    "statistics.show_statistic": READS_DATA,
    "statistics.dp_statistic": READS_DATA,
    "ingest.ingest": READS_DATA,
    "preprocessing.dp_preprocess": READS_DATA,
}
"""What of the heavy packages a step may import at once; the others as soon as it reads a row."""
IN_A_POD = """
import importlib, json, sys
import kfp.dsl.executor_main
from privatekube_kfp.components.artifacts import PrivacyClaim
module, name = sys.argv[1].rsplit(".", 1)
getattr(importlib.import_module(f"privatekube_kfp.steps.{module}"), name)
import privatekube_kfp.ledger.kubernetes.connecting
import privatekube_kfp.ledger.kubernetes.ledger
print(json.dumps(sorted({each.partition(".")[0] for each in sys.modules})))
"""


@pytest.mark.parametrize("step", STEPS)
def test_a_step_imports_nothing_heavy_that_it_does_not_use(step):
    environment = {"_KFP_RUNTIME": "true"}
    ran = subprocess.run(
        [sys.executable, "-c", IN_A_POD, step],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(json.loads(ran.stdout)) & HEAVY <= STEPS[step]


def test_training_imports_opacus_for_the_models_only_that_need_it():
    training = "import privatekube_kfp.dp.training, privatekube_kfp.dp.evaluation, sys"
    ran = subprocess.run(
        [sys.executable, "-c", f"{training}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"torch", "opacus"} & {*ran.stdout.split()} == {"torch"}
