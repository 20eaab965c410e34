"""What is no pipeline is refused in a sentence, and never half read."""

import random
from contextlib import suppress

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from privatekube_kfp.lint import Report, Unreadable, lint_file, lint_pipeline, lint_text
from tests.lint.cases import CASES
from tests.lint.compiling import compiled
from tests.often import times

COMPONENT = """
name: old
implementation: {container: {image: python}}
"""
WORKFLOW = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
spec: {entrypoint: main, templates: []}
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "it is empty"),
        ("---\n---\n", "it is empty"),
        ("# a comment\n", "it is empty"),
        ("just words", "it holds a single value, not a compiled pipeline"),
        ("- a\n- b\n", "it holds a list, not a compiled pipeline"),
        ("a: b: c", "it is not YAML: mapping values are not allowed in this context, line 1"),
        ("{", "it is not YAML: "),
        ("a: !!python/object:os.system x", "it is not YAML: "),
        ("a: 2026-13-45", "it is not YAML that a pipeline is made of: "),
        ("? [a]\n: b", "it is not "),
        ("\x00", "it is not YAML: "),
        ("key: value", "it is not a compiled pipeline: it has no `root`"),
        (COMPONENT, "it is a component, not a compiled pipeline"),
        (WORKFLOW, "it is a workflow as KFP v1 compiled pipelines; compile the pipeline with kfp"),
        ("platforms: {}", "it holds no compiled pipeline"),
        ("root: {}", "its schema version is missing; 2.x is what can be read"),
        ("root: {}\nschemaVersion: 3.0.0", "its schema version is 3.0.0; 2.x is"),
        ("root: []\nschemaVersion: 2.1.0", "root: expected a mapping, found list"),
        ("root: {}\nschemaVersion: 2.1.0", "this is no pipeline: its root has no tasks"),
        ("[" * 100_000, "it is nested more than 200 deep"),
        ("a: " + "{b: " * 3000 + "1" + "}" * 3000, "it is nested more than 200 deep"),
        ("a: &a [*a]", "it uses YAML anchors, as no compiled pipeline does"),
        ("kind: PipelineVersion\nspec: {}", "it is not a compiled pipeline"),
        ("kind: PipelineVersion\nspec: 1", "it is not a compiled pipeline"),
    ],
)
def test_no_pipeline(text, sentence, folder, run):
    with pytest.raises(Unreadable) as refused:
        lint_text(text)
    assert refused.value.message.startswith(sentence)
    (folder / "file.yaml").write_text(text)
    result = run("lint", "file.yaml")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"privatekube: file.yaml: {sentence}")
    assert result.err.count("\n") == 1


def test_files_that_cannot_be_read(folder, run):
    (folder / "binary.yaml").write_bytes(b"\x80\x81\xff\x00" * 100)
    (folder / "sub").mkdir()
    (folder / "loop.yaml").symlink_to("loop.yaml")
    (folder / "pipeline.py").write_text("from kfp import dsl")
    for name, sentence in (
        ("binary.yaml", "it is not a text file"),
        ("pipeline.py", "it is Python: `privatekube compile` compiles and checks it"),
        ("sub", "it is a folder: name the files in it"),
        ("gone.yaml", "cannot read it: No such file or directory"),
        ("loop.yaml", "cannot read it: Too many levels of symbolic links"),
        ("x" * 300, "cannot read it: File name too long"),
        ("a\0b", "cannot read it: "),
    ):
        with pytest.raises(Unreadable, match=sentence):
            lint_file(name)
        assert run("lint", name).code == 2


def leaf(**more):
    return {"executorLabel": "exec", **more}


def pipeline(tasks, **components):
    return {
        "root": {"dag": {"tasks": tasks}},
        "components": {"leaf": leaf(), **components},
        "deploymentSpec": {"executors": {"exec": {"container": {}}}},
        "schemaVersion": "2.1.0",
    }


def task(component="leaf", **more):
    return {"componentRef": {"name": component}, **more}


def dag(**tasks):
    return {"dag": {"tasks": tasks}}


