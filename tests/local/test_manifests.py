"""Streams and blocks from manifests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.ledger.memory import MemoryLedger
from privatekube_kfp.local.errors import PipelineError
from privatekube_kfp.local.manifests import read_declarations
from privatekube_kfp.local.yaml_text import read_documents
from tests.local.world import DATA, World

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "data.yaml"
    path.parent.mkdir()
    path.write_text(DATA)
    return path


def test_they_are_declared_once_however_often(file: Path) -> None:
    declared = read_declarations([file])
    with MemoryLedger() as ledger:
        declared.apply(ledger)
        declared.apply(ledger)
        (stream,) = ledger.streams()
        (block,) = ledger.blocks()
    assert stream.spec.name == "reviews"
    assert stream.spec.epsilon == "1"
    assert block.block.name == "monday"
    assert block.block.end is not None


def test_another_declaration_under_the_same_name_is_refused(file: Path) -> None:
    with MemoryLedger() as ledger:
        read_declarations([file]).apply(ledger)
        file.write_text(DATA.replace('epsilon: "1"', 'epsilon: "2"'))
        with pytest.raises(Invalid, match="reviews"):
            read_declarations([file]).apply(ledger)


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("blocks/a.parquet", "{folder}/blocks/a.parquet"),
        ("../a.parquet", "{parent}/a.parquet"),
        ("/data/a.parquet", "/data/a.parquet"),
        ("s3://bucket/a.parquet", "s3://bucket/a.parquet"),
    ],
)
def test_a_relative_source_is_relative_to_its_file(file: Path, source: str, read: str) -> None:
    file.write_text(DATA.replace("{stream: reviews,", f"{{stream: reviews, dataSource: {source},"))
    (block,) = read_declarations([file]).blocks
    expected = read.format(folder=file.parent.resolve(), parent=file.parent.parent.resolve())
    assert block.data_source == expected


def test_the_manifests_in_the_documentation_can_be_read(tmp_path: Path) -> None:
    """What one applies to a cluster, a run takes too."""
    pages = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    read = 0
    for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```", pages, re.M | re.S)):
        kinds = {document.get("kind") for document in read_documents(text)}
        if kinds <= {"PrivateDataStream", "PrivateDataBlock"}:
            path = tmp_path / f"{number}.yaml"
            path.write_text(text)
            declared = read_declarations([path])
            read += len(declared.streams) + len(declared.blocks)
    assert read >= 2


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("kind: PrivateDataStream", "kind: ConfigMap", "document 1: 'ConfigMap' is neither"),
        ("v1alpha1", "v9", "apiVersion is 'privatekube.io/v9'"),
        ("{name: monday}", "{}", "document 2: metadata has no name"),
        ('epsilon: "1"', 'epsilom: "1"', "no 'epsilon'"),
        ('epsilon: "1"', 'epsilon: "1"\n  speed: 3', "spec.speed is unknown"),
        ("{type: Basic}", "{type: Basic, colour: red}", "spec.accounting.colour is unknown"),
        ('epsilon: "1"', 'epsilon: "much"', "much"),
        ("2026-11-17T00:00:00Z", "tomorrow", "tomorrow"),
        ("{stream: reviews,", "{stream: reviews, retired: true,", "retired"),
        ("spec: {stream", "spec: [stream", "data.yaml: line"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(
    file: Path, before: str, after: str, what: str
) -> None:
    assert before in DATA
    file.write_text(DATA.replace(before, after, 1))
    with pytest.raises(PipelineError) as caught:
        read_declarations([file])
    assert what in caught.value.message
    assert "data.yaml" in caught.value.message


PIPELINE = """
@dsl.pipeline(name="ticks")
def pipeline():
    tick(file="ticks")
"""


def test_bad_manifests_stop_a_run_before_it_has_a_folder(world: World) -> None:
    (world.folder / "bad.yaml").write_text("a: [")
    result = world.run(PIPELINE, "--data", "data.yaml", "--data", "bad.yaml")
    assert result.code == 1
    assert "bad.yaml: line 1" in result.err
    assert not world.home.exists()
    assert world.run(PIPELINE, "--data", "nowhere.yaml").code == 1


def test_a_block_of_an_unknown_stream_stops_a_run(world: World) -> None:
    (world.folder / "data.yaml").write_text(DATA.replace("{stream: reviews", "{stream: others"))
    result = world.run(PIPELINE, "--data", "data.yaml", "--json")
    assert result.code == 1
    assert result.json["error"]["reason"] == "UnknownStream"
    assert world.lines("ticks") == []


def test_they_are_not_for_a_cluster(world: World) -> None:
    result = world.run(PIPELINE, "--data", "data.yaml", "--ledger", "kubernetes")
    assert result.code == 2
    assert "kubectl apply" in result.err
    assert world.lines("ticks") == []


def test_a_source_that_leads_nowhere_is_found_when_it_is_read(file: Path) -> None:
    loop = file.parent / "loop.parquet"
    loop.symlink_to(loop)
    text = DATA.replace("{stream: reviews,", "{stream: reviews, dataSource: loop.parquet,")
    file.write_text(text)
    (block,) = read_declarations([file]).blocks
    assert block.data_source == str(loop)
