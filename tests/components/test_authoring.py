"""What a pipeline author writes, and what the compiled pipeline says."""

import inspect
import json

import pytest
from kfp import dsl
from kfp.dsl import Dataset, Input, Model, Output

from privatekube_kfp import components
from privatekube_kfp.components import (
    TaskSettings,
    dp_train_keras,
    privacy_budget,
    training_budget,
)
from privatekube_kfp.components.protocol import IMAGE, KERAS_IMAGE
from privatekube_kfp.roles import ROLE_VARIABLE, RUN_ID


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def train(data: Input[Dataset], model: Output[Model]):
    pass


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def days() -> list:
    return ["monday", "tuesday"]


def protected(settings=None):
    @dsl.pipeline(name="protected")
    def pipeline(epsilon: str = "0.5"):
        with privacy_budget(
            stream="clicks", epsilon=epsilon, last_blocks=2, settings=settings
        ) as budget:
            data = budget.download()
            model = train(data=data.outputs["data"])
            budget.consume(after=[model])
            budget.upload(model.outputs["model"], uri="s3://models/latest")

    return pipeline


def tasks(pipeline):
    """Every task of a compiled pipeline, by name."""
    found = dict(pipeline["root"]["dag"]["tasks"])
    for component in pipeline["components"].values():
        found.update(component.get("dag", {}).get("tasks", {}))
    return found


def test_the_protocol_is_in_place(compiled):
    pipeline, _ = compiled(protected())
    inside = pipeline["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    assert set(inside) == {"allocate", "download", "train", "consume", "upload"}
    release = pipeline["root"]["dag"]["tasks"]["release"]
    assert release["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    assert release["dependentTasks"] == ["exit-handler-1"]
    assert "train" in inside["consume"]["dependentTasks"]
    upload = inside["upload"]["inputs"]["artifacts"]["claim"]["taskOutputArtifact"]
    assert upload == {"producerTask": "consume", "outputArtifactKey": "consumed"}


def test_nothing_inside_is_cached(compiled):
    pipeline, _ = compiled(protected())
    for name, task in tasks(pipeline).items():
        assert not task.get("cachingOptions", {}).get("enableCache"), name


def test_tasks_in_loops_and_conditions_are_not_cached_either(compiled):
    @dsl.pipeline(name="looping")
    def pipeline(more: bool = True):
        with privacy_budget(stream="clicks", epsilon="0.1", last_blocks=1) as budget:
            data = budget.download()
            with dsl.ParallelFor(["a", "b"]):
                train(data=data.outputs["data"])
            with dsl.If(more == True):  # noqa: E712
                train(data=data.outputs["data"])

    found = tasks(compiled(pipeline)[0])
    assert {"train", "train-2"} <= set(found)
    for name in ("train", "train-2"):
        assert not found[name]["cachingOptions"].get("enableCache")


def test_what_is_outside_keeps_its_caching(compiled):
    @dsl.pipeline(name="both")
    def pipeline():
        days()
        with privacy_budget(stream="clicks", epsilon="0.1", last_blocks=1):
            pass

    assert tasks(compiled(pipeline)[0])["days"]["cachingOptions"] == {"enableCache": True}


def test_every_protocol_task_knows_its_run(compiled):
    found = tasks(compiled(protected())[0])
    for name in ("allocate", "download", "consume", "upload", "release"):
        value = found[name]["inputs"]["parameters"]["run_id"]["runtimeValue"]["constant"]
        assert value == RUN_ID == dsl.PIPELINE_JOB_ID_PLACEHOLDER


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("allocate", {"stream": "clicks", "epsilon": "0.1", "last_blocks": 1}),
        ("ingest", {"stream": "clicks", "sources": ["s3://raw/today.csv"], "to": "s3://private"}),
    ],
)
def test_a_component_by_itself_is_not_cached_and_knows_its_run(compiled, name, asked):
    @dsl.pipeline(name="by-hand")
    def pipeline():
        getattr(components, name)(**asked)

    task = tasks(compiled(pipeline)[0])[name]
    assert not task["cachingOptions"].get("enableCache")
    assert task["inputs"]["parameters"]["run_id"]["runtimeValue"]["constant"] == RUN_ID


