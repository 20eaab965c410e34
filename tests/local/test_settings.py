"""Site settings on the command line: what `compile` writes, what `run` follows, what is shown."""

from __future__ import annotations

import pytest
import yaml

from tests.local.world import World

PIPELINE = """
@component
def train(model: Output[Model]):
    with open(model.path, "w") as out:
        out.write("weights")

@dsl.pipeline(name="trains")
def pipeline(uri: str = ""):
    with privacy_budget(**ASK, epsilon="0.25", results=uri) as budget:
        model = train().after(budget.allocated)
        budget.consume(after=[model])
        budget.upload(model)
"""
SETTINGS = """
results: s3://nobody-can-reach/results
serviceAccount: runner
images: {registry: registry.example.com/team/pk}
tasks: {secrets: [{name: store, env: {key: AWS_SECRET_ACCESS_KEY}}]}
components: {consume: {resources: {limits: {memory: 2Gi}}}}
"""


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PRIVATEKUBE_SETTINGS", "PRIVATEKUBE_RESULTS"):
        monkeypatch.delenv(name, raising=False)


def compiled(world: World, *more: str) -> list[dict]:
    world.cli.ok("compile", world.write(PIPELINE), "-o", "out.yaml", *more)
    return list(yaml.safe_load_all((world.folder / "out.yaml").read_text()))


def test_compile_writes_them_and_lint_reads_it(world: World) -> None:
    (world.folder / "privatekube.yaml").write_text(SETTINGS)
    spec, platform = compiled(world)
    executors = spec["deploymentSpec"]["executors"]
    assert executors["exec-upload"]["container"]["image"].startswith(
        "registry.example.com/team/pk/python:"
    )
    variables = {one["name"]: one["value"] for one in executors["exec-upload"]["container"]["env"]}
    assert variables["PRIVATEKUBE_RESULTS"] == "s3://nobody-can-reach/results/trains"
    limits = executors["exec-consume"]["container"]["resources"]
    assert limits["resourceMemoryLimit"] == "2Gi"
    assert set(platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]) == {
        f"exec-{name}" for name in ("allocate", "consume", "release", "upload")
    }
    text = (world.folder / "out.yaml").read_text()
    assert text.startswith("# PIPELINE DEFINITION\n# Name: trains\n"), "as kfp begins it"
    world.cli.ok("lint", "out.yaml")
    # What was compiled for a cluster runs here all the same, and publishes here.
    world.cli.ok("run", "out.yaml", "--data", "data.yaml", "--run-id", "r")
    assert (world.home / "published" / "model").read_text() == "weights"


def test_without_settings_only_requests_are_added(world: World) -> None:
    (spec,) = compiled(world)
    executors = spec["deploymentSpec"]["executors"]
    requests = executors["exec-allocate"]["container"]["resources"]
    assert requests["resourceMemoryRequest"] == "256Mi"
    assert "resources" not in executors["exec-train"]["container"]


def test_run_follows_what_is_for_this_machine_and_nothing_else(world: World) -> None:
    (world.folder / "privatekube.yaml").write_text(SETTINGS)
    said = world.run(PIPELINE, "--data", "data.yaml")
    assert said.code == 0, said.err
    assert (world.home / "published" / "model").read_text() == "weights"
    assert "results  privatekube-runs/r/published" in said.out


def test_a_place_on_this_machine(world: World) -> None:
    (world.folder / "privatekube.yaml").write_text("local: {results: site}\n")
    inner = world.folder / "inner"
    inner.mkdir()
    source = f"../{world.write(PIPELINE)}"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(inner)
        world.cli.ok("run", source, "--data", "../data.yaml", "--run-id", "r")
    assert (world.folder / "site" / "trains" / "r" / "model").read_text() == "weights"


def test_a_uri_of_its_own(world: World) -> None:
    assert world.run(PIPELINE, "--data", "data.yaml", "--arg", "uri=mine/m").code == 0
    assert (world.folder / "mine" / "m").read_text() == "weights"


def test_a_run_that_could_not_publish_asks_for_no_budget(world: World) -> None:
    (world.folder / "mine").write_text("a file, and no folder")
    said = world.run(PIPELINE, "--data", "data.yaml", "--arg", "uri=mine/m", "--json")
    assert said.code == 1
    error = said.json["error"]
    assert error["task"] == "allocate"
    assert "results cannot be written to mine/m" in error["message"]
    assert "no budget was asked for" in error["message"]
    assert world.claims() == []


def test_what_applies_is_shown(world: World) -> None:
    (world.folder / "privatekube.yaml").write_text(SETTINGS)
    shown = world.cli.json("settings", "show", world.write(PIPELINE))
    assert shown["source"].endswith("privatekube.yaml")
    assert shown["serviceAccount"] == "runner"
    tasks = {one["component"]: one for one in shown["tasks"]}
    assert tasks["consume"]["limits"] == {"memory": "2Gi"}
    assert tasks["upload"]["results"] == "s3://nobody-can-reach/results/trains"
    assert tasks["upload"]["secrets"][0]["name"] == "store"
    assert tasks["train"] == {"component": "train", "image": "python:3.11"}
    text = world.cli.ok("settings", "show").out
    assert "registry.example.com/team/pk/python-torch" in text
    assert "dp_train_keras" in text


@pytest.mark.parametrize("command", [("settings", "show"), ("compile",), ("run",), ("submit",)])
def test_wrong_settings_end_every_command(world: World, command: tuple[str, ...]) -> None:
    (world.folder / "privatekube.yaml").write_text("resutls: s3://x\n")
    result = world.cli(*command, world.write(PIPELINE))
    assert result.code == 1
    assert "unknown key 'resutls': did you mean results?" in result.err
    assert "Traceback" not in result.err
