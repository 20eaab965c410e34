"""Allocate, Download, Preprocess, Train, Evaluate, Consume, Upload: the shape of the paper's.

Its three steps of its own do next to nothing, leave a line each in a log of what was run, and fail
where they are told to.
"""

from kfp import dsl
from kfp.dsl import Artifact, Dataset, Input, Model, Output

from privatekube_kfp.components import privacy_budget

PLAN = {
    "steps": [
        {"name": "preprocess", "mechanism": "pure", "epsilon": "0.05"},
        {"name": "train", "mechanism": "pure", "epsilon": "0.1"},
        {"name": "evaluate", "mechanism": "pure", "epsilon": "0.05"},
    ]
}


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def preprocess(data: Input[Dataset], journal: str, fail_at: str, features: Output[Dataset]):
    # privatekube.io/role: compute
    import shutil

    with open(journal, "a") as log:
        log.write("preprocess\n")
    if fail_at == "preprocess":
        raise SystemExit("preprocess was told to fail")
    shutil.copyfile(data.path, features.path)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def train(features: Input[Dataset], journal: str, fail_at: str, model: Output[Model]):
    # privatekube.io/role: compute
    import time

    import pyarrow.parquet

    with open(journal, "a") as log:
        log.write("train\n")
    if fail_at == "train":
        raise SystemExit("train was told to fail")
    if fail_at == "sleep":
        time.sleep(600)
    users = pyarrow.parquet.read_table(features.path)["user"].to_pylist()
    with open(model.path, "w") as out:
        out.write(f"the sum is {sum(users)}")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def evaluate(
    model: Input[Model],
    features: Input[Dataset],
    journal: str,
    fail_at: str,
    scores: Output[Artifact],
):
    # privatekube.io/role: compute
    with open(journal, "a") as log:
        log.write("evaluate\n")
    if fail_at == "evaluate":
        raise SystemExit("evaluate was told to fail")
    with open(scores.path, "w") as out:
        out.write("accuracy 0.75")


@dsl.pipeline(name="seven-steps")
def seven_steps(
    uri: str,
    journal: str,
    fail_at: str = "",
    plan: dict = PLAN,
    timeout: str = "0s",
    spent: list = [PLAN],  # noqa: B006
):
    with privacy_budget(stream="clicks", plan=plan, last_blocks=2, timeout=timeout) as budget:
        data = budget.download()
        features = preprocess(data=data.outputs["data"], journal=journal, fail_at=fail_at)
        model = train(features=features.outputs["features"], journal=journal, fail_at=fail_at)
        scores = evaluate(
            model=model.outputs["model"],
            features=features.outputs["features"],
            journal=journal,
            fail_at=fail_at,
        )
        budget.consume(amounts=spent, name="all", after=[scores])
        budget.upload(model.outputs["model"], uri=uri)