def test_only_what_is_public_leaves_ingest(compiled):
    @dsl.pipeline(name="daily")
    def pipeline():
        components.ingest(stream="clicks", sources=["s3://raw/today.csv"], to="s3://private")

    ingest = compiled(pipeline)[0]["components"]["comp-ingest"]
    assert "artifacts" not in ingest["inputDefinitions"]
    given = ingest["outputDefinitions"]
    types = {n: said["artifactType"]["schemaTitle"] for n, said in given["artifacts"].items()}
    assert types == {"ingest_report": "system.Markdown"}
    assert set(given["parameters"]) == {"until", "block_count"}


def test_the_defaults_of_ingest_are_those_of_its_step():
    from privatekube_kfp.steps.ingest import ingest as step

    said = inspect.signature(step).parameters
    for name, given in components.ingest.component_spec.inputs.items():
        if name != "run_id":
            default = said[name].default
            wanted = None if default in (inspect.Parameter.empty, ()) else default
            assert given.default == wanted, name
    assert set(components.ingest.component_spec.inputs) == {*said, "run_id"} - {"report"}


def test_the_image_is_bound_to_the_version(compiled):
    import privatekube_kfp

    pipeline, _ = compiled(protected())
    assert privatekube_kfp.__version__ in IMAGE
    executors = pipeline["deploymentSpec"]["executors"]
    for name in ("allocate", "download", "consume", "upload", "release"):
        container = executors[f"exec-{name}"]["container"]
        assert container["image"] == IMAGE
        assert "pip install" not in " ".join(container["command"])


def test_settings_reach_every_protocol_task(compiled):
    seen = []
    settings = TaskSettings(
        secrets_as_env={"store": {"key": "AWS_SECRET_ACCESS_KEY"}},
        secrets_as_volume={"certificates": "/certificates"},
        labels={"team": "reviews"},
        annotations={"note": "private"},
        retries=3,
        retry_after="5s",
        more=lambda task: seen.append(task.name),
    )
    pipeline, platform = compiled(protected(settings))
    names = {"allocate", "download", "consume", "upload", "release"}
    assert set(seen) == names
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert set(executors) == {f"exec-{name}" for name in names}
    for executor in executors.values():
        assert executor["podMetadata"] == {
            "labels": {"team": "reviews"},
            "annotations": {"note": "private"},
        }
        assert executor["secretAsEnv"][0]["secretName"] == "store"
        assert executor["secretAsVolume"][0]["mountPath"] == "/certificates"
    for name in names:
        assert tasks(pipeline)[name]["retryPolicy"]["maxRetryCount"] == 3


def test_settings_reach_every_task_of_a_training(compiled):
    seen = []
    settings = TaskSettings(
        cpu="250m",
        memory="3Gi",
        memory_limit="4Gi",
        secrets_as_env={"store": {"key": "AWS_SECRET_ACCESS_KEY"}},
        more=lambda task: seen.append(task.name),
    )
    pipeline, platform = compiled(trained(settings=settings))
    ours = {name for name in tasks(pipeline) if name != "exit-handler-1"}
    assert set(seen) == ours
    assert {"plan-training", "dp-preprocess", "dp-train", "dp-evaluate", "show-model"} <= ours
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert set(executors) == {f"exec-{name}" for name in ours}
    for name in ours:
        said = pipeline["deploymentSpec"]["executors"][f"exec-{name}"]["container"]["resources"]
        found = {key: said[key] for key in said if key.startswith("resource")}
        assert found == {
            "resourceCpuRequest": "250m",
            "resourceMemoryRequest": "3Gi",
            "resourceMemoryLimit": "4Gi",
        }


def test_what_a_training_returns_are_tasks(compiled):
    @dsl.pipeline(name="larger")
    def pipeline():
        with training_budget(
            "product", "linear", stream="reviews", epsilon="1", last_blocks=1
        ) as budget:
            examples = budget.preprocess(budget.download()).set_memory_limit("2Gi")
            model = budget.train(examples.outputs["examples"]).set_memory_limit("8Gi").set_retry(2)
            evaluated = budget.evaluate(examples, model.outputs["model"])
            budget.consume(evaluated)
            budget.show(model, evaluated)
            budget.upload(model)

    made, _ = compiled(pipeline)
    executors = made["deploymentSpec"]["executors"]
    limits = {
        name: executors[f"exec-{name}"]["container"]["resources"]["resourceMemoryLimit"]
        for name in ("dp-preprocess", "dp-train")
    }
    assert limits == {"dp-preprocess": "2Gi", "dp-train": "8Gi"}
    assert tasks(made)["dp-train"]["retryPolicy"]["maxRetryCount"] == 2
    examples = {"producerTask": "dp-preprocess", "outputArtifactKey": "examples"}
    for name in ("dp-train", "dp-evaluate"):
        given = tasks(made)[name]["inputs"]["artifacts"]["examples"]["taskOutputArtifact"]
        assert given == examples


