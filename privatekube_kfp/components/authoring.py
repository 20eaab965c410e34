"""`privacy_budget` and `training_budget`: a pipeline hardly longer than one without a budget."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kfp import dsl
from kfp.dsl.pipeline_channel import PipelineArtifactChannel

from privatekube_kfp.components import protocol, statistics, training
from privatekube_kfp.data.places import UPLOADS_VARIABLE


@dataclass(frozen=True)
class TaskSettings:
    """How the tasks of PrivateKube's components run on a cluster, as far as a pipeline says so.

    What holds for a whole cluster belongs into site settings, which fill in what is left open.

    Attributes:
        secrets_as_env: For each secret, the environment variable of each of its keys.
        secrets_as_volume: For each secret, the path where it is mounted.
        labels: Labels of the pods.
        annotations: Annotations of the pods.
        cpu: CPUs that a task requests, such as "500m".
        memory: Memory that a task requests, such as "2Gi".
        memory_limit: Memory above which a task is killed.
        retries: How often Kubeflow makes a task's pod again that was lost: evicted, deleted, its
            node gone. A task that ended by itself, with a sentence or for want of memory, is not
            tried again. Every task is safe to repeat.
        retry_after: Seconds before the first retry, such as "30s"; doubled for each further one.
        more: Called with every task, for all else that kfp and kfp-kubernetes can set.
    """

    secrets_as_env: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    secrets_as_volume: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cpu: str = ""
    memory: str = ""
    memory_limit: str = ""
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
        if self.cpu:
            task.set_cpu_request(self.cpu)
        if self.memory:
            task.set_memory_request(self.memory)
        if self.memory_limit:
            task.set_memory_limit(self.memory_limit)
        if self.retries:
            task.set_retry(self.retries, backoff_duration=self.retry_after, backoff_factor=2.0)
        if self.more is not None:
            self.more(task)
        return task


class PrivacyBudget:
    """The budget of a pipeline: its claim, and the protocol's tasks on it."""

    def __init__(self, settings: TaskSettings, asked: Mapping[str, Any]) -> None:
        self._settings = settings
        self._results = asked.get("results", "")
        self._uploads: list[str] = []
        self._names: list[str] = []
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

    def statistic(self, statistic: Any, data: Any, **more: Any) -> dsl.PipelineTask:
        """A statistic of what was downloaded; see `dp_statistic` for what can be said."""
        task = statistics.dp_statistic(
            claim=self.claim, data=_output(data, "data"), statistic=statistic, **more
        )
        return self._settings.apply(task)

    def show_statistic(self, result: Any) -> dsl.PipelineTask:
        """Metrics and a report of a statistic, once the last `consume` has succeeded."""
        return self._settings.apply(
            statistics.show_statistic(claim=self.consumed, result=_output(result, "result"))
        )

    def upload(self, artifact: Any, uri: Any = None, name: str = "") -> dsl.PipelineTask:
        """Lets a result out, once the last `consume` has succeeded.

        Args:
            artifact: A task's output; or the task, if it has one artifact.
            uri: Where to; the `results` of the budget unless given. Empty for the site's place.
            name: What it is called at the site's place; the output's name unless given.
        """
        made = _output(artifact)
        if uri is None or uri is self._results:
            uri = self._results
            self._note_upload("")
        elif isinstance(uri, str):
            self._note_upload(uri)
        task = protocol.upload(
            claim=self.consumed, artifact=made, uri=uri, name=self._name(name or made.name)
        )
        return self._settings.apply(task)

    def _note_upload(self, uri: str) -> None:
        """Tell Allocate where a result will go, so that it can prove that it can."""
        if uri not in self._uploads:
            self._uploads.append(uri)
        self.allocated.set_env_variable(UPLOADS_VARIABLE, json.dumps(self._uploads))

    def _name(self, name: str) -> str:
        """A name that no other upload of this budget has."""
        self._names.append(name)
        count = self._names.count(name)
        if count == 1:
            return name
        stem, dot, ending = name.rpartition(".")
        return f"{stem}-{count}.{ending}" if dot and stem else f"{name}-{count}"

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
            budget.upload(model.outputs["model"])

    Results go to the site's place, or to `results`; that they can be written is proven before any
    budget is asked for.

    Args:
        settings: How the tasks of PrivateKube's components run on a cluster.
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

    def preprocess(self, data: Any, **more: Any) -> dsl.PipelineTask:
        """The examples of what was downloaded; see `dp_preprocess` for what can be said."""
        said = {**self._model, **more}
        task = training.dp_preprocess(claim=self.claim, data=_output(data, "data"), **said)
        return self._apply(task)

    def train(self, examples: Any, component: Any = None, **more: Any) -> dsl.PipelineTask:
        """The model, trained by `dp_train` or by another component that takes the same.

        A task, on which more can be set: `budget.train(examples).set_memory_limit("8Gi")`.
        """
        train = component or training.dp_train
        task = train(claim=self.claim, examples=_output(examples, "examples"), **more)
        return self._apply(task)

    def evaluate(self, examples: Any, model: Any) -> dsl.PipelineTask:
        """How good it is; knows all that was spent up to there."""
        task = training.dp_evaluate(
            claim=self.claim, examples=_output(examples, "examples"), model=_output(model, "model")
        )
        return self._apply(task)

    def consume(self, evaluated: dsl.PipelineTask) -> dsl.PipelineTask:
        """Spends what training and evaluation have used."""
        return self._budget.consume(amounts=evaluated.outputs["spent"], name="model")

    def show(self, model: Any, evaluated: dsl.PipelineTask) -> dsl.PipelineTask:
        """Metrics and a report, once `consume` has succeeded."""
        task = training.show_model(
            claim=self._budget.consumed,
            model=_output(model, "model"),
            evaluation=evaluated.outputs["evaluation"],
        )
        return self._apply(task)

    def upload(self, model: Any, uri: Any = None, name: str = "") -> dsl.PipelineTask:
        """Lets the model out, once `consume` has succeeded; see `PrivacyBudget.upload`."""
        return self._budget.upload(_output(model, "model"), uri=uri, name=name)

    def _apply(self, task: dsl.PipelineTask) -> dsl.PipelineTask:
        return self._budget._settings.apply(task)


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
    categories: Any = None,
    words: Any = None,
    settings: TaskSettings | None = None,
    **asked: Any,
) -> Iterator[TrainingBudget]:
    """Plans the training of a model, and allocates a budget for it as `privacy_budget` does.

        with training_budget("product", "lstm", stream="reviews", epsilon="1", last_blocks=30,
                             units=20_000, categories=CATEGORIES, words=VECTORS) as budget:
            examples = budget.preprocess(budget.download())
            model = budget.train(examples)
            evaluated = budget.evaluate(examples, model)
            budget.consume(evaluated)
            budget.show(model, evaluated)
            budget.upload(model)

    What `preprocess`, `train` and the others return are tasks, on which more can be set.

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
        categories: Of the task product: the public list of categories.
        words: Where word vectors or BERT are; see `dp_preprocess`. What is said here rather than to
            `preprocess` is checked before budget is asked for.
        settings: How the tasks of PrivateKube's components run on a cluster.
        **asked: Which blocks, and `results`: see the component `allocate`.
    """
    divided = {} if shares is None else {"shares": dict(shares)}
    known = {"categories": categories, "words": words}
    told = {name: value for name, value in known.items() if value is not None}
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
        **told,
    )
    (settings or TaskSettings()).apply(plan)
    with privacy_budget(settings=settings, stream=stream, plan=plan.output, **asked) as budget:
        yield TrainingBudget(budget, task=task, model=model, vocabulary=vocabulary, **told)


def _output(made: Any, name: str = "") -> Any:
    """An artifact that a task has made; whoever has the artifact already may give that."""
    if not isinstance(made, dsl.PipelineTask):
        return made
    if name in made.outputs:
        return made.outputs[name]
    artifacts = [one for one in made.outputs.values() if isinstance(one, PipelineArtifactChannel)]
    if len(artifacts) != 1:
        names = ", ".join(made.outputs) or "none"
        raise ValueError(f"task {made.name} has the outputs {names}: say which, by outputs[...]")
    return artifacts[0]


def _turn_caching_off(group: Any) -> None:
    for task in group.tasks:
        task.set_caching_options(False)
    for inner in group.groups:
        _turn_caching_off(inner)
