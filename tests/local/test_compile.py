"""`privatekube compile`: from Python to YAML, and what it says of what it cannot compile."""

from __future__ import annotations

from pathlib import Path

from tests.local.world import World

ONE = """
@dsl.pipeline(name="one")
def pipeline(n: int = 1):
    tick(file="ticks")
"""
TWO = (
    ONE
    + """
@dsl.pipeline(name="two")
def other():
    tick(file="others")
"""
)
BAD = """
@dsl.pipeline(name="bad")
def pipeline():
    allocate(**ASK, epsilon="0.5")
"""


def test_yaml_goes_beside_the_source_or_where_it_is_told_to(world: World) -> None:
    (world.folder / "folder").mkdir()
    source = world.write(ONE, "folder/one.py")
    result = world.cli.ok("compile", source)
    assert result.out == "one: folder/one.yaml\n"
    text = (world.folder / "folder" / "one.yaml").read_text()
    assert "name: one" in text
    world.cli.ok("compile", source, "-o", "build/x.yaml")
    assert (world.folder / "build" / "x.yaml").read_text() == text
    second = world.write(ONE.replace('"one"', '"second"'), "second.py")
    said = world.cli.json("compile", source, second, "-o", "out")
    assert [one["path"] for one in said["compiled"]] == ["out/one.yaml", "out/second.yaml"]
    assert all(Path(one["path"]).exists() for one in said["compiled"])
    assert said["findings"] == []


def test_yaml_replaces_no_pipeline_and_no_other_yaml(world: World) -> None:
    for folder in ("a", "b"):
        (world.folder / folder).mkdir()
    one, same = world.write(ONE, "a/one.py"), world.write(ONE, "b/one.py")
    before = (world.folder / one).read_text()
    result = world.cli("compile", one, "-o", "a/../a/one.py")
    assert result.code == 2
    assert "is a pipeline in Python: its YAML would replace it" in result.err
    assert (world.folder / one).read_text() == before
    result = world.cli("compile", one, same, "-o", "out")
    assert result.code == 2
    assert "a/one.py and b/one.py would both be compiled to out/one.yaml" in result.err
    assert not (world.folder / "out").exists()


def test_one_of_several_pipelines_is_named(world: World) -> None:
    source = world.write(TWO)
    result = world.cli("compile", source)
    assert result.code == 2
    assert "several pipelines: pipeline, other; name one with --function" in result.err
    assert world.cli.ok("compile", source, "--function", "other").out.startswith("two: ")


def test_findings_end_in_exit_code_1_with_the_yaml_written(world: World) -> None:
    result = world.cli("compile", world.write(BAD), "--json")
    assert result.code == 1
    assert result.json["error"]["reason"] == "BreaksProtocol"
    (compiled,) = result.json["compiled"]
    lines = Path(compiled["path"]).read_text().splitlines()
    finding = result.json["findings"][0]
    assert finding["file"] == compiled["path"]
    assert finding["task"] in lines[finding["line"] - 1]
    assert finding["code"] in result.err
    assert world.cli("compile", "pipeline.py", "--no-lint").code == 0


def test_a_dataset_where_a_claim_belongs_is_told_with_its_line(world: World) -> None:
    source = world.write(
        """
@component
def make(made: Output[Dataset]):
    pass

@dsl.pipeline(name="wrong")
def pipeline():
    download(claim=make().outputs["made"])
"""
    )
    result = world.cli("compile", source)
    assert result.code == 1
    lines = (world.folder / source).read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if "download(" in line)
    assert f"pipeline.py:{number}: " in result.err
    assert "system.Dataset" in result.err
    assert "system.PrivacyClaim" in result.err
    assert "Traceback" not in result.err
    assert len(result.err.splitlines()) == 1
    assert not (world.folder / "pipeline.yaml").exists()


def test_an_error_in_a_module_that_it_imports_names_the_line_that_imports(world: World) -> None:
    (world.folder / "helper.py").write_text("x = 1\n1 / 0\n")
    (world.folder / "main.py").write_text("\nimport helper\n")
    result = world.cli("compile", "main.py")
    assert result.code == 1
    assert "main.py:2: ZeroDivisionError: division by zero" in result.err
    (world.folder / "helper.py").write_text("def f(:\n")
    assert "helper.py:1: " in world.cli("compile", "main.py").err


def test_what_is_not_python_is_a_usage_error(world: World) -> None:
    result = world.cli("compile", "a.yaml")
    assert result.code == 2
    assert "a.yaml is not Python" in result.err
    assert world.cli("compile").code == 2


def test_a_file_is_loaded_anew_each_time(world: World) -> None:
    source = world.write(ONE)
    world.cli.ok("compile", source)
    world.write(ONE.replace('"one"', '"changed-name"'))
    assert world.cli.ok("compile", source).out.startswith("changed-name: ")
