"""The components of the placement protocol: Allocate, Download, Consume, Upload, Release.

Each is a thin signature: Kubeflow ships a component as the source of one function, so what it
does when it runs is in `privatekube_kfp.steps`, which its image has. The first comment of each
body is its role; see `roles`.
"""

# No `from __future__ import annotations`: Kubeflow reads the annotations as objects, and of those
# that may be None only `Optional`.
# ruff: noqa: UP045
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

from kfp import dsl
from kfp.dsl import (
    HTML,
    Artifact,
    Dataset,
    Input,
    Metrics,
    Output,
    pipeline_context,
    python_component,
)

from privatekube_kfp import __version__
from privatekube_kfp.components.artifacts import PrivacyClaim
from privatekube_kfp.roles import RUN_ID

IMAGE = f"privatekube/python:{__version__}"
"""Where the components run. `kfp.local` wants the word python in the name."""
TORCH_IMAGE = f"privatekube/python-torch:{__version__}"
"""Where those run that need PyTorch, which is many times as large as all else."""
KERAS_IMAGE = f"privatekube/keras:{__version__}"
"""Where TensorFlow Privacy runs, which cannot be in one image with the others' packages."""


class ProtocolComponent(python_component.PythonComponent):
    """A component that is never cached, and that knows which run it belongs to.

    The run's id is an input of every one, so that a client that turns caching on all the same
    finds no other run's result.
    """

    def __call__(self, *args: Any, **inputs: Any) -> dsl.PipelineTask:
        task = super().__call__(*args, **{"run_id": RUN_ID, **inputs})
        if pipeline_context.Pipeline.get_default_pipeline() is not None:
            task.set_caching_options(False)
        return task


def protocol_component(function: Callable[..., Any], image: str = IMAGE) -> ProtocolComponent:
    """Makes a component of a function whose first input is the run's id."""
    made = dsl.component(function, base_image=image, install_kfp_package=False)
    component = ProtocolComponent(made.component_spec, made.python_func)
    component.__doc__ = inspect.getdoc(function)
    return component


@protocol_component
def allocate(
    run_id: str,
    stream: str,
    claim: Output[PrivacyClaim],
    allocation_report: Output[HTML],
    epsilon: str = "",
    delta: str = "0",
    plan: Optional[dict] = None,
    start: str = "",
    end: str = "",
    last_blocks: int = 0,
    first_user: int = -1,
    last_user: int = -1,
    block_names: Optional[list] = None,
    min_blocks: int = 1,
    max_blocks: int = 0,
    timeout: str = "1h",
    claim_name: str = "claim",
    results: str = "",
) -> NamedTuple("Outputs", [("block_count", int)]):  # type: ignore[valid-type]
    """Asks for privacy budget on blocks of a stream, and waits for it.

    Place it before anything that reads private data. It makes the run's claim, or resumes it, and
    fails with the reason when the budget is denied.

    Args:
        run_id: The run that the claim belongs to: dsl.PIPELINE_JOB_ID_PLACEHOLDER, alone.
        stream: The stream whose blocks are asked for.
        epsilon: What the pipeline will spend, as a decimal such as 0.5; or give a plan.
        delta: The delta that goes with epsilon.
        plan: What the pipeline will run, step by step: {"steps": [{"name": "train", ...}]}.
        start: Blocks with data from this time on, such as 2026-11-16 or 2026-11-16T08:30:00Z.
        end: Blocks with data before this time.
        last_blocks: The newest blocks that match, so many; 0 for all.
        first_user: The first user index of a user range; -1 for no range.
        last_user: The last user index of a user range, included.
        block_names: Blocks by name, instead of a range. Only a few: a task's whole input is at most
            131,072 bytes.
        min_blocks: Fail if fewer blocks match.
        max_blocks: Take the newest if more match; 0 for no limit.
        timeout: How long to wait for budget: 0s is now or never, none waits for ever.
        claim_name: Names the claim among those of the run.
        results: Where an upload will write to. That it can is proven before budget is asked for;
            the same of the site's place, where it is empty.

    Returns:
        claim: The claim, with what was granted.
        allocation_report: What was granted or, of a denial, why not; what is left of the blocks.
        block_count: How many blocks the claim is bound to; their names are in the claim's file.
    """
    # privatekube.io/role: allocate
    from privatekube_kfp.steps.claims import allocate as step

    return (
        step(
            claim,
            allocation_report,
            run_id=run_id,
            claim_name=claim_name,
            stream=stream,
            epsilon=epsilon,
            delta=delta,
            plan=plan,
            start=start,
            end=end,
            last_blocks=last_blocks,
            users=(first_user, last_user),
            block_names=block_names or (),
            min_blocks=min_blocks,
            max_blocks=max_blocks,
            timeout=timeout,
            results=results,
        ),
    )