def test_settings_reach_statistics(compiled):
    seen = []

    @dsl.pipeline(name="statistic")
    def pipeline():
        settings = TaskSettings(more=lambda task: seen.append(task.name))
        with privacy_budget(
            stream="reviews", epsilon="1", last_blocks=1, settings=settings
        ) as budget:
            total = budget.statistic("reviews_total", budget.download())
            budget.consume(after=[total])
            budget.show_statistic(total)
            budget.upload(total, name="total.json")

    found = tasks(compiled(pipeline)[0])
    assert {"dp-statistic", "show-statistic"} <= set(seen)
    claim = found["show-statistic"]["inputs"]["artifacts"]["claim"]["taskOutputArtifact"]
    assert claim == {"producerTask": "consume", "outputArtifactKey": "consumed"}


def uploads(compiled, *uris, **asked):
    """What Allocate is told of uploads: those that follow, and a URI; and the uploads."""

    @dsl.pipeline(name="uploading")
    def pipeline(uri: str = ""):
        given = {**asked, "results": uri} if asked.pop("results", None) else asked
        with privacy_budget(stream="clicks", epsilon="1", last_blocks=1, **given) as budget:
            made = train(data=budget.download().outputs["data"])
            budget.consume(after=[made])
            for one in uris:
                budget.upload(made, **({} if one is None else {"uri": uri if one == "?" else one}))

    spec, _ = compiled(pipeline)
    container = spec["deploymentSpec"]["executors"]["exec-allocate"]["container"]
    told = {one["name"]: json.loads(one["value"]) for one in container.get("env", ())}
    found = tasks(spec)
    results = found["allocate"]["inputs"]["parameters"].get("results")
    given = [
        (said["inputs"]["parameters"]["uri"], said["inputs"]["parameters"]["name"])
        for name, said in found.items()
        if name.startswith("upload")
    ]
    return told.get("PRIVATEKUBE_UPLOADS"), results, given


def constant(value):
    return {"runtimeValue": {"constant": value}}


def test_allocate_is_told_what_will_be_uploaded(compiled):
    assert uploads(compiled) == (None, None, [])
    place = (constant(""), constant("model"))
    assert uploads(compiled, None) == ([""], None, [place])
    fixed = "s3://models/latest"
    told, results, given = uploads(compiled, None, fixed, None)
    assert (told, results) == (["", fixed], None)
    assert given == [
        place,
        (constant(fixed), constant("model-2")),
        (constant(""), constant("model-3")),
    ]
    channel = {"componentInputParameter": "pipelinechannel--uri"}
    for way in (None, "?"):
        told, results, given = uploads(compiled, way, results=True)
        assert (told, results, given) == ([""], channel, [(channel, constant("model"))])
    # What is known when the pipeline runs, and is not told to Allocate, cannot be proven.
    assert uploads(compiled, "?") == (None, None, [(channel, constant("model"))])


def test_a_task_of_many_outputs_must_say_which():
    with pytest.raises(ValueError, match=r"task allocate has the outputs .*: say which"):

        @dsl.pipeline(name="which")
        def pipeline():
            with privacy_budget(stream="clicks", epsilon="0.1", last_blocks=1) as budget:
                budget.consume()
                budget.upload(budget.allocated)


def test_two_claims_of_one_pipeline(compiled):
    @dsl.pipeline(name="two")
    def pipeline():
        with privacy_budget(stream="clicks", epsilon="0.1", last_blocks=1) as clicks:
            views = clicks.another(claim_name="views", stream="views", epsilon="0.1", last_blocks=1)
            clicks.download()
            views.download()

    found = tasks(compiled(pipeline)[0])
    assert {"allocate", "allocate-2", "download", "download-2"} <= set(found)
    names = found["allocate-2"]["inputs"]["parameters"]["claim_name"]["runtimeValue"]["constant"]
    assert names == "views"


def test_upload_before_consume_is_refused_at_once():
    with pytest.raises(ValueError, match="call consume"):

        @dsl.pipeline(name="hasty")
        def pipeline():
            with privacy_budget(stream="clicks", epsilon="0.1", last_blocks=1) as budget:
                data = budget.download()
                budget.upload(data.outputs["data"], uri="out")