FROM_B = {"inputs": {"artifacts": {"x": {"taskOutputArtifact": {"producerTask": "b"}}}}}


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (pipeline({"a": task("self")}, self=dag(a=task("self"))), "self contains itself"),
        (
            pipeline({"a": task("one")}, one=dag(a=task("two")), two=dag(b=task("one"))),
            "one contains itself",
        ),
        (pipeline({"a": task("gone")}), "task a is of gone, which is not among the components"),
        (pipeline({"a": {}}), "task a: expected a name, found nothing"),
        (pipeline({"a": None}), "task a: expected a name, found nothing"),
        (pipeline({"a": 1}), "task a: expected a mapping, found 1"),
        (pipeline({"a": task("x")}, x=leaf(executorLabel="gone")), "x runs gone, which is not"),
        (pipeline({"a": task(dependentTasks=["b"])}), "task a depends on b, which is not beside"),
        (pipeline({"a": task(**FROM_B)}), "task a depends on b, which is not beside it"),
        (
            pipeline({"a": task(dependentTasks=["b"]), "b": task(dependentTasks=["a"])}),
            "the tasks of root depend on each other in a circle",
        ),
        (
            pipeline({"a": task(triggerPolicy={"strategy": "SOMETIMES"})}),
            "task a has the unknown trigger strategy SOMETIMES",
        ),
        (
            pipeline({"a": task(inputs={"parameters": {"x": {"magic": 1}}})}),
            "a gets x in an unknown way: magic",
        ),
        (
            pipeline(
                {"a": task("x")},
                x={"dag": {"tasks": {}, "outputs": {"artifacts": {"o": {"magic": 1}}}}},
            ),
            "outputs of x are given in an unknown way: magic",
        ),
        (
            pipeline(
                {"a": task("c0")},
                **{f"c{n}": dag(a=task(f"c{n + 1}")) for n in range(100)},
                c100=leaf(),
            ),
            "pipelines are nested more than 60 deep",
        ),
        (
            pipeline(
                {"a": task("c0")},
                **{
                    f"c{n}": dag(**{f"t{i}": task(f"c{n + 1}") for i in range(10)})
                    for n in range(20)
                },
                c20=leaf(),
            ),
            "the pipeline has more than 20000 tasks",
        ),
    ],
)
def test_pipelines_that_make_no_sense(document, sentence):
    with pytest.raises(Unreadable) as refused:
        lint_pipeline(document)
    assert sentence in refused.value.message


def test_two_pipelines_in_a_file(clean_text):
    with pytest.raises(Unreadable, match="it holds 2 pipelines"):
        lint_text(f"{clean_text}\n---\n{clean_text}")


def test_a_long_chain_of_tasks():
    def taking_from(producer):
        source = {"producerTask": producer, "outputArtifactKey": "x"}
        return task(inputs={"artifacts": {"x": {"taskOutputArtifact": source}}})

    chain = {f"t{n}": taking_from(f"t{n - 1}") for n in range(1, 5000)}
    assert lint_pipeline(pipeline({"t0": task(), **chain})).tasks == 5000


def test_an_input_that_refers_to_itself():
    itself = {"runtimeValue": {"constant": "{{$.inputs.parameters['x']}}"}}
    document = pipeline({"a": task(inputs={"parameters": {"x": itself}})})
    assert lint_pipeline(document, strict=True).clean


@pytest.fixture(scope="module")
def rich_text():
    """Pipelines with all that can be compiled: loops, branches, nested pipelines, labels."""
    return [
        compiled(CASES[name].pipeline)
        for name in (
            "one_of_three_models",
            "a_claim_for_each_round",
            "training_cached_in_a_nested_pipeline",
            "third_party_by_label",
        )
    ]


@settings(max_examples=times(150), deadline=None)
@given(seed=st.integers(0, 2**32), which=st.integers(0, 3))
def test_whatever_is_broken_never_crashes(rich_text, seed, which):
    documents = list(yaml.load_all(rich_text[which], yaml.CSafeLoader))
    damage(documents, random.Random(seed))
    with suppress(Unreadable):
        assert isinstance(lint_pipeline(documents[0], *documents[1:2], strict=True), Report)


def damage(documents, chance):
    """Replaces, removes or swaps a few things anywhere in the documents."""
    for _ in range(chance.randint(1, 4)):
        places = list(all_places(documents))
        holder, key = chance.choice(places)
        kind = chance.randrange(4)
        if kind == 0 and isinstance(holder, dict):
            del holder[key]
        elif kind == 1:
            other, other_key = chance.choice(places)
            holder[key] = other[other_key]
        else:
            holder[key] = chance.choice([None, 1, "x", [], {}, [1], {"a": 1}, {"x": {}}, True])
        if not documents or not isinstance(documents[0], dict):
            documents[:] = [{}]


def all_places(value, depth=0):
    if depth > 15:  # what was put into itself
        return
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(pairs):
        yield value, key
        if isinstance(inner, dict | list):
            yield from all_places(inner, depth + 1)
