"""Pipelines, good and bad, with what the linter must find in each, and nothing else."""

# No `from __future__ import annotations`: Kubeflow reads the annotations as objects.
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kfp import dsl, kubernetes
from kfp.dsl import Dataset, Input, Model

from privatekube_kfp.components import (
    PrivacyClaim,
    allocate,
    as_compute,
    as_sink,
    as_source,
    consume,
    download,
    dp_statistic,
    ingest,
    privacy_budget,
    release,
    show_statistic,
    upload,
)
from tests.lint import nested, parts
from tests.lint.nested import ASKED
from tests.lint.parts import fit, flip, merge, sink, sink_maybe, sink_two, source_maybe


@dataclass(frozen=True)
class Case:
    pipeline: Callable[..., Any]
    strict: bool
    findings: list[str]


CASES: dict[str, Case] = {}


def finds(*findings: str, strict: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """What must be found: codes, each with the path of its task."""

    def add(pipeline: Callable[..., Any]) -> Callable[..., Any]:
        assert pipeline.__name__ not in CASES
        CASES[pipeline.__name__] = Case(pipeline, strict, sorted(findings))
        return pipeline

    return add


good = finds()
good_strictly = finds(strict=True)


def budget(**more):
    return privacy_budget(**ASKED, **more)


# Whole pipelines.


@good_strictly
def seven_steps(uri: str = "s3://models"):
    with budget() as mine:
        data = mine.download().outputs["data"]
        first = fit(data=data)
        model = fit(data=data).after(first)
        mine.consume(after=[model])
        mine.upload(model.outputs["model"], uri=uri)


@good
def by_hand():
    give_back = release()
    with dsl.ExitHandler(give_back):
        claim = allocate(**ASKED).outputs["claim"]
        model = fit(data=download(claim=claim).outputs["data"]).set_caching_options(False)
        paid = consume(claim=claim).after(model)
        upload(claim=paid.outputs["consumed"], artifact=model.outputs["model"], uri="x")


@good_strictly
def two_claims_each_paid():
    with budget() as mine:
        other = mine.another(**ASKED, claim_name="other")
        both = as_compute(merge)(
            one=mine.download().outputs["data"], other=other.download().outputs["data"]
        )
        sink_two(
            artifact=both.outputs["both"],
            claim=mine.consume().outputs["consumed"],
            other_claim=other.consume().outputs["consumed"],
        )


@good
def consumed_step_by_step():
    with budget() as mine:
        model = fit(data=mine.download().outputs["data"])
        first = consume(claim=mine.claim, step="preprocess")
        second = consume(claim=first.outputs["consumed"], step="train").after(model)
        upload(claim=second.outputs["consumed"], artifact=model.outputs["model"], uri="x")


# Sources.


@finds("PK101 fetch")
def source_without_a_claim():
    as_source(parts.fetch)()


@good
def container_source_with_a_claim():
    with budget() as mine:
        as_source(parts.fetch_with)(claim=mine.claim)


@finds("PK101 exit-handler-1/read-maybe")
def optional_claim_left_out():
    with budget() as mine:
        source_maybe().after(mine.allocated)


@finds("PK102 download")
def claim_imported():
    claim = dsl.importer("s3://claims/1", artifact_class=PrivacyClaim, reimport=False)
    download(claim=claim.output)


@finds("PK102 download")
def claim_from_outside(claim: Input[PrivacyClaim]):
    download(claim=claim)


@finds("PK102 exit-handler-1/download")
def claim_copied():
    with budget() as mine:
        copied = parts.copy_claim(claim=mine.claim)
        download(claim=copied.outputs["copy"])


@finds("PK102 download")
def claim_forged():
    download(claim=parts.forge().outputs["claim"])


@good
def claim_into_a_nested_pipeline():
    with budget() as mine:
        fit(data=nested.reading(claim=mine.claim).output)


@finds("PK102 exit-handler-1/reading-without/read")
def nothing_into_a_nested_pipeline():
    with budget():
        nested.reading_without()


@finds("PK103 exit-handler-1/read-maybe")
def source_ignores_failure():
    with budget() as mine:
        source_maybe(claim=mine.claim).ignore_upstream_failure()


@good
def source_is_followed_by_one_that_ignores_failure():
    with budget() as mine:
        read = mine.download()
        flip().after(read).ignore_upstream_failure()


@finds("PK103 exit-handler-1/reading-maybe/read-maybe")
def enclosing_pipeline_ignores_failure():
    with budget() as mine:
        nested.reading_maybe(claim=mine.claim).ignore_upstream_failure()


@finds("PK103 exit-handler-1/download")
def failure_does_not_show():
    give_back = release()
    with dsl.ExitHandler(give_back):
        download(claim=nested.asking_with_masked_failure().output)


@good
def failure_shows():
    give_back = release()
    with dsl.ExitHandler(give_back):
        claim = nested.asking_for_others().output
        download(claim=claim)


@good
def allocates_within_a_pipeline_that_ignores_failure():
    before = flip()
    nested.protected().after(before).ignore_upstream_failure()


# Ingest.


TABLES = {"stream": "reviews", "sources": ["s3://raw/today.parquet"], "to": "s3://private"}


def as_ingest(task):
    """A hand-made task that claims the role."""
    return task.set_env_variable("PRIVATEKUBE_ROLE", "ingest").set_caching_options(False)


@good_strictly
def only_ingest():
    ingest(**TABLES)


@good_strictly
def ingest_then_train(sources: list, until: str = ""):
    done = ingest(stream="reviews", sources=sources, to="s3://private", until=until)
    with budget(end=done.outputs["until"]) as mine:
        mine.allocated.after(done)
        model = fit(data=mine.download().outputs["data"])
        mine.consume(after=[model])
        mine.upload(model.outputs["model"], uri="x")


@good_strictly
def ingest_within_the_budget():
    with budget() as mine:
        mine.allocated.after(ingest(**TABLES))
        mine.download()
        mine.consume()


@good_strictly
def what_an_ingest_brought_in_is_asked_for() -> int:
    done = ingest(**TABLES)
    with budget(end=done.outputs["until"]) as mine:
        mine.download()
        mine.consume()
    return done.outputs["block_count"]


@good_strictly
def ingest_of_each_source(sources: list):
    with dsl.ParallelFor(sources, parallelism=1) as source:
        ingest(stream="reviews", sources=[source], to="s3://private")


@good
def own_ingest_that_only_reports():
    as_ingest(parts.note())
    as_ingest(parts.note_for(text="s3://raw"))


@finds("PK104 exit-handler-1/note-on")
def ingest_of_private_artifacts():
    with budget() as mine:
        as_ingest(parts.note_on(data=mine.download().outputs["data"]))


@finds("PK104 note-on")
def ingest_of_other_artifacts():
    data = dsl.importer("s3://raw", artifact_class=Dataset, reimport=False)
    as_ingest(parts.note_on(data=data.output))


@finds("PK104 note-maybe")
def ingest_that_could_take_artifacts():
    as_ingest(parts.note_maybe())


@finds("PK104 exit-handler-1/ingest")
def ingest_to_where_private_data_say():
    with budget() as mine:
        score = fit(data=mine.download().outputs["data"]).outputs["Output"]
        ingest(**{**TABLES, "to": f"s3://private/{score}"})


@finds("PK104 exit-handler-1/condition-2/ingest")
def ingest_if_private_data_say_so():
    with budget() as mine:
        score = fit(data=mine.download().outputs["data"]).outputs["Output"]
        with dsl.If(score > 0.5):
            ingest(**TABLES)


@finds("PK105 fetch")
def source_disguised_as_ingest():
    as_ingest(parts.fetch())


@finds("PK105 fetch")
def source_disguised_as_ingest_by_label():
    task = parts.fetch().set_caching_options(False)
    kubernetes.add_pod_label(task, "privatekube.io/role", "ingest")


@finds("PK105 count")
def ingest_that_gives_out_counts():
    as_ingest(parts.count())


@finds("PK105 forge")
def ingest_that_gives_out_a_claim():
    as_ingest(parts.forge())


@finds("PK104 exit-handler-1/train", "PK105 exit-handler-1/train")
def training_disguised_as_ingest():
    with budget() as mine:
        as_ingest(parts.train(data=mine.download().outputs["data"]))


@finds("PK602 ingest")
def ingest_in_disguise():
    as_compute(ingest)(**TABLES)


@finds("PK502 ingest")
def ingest_cached():
    ingest(**TABLES).set_caching_options(True)


@finds("PK501 ingest")
def ingest_of_another_run():
    ingest(**TABLES, run_id="monday")


# Sinks.


@finds("PK201 exit-handler-1/publish-maybe")
def sink_without_a_claim():
    with budget() as mine:
        sink_maybe(artifact=fit(data=mine.download().outputs["data"]).outputs["model"])


@good
def sink_with_a_consumed_claim():
    with budget() as mine:
        model = fit(data=mine.download().outputs["data"])
        sink(artifact=model.outputs["model"], claim=mine.consume().outputs["consumed"])


@finds("PK202 exit-handler-1/upload")
def sink_with_an_allocated_claim():
    with budget() as mine:
        model = fit(data=mine.download().outputs["data"])
        upload(artifact=model.outputs["model"], claim=mine.claim, uri="x")


@finds("PK203 exit-handler-1/upload")
def sink_with_a_forged_claim():
    with budget() as mine:
        model = fit(data=mine.download().outputs["data"])
        claim = parts.forge().outputs["claim"]
        upload(artifact=model.outputs["model"], claim=claim, uri="x")


@finds("PK203 upload")
def sink_with_an_imported_claim():
    claim = dsl.importer("s3://claims/1", artifact_class=PrivacyClaim, reimport=False)
    upload(artifact=parts.fetch().output, claim=claim.output, uri="x")


@finds("PK204 exit-handler-1/publish")
def sink_pays_for_one_of_two():
    with budget() as mine:
        other = mine.another(**ASKED, claim_name="other")
        both = merge(one=mine.download().outputs["data"], other=other.download().outputs["data"])
        sink(artifact=both.outputs["both"], claim=mine.consume().outputs["consumed"])


@finds("PK204 exit-handler-1/publish")
def claims_mixed_up():
    with budget() as mine:
        other = mine.another(**ASKED, claim_name="other")
        other.download()
        other_paid = other.consume()
        mine.consume()
        model = fit(data=mine.download().outputs["data"])
        sink(artifact=model.outputs["model"], claim=other_paid.outputs["consumed"])


@finds("PK204 exit-handler-1/upload")
def data_through_a_parameter():
    with budget() as mine:
        other = mine.another(**ASKED, claim_name="other")
        score = fit(data=other.download().outputs["data"])
        mine.consume()
        mine.upload(mine.download().outputs["data"], uri=f"x-{score.outputs['Output']}")


@finds("PK204 exit-handler-1/condition-2/publish")
def data_decide_whether_a_sink_runs():
    with budget() as mine:
        other = mine.another(**ASKED, claim_name="other")
        score = fit(data=other.download().outputs["data"]).outputs["Output"]
        paid = mine.consume().outputs["consumed"]
        data = mine.download().outputs["data"]
        with dsl.If(score > 0.5):
            sink(artifact=data, claim=paid)


@finds("PK204 exit-handler-1/for-loop-2/publish")
def data_decide_how_often_a_sink_runs():
    with budget() as mine:
        other = mine.another(**ASKED, claim_name="other")
        model = fit(data=other.download().outputs["data"]).outputs["model"]
        rounds = as_compute(parts.amounts_of)(model=model).output
        paid = mine.consume().outputs["consumed"]
        data = mine.download().outputs["data"]
        with dsl.ParallelFor(rounds):
            sink(artifact=data, claim=paid)


@good
def paid_data_decide():
    with budget() as mine:
        model = fit(data=mine.download().outputs["data"])
        paid = mine.consume().outputs["consumed"]
        with dsl.If(model.outputs["Output"] > 0.5):
            sink(artifact=model.outputs["model"], claim=paid)


@finds("PK205 exit-handler-1/publish-maybe")
def sink_ignores_failure():
    with budget() as mine:
        paid = mine.consume().outputs["consumed"]
        data = mine.download().outputs["data"]
        sink_maybe(artifact=data, claim=paid).ignore_upstream_failure()


@finds("PK205 exit-handler-1/letting-out-maybe/publish-maybe")
def enclosing_pipeline_of_a_sink_ignores_failure():
    with budget() as mine:
        paid = mine.consume().outputs["consumed"]
        data = mine.download().outputs["data"]
        nested.letting_out_maybe(claim=paid, artifact=data).ignore_upstream_failure()


@good
def sink_in_a_nested_pipeline():
    with budget() as mine:
        paid = mine.consume().outputs["consumed"]
        nested.letting_out(claim=paid, artifact=mine.download().outputs["data"])


# What people see.


@finds("PK206 exit-handler-1/train-and-score")
def metrics_before_consume():
    with budget() as mine:
        model = parts.train_and_score(data=mine.download().outputs["data"])
        mine.consume(after=[model])
        mine.upload(model.outputs["model"], uri="x")


@finds("PK206 exit-handler-1/draw")
def pages_and_curves_before_consume():
    with budget() as mine:
        as_compute(parts.draw)(data=mine.download().outputs["data"])


@finds("PK206 exit-handler-1/read-and-count")
def metrics_of_a_source():
    with budget() as mine:
        as_source(parts.read_and_count)(claim=mine.claim)


@finds("PK206 exit-handler-1/score")
def metrics_with_an_allocated_claim():
    with budget() as mine:
        model = fit(data=mine.download().outputs["data"]).outputs["model"]
        parts.score(model=model, claim=mine.claim)


@finds("PK206 exit-handler-1/note-on")
def report_after_consume_without_its_claim():
    with budget() as mine:
        data = mine.download().outputs["data"]
        parts.note_on(data=data).after(mine.consume())


@finds("PK206 exit-handler-1/note-for")
def report_of_a_private_parameter():
    with budget() as mine:
        score = fit(data=mine.download().outputs["data"]).outputs["Output"]
        parts.note_for(text=f"{score}")


@finds("PK206 exit-handler-1/condition-2/note")
def report_if_private_data_say_so():
    with budget() as mine:
        score = fit(data=mine.download().outputs["data"]).outputs["Output"]
        with dsl.If(score > 0.5):
            parts.note()


@finds("PK206 exit-handler-1/score")
def metrics_paid_by_another_claim():
    with budget() as mine:
        other = mine.another(**ASKED, claim_name="other")
        other.download()
        model = fit(data=mine.download().outputs["data"]).outputs["model"]
        parts.score(model=model, claim=other.consume().outputs["consumed"])


@finds("PK206 exit-handler-1/score-maybe")
def metrics_even_if_consume_fails():
    with budget() as mine:
        paid = mine.consume().outputs["consumed"]
        data = mine.download().outputs["data"]
        as_compute(parts.score_maybe)(data=data, claim=paid).ignore_upstream_failure()


@finds("PK206 exit-handler-1/scoring/train-and-score")
def metrics_within_a_nested_pipeline():
    with budget() as mine:
        nested.scoring(data=mine.download().outputs["data"])


@good
def metrics_with_a_consumed_claim():
    with budget() as mine:
        model = fit(data=mine.download().outputs["data"]).outputs["model"]
        paid = mine.consume().outputs["consumed"]
        parts.score(model=model, claim=paid)
        as_sink(parts.score)(model=model, claim=paid)


@good
def metrics_of_what_is_public():
    with budget() as mine:
        parts.note_for(text=f"{mine.allocated.outputs['block_count']}")
        mine.download()


# Branches.


@good
def one_of_three_models():
    with budget() as mine:
        data = mine.download().outputs["data"]
        coin = flip().output
        with dsl.If(coin == "heads"):
            first = fit(data=data, n=1)
        with dsl.Elif(coin == "tails"):
            second = fit(data=data, n=2)
        with dsl.Else():
            third = fit(data=data, n=3)
        models = [task.outputs["model"] for task in (first, second, third)]
        mine.consume()
        mine.upload(dsl.OneOf(*models), uri="x")


@finds("PK204 exit-handler-1/upload")
def one_of_two_is_unpaid():
    with budget() as mine:
        other = mine.another(**ASKED, claim_name="other")
        coin = flip().output
        data, other_data = mine.download().outputs["data"], other.download().outputs["data"]
        with dsl.If(coin == "heads"):
            first = fit(data=data)
        with dsl.Else():
            second = fit(data=other_data)
        mine.consume()
        mine.upload(dsl.OneOf(first.outputs["model"], second.outputs["model"]), uri="x")


@good
def consumed_in_either_branch():
    with budget() as mine:
        model = fit(data=mine.download().outputs["data"])
        coin = flip().output
        with dsl.If(coin == "heads"):
            first = consume(claim=mine.claim, step="small")
        with dsl.Else():
            second = consume(claim=mine.claim, step="large")
        paid = dsl.OneOf(first.outputs["consumed"], second.outputs["consumed"])
        sink(artifact=model.outputs["model"], claim=paid)


@finds("PK204 exit-handler-1/publish")
def either_of_two_claims_is_consumed():
    with budget() as mine:
        other = mine.another(**ASKED, claim_name="other")
        both = merge(one=mine.download().outputs["data"], other=other.download().outputs["data"])
        coin = flip().output
        with dsl.If(coin == "heads"):
            first = consume(claim=mine.claim)
        with dsl.Else():
            second = consume(claim=other.claim)
        paid = dsl.OneOf(first.outputs["consumed"], second.outputs["consumed"])
        sink(artifact=both.outputs["both"], claim=paid)


@finds(
    "PK301 exit-handler-1/condition-branches-2/condition-4/consume-2",
    "PK204 exit-handler-1/publish",
)
def consumed_or_forged():
    with budget() as mine:
        data = mine.download().outputs["data"]
        forged = parts.forge().outputs["claim"]
        with dsl.If(flip().output == "heads"):
            first = consume(claim=mine.claim)
        with dsl.Else():
            second = consume(claim=forged)
        paid = dsl.OneOf(first.outputs["consumed"], second.outputs["consumed"])
        sink(artifact=data, claim=paid)


@good
def either_branch_has_a_claim_of_its_own():
    give_back = release()
    with dsl.ExitHandler(give_back):
        coin = flip().output
        with dsl.If(coin == "heads"):
            claim = allocate(**ASKED).outputs["claim"]
            data = download(claim=claim).outputs["data"]
            paid = consume(claim=claim)
        with dsl.Else():
            other_claim = allocate(**ASKED).outputs["claim"]
            other_data = download(claim=other_claim).outputs["data"]
            other_paid = consume(claim=other_claim)
        sink(
            artifact=dsl.OneOf(data, other_data),
            claim=dsl.OneOf(paid.outputs["consumed"], other_paid.outputs["consumed"]),
        )


@finds("PK202 exit-handler-1/publish")
def consumed_in_one_branch_only():
    with budget() as mine:
        model = fit(data=mine.download().outputs["data"])
        coin = flip().output
        with dsl.If(coin == "heads"):
            first = consume(claim=mine.claim)
        with dsl.Else():
            second = allocate(**ASKED, claim_name="second")
        paid = dsl.OneOf(first.outputs["consumed"], second.outputs["claim"])
        sink(artifact=model.outputs["model"], claim=paid)


@finds("PK202 exit-handler-1/publish-all")
def consumed_in_a_loop_that_may_have_no_rounds(items: list):
    with budget() as mine:
        data = mine.download().outputs["data"]
        with dsl.ParallelFor(items) as item:
            paid = consume(claim=mine.claim, step=item)
        as_sink(parts.publish_all)(artifact=data, claims=dsl.Collected(paid.outputs["consumed"]))


@good
def claims_of_all_rounds(items: list):
    give_back = release()
    with dsl.ExitHandler(give_back):
        with dsl.ParallelFor(items) as item:
            claim = allocate(**ASKED, claim_name=item).outputs["claim"]
            data = download(claim=claim).outputs["data"]
            paid = consume(claim=claim)
        as_sink(parts.publish_each)(
            artifacts=dsl.Collected(data), claims=dsl.Collected(paid.outputs["consumed"])
        )


# Spending.


@finds("PK301 consume")
def consumes_a_forged_claim():
    consume(claim=parts.forge().outputs["claim"])


@finds("PK301 spend")
def consumes_what_is_no_claim():
    as_consume = parts.spend(claim=parts.fetch().output)
    as_consume.set_env_variable("PRIVATEKUBE_ROLE", "consume").set_caching_options(False)


@good
def consume_of_others():
    with budget() as mine:
        model = fit(data=mine.download().outputs["data"])
        paid = parts.spend(claim=mine.claim).set_env_variable("PRIVATEKUBE_ROLE", "consume")
        sink(artifact=model.outputs["model"], claim=paid.outputs["consumed"])


@finds("PK302 exit-handler-1/consume")
def amounts_without_a_name():
    with budget() as mine:
        model = fit(data=mine.download().outputs["data"])
        mine.consume(amounts=as_compute(parts.amounts_of)(model=model.outputs["model"]).output)


@good
def amounts_with_a_name():
    with budget() as mine:
        model = fit(data=mine.download().outputs["data"])
        used = as_compute(parts.amounts_of)(model=model.outputs["model"]).output
        mine.consume(amounts=used, name="train")


@good
def empty_amounts():
    with budget() as mine:
        mine.download()
        mine.consume(amounts=[])


@finds("PK303 exit-handler-1/for-loop-3/consume")
def spends_once_for_all_rounds():
    with budget() as mine:
        data = mine.download().outputs["data"]
        with dsl.ParallelFor(["a", "b"]):
            fit(data=data)
            mine.consume(step="train")


@good
def spends_in_each_round():
    with budget() as mine:
        data = mine.download().outputs["data"]
        with dsl.ParallelFor(["a", "b"]) as item:
            fit(data=data)
            mine.consume(step=item)
            consume(claim=mine.claim, amounts=[{"epsilon": "1"}], name=f"train-{item}")


@finds("PK303 exit-handler-1/for-loop-3/for-loop-5/consume")
def spends_in_each_inner_round_only():
    with budget() as mine, dsl.ParallelFor(["a", "b"]), dsl.ParallelFor(["c", "d"]) as item:
        mine.consume(step=item)


@finds("PK304 exit-handler-1/allocate", strict=True)
def nobody_reads():
    with budget() as mine:
        mine.consume()


@finds("PK305 exit-handler-1/allocate", strict=True)
def nobody_consumes():
    with budget() as mine:
        mine.download()


@good
def warnings_do_not_count():
    with budget() as mine:
        parts.train(data=mine.download().outputs["data"])


# Steps of a plan.


PLAN = {
    "steps": [
        {"name": "first", "mechanism": "laplace", "epsilon": "0.1"},
        {"name": "second", "mechanism": "laplace", "epsilon": "0.1"},
    ]
}


def planned():
    return privacy_budget(stream="reviews", plan=PLAN)


def known(budget):
    return {"claim": budget.claim, "data": budget.download().outputs["data"]}


@good_strictly
def a_step_for_each_statistic():
    with planned() as mine:
        given = known(mine)
        total = dp_statistic(**given, statistic="reviews_total", step="first")
        tokens = dp_statistic(**given, statistic="tokens_total", step="second")
        paid = mine.consume(after=[total, tokens]).outputs["consumed"]
        show_statistic(claim=paid, result=total.outputs["result"])
        show_statistic(claim=paid, result=tokens.outputs["result"])


@finds("PK306 exit-handler-1/dp-statistic-2")
def one_step_for_two_statistics():
    with planned() as mine:
        given = known(mine)
        total = dp_statistic(**given, statistic="reviews_total", step="first")
        tokens = dp_statistic(**given, statistic="tokens_total", step="first")
        paid = mine.consume(after=[total, tokens]).outputs["consumed"]
        show_statistic(claim=paid, result=total.outputs["result"])
        show_statistic(claim=paid, result=tokens.outputs["result"])


@finds("PK306 exit-handler-1/dp-statistic-2", "PK306 exit-handler-1/dp-statistic-3")
def the_only_step_for_three_statistics():
    with budget() as mine:
        given = known(mine)
        for statistic in ("reviews_total", "tokens_total", "tokens_mean"):
            dp_statistic(**given, statistic=statistic)


@finds("PK306 exit-handler-1/estimate")
def one_step_for_components_of_two_kinds(step: str):
    with planned() as mine:
        given = known(mine)
        total = dp_statistic(**given, statistic="reviews_total", step=step)
        parts.estimate(**given, step=step).after(total)


@finds("PK306 exit-handler-1/for-loop-3/dp-statistic")
def one_step_for_all_rounds():
    with planned() as mine:
        given = known(mine)
        with dsl.ParallelFor(["reviews_total", "tokens_total"]) as statistic:
            dp_statistic(**given, statistic=statistic, step="first")


@good
def a_step_for_each_round():
    with planned() as mine:
        given = known(mine)
        with dsl.ParallelFor(["first", "second"]) as step:
            dp_statistic(**given, statistic="reviews_total", step=step)


@good
def one_step_of_two_claims():
    with planned() as mine:
        other = mine.another(stream="reviews", plan=PLAN, claim_name="other")
        dp_statistic(**known(mine), statistic="reviews_total", step="first")
        dp_statistic(**known(other), statistic="reviews_total", step="first")


@good
def one_step_in_either_branch(wanted: str):
    with planned() as mine:
        given = known(mine)
        with dsl.If(wanted == "total"):
            dp_statistic(**given, statistic="reviews_total", step="first")
        with dsl.Else():
            dp_statistic(**given, statistic="tokens_total", step="first")


@finds("PK306 exit-handler-1/condition-3/dp-statistic-2")
def one_step_in_branches_that_may_both_run(wanted: str, also: str):
    with planned() as mine:
        given = known(mine)
        with dsl.If(wanted == "total"):
            dp_statistic(**given, statistic="reviews_total", step="first")
        with dsl.If(also == "tokens"):
            dp_statistic(**given, statistic="tokens_total", step="first")


@good
def one_step_where_no_data_are_taken():
    with planned() as mine:
        given = known(mine)
        parts.warm_up(claim=mine.claim, step="first")
        dp_statistic(**given, statistic="reviews_total", step="first")


# Giving back.


@finds("PK401 allocate")
def no_release():
    download(claim=allocate(**ASKED).outputs["claim"])


@finds("PK401 allocate", "PK402 release")
def ordinary_release():
    read = download(claim=allocate(**ASKED).outputs["claim"])
    release().after(read)


@finds("PK401 asking/allocate", "PK402 release")
def ordinary_release_after_a_nested_pipeline():
    asking = nested.asking()
    release().after(asking)


@finds("PK402 release")
def release_alone():
    release().after(flip())


@good
def release_sooner_too():
    with budget() as mine:
        paid = mine.consume(after=[mine.download()])
        release().after(paid)


@finds("PK401 allocate", "PK405 release")
def allocated_outside_of_the_handler():
    give_back = release()
    claim = allocate(**ASKED).outputs["claim"]
    with dsl.ExitHandler(give_back):
        flip()
    download(claim=claim)


@finds("PK401 exit-handler-1/allocate")
def release_of_another_name():
    give_back = release(claim_name="other")
    with dsl.ExitHandler(give_back):
        download(claim=allocate(**ASKED).outputs["claim"])


@good
def release_of_the_default_name():
    give_back = release(claim_name="claim")
    with dsl.ExitHandler(give_back):
        download(claim=allocate(**ASKED).outputs["claim"])


@good
def release_of_a_name_from_outside(name: str):
    give_back = release(claim_name=name)
    with dsl.ExitHandler(give_back):
        download(claim=allocate(**ASKED, claim_name=name).outputs["claim"])


@finds("PK401 exit-handler-1/allocate")
def release_of_another_name_from_outside(name: str, other: str):
    give_back = release(claim_name=other)
    with dsl.ExitHandler(give_back):
        download(claim=allocate(**ASKED, claim_name=name).outputs["claim"])


@good
def pipeline_as_the_exit_task():
    give_back = nested.clean_up()
    with dsl.ExitHandler(give_back):
        download(claim=allocate(**ASKED).outputs["claim"])


@finds("PK401 exit-handler-1/allocate", "PK402 clean-up-maybe/release")
def release_may_not_run_in_the_exit_task():
    give_back = nested.clean_up_maybe()
    with dsl.ExitHandler(give_back):
        download(claim=allocate(**ASKED).outputs["claim"])


@finds("PK401 exit-handler-1/allocate", "PK402 clean-up-if/condition-1/release")
def release_may_be_skipped_in_the_exit_task():
    give_back = nested.clean_up_if(coin="heads")
    with dsl.ExitHandler(give_back):
        download(claim=allocate(**ASKED).outputs["claim"])


@good
def handler_around_a_nested_pipeline():
    give_back = release()
    with dsl.ExitHandler(give_back):
        nested.asking()


@finds("PK403 exit-handler-1/allocate-2")
def two_claims_of_one_name():
    with budget() as mine:
        mine.download()
        download(claim=allocate(**ASKED).outputs["claim"])


@finds("PK403 exit-handler-1/allocate-2")
def two_claims_of_one_name_from_outside(name: str):
    with budget(claim_name=name):
        allocate(**ASKED, claim_name=name)


@finds("PK403 exit-handler-1/asking-2/allocate")
def one_pipeline_used_twice():
    give_back = release()
    with dsl.ExitHandler(give_back):
        nested.asking()
        nested.asking()


@good
def one_pipeline_used_twice_with_names():
    give_back = release()
    with dsl.ExitHandler(give_back):
        nested.asking_by_name(name="a")
        nested.asking_by_name(name="b")


@good
def one_name_in_separate_ifs():
    give_back = release()
    with dsl.ExitHandler(give_back):
        coin = flip().output
        with dsl.If(coin == "heads"):
            allocate(**ASKED)
        with dsl.If(coin == "tails"):
            allocate(**ASKED)


@finds("PK403 exit-handler-1/condition-3/allocate-2")
def one_name_in_ifs_on_different_coins():
    give_back = release()
    with dsl.ExitHandler(give_back):
        coin, other = flip().output, flip().output
        with dsl.If(coin == "heads"):
            allocate(**ASKED)
        with dsl.If(other == "tails"):
            allocate(**ASKED)


@finds("PK404 exit-handler-1/for-loop-3/allocate")
def one_claim_for_all_rounds():
    give_back = release()
    with dsl.ExitHandler(give_back), dsl.ParallelFor(["a", "b"]):
        download(claim=allocate(**ASKED).outputs["claim"])


@good_strictly
def a_claim_for_each_round(streams: list):
    give_back = release()
    with dsl.ExitHandler(give_back), dsl.ParallelFor(streams) as stream:
        claim = allocate(stream=stream, epsilon="1", claim_name=stream).outputs["claim"]
        data = download(claim=claim).outputs["data"]
        model = fit(data=data).set_caching_options(False)
        paid = consume(claim=claim, step="train").after(model).outputs["consumed"]
        upload(claim=paid, artifact=model.outputs["model"], uri=f"s3://{stream}")


@good
def a_claim_for_each_part_of_an_item():
    give_back = release()
    with dsl.ExitHandler(give_back), dsl.ParallelFor([{"claim": "a"}, {"claim": "b"}]) as item:
        download(claim=allocate(**ASKED, claim_name=item.claim).outputs["claim"])


@good
def claims_named_by_different_parts_of_an_item():
    give_back = release()
    with dsl.ExitHandler(give_back), dsl.ParallelFor([{"one": "a", "other": "b"}]) as item:
        allocate(**ASKED, claim_name=item.one)
        allocate(**ASKED, claim_name=item.other)


@good
def a_claim_for_each_item_of_an_item():
    lists = [{"names": ["a", "b"]}, {"names": ["c"]}]
    give_back = release()
    with dsl.ExitHandler(give_back), dsl.ParallelFor(lists) as item:
        names = item.names
        with dsl.ParallelFor(names) as name:
            allocate(**ASKED, claim_name=name)


@good
def a_claim_for_each_round_through_a_task():
    give_back = release()
    with dsl.ExitHandler(give_back), dsl.ParallelFor(["a", "b"]) as item:
        name = parts.name_of(item=item).output
        download(claim=allocate(**ASKED, claim_name=f"claim-{name}").outputs["claim"])


@finds("PK404 exit-handler-1/for-loop-3/for-loop-5/allocate")
def a_claim_for_each_inner_round_only():
    give_back = release()
    with dsl.ExitHandler(give_back), dsl.ParallelFor(["a"]), dsl.ParallelFor(["b"]) as item:
        allocate(**ASKED, claim_name=item)


@good
def a_claim_for_each_inner_round(some: list, others: list):
    give_back = release()
    with dsl.ExitHandler(give_back), dsl.ParallelFor(some) as one, dsl.ParallelFor(others) as other:
        name = parts.name_of(item=one).output
        allocate(**ASKED, claim_name=f"{name}-{other}")


@finds("PK405 release", "PK405 release-2")
def two_handlers_at_once():
    with budget() as mine:
        mine.download()
    with budget(claim_name="other") as other:
        other.download()


@good
def two_handlers_of_their_own_names():
    for name in ("a", "b"):
        give_back = release(claim_name=name)
        with dsl.ExitHandler(give_back):
            download(claim=allocate(**ASKED, claim_name=name).outputs["claim"])


@good
def two_budgets_in_two_branches():
    coin = flip().output
    with dsl.If(coin == "heads"):
        nested.protected_by_name(name="a")
    with dsl.Else():
        nested.protected_by_name(name="b")


@good
def two_budgets_one_after_the_other():
    first = nested.protected_by_name(name="a")
    nested.protected_by_name(name="b").after(first)


@finds("PK405 exit-handler-1/protected-within/release")
def inner_release_takes_the_outer_claim():
    with budget() as mine:
        done = nested.protected_within(data=mine.download().outputs["data"])
        mine.consume(after=[done])


@finds("PK405 for-loop-2/protected-by-name/release")
def rounds_release_each_other():
    with dsl.ParallelFor(["a", "b"]) as item:
        nested.protected_by_name(name=item)


@good
def rounds_one_after_the_other():
    with dsl.ParallelFor(["a", "b"], parallelism=1) as item:
        nested.protected_by_name(name=item)


@good
def rounds_release_their_own():
    with dsl.ParallelFor(["a", "b"]) as item:
        nested.protected_by_own_release(name=item)


# One run.


@finds("PK501 exit-handler-1/allocate")
def run_id_of_ones_own():
    give_back = release()
    with dsl.ExitHandler(give_back):
        download(claim=allocate(**ASKED, run_id="mine").outputs["claim"])


@finds("PK501 exit-handler-1/download")
def run_id_within_a_text():
    with budget() as mine:
        download(claim=mine.claim, run_id=f"run-{dsl.PIPELINE_JOB_ID_PLACEHOLDER}")


@finds("PK501 release")
def run_id_from_outside(run: str):
    give_back = release(run_id=run)
    with dsl.ExitHandler(give_back):
        allocate(**ASKED)


@good
def run_id_given_in_full():
    give_back = release(run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
    with dsl.ExitHandler(give_back):
        allocate(**ASKED)


@finds("PK502 exit-handler-1/allocate", "PK502 exit-handler-1/download", "PK502 release")
def protocol_cached():
    give_back = release().set_caching_options(True)
    with dsl.ExitHandler(give_back):
        asked = allocate(**ASKED).set_caching_options(True)
        download(claim=asked.outputs["claim"]).set_caching_options(True)


@finds("PK503 exit-handler-1/train")
def training_cached():
    give_back = release()
    with dsl.ExitHandler(give_back):
        data = download(claim=allocate(**ASKED).outputs["claim"]).outputs["data"]
        parts.train(data=data)
        flip()


@finds("PK503 exit-handler-1/fitting/train")
def training_cached_in_a_nested_pipeline():
    with budget() as mine:
        nested.fitting(data=mine.download().outputs["data"])


@good
def training_not_cached_in_a_nested_pipeline():
    with budget() as mine:
        nested.fitting_uncached(data=mine.download().outputs["data"])


@finds("PK503 exit-handler-1/show")
def private_parameter_cached():
    with budget() as mine:
        score = fit(data=mine.download().outputs["data"]).outputs["Output"]
        shown = parts.show(value=score)
    shown.set_caching_options(True)


@finds("PK503 exit-handler-1/naming/name-of")
def private_text_cached_in_a_nested_pipeline():
    with budget() as mine:
        score = fit(data=mine.download().outputs["data"]).outputs["Output"]
        nested.naming(text=f"score {score}")


@finds("PK503 exit-handler-1/show")
def collected_scores_cached():
    @parts.component
    def show(values: list):
        pass

    with budget() as mine:
        data = mine.download().outputs["data"]
        with dsl.ParallelFor([1, 2]):
            score = fit(data=data).outputs["Output"]
        shown = show(values=dsl.Collected(score))
    shown.set_caching_options(True)


@finds("PK503 exit-handler-1/for-loop-2/amounts-of")
def loop_over_private_artifacts():
    with budget() as mine:
        models = nested.fitting_often(data=mine.download().outputs["data"]).output
        with dsl.ParallelFor(models) as model:
            used = parts.amounts_of(model=model)
    used.set_caching_options(True)


# Roles.


@finds("PK601 fetch")
def unknown_role():
    parts.fetch().set_env_variable("PRIVATEKUBE_ROLE", "reader")


@finds("PK101 fetch")
def role_by_label():
    task = parts.fetch().set_caching_options(False)
    kubernetes.add_pod_label(task, "privatekube.io/role", "source")


@finds("PK601 fetch")
def unknown_role_by_label():
    kubernetes.add_pod_label(parts.fetch(), "privatekube.io/role", "Source")


@good
def third_party_by_label():
    with budget() as mine:
        task = parts.fetch_with(claim=mine.claim)
        kubernetes.add_pod_label(task, "privatekube.io/role", "source")


@finds("PK202 exit-handler-1/publish")
def third_party_sink_by_label():
    with budget() as mine:
        task = parts.publish(artifact=mine.download().outputs["data"], claim=mine.claim)
        kubernetes.add_pod_label(task, "privatekube.io/role", "sink")


@finds("PK305 exit-handler-1/allocate", strict=True)
def role_in_the_command():
    with budget() as mine:
        parts.says_its_role(claim=mine.claim)


@finds("PK602 exit-handler-1/upload")
def sink_in_disguise():
    with budget() as mine:
        model = fit(data=mine.download().outputs["data"])
        as_compute(upload)(claim=mine.claim, artifact=model.outputs["model"], uri="x")


@good
def compute_that_is_also_a_sink():
    with budget() as mine:
        data = mine.download().outputs["data"]
        task = sink(artifact=data, claim=mine.consume().outputs["consumed"])
        kubernetes.add_pod_label(task, "privatekube.io/role", "compute")


@finds("PK603 exit-handler-1/train", strict=True)
def no_role():
    with budget() as mine:
        parts.train(data=mine.download().outputs["data"])
        mine.consume()


@finds("PK401 allocate", "PK604 output Output", strict=True)
def private_output() -> Model:
    claim = allocate(**ASKED).outputs["claim"]
    data = download(claim=claim).outputs["data"]
    consume(claim=claim)
    return fit(data=data).set_caching_options(False).outputs["model"]


@good_strictly
def harmless_output() -> str:
    with budget() as mine:
        mine.download()
        mine.consume()
    return flip().output


@good
def imported_data_are_not_private():
    data = dsl.importer("s3://public", artifact_class=Dataset, reimport=False)
    parts.train(data=data.output)


@finds("PK101 fetch", "PK401 exit-handler-1/allocate")
def several_at_once():
    as_source(parts.fetch)()
    give_back = release(claim_name="x")
    with dsl.ExitHandler(give_back):
        allocate(**ASKED)
