"""A pipeline that lets its data out with a claim that is not consumed."""

from kfp import dsl

from privatekube_kfp.components import privacy_budget, upload


@dsl.pipeline(name="hasty")
def hasty(uri: str):
    with privacy_budget(stream="clicks", epsilon="0.1", last_blocks=2) as budget:
        data = budget.download()
        upload(claim=budget.claim, artifact=data.outputs["data"], uri=uri)
