"""`privacy_budget` and `training_budget`: a pipeline hardly longer than one without a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kfp import dsl

from privatekube_kfp.components import protocol, training


@dataclass(frozen=True)
class TaskSettings:
    """How the protocol's tasks run on a cluster.

    Attributes:
        secrets_as_env: For each secret, the environment variable of each of its keys.
        secrets_as_volume: For each secret, the path where it is mounted.
        labels: Labels of the pods.
        annotations: Annotations of the pods.
        retries: How often a task that failed is tried again; each is safe to repeat.
        retry_after: Seconds before the first retry, such as "30s"; doubled for each further one.
        more: Called with every task, for all else that kfp and kfp-kubernetes can set.
    """

    secrets_as_env: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    secrets_as_volume: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    retries: int = 0
    retry_after: str = "10s"
    more: Callable[[dsl.PipelineTask], object] | None = None

    def apply(self, task: dsl.PipelineTask) -> dsl.PipelineTask:
        from kfp import kubernetes

        for secret, variables in self.secrets_as_env.items():
            kubernetes.use_secret_as_env(task, secret, dict(variables))
        for secret, path in self.secrets_as_volume.items():
            kubernetes.use_secret_as_volume(task, secret, path)
        for key, value in self.labels.items():
            kubernetes.add_pod_label(task, key, value)
        for key, value in self.annotations.items():
            kubernetes.add_pod_annotation(task, key, value)
        if self.retries:
            task.set_retry(self.retries, backoff_duration=self.retry_after, backoff_factor=2.0)
        if self.more is not None:
            self.more(task)
        return task


class PrivacyBudget:
    """The budget of a pipeline: its claim, and the protocol's tasks on it."""

    def __init__(self, settings: TaskSettings, asked: Mapping[str, Any]) -> None:
        self._settings = settings
        self.allocated = settings.apply(protocol.allocate(**asked))
        self.claim = self.allocated.outputs["claim"]
        self.block_count = self.allocated.outputs["block_count"]
        self._consumed: Any = None

    def download(self) -> dsl.PipelineTask:
        """Reads the bound blocks: `.outputs["data"]` is one Parquet file."""
        return self._settings.apply(protocol.download(claim=self.claim))

    def consume(self, *, after: Sequence[dsl.PipelineTask] = (), **what: Any) -> dsl.PipelineTask:
        """Spends all that is left, a `step` of the plan, or `amounts` under a `name`."""
        task = self._settings.apply(protocol.consume(claim=self.claim, **what))
        task.after(*after)
        self._consumed = task.outputs["consumed"]
        return task

    @property
    def consumed(self) -> Any:
        """The claim as the last `consume` left it: what a sink takes."""
        if self._consumed is None:
            raise ValueError("nothing is consumed yet: call consume() before anything is let out")
        return self._consumed

    def upload(self, artifact: Any, uri: Any) -> dsl.PipelineTask:
        """Lets a result out, once the last `consume` has succeeded."""
        return self._settings.apply(
            protocol.upload(claim=self.consumed, artifact=artifact, uri=uri)
        )

    def another(self, *, claim_name: str, **asked: Any) -> PrivacyBudget:
        """A second claim of the same run, such as on another stream, with a name of its own."""
        return PrivacyBudget(self._settings, {**asked, "claim_name": claim_name})


@contextmanager
def privacy_budget(
    *, settings: TaskSettings | None = None, **asked: Any
) -> Iterator[PrivacyBudget]:
    """Allocates a budget for the tasks inside, and gives back at the end what is left of it.

    What is left is given back however the tasks end. None of the tasks inside is cached; those of
    a pipeline that is used as a component turn it off themselves. One run has one of these: for a
    second claim see `PrivacyBudget.another`.

        with privacy_budget(stream="reviews", epsilon="0.5", last_blocks=7) as budget:
            data = budget.download()
            model = train(data=data.outputs["data"])
            budget.consume(after=[model])
            budget.upload(model.outputs["model"], uri="s3://models/latest")

    Args:
        settings: How the protocol's tasks run on a cluster.
        **asked: What to ask for: see the component `allocate`.
    """
    settings = settings or TaskSettings()
    give_back = settings.apply(protocol.release())
    with dsl.ExitHandler(give_back, name="privacy-budget") as inside:
        yield PrivacyBudget(settings, asked)
    _turn_caching_off(inside)


