"""Two pipelines of a day: one brings data in, one spends budget on the newest of them."""

from kfp import dsl
from kfp.dsl import Dataset, Input, Model, Output

from privatekube_kfp.components import ingest, privacy_budget


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def total(data: Input[Dataset], model: Output[Model]):
    # privatekube.io/role: compute
    import pyarrow.parquet

    read = pyarrow.parquet.read_table(data.path)
    with open(model.path, "w") as out:
        out.write(f"{read.column_names[-1]}: {sum(read['rating'].to_pylist())}")


@dsl.pipeline(name="bring-in")
def bring_in(stream: str, sources: list, to: str, until: str, max_bad_rows: int = 1000):
    ingest(
        stream=stream,
        sources=sources,
        to=to,
        start="2018-01-01",
        until=until,
        constants={"shop": "books"},
        max_bad_rows=max_bad_rows,
    )


@dsl.pipeline(name="spend")
def spend(stream: str, uri: str, last_blocks: int = 2):
    with privacy_budget(
        stream=stream, epsilon="0.1", last_blocks=last_blocks, timeout="0s"
    ) as budget:
        model = total(data=budget.download().outputs["data"])
        budget.consume(after=[model])
        budget.upload(model.outputs["model"], uri=uri)


@dsl.pipeline(name="both")
def both(stream: str, sources: list, to: str, until: str, uri: str):
    new = ingest(stream=stream, sources=sources, to=to, start="2018-01-01", until=until)
    with privacy_budget(
        stream=stream, epsilon="0.1", last_blocks=new.outputs["block_count"], timeout="0s"
    ) as budget:
        model = total(data=budget.download().outputs["data"])
        budget.consume(after=[model])
        budget.upload(model.outputs["model"], uri=uri)
