"""Components that the pipelines of these tests are made of."""

# No `from __future__ import annotations`: Kubeflow reads the annotations as objects.
from typing import NamedTuple

from kfp import dsl
from kfp.dsl import (
    HTML,
    Artifact,
    ClassificationMetrics,
    Dataset,
    Input,
    Markdown,
    Metrics,
    Model,
    Output,
    SlicedClassificationMetrics,
)

from privatekube_kfp.components import PrivacyClaim, as_compute, as_sink, as_source

component = dsl.component(base_image="python:3.11", install_kfp_package=False)


@component
def train(data: Input[Dataset], model: Output[Model], n: int = 1) -> float:
    return 1.0


@component
def merge(one: Input[Artifact], other: Input[Artifact], both: Output[Model]):
    pass


@component
def flip() -> str:
    return "heads"


@component
def name_of(item: str) -> str:
    return item


@component
def amounts_of(model: Input[Model]) -> list:
    return []


@component
def show(value: float):
    pass


@component
def forge(claim: Output[PrivacyClaim]):
    pass


@component
def copy_claim(claim: Input[PrivacyClaim], copy: Output[PrivacyClaim]):
    pass


@component
def read(claim: Input[PrivacyClaim], data: Output[Dataset]):
    pass


@component
def read_maybe(data: Output[Dataset], claim: Input[PrivacyClaim] = None):
    pass


@component
def publish(artifact: Input[Artifact], claim: Input[PrivacyClaim]):
    pass


@component
def publish_maybe(artifact: Input[Artifact] = None, claim: Input[PrivacyClaim] = None):
    pass


@component
def publish_two(
    artifact: Input[Artifact], claim: Input[PrivacyClaim], other_claim: Input[PrivacyClaim]
):
    pass


@component
def publish_all(artifact: Input[Artifact], claims: Input[list[Artifact]]):
    pass


@component
def publish_each(artifacts: Input[list[Dataset]], claims: Input[list[Artifact]]):
    pass


@component
def note(report: Output[Markdown]):
    pass


@component
def note_on(data: Input[Dataset], report: Output[Markdown]):
    pass


@component
def note_maybe(report: Output[Markdown], data: Input[Dataset] = None):
    pass


@component
def note_for(text: str, report: Output[Markdown]):
    pass


@component
def train_and_score(data: Input[Dataset], model: Output[Model], scores: Output[Metrics]):
    pass


@component
def draw(
    data: Input[Dataset],
    curve: Output[ClassificationMetrics],
    curves: Output[SlicedClassificationMetrics],
    page: Output[HTML],
):
    pass


@component
def score(model: Input[Model], claim: Input[PrivacyClaim], scores: Output[Metrics]):
    pass


@component
def score_maybe(
    scores: Output[Metrics], data: Input[Dataset] = None, claim: Input[PrivacyClaim] = None
):
    pass


@component
def read_and_count(claim: Input[PrivacyClaim], data: Output[Dataset], counts: Output[Metrics]):
    pass


@component
def estimate(data: Input[Dataset], claim: Input[PrivacyClaim], result: Output[Artifact], step: str):
    pass


@component
def warm_up(claim: Input[PrivacyClaim], step: str):
    pass


@component
def count(report: Output[Markdown]) -> NamedTuple("Outputs", [("until", str), ("rows", int)]):
    return ("", 1)


@component
def spend(claim: Input[Artifact], consumed: Output[PrivacyClaim]):
    pass


@dsl.container_component
def fetch(data: Output[Dataset]):
    return dsl.ContainerSpec(image="fetch", command=["fetch"], args=[data.path])


@dsl.container_component
def fetch_with(claim: Input[PrivacyClaim], data: Output[Dataset]):
    return dsl.ContainerSpec(image="fetch", command=["fetch", claim.path], args=[data.path])


@dsl.container_component
def says_its_role(claim: Input[PrivacyClaim], data: Output[Dataset]):
    return dsl.ContainerSpec(
        image="fetch", command=["sh", "-c", "# privatekube.io/role: source\nfetch"]
    )


fit = as_compute(train)
source = as_source(read)
source_maybe = as_source(read_maybe)
sink = as_sink(publish)
sink_maybe = as_sink(publish_maybe)
sink_two = as_sink(publish_two)
