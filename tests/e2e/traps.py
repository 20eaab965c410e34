"""Pipelines in the shapes in which Kubeflow could get a budget wrong."""

from kfp import dsl
from kfp.dsl import Dataset, Input, Model, Output

from privatekube_kfp.components import (
    PrivacyClaim,
    TaskSettings,
    allocate,
    consume,
    download,
    privacy_budget,
    upload,
)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def total(data: Input[Dataset], model: Output[Model]):
    # privatekube.io/role: compute
    import pyarrow.parquet

    with open(model.path, "w") as out:
        out.write(str(sum(pyarrow.parquet.read_table(data.path)["user"].to_pylist())))


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def place_of(folder: str, name: str) -> str:
    return f"{folder}/{name}"


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def listed(name: str) -> list:
    return [name]


@dsl.pipeline(name="retrying")
def retrying(uri: str):
    settings = TaskSettings(retries=6, retry_after="1s")
    with privacy_budget(
        stream="clicks", epsilon="0.1", last_blocks=2, timeout="0s", settings=settings
    ) as budget:
        data = budget.download()
        model = total(data=data.outputs["data"])
        budget.consume(after=[model])
        budget.upload(model.outputs["model"], uri=uri)


@dsl.pipeline(name="looping")
def looping(folder: str):
    """A claim for each block, side by side; the budget around them is for the rest."""
    with (
        privacy_budget(
            stream="clicks", epsilon="0.01", last_blocks=2, timeout="0s", claim_name="around"
        ),
        dsl.ParallelFor(["monday", "tuesday"]) as day,
    ):
        claim = allocate(
            stream="clicks",
            epsilon="0.1",
            block_names=listed(name=day).output,
            timeout="0s",
            claim_name=day,
        )
        data = download(claim=claim.outputs["claim"])
        model = total(data=data.outputs["data"])
        spent = consume(claim=claim.outputs["claim"]).after(model)
        uri = place_of(folder=folder, name=day)
        upload(claim=spent.outputs["consumed"], artifact=model.outputs["model"], uri=uri.output)
        for task in (model, uri):
            task.set_caching_options(False)


@dsl.pipeline(name="two-claims")
def two_claims(folder: str):
    """The first is spent and published, the second read and given back."""
    with privacy_budget(
        stream="clicks", epsilon="0.1", block_names=["monday"], timeout="0s"
    ) as monday:
        tuesday = monday.another(
            claim_name="tuesday",
            stream="clicks",
            epsilon="0.3",
            block_names=["tuesday"],
            timeout="0s",
        )
        one = total(data=monday.download().outputs["data"])
        total(data=tuesday.download().outputs["data"])
        monday.consume(after=[one])
        monday.upload(one.outputs["model"], uri=folder)


@dsl.pipeline(name="inner")
def inner(claim: Input[PrivacyClaim], uri: str):
    data = download(claim=claim)
    model = total(data=data.outputs["data"])
    model.set_caching_options(False)
    spent = consume(claim=claim).after(model)
    upload(claim=spent.outputs["consumed"], artifact=model.outputs["model"], uri=uri)


@dsl.pipeline(name="nested")
def nested(uri: str):
    with privacy_budget(stream="clicks", epsilon="0.1", last_blocks=2, timeout="0s") as budget:
        inner(claim=budget.claim, uri=uri)
