"""Where a run departs from bare kfp.local, by running. A kfp that changes under it fails here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local.world import World

pytestmark = pytest.mark.slow

HOLD = """
@component
def hold(word: str, kept: Output[Dataset]):
    with open(kept.path, "w") as out:
        out.write(word)

@component
def show(kept: Input[Dataset]) -> str:
    return open(kept.path).read()

@component
def gather(kept: Input[List[Dataset]], to: str):
    with open(to, "w") as out:
        out.write(" ".join(sorted(open(one.path).read() for one in kept)))
"""


def words(world: World, said: dict) -> set[str]:
    paths = [a["path"] for a in said["artifacts"] if a["name"] == "kept"]
    assert len(paths) == len(set(paths))
    return {Path(path).read_text() for path in paths}


def test_a_loop_keeps_the_artifacts_of_its_rounds_apart(world: World) -> None:
    result = world.run(
        HOLD
        + """
@dsl.pipeline(name="loops")
def pipeline():
    with dsl.ParallelFor(["a", "b", "c"]) as word:
        held = hold(word=word)
    gather(kept=dsl.Collected(held.outputs["kept"]), to="gathered")
""",
        "--json",
    )
    assert result.code == 0, result.err
    assert words(world, result.json) == {"a", "b", "c"}
    assert world.lines("gathered") == ["a b c"]


def test_tasks_of_one_component_keep_their_artifacts_apart(world: World) -> None:
    """The same inputs too: two tasks are two draws, not one."""
    result = world.run(
        HOLD
        + """
@dsl.pipeline
def inner(word: str):
    hold(word=word)

@dsl.pipeline(name="twice")
def pipeline():
    hold(word="a")
    hold(word="b")
    inner(word="c")
    inner(word="d")
    tick(file="ticks")
    tick(file="ticks")
""",
        "--function",
        "pipeline",
        "--json",
    )
    assert result.code == 0, result.err
    assert words(world, result.json) == {"a", "b", "c", "d"}
    assert world.lines("ticks") == ["tick", "tick"]


def test_tasks_that_share_a_component_in_the_compiled_pipeline(world: World) -> None:
    """kfp's own compiler makes a component for every task; nothing says that others must."""
    source = world.write(
        HOLD
        + """
@dsl.pipeline(name="shares")
def pipeline():
    hold(word="a")
    hold(word="b")
"""
    )
    world.cli.ok("compile", source, "-o", "shares.yaml")
    text = (world.folder / "shares.yaml").read_text()
    shared = text.replace("name: comp-hold-2", "name: comp-hold")
    assert shared != text
    (world.folder / "shares.yaml").write_text(shared)
    result = world.cli.ok("run", "shares.yaml", "--run-id", "r", "--json")
    assert words(world, result.json) == {"a", "b"}


def test_rounds_with_the_same_inputs_all_run(world: World) -> None:
    text = """
@dsl.pipeline(name="rounds")
def pipeline():
    with dsl.ParallelFor([1, 2, 3]):
        tick(file="ticks")
"""
    for _ in range(2):
        assert world.run(text).code == 0
        assert world.lines("ticks") == ["tick", "tick", "tick"]


def test_the_run_id_is_what_the_placeholder_becomes(world: World) -> None:
    result = world.run(
        HOLD
        + """
@dsl.pipeline
def inner(id: str):
    hold(word=id)

@dsl.pipeline(name="ids")
def pipeline():
    hold(word=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
    inner(id=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
""",
        "--function",
        "pipeline",
        "--json",
    )
    assert words(world, result.json) == {"r"}


def test_a_retry_starts_from_nothing_and_is_told(world: World) -> None:
    result = world.run(
        """
@component
def flaky(kept: Output[Dataset], other: Output[Dataset]):
    import os
    if os.path.exists(other.path):
        raise ValueError("found what the first attempt left")
    if not os.path.exists("tried"):
        open("tried", "w").close()
        open(other.path, "w").close()
        raise ValueError("the first attempt")
    open(kept.path, "w").write("kept")

@dsl.pipeline(name="retries")
def pipeline():
    flaky().set_retry(2, backoff_duration="0s")
""",
        "--json",
    )
    assert result.code == 0, result.err
    assert "flaky: attempt 2" in result.err
    assert "attempt 3" not in result.err
    (artifact,) = result.json["artifacts"]
    assert artifact["path"] == str(world.home / "artifacts" / "flaky.2" / "kept")