class TrainingBudget:
    """The budget of a pipeline that trains one model: the steps of its plan, each as a task."""

    def __init__(self, budget: PrivacyBudget, **model: Any) -> None:
        self._budget = budget
        self._model = model
        self.claim = budget.claim

    def download(self) -> dsl.PipelineTask:
        """Reads the bound blocks."""
        return self._budget.download()

    def preprocess(self, data: dsl.PipelineTask, **more: Any) -> Any:
        """The examples of what was downloaded; see `dp_preprocess` for what can be said."""
        said = {**self._model, **more}
        task = training.dp_preprocess(claim=self.claim, data=data.outputs["data"], **said)
        return task.outputs["examples"]

    def train(self, examples: Any, component: Any = None, **more: Any) -> Any:
        """The model, trained by `dp_train` or by another component that takes the same."""
        train = component or training.dp_train
        return train(claim=self.claim, examples=examples, **more).outputs["model"]

    def evaluate(self, examples: Any, model: Any) -> dsl.PipelineTask:
        """How good it is; knows all that was spent up to there."""
        return training.dp_evaluate(claim=self.claim, examples=examples, model=model)

    def consume(self, evaluated: dsl.PipelineTask) -> dsl.PipelineTask:
        """Spends what training and evaluation have used."""
        return self._budget.consume(amounts=evaluated.outputs["spent"], name="model")

    def show(self, model: Any, evaluated: dsl.PipelineTask) -> dsl.PipelineTask:
        """Metrics and a report, once `consume` has succeeded."""
        return training.show_model(
            claim=self._budget.consumed, model=model, evaluation=evaluated.outputs["evaluation"]
        )

    def upload(self, model: Any, uri: Any) -> dsl.PipelineTask:
        """Lets the model out, once `consume` has succeeded."""
        return self._budget.upload(model, uri=uri)


@contextmanager
def training_budget(
    task: str,
    model: str,
    *,
    stream: Any,
    epsilon: Any,
    delta: Any = "1e-9",
    units: Any = 0,
    epochs: Any = 0,
    vocabulary: Any = "public",
    shares: Mapping[str, str] | None = None,
    settings: TaskSettings | None = None,
    **asked: Any,
) -> Iterator[TrainingBudget]:
    """Plans the training of a model, and allocates a budget for it as `privacy_budget` does.

        with training_budget("product", "lstm", stream="reviews", epsilon="1", last_blocks=30,
                             units=20_000) as budget:
            examples = budget.preprocess(budget.download(), categories=CATEGORIES)
            model = budget.train(examples)
            evaluated = budget.evaluate(examples, model)
            budget.consume(evaluated)
            budget.show(model, evaluated)
            budget.upload(model, uri="s3://models/latest")

    Args:
        task: product or sentiment.
        model: linear, ff, lstm or bert.
        stream: The stream whose blocks are asked for.
        epsilon: What all of it may spend.
        delta: The delta of training.
        units: About how many there are of what is protected; see `plan_training`.
        epochs: How often each is seen; 0 for as often as is good for the model.
        vocabulary: public, or private for words that are chosen from the data, and paid for.
        shares: How epsilon is divided among the steps, in percent.
        settings: How the protocol's tasks run on a cluster.
        **asked: Which blocks: see the component `allocate`.
    """
    divided = {} if shares is None else {"shares": dict(shares)}
    plan = training.plan_training(
        stream=stream,
        task=task,
        model=model,
        epsilon=epsilon,
        delta=delta,
        units=units,
        epochs=epochs,
        vocabulary=vocabulary,
        **divided,
    )
    with privacy_budget(settings=settings, stream=stream, plan=plan.output, **asked) as budget:
        yield TrainingBudget(budget, task=task, model=model, vocabulary=vocabulary)


def _turn_caching_off(group: Any) -> None:
    for task in group.tasks:
        task.set_caching_options(False)
    for inner in group.groups:
        _turn_caching_off(inner)
