"""Planning a training before anybody may look, and training as the plan says.

Training reports what it has run, for Consume. What people see before that is public: how far it is,
and its accuracy on the way, for which a step of the plan is consumed before the first look. So it
may also be stopped by that accuracy: what is not run costs nothing, and is released.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privatekube_kfp.accounting import DpSgd, Mechanism, Plan
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.dp import planning
from privatekube_kfp.dp.architectures import architecture
from privatekube_kfp.dp.folders import (
    Point,
    ReadyExamples,
    ReadyModel,
    Weights,
    load_examples,
    save_model,
)
from privatekube_kfp.dp.planning import Progress
from privatekube_kfp.ledger.client import ClaimClient, raise_if_denied
from privatekube_kfp.ledger.streams import Semantic
from privatekube_kfp.steps.model_report import accuracy_in_words
from privatekube_kfp.steps.needs import check_torch, check_words
from privatekube_kfp.steps.paying import (
    Payment,
    make_sure_it_belongs,
    payment_for,
    step_of,
    steps_of,
    untold,
)
from privatekube_kfp.steps.run import Artifact, in_a_sentence, ledger_of_run

if TYPE_CHECKING:
    from privatekube_kfp.dp.evaluation import Evaluation

_UNITS = {
    Semantic.EVENT: "reviews",
    Semantic.USER: "users",
    Semantic.USER_TIME: "users in each block, added up over the blocks,",
}
_WIDTH = 20


# Before anything private


@in_a_sentence
def plan_training(
    *,
    stream: str,
    task: str,
    model: str,
    epsilon: str,
    delta: str = planning.DELTA,
    units: int = 0,
    epochs: int = 0,
    vocabulary: str = planning.PUBLIC,
    shares: Mapping[str, str] | None = None,
    categories: Sequence[str] | None = None,
    words: str | None = None,
) -> dict[str, object]:
    """A plan for Allocate: what training and evaluating this model will run.

    Categories and words are those of `dp_preprocess`, where the caller knows them: what it would
    refuse is refused here, before any budget is held.
    """
    row = architecture(task, model)
    if categories is not None:
        row.check_categories(categories)
    if words is not None:
        check_words(words)
    with ledger_of_run() as ledger:
        known = ledger.stream(stream)
    semantic = known.spec.semantic
    if not units and semantic is Semantic.USER and known.count is not None:
        units = known.count.estimate
    if units < 1:
        published = "the stream has published no number"
        if known.count is not None:
            published = "the number that the stream has published is that of all its users"
        raise Invalid(
            Reason.INVALID_PLAN,
            f"say about how many {_UNITS[semantic]} there are (units): batches are planned for"
            f" that before anybody may look, and {published}",
        )
    plan = planning.training_plan(
        epsilon,
        units=units,
        epochs=epochs or row.epochs(semantic),
        delta=delta,
        shares=shares or planning.SHARES[planning.check_vocabulary(vocabulary)],
    )
    for step in plan.steps:
        said = (f"{key} {value}" for key, value in step.mechanism.to_json().items())
        print(f"{step.name}: {', '.join(said)}")
    return plan.to_json()


# Training


@in_a_sentence
def dp_train(
    claim: Artifact,
    examples: Artifact,
    model: Artifact,
    *,
    run_id: str,
    plan_step: str = planning.TRAIN,
    validate_step: str = planning.VALIDATE,
    looks: int = 5,
    patience: int = 0,
    learning_rate: float = 0.0,
    units: int = 0,
    epochs: int = 0,
    seed: int = 0,
) -> list[Mapping[str, object]]:
    """Train as a step of the claim's plan says; what was run on the data so far, for Consume.

    A crash leaves a folder that nobody reads.
    """
    check_torch("dp_train")
    # Here, since whoever plans has no need of PyTorch.
    import torch

    from privatekube_kfp.dp.evaluation import evaluate
    from privatekube_kfp.dp.models import trainable_parameters
    from privatekube_kfp.dp.restoring import data_for, model_for, weights_of
    from privatekube_kfp.dp.training import train

    task = begin(claim, examples, run_id=run_id, plan_step=plan_step, units=units, epochs=epochs)
    about, step = task.ready.about, task.step
    with untold("a model"):
        made = model_for(about, task.ready.vectors, seed=seed)
        data = data_for(made, about, task.ready.train)
        held_out = data_for(made, about, task.ready.held_out)
        print(f"{made.name}: {trainable_parameters(made):,} trained parameters; {about.words}")
        watching = Watching(
            step,
            _pay_for_looks(task, validate_step, looks, patience),
            lambda part: evaluate(made, held_out, part, classes=len(about.labels)),
            patience,
        )
        try:
            trained = train(
                made,
                data,
                step,
                learning_rate=learning_rate or planning.LEARNING_RATES[about.architecture.kind],
                progress=watching,
            )
        except planning.Diverged as failure:
            pay_for_failure(task, failure.spent)
            raise
    return task.end(
        model,
        weights=weights_of(made),
        trainer=f"PyTorch {torch.__version__}",
        seed=seed,
        spent=trained.spent,
        curve=watching.curve,
        looked_by=validate_step if validate_step in steps_of(task.paying.claim) else "",
    )


@dataclass(frozen=True)
class Training:
    """A training that a step of a plan pays for, whoever does it."""

    paying: Payment
    ready: ReadyExamples
    step: DpSgd

    def end(
        self,
        model: Artifact,
        *,
        weights: Weights,
        trainer: str,
        seed: int,
        spent: DpSgd | None,
        curve: Sequence[Point] = (),
        looked_by: str = "",
    ) -> list[Mapping[str, object]]:
        """Write the model; what was run on the data so far."""
        assert spent is not None, "a step of a plan has at least one step"
        ready = self.ready
        so_far = (*ready.spent, spent.to_json())
        save_model(
            model.path,
            ReadyModel(
                ready.about,
                weights,
                trainer=trainer,
                seed=seed,
                planned=self.step.to_json(),
                spent=so_far,
                curve=tuple(curve),
                looked_by=looked_by,
                vocabulary=ready.vocabulary,
            ),
        )
        about = ready.about
        model.metadata.update(
            claim=about.claim, task=about.task, model=about.model, words=about.words
        )
        print(f"trained: {spent.steps} of {self.step.steps} steps")
        return list(so_far)


def begin(
    claim: Artifact, examples: Artifact, *, run_id: str, plan_step: str, units: int, epochs: int
) -> Training:
    """How to train for what a step of the plan was granted."""
    ready = load_examples(examples.path)
    with ledger_of_run() as ledger:
        paying = payment_for(ledger, claim, run_id, plan_step)
    make_sure_it_belongs(paying.claim, "examples", ready.about.claim)
    if isinstance(paying.mechanism, DpSgd):
        step = paying.mechanism
    else:
        row, semantic = ready.about.architecture, paying.stream.semantic
        wanted = planning.schedule(units, epochs or row.epochs(semantic))
        step = planning.training_of(paying.mechanism, wanted)
    paying.covers("training", step.price(paying.stream.accounting))
    print(f"DP-SGD: noise {step.noise_multiplier}, rate {step.sample_rate}, {step.steps} steps")
    return Training(paying, ready, step)


def pay_for_failure(task: Training, spent: DpSgd | None) -> None:
    """That training failed is seen by everybody, and follows from the data: it is consumed."""
    if spent is None:
        return
    claim = task.paying.claim.name
    with ledger_of_run() as ledger:
        id = f"consume-failure-{task.paying.step}-{spent.steps}"
        raise_if_denied(
            claim, ClaimClient(ledger).consume(claim, amount=Plan.of(spent), request_id=id)
        )


class Watching:
    """Says how far training is, looks at its accuracy now and then, and may stop it.

    Args:
        step: What will be run.
        looks: What each look may cost; all are paid for.
        evaluate: Evaluates the model as it is now, for a part of the budget.
        patience: Stop after so many looks that were no better than the best; 0 for never.
    """

    def __init__(
        self,
        step: DpSgd,
        looks: Sequence[Mechanism] = (),
        evaluate: Callable[[Mechanism], Evaluation] | None = None,
        patience: int = 0,
    ) -> None:
        self.curve: list[Point] = []
        self._looks = {
            step.steps * (number + 1) // len(looks): look for number, look in enumerate(looks)
        }
        self._evaluate = evaluate
        self._patience = patience
        self._shown = 0

    def __call__(self, progress: Progress) -> bool:
        done = _WIDTH * progress.step // progress.steps
        look = self._looks.get(progress.step)
        if done > self._shown or look is not None:
            self._shown = done
            bar = "#" * done + "." * (_WIDTH - done)
            seen = self._look(look, progress.epoch) if look is not None else ""
            print(f"[{bar}] epoch {progress.epoch:.1f}{seen}", flush=True)
        return self._should_stop()

    def _look(self, part: Mechanism, epoch: float) -> str:
        assert self._evaluate is not None, "looks need somebody who looks"
        found = self._evaluate(part)
        self.curve.append(Point(epoch, found.accuracy, found.margin))
        return f", accuracy about {accuracy_in_words(found.accuracy, found.margin)}"

    def _should_stop(self) -> bool:
        seen = [point.accuracy or 0.0 for point in self.curve]
        return 0 < self._patience < len(seen) and max(seen[: -self._patience]) >= max(
            seen[-self._patience :]
        )


def _pay_for_looks(task: Training, step: str, looks: int, patience: int) -> list[Mechanism]:
    """What each look at the accuracy may cost; all of it is consumed before the first.

    A try before this one may have had its looks. Then there are none: their noise would be another,
    and the price is paid once.
    """
    claim = task.paying.claim
    if looks < 0 or patience < 0:
        raise Invalid(
            Reason.INVALID_REQUEST, f"looks and patience are 0 or more, not {looks} and {patience}"
        )
    if not looks or step not in steps_of(claim):
        if patience:
            raise Invalid(
                Reason.INVALID_REQUEST,
                f"training can be stopped early only by looks that are paid for: {looks} looks,"
                f" and steps {', '.join(steps_of(claim))}",
            )
        return []
    parts = planning.divided(step_of(claim, step)[0], [1] * min(looks, task.step.steps))
    with ledger_of_run() as ledger:
        # With an id of its own: of two tries at once, only one may look.
        id = f"consume-{step}-{uuid.uuid4().hex[:12]}"
        answer = ClaimClient(ledger).consume(claim.name, step=step, request_id=id)
    if answer.denied and answer.reason is Reason.ALREADY_CONSUMED:
        print(f"the step {step!r} is consumed: a try before this one has looked, this one does not")
        return []
    raise_if_denied(claim.name, answer)
    return parts
