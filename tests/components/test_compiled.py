"""The compiled components in `components/`: they are what the library says, and load anywhere."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from privatekube_kfp import __version__
from privatekube_kfp.components.protocol import IMAGE, KERAS_IMAGE, TORCH_IMAGE

TOP = Path(__file__).parents[2]
NAMES = (
    "allocate",
    "consume",
    "download",
    "dp_evaluate",
    "dp_preprocess",
    "dp_statistic",
    "dp_train",
    "dp_train_keras",
    "ingest",
    "plan_training",
    "release",
    "show_model",
    "show_statistic",
    "upload",
)
_SDK = re.compile(r"^sdkVersion: .*$", re.MULTILINE)

_spec = importlib.util.spec_from_file_location("compile", TOP / "components" / "compile.py")
compiling = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(compiling)


@pytest.mark.parametrize("component", compiling.COMPONENTS, ids=lambda c: c.name)
def test_no_drift(component):
    """If this fails: `make components`."""
    for name, text in compiling.files(component).items():
        kept = (TOP / "components" / compiling.name_of(component) / name).read_text()
        assert _SDK.sub("", kept) == _SDK.sub("", text)


def test_there_is_a_folder_for_each_and_no_other():
    folders = {path.parent.name for path in (TOP / "components").glob("*/component.yaml")}
    assert folders == set(NAMES) == set(map(compiling.name_of, compiling.COMPONENTS))


@pytest.mark.parametrize("name", NAMES)
def test_every_field_is_documented(name):
    root = yaml.safe_load((TOP / "components" / name / "component.yaml").read_text())["root"]
    for definitions in (root.get("inputDefinitions", {}), root.get("outputDefinitions", {})):
        for kind in ("parameters", "artifacts"):
            for field, said in definitions.get(kind, {}).items():
                assert said.get("description"), field


def test_the_images_are_built_under_the_name_that_components_ask_for():
    dockerfile = (TOP / "components" / "Dockerfile").read_text()
    assert f"-f components/Dockerfile -t {IMAGE} ." in dockerfile
    assert f"-f components/Dockerfile --build-arg EXTRA=bert -t {TORCH_IMAGE} ." in dockerfile
    of_keras = (TOP / "components" / "Dockerfile.keras").read_text()
    assert f"-f components/Dockerfile.keras -t {KERAS_IMAGE} ." in of_keras
    assert all(image.endswith(f":{__version__}") for image in (IMAGE, TORCH_IMAGE, KERAS_IMAGE))


def test_only_those_that_need_torch_are_in_the_image_that_has_it():
    images = {}
    for name in NAMES:
        compiled = yaml.safe_load((TOP / "components" / name / "component.yaml").read_text())
        (executor,) = compiled["deploymentSpec"]["executors"].values()
        images[name] = executor["container"]["image"]
    others = dict.fromkeys(("dp_preprocess", "dp_train", "dp_evaluate"), TORCH_IMAGE)
    others["dp_train_keras"] = KERAS_IMAGE
    assert images == {**dict.fromkeys(NAMES, IMAGE), **others}


USE = """
from kfp import compiler, components, dsl

made = {name: components.load_component_from_file(f"{name}.yaml") for name in %r}
run = dsl.PIPELINE_JOB_ID_PLACEHOLDER

@dsl.pipeline(name="by-hand")
def pipeline():
    new = made["ingest"](run_id=run, stream="s", sources=["raw.parquet"], to="private")
    new.set_caching_options(False)
    with dsl.ExitHandler(made["release"](run_id=run).set_caching_options(False)):
        claim = made["allocate"](run_id=run, stream="s", epsilon="0.1", last_blocks=1).after(new)
        claim.set_caching_options(False)
        data = made["download"](run_id=run, claim=claim.outputs["claim"])
        data.set_caching_options(False)
        total = made["dp_statistic"](
            run_id=run,
            claim=claim.outputs["claim"],
            data=data.outputs["data"],
            statistic="reviews_total",
        ).set_caching_options(False)
        spent = made["consume"](run_id=run, claim=claim.outputs["claim"]).after(total)
        spent.set_caching_options(False)
        made["show_statistic"](
            run_id=run, claim=spent.outputs["consumed"], result=total.outputs["result"]
        ).set_caching_options(False)
        made["upload"](
            run_id=run, claim=spent.outputs["consumed"], artifact=data.outputs["data"], uri="out"
        ).set_caching_options(False)

compiler.Compiler().compile(pipeline, "pipeline.yaml")
"""


@pytest.mark.slow
def test_they_load_and_compile_where_there_is_only_kfp(tmp_path):
    """And the pipeline that they make keeps the protocol, as far as the linter can see."""
    from privatekube_kfp.lint import lint_file

    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "kfp>=2.17,<2.18"]
    subprocess.run(pip, check=True)
    for name in NAMES:
        compiled = (TOP / "components" / name / "component.yaml").read_text()
        (tmp_path / f"{name}.yaml").write_text(compiled)
    (tmp_path / "use.py").write_text(USE % (NAMES,))
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ours = subprocess.run(
        [python, "-c", "import privatekube_kfp"], cwd=tmp_path, env=clean, stderr=subprocess.PIPE
    )
    assert b"No module named 'privatekube_kfp'" in ours.stderr
    subprocess.run([python, "use.py"], cwd=tmp_path, check=True, env=clean)
    assert lint_file(tmp_path / "pipeline.yaml").findings == ()
