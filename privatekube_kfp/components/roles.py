"""The parts that tasks play in the placement protocol, and how a compiled pipeline says so.

A component of ours says its role in a comment of its source, which every compiled pipeline
carries. A component of others gets one from `as_source`, `as_sink` or `as_compute`, which set an
environment variable on its tasks, or from a pod label of the same meaning. `privatekube lint`
reads all three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kfp import dsl

from privatekube_kfp.roles import ROLE_VARIABLE, Role

Maker = Callable[..., dsl.PipelineTask]


def as_source(component: Maker) -> Maker:
    """A component that reads private data: `read = as_source(load_component_from_file(...))`."""
    return _playing(component, Role.SOURCE)


def as_sink(component: Maker) -> Maker:
    """A component that lets results out of the pipeline."""
    return _playing(component, Role.SINK)


def as_compute(component: Maker) -> Maker:
    """A component that neither reads private data itself nor lets anything out."""
    return _playing(component, Role.COMPUTE)


def _playing(component: Maker, role: Role) -> Maker:
    def make(**inputs: Any) -> dsl.PipelineTask:
        task = component(**inputs)
        task.set_env_variable(ROLE_VARIABLE, role.value)
        if role is not Role.COMPUTE:
            task.set_caching_options(False)
        return task

    make.__doc__ = component.__doc__
    make.__name__ = getattr(component, "name", role.value)
    return make
