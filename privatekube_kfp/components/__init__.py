"""Kubeflow components that keep a pipeline within its privacy budget.

    from privatekube_kfp.components import privacy_budget

What is named here is loaded when it is asked for: in a pod, where kfp has no compiler, a component
finds the type of its artifact in this package, and nothing else of it can be loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privatekube_kfp.components.artifacts import PrivacyClaim
    from privatekube_kfp.components.authoring import (
        PrivacyBudget,
        TaskSettings,
        TrainingBudget,
        privacy_budget,
        training_budget,
    )
    from privatekube_kfp.components.ingesting import ingest
    from privatekube_kfp.components.protocol import allocate, consume, download, release, upload
    from privatekube_kfp.components.roles import as_compute, as_sink, as_source
    from privatekube_kfp.components.statistics import dp_statistic, show_statistic
    from privatekube_kfp.components.training import (
        dp_evaluate,
        dp_preprocess,
        dp_train,
        dp_train_keras,
        plan_training,
        show_model,
    )

_HOMES = {
    "PrivacyClaim": "artifacts",
    "PrivacyBudget": "authoring",
    "TaskSettings": "authoring",
    "TrainingBudget": "authoring",
    "privacy_budget": "authoring",
    "training_budget": "authoring",
    "ingest": "ingesting",
    "allocate": "protocol",
    "consume": "protocol",
    "download": "protocol",
    "release": "protocol",
    "upload": "protocol",
    "as_compute": "roles",
    "as_sink": "roles",
    "as_source": "roles",
    "dp_statistic": "statistics",
    "show_statistic": "statistics",
    "dp_evaluate": "training",
    "dp_preprocess": "training",
    "dp_train": "training",
    "dp_train_keras": "training",
    "plan_training": "training",
    "show_model": "training",
}

__all__ = [
    "PrivacyBudget",
    "PrivacyClaim",
    "TaskSettings",
    "TrainingBudget",
    "allocate",
    "as_compute",
    "as_sink",
    "as_source",
    "consume",
    "download",
    "dp_evaluate",
    "dp_preprocess",
    "dp_statistic",
    "dp_train",
    "dp_train_keras",
    "ingest",
    "plan_training",
    "privacy_budget",
    "release",
    "show_model",
    "show_statistic",
    "training_budget",
    "upload",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__]
