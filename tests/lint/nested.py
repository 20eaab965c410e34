"""Pipelines that others use as components."""

# No `from __future__ import annotations`: Kubeflow reads the annotations as objects.

from kfp import dsl
from kfp.dsl import Artifact, Dataset, Input, Model

from privatekube_kfp.components import PrivacyClaim, allocate, download, privacy_budget, release
from tests.lint.parts import (
    fit,
    flip,
    name_of,
    sink,
    sink_maybe,
    source,
    source_maybe,
    train_and_score,
)

ASKED = {"stream": "reviews", "epsilon": "0.5"}


@dsl.pipeline
def reading(claim: Input[PrivacyClaim]) -> Dataset:
    return download(claim=claim).outputs["data"]


@dsl.pipeline
def reading_maybe(claim: Input[PrivacyClaim] = None):
    source_maybe(claim=claim)


@dsl.pipeline
def reading_without(claim: Input[PrivacyClaim] = None):
    source(claim=claim)


@dsl.pipeline
def letting_out(claim: Input[PrivacyClaim], artifact: Input[Artifact]):
    sink(artifact=artifact, claim=claim)


@dsl.pipeline
def letting_out_maybe(claim: Input[PrivacyClaim] = None, artifact: Input[Artifact] = None):
    sink_maybe(artifact=artifact, claim=claim)


@dsl.pipeline
def fitting(data: Input[Dataset]) -> Model:
    return fit(data=data).outputs["model"]


@dsl.pipeline
def fitting_uncached(data: Input[Dataset]) -> Model:
    return fit(data=data).set_caching_options(False).outputs["model"]


@dsl.pipeline
def scoring(data: Input[Dataset]):
    train_and_score(data=data).set_caching_options(False)


@dsl.pipeline
def asking():
    download(claim=allocate(**ASKED).outputs["claim"])


@dsl.pipeline
def asking_by_name(name: str):
    download(claim=allocate(**ASKED, claim_name=name).outputs["claim"])


@dsl.pipeline
def asking_with_masked_failure() -> PrivacyClaim:
    asked = allocate(**ASKED)
    flip().after(asked).ignore_upstream_failure()
    return asked.outputs["claim"]


@dsl.pipeline
def asking_for_others() -> PrivacyClaim:
    return allocate(**ASKED).outputs["claim"]


@dsl.pipeline
def protected():
    with privacy_budget(**ASKED) as budget:
        budget.download()


@dsl.pipeline
def protected_by_name(name: str):
    with privacy_budget(**ASKED, claim_name=name) as budget:
        budget.download()


@dsl.pipeline
def protected_by_own_release(name: str):
    give_back = release(claim_name=name)
    with dsl.ExitHandler(give_back):
        download(claim=allocate(**ASKED, claim_name=name).outputs["claim"])


@dsl.pipeline
def protected_within(data: Input[Dataset]):
    with privacy_budget(**ASKED, claim_name="inner") as budget:
        budget.download()


@dsl.pipeline
def clean_up():
    flip()
    release()


@dsl.pipeline
def clean_up_if(coin: str):
    with dsl.If(coin == "heads"):
        release()


@dsl.pipeline
def naming(text: str):
    name_of(item=text)


@dsl.pipeline
def fitting_often(data: Input[Dataset]) -> list[Model]:
    with dsl.ParallelFor([1, 2]):
        model = fit(data=data).set_caching_options(False)
    return dsl.Collected(model.outputs["model"])


@dsl.pipeline
def clean_up_maybe():
    release().after(flip())