def test_what_completed_does_not_run_again_even_if_its_artifact_is_gone(world: World) -> None:
    text = (
        HOLD
        + """
@dsl.pipeline(name="again")
def pipeline():
    ticked = tick(file="ticks")
    held = hold(word="a").after(ticked)
    show(kept=held.outputs["kept"])
"""
    )
    assert world.run(text).code == 0
    gone = world.home / "artifacts" / "hold" / "kept"
    gone.unlink()
    again = world.run(text)
    assert again.code == 1
    assert f"failed at hold: {gone} is gone" in again.err.splitlines()[-1]
    assert "tick: done before" in again.err
    assert not gone.exists()


def test_tasks_without_files_are_not_run_again(world: World) -> None:
    text = """
@component
def measure(metrics: Output[Metrics]):
    metrics.log_metric("loss", 0.5)

@dsl.pipeline(name="measures")
def pipeline():
    measure()
"""
    assert world.run(text).code == 0
    again = world.run(text, "--json")
    assert "measure: done before" in again.err
    assert again.json["metrics"] == {"measure": {"loss": 0.5}}
    assert again.json["artifacts"] == []


def test_an_exit_task_runs_again_with_a_run_that_failed(world: World) -> None:
    text = """
@dsl.pipeline(name="exits")
def pipeline():
    with dsl.ExitHandler(tick(file="ticks")):
        fail(why="always")
"""
    for count in (1, 2):
        assert world.run(text).code == 1
        assert len(world.lines("ticks")) == count


@pytest.mark.parametrize(("word", "ran"), [("yes", ["tick"]), ("no", [])])
def test_conditions_and_loops_over_named_outputs(world: World, word: str, ran: list[str]) -> None:
    result = world.run(
        """
@component
def several(word: str) -> NamedTuple("Outputs", [("word", str), ("items", list)]):
    return (word, ["a", "b"])

@component
def note(word: str):
    with open("noted-" + word, "w"):
        pass

@dsl.pipeline(name="names")
def pipeline(word: str):
    made = several(word=word)
    with dsl.If(made.outputs["word"] == "yes"):
        tick(file="ticks")
    with dsl.ParallelFor(made.outputs["items"]) as item:
        note(word=item)
""",
        "--arg",
        f"word={word}",
    )
    assert result.code == 0, result.err
    assert world.lines("ticks") == ran
    assert {path.name for path in world.folder.glob("noted-*")} == {"noted-a", "noted-b"}


def test_optional_parameters_may_be_left_out(world: World) -> None:
    result = world.run(
        """
@component
def note(word: Optional[str] = None, number: int = 3):
    with open(f"noted-{word}-{number}", "w"):
        pass

@dsl.pipeline
def inner(word: Optional[str] = None):
    note(word=word, number=4)

@dsl.pipeline(name="optional")
def pipeline(word: Optional[str] = None):
    note(word=word)
    inner(word=word)
""",
        "--function",
        "pipeline",
    )
    assert result.code == 0, result.err
    assert (world.folder / "noted-None-3").exists()
    assert (world.folder / "noted-None-4").exists()


def test_a_loop_over_what_is_not_there_fails_and_is_told(world: World) -> None:
    """kfp raises outside of any task then: still no success, and budget comes back."""
    result = world.run(
        """
@component
def none() -> NamedTuple("Outputs", [("items", list), ("word", str)]):
    return ("not a list", "x")

@dsl.pipeline(name="strange")
def pipeline():
    with privacy_budget(**ASK, epsilon="0.5") as budget:
        made = none().after(budget.allocated)
        with dsl.ParallelFor(made.outputs["items"]) as item:
            fail(why=item)
        budget.consume(after=[made])
""",
        "--data",
        "data.yaml",
        "--json",
    )
    assert result.code == 1
    assert result.json["state"] == "Failed"
    assert [claim.held().is_zero for claim in world.claims()] == [True]
