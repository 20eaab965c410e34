"""Where results go, and that nothing is paid for that could not be written."""

import json
import os
from pathlib import Path

import pytest

from privatekube_kfp.steps.claims import consume
from privatekube_kfp.steps.data import upload
from privatekube_kfp.steps.results import place_of_result
from tests.steps.pages_seen import Page

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch):
    for name in ("PRIVATEKUBE_RESULTS", "PRIVATEKUBE_UPLOADS"):
        monkeypatch.delenv(name, raising=False)


def in_a_pod(monkeypatch, **environment):
    for name, value in {**POD, **environment}.items():
        monkeypatch.setenv(name, value)


def refused(world, fails, **asked):
    said = fails(world.allocate, **asked)
    assert "no budget was asked for" in said
    assert list(world.ledger.claims()) == [], "no budget is touched"
    seen = Page(Path(world.artifact("report").path).read_text())
    reason, _, sentence = said.partition(": ")
    assert (seen.title, reason in seen.lines) == ("No budget was asked for", True)
    assert sentence in seen.lines
    return said


@pytest.mark.parametrize(
    ("place", "written"),
    [
        ("s3://b/visits", "s3://b/visits/run-1/model"),
        ("s3://b/visits/", "s3://b/visits/run-1/model"),
        ("s3://b/{run}/all", "s3://b/run-1/all/model"),
    ],
)
def test_a_result_has_a_place_of_its_own(place, written):
    assert place_of_result("", "model", "run-1", {"PRIVATEKUBE_RESULTS": place}) == written


@pytest.mark.parametrize(
    ("name", "written"),
    [("a b/c", "a-b-c"), ("../../x", "x"), ("", "result"), ("...", "result"), ("y.json", "y.json")],
)
def test_no_name_fails_after_paying_or_leaves_the_place(name, written):
    said = place_of_result("", name, "r", {"PRIVATEKUBE_RESULTS": "s3://b"})
    assert said == f"s3://b/r/{written}"


def test_without_a_place_a_pod_asks_for_no_budget(world, fails, monkeypatch):
    in_a_pod(monkeypatch, PRIVATEKUBE_UPLOADS='[""]')
    said = refused(world, fails)
    assert "nobody says where results go: write `results: s3://...` into privatekube.yaml" in said


@pytest.mark.parametrize("uri", ["published/model", "./model", "file://published/model"])
def test_a_relative_path_is_nowhere_in_a_pod(world, fails, monkeypatch, uri):
    in_a_pod(monkeypatch)
    assert "is a relative path, and in a pod that is nowhere" in refused(world, fails, results=uri)
    monkeypatch.setenv("PRIVATEKUBE_UPLOADS", json.dumps([uri]))
    assert "is a relative path" in refused(world, fails)
    monkeypatch.setenv("PRIVATEKUBE_UPLOADS", '[""]')
    monkeypatch.setenv("PRIVATEKUBE_RESULTS", uri)
    assert "is a relative path" in refused(world, fails)


@pytest.mark.parametrize("path", ["/published/model", "/tmp/model", "/minio/x/model", "/x/../y"])
def test_nor_does_a_pod_keep_what_is_in_no_volume(world, fails, monkeypatch, path):
    in_a_pod(monkeypatch)
    said = refused(world, fails, results=path)
    assert f"{path} is in the pod's own file system and would go with the pod" in said


def test_a_volume_that_is_mounted_is_a_place(world, monkeypatch):
    assert os.path.ismount("/dev/shm"), "every Linux has one"
    in_a_pod(monkeypatch)
    world.allocate(results=f"/dev/shm/privatekube-test-{os.getpid()}/model")
    assert world.claim().phase == "Allocated"
    assert not Path(f"/dev/shm/privatekube-test-{os.getpid()}").exists(), "nothing is left there"


def test_a_folder_that_cannot_be_written(world, fails, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    said = refused(world, fails, results=str(tmp_path / "file" / "model"))
    assert f"results cannot be written to {tmp_path}/file/model: " in said


def test_where_nothing_is_uploaded_nothing_is_proven(world, monkeypatch):
    in_a_pod(monkeypatch)
    world.allocate()
    assert world.claim().phase == "Allocated"


def test_a_uri_that_is_given_comes_before_the_place(world, monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVATEKUBE_RESULTS", str(tmp_path / "file" / "nowhere"))
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("PRIVATEKUBE_UPLOADS", '[""]')
    world.allocate(results=str(tmp_path / "out" / "model"))
    assert world.claim().phase == "Allocated"
    assert not (tmp_path / "out").exists(), "what proves it leaves nothing"


def test_two_results_without_names_do_not_collide(world, monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVATEKUBE_RESULTS", str(tmp_path / "out"))
    claim, spent = world.allocate(), world.artifact("spent")
    consume(claim, spent, world.artifact("report"), run_id=world.run)
    for text in ("one", "two"):
        made = world.artifact(text)
        Path(made.path).write_text(text)
        upload(spent.travelled(), made, run_id=world.run)
        upload(spent.travelled(), made, run_id=world.run)
    written = (tmp_path / "out" / "run-1").glob("result-????????????")
    assert sorted(path.read_text() for path in written) == ["one", "two"]


def test_a_relative_path_is_refused_by_upload_too(world, fails, monkeypatch):
    claim, spent = world.allocate(), world.artifact("spent")
    consume(claim, spent, world.artifact("report"), run_id=world.run)
    made = world.artifact("model")
    Path(made.path).write_text("weights")
    in_a_pod(monkeypatch)
    said = fails(upload, spent.travelled(), made, run_id=world.run, uri="published/model")
    assert "published/model is a relative path, and in a pod that is nowhere" in said