@protocol_component
def download(run_id: str, claim: Input[PrivacyClaim], data: Output[Dataset]) -> None:
    """Reads the bound blocks of an allocated claim, and nothing else, into one Parquet file.

    Args:
        run_id: The run that the claim belongs to: dsl.PIPELINE_JOB_ID_PLACEHOLDER, alone.
        claim: The claim, from Allocate.

    Returns:
        data: The rows of all bound blocks, oldest block first.
    """
    # privatekube.io/role: source
    from privatekube_kfp.steps.data import download as step

    step(claim, data, run_id=run_id)


@protocol_component
def consume(
    run_id: str,
    claim: Input[PrivacyClaim],
    consumed: Output[PrivacyClaim],
    spending_report: Output[HTML],
    step: str = "",
    amounts: Optional[list] = None,
    name: str = "",
) -> None:
    """Spends budget of a claim, for good: all that is left, a step of its plan, or amounts.

    Place it before anything that lets a result out, and hand that its `consumed` claim.

    Args:
        run_id: The run that the claim belongs to: dsl.PIPELINE_JOB_ID_PLACEHOLDER, alone.
        claim: The claim, from Allocate.
        step: Spend what this step of the plan was allocated.
        amounts: Spend what was used: mechanisms or plans, as the steps report them.
        name: Names what is spent, once in a claim: needed with amounts, since a retry under the
            same name spends once.

    Returns:
        consumed: The claim, to hand to whoever lets the result out.
        spending_report: What was spent, and what is left of the claim and of its blocks.
    """
    # privatekube.io/role: consume
    from privatekube_kfp.steps.claims import consume as spend

    spend(
        claim,
        consumed,
        spending_report,
        run_id=run_id,
        plan_step=step,
        amounts=amounts,
        name=name,
    )


@protocol_component
def upload(
    run_id: str,
    claim: Input[PrivacyClaim],
    artifact: Input[Artifact],
    uri: str = "",
    name: str = "",
) -> None:
    """Lets a result out: writes it to a URI or to the site's place, once its claim is consumed.

    Args:
        run_id: The run that the claim belongs to: dsl.PIPELINE_JOB_ID_PLACEHOLDER, alone.
        claim: The consumed claim, from Consume.
        artifact: What to write, a file or a folder.
        uri: Where to: s3://..., gs://..., and so on, or on your own machine a path. Empty for the
            site's place, which site settings say: {place}/{pipeline}/{run}/{name}.
        name: What it is called at the site's place.
    """
    # privatekube.io/role: sink
    from privatekube_kfp.steps.data import upload as step

    step(claim, artifact, run_id=run_id, uri=uri, name=name)


@protocol_component
def release(
    run_id: str, final_report: Output[HTML], metrics: Output[Metrics], claim_name: str = ""
) -> None:
    """Gives back what claims of the run hold and have not consumed. Place it as the exit task.

    Safe in every state: where a claim was never made, is denied, waits, or holds nothing more,
    there is nothing to give back. Its report also says why a claim was denied: of a task that
    failed, Kubeflow keeps no report.

    Args:
        run_id: The run whose claims they are: dsl.PIPELINE_JOB_ID_PLACEHOLDER, alone.
        claim_name: This claim of the run; all of them if empty.

    Returns:
        final_report: What was granted, spent and given back, and what is left of each block.
        metrics: The same as numbers, per block, to compare runs by.
    """
    # privatekube.io/role: release
    from privatekube_kfp.steps.claims import release as step

    step(run_id=run_id, claim_name=claim_name, report=final_report, metrics=metrics)