def test_a_dataset_is_no_claim():
    with pytest.raises(Exception, match=r"system\.PrivacyClaim"):

        @dsl.pipeline(name="wrong")
        def pipeline():
            with privacy_budget(stream="clicks", epsilon="0.1", last_blocks=1) as budget:
                data = budget.download()
                components.consume(claim=data.outputs["data"])


def test_a_number_is_no_text():
    with pytest.raises(Exception, match="epsilon"):

        @dsl.pipeline(name="wrong")
        def pipeline(epsilon: float = 0.5):
            components.allocate(stream="clicks", epsilon=epsilon, last_blocks=1)


def test_an_unknown_input_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument"):

        @dsl.pipeline(name="wrong")
        def pipeline():
            components.allocate(stream="clicks", epsilon="0.5", blocks=["a"])


@pytest.mark.parametrize(
    ("wrap", "role", "cached"),
    [
        (components.as_source, "source", False),
        (components.as_sink, "sink", False),
        (components.as_compute, "compute", True),
    ],
)
def test_a_component_of_others_gets_a_role(compiled, wrap, role, cached):
    listed = wrap(days)

    @dsl.pipeline(name="third-party")
    def pipeline():
        listed()

    found, _ = compiled(pipeline)
    container = found["deploymentSpec"]["executors"]["exec-days"]["container"]
    assert {"name": ROLE_VARIABLE, "value": role} in container["env"]
    assert bool(tasks(found)["days"]["cachingOptions"].get("enableCache")) is cached


def test_help_shows_a_components_words():
    assert "Place it before anything that reads private data." in components.allocate.__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'alocate'"):
        _ = components.alocate
    assert set(dir(components)) == set(components.__all__)


def trained(component=None, shares=None, settings=None):
    @dsl.pipeline(name="trained")
    def pipeline(epsilon: str = "1"):
        with training_budget(
            "sentiment",
            "ff",
            stream="reviews",
            epsilon=epsilon,
            last_blocks=2,
            shares=shares,
            settings=settings,
        ) as budget:
            examples = budget.preprocess(budget.download(), words="stand-in")
            model = budget.train(examples, component)
            evaluated = budget.evaluate(examples, model)
            budget.consume(evaluated)
            budget.show(model, evaluated)
            budget.upload(model, uri="s3://models/latest")

    return pipeline


def test_a_training_is_planned_before_it_is_allocated(compiled):
    pipeline, _ = compiled(trained(shares={"train": "90", "evaluate": "10"}))
    assert set(pipeline["root"]["dag"]["tasks"]) == {"plan-training", "exit-handler-1", "release"}
    found = tasks(pipeline)
    said = found["plan-training"]["inputs"]["parameters"]
    assert said["shares"]["runtimeValue"]["constant"] == {"train": "90", "evaluate": "10"}
    assert found["dp-train"]["inputs"]["artifacts"]["examples"] == {
        "taskOutputArtifact": {"producerTask": "dp-preprocess", "outputArtifactKey": "examples"}
    }
    amounts = found["consume"]["inputs"]["parameters"]["amounts"]["taskOutputParameter"]
    assert amounts == {"producerTask": "dp-evaluate", "outputParameterKey": "spent"}
    for sink in ("show-model", "upload"):
        claim = found[sink]["inputs"]["artifacts"]["claim"]["taskOutputArtifact"]
        assert claim == {"producerTask": "consume", "outputArtifactKey": "consumed"}
    cached = [name for name, task in found.items() if task.get("cachingOptions")]
    assert [name for name in cached if found[name]["cachingOptions"].get("enableCache")] == []


def test_another_trainer(compiled):
    pipeline, _ = compiled(trained(dp_train_keras))
    assert "dp-train" not in tasks(pipeline)
    executors = pipeline["deploymentSpec"]["executors"]
    assert executors["exec-dp-train-keras"]["container"]["image"] == KERAS_IMAGE


def test_nothing_is_shown_before_it_is_consumed():
    with pytest.raises(ValueError, match="call consume\\(\\) before"):

        @dsl.pipeline(name="hasty")
        def pipeline():
            with training_budget(
                "product", "linear", stream="reviews", epsilon="1", last_blocks=1
            ) as budget:
                examples = budget.preprocess(budget.download())
                model = budget.train(examples)
                budget.show(model, budget.evaluate(examples, model))
