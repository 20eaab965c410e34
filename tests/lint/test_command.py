"""`privatekube lint`: what it prints, and how it ends."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from privatekube_kfp.lint import RULES, Severity, lint_file
from tests.cli.running import environment, in_own_process

ROOT = Path(__file__).resolve().parents[2]


def test_clean(run, clean):
    result = run("lint", clean)
    assert (result.code, result.out, result.err) == (0, "OK: 1 pipeline, 7 tasks\n", "")


def test_findings(run, bad):
    result = run("lint", bad)
    assert result.code == 1
    lines = result.out.splitlines()
    assert len(lines) == 5
    number = 1 + Path(bad).read_text().splitlines().index("      allocate:")
    assert lines[0] == (
        f"bad.yaml:{number}: error PK401 allocate: No Release gives its budget back if the"
        " pipeline fails: release does not guard it."
    )
    assert lines[1] == f"    {RULES['PK401'].mend}"
    assert lines[-1] == "2 findings (1 warning with --strict)"


def test_strict(run, bad):
    result = run("lint", "--strict", bad)
    assert result.code == 1
    assert ": warning PK305 allocate: " in result.out
    assert result.out.endswith("\n3 findings\n")


def test_several_files(run, clean, bad):
    result = run("lint", clean, bad)
    assert result.code == 1
    assert "clean.yaml" not in result.out
    assert result.out.endswith("\n2 findings in 1 of 2 files (1 warning with --strict)\n")


def test_a_file_named_twice_is_one(run, clean):
    assert run("lint", clean, clean).out == "OK: 1 pipeline, 7 tasks\n"


def test_some_unreadable(run, clean, bad):
    result = run("lint", clean, "gone.yaml")
    assert (result.code, result.out) == (2, "")
    assert result.err == "privatekube: gone.yaml: cannot read it: No such file or directory\n"
    result = run("lint", bad, "gone.yaml")
    assert result.code == 2
    assert "PK401" in result.out


def test_json(run, clean, bad):
    result = run("lint", "--json", clean, bad)
    assert result.code == 1
    assert result.json["clean"] is False
    assert result.json["files"] == [
        {"file": "clean.yaml", "tasks": 7, "warningsLeftOut": 0},
        {"file": "bad.yaml", "tasks": 3, "warningsLeftOut": 1},
    ]
    assert [(each["code"], each["task"]) for each in result.json["findings"]] == [
        ("PK401", "allocate"),
        ("PK402", "release"),
    ]
    assert set(result.json["findings"][0]) == {
        "code",
        "severity",
        "task",
        "what",
        "mend",
        "file",
        "line",
    }
    assert run("--json", "lint", clean).json["clean"] is True


def test_json_of_unreadable(run, clean):
    result = run("lint", "--json", clean, "gone.yaml")
    assert result.code == 2
    assert result.json["clean"] is False
    assert result.json["error"] == {
        "reason": "Unreadable",
        "message": "gone.yaml: cannot read it: No such file or directory",
    }


def test_sarif(run, bad):
    result = run("lint", "--strict", "--sarif", bad, "gone.yaml")
    assert result.code == 2
    log = result.json
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    [one] = log["runs"]
    rules = one["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    for rule in rules:
        assert rule["help"]["text"]
        assert rule["shortDescription"]["text"]
        assert rule["defaultConfiguration"]["level"] in ("error", "warning")
    findings = lint_file(bad, strict=True).findings
    assert len(one["results"]) == len(findings) == 3
    for found, finding in zip(one["results"], findings, strict=True):
        assert found["ruleId"] == rules[found["ruleIndex"]]["id"] == finding.code
        assert found["level"] == finding.severity
        assert finding.what in found["message"]["text"]
        [location] = found["locations"]
        assert location["physicalLocation"] == {
            "artifactLocation": {"uri": "bad.yaml"},
            "region": {"startLine": finding.line},
        }
        assert location["logicalLocations"][0]["fullyQualifiedName"] == finding.task
    [invocation] = one["invocations"]
    assert invocation["executionSuccessful"] is False
    [told] = invocation["toolExecutionNotifications"]
    assert told["message"]["text"].startswith("gone.yaml: ")


def test_sarif_of_files_with_odd_names(run, folder, bad_text):
    (folder / "a b#.yaml").write_text(bad_text)
    for name, uri in (
        ("a b#.yaml", "a%20b%23.yaml"),
        (str(folder / "a b#.yaml"), f"{folder.as_uri()}/a%20b%23.yaml"),
    ):
        [first, _] = run("lint", "--sarif", name).json["runs"][0]["results"]
        assert first["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_sarif_of_a_clean_pipeline(run, clean):
    result = run("lint", "--sarif", clean)
    assert result.code == 0
    assert result.json["runs"][0]["results"] == []
    assert result.json["runs"][0]["invocations"][0]["executionSuccessful"] is True


def test_usage(run, clean):
    assert run("lint").code == 2
    result = run("lint", "--json", "--sarif", clean)
    assert result.code == 2
    assert "one of them" in result.err


def test_needs_no_kfp(clean):
    before = "import sys; sys.modules['kfp'] = None"
    assert in_own_process("lint", clean, before=before).returncode == 0


def test_the_pre_commit_hook(clean, bad):
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, *words = shlex.split(hook["entry"])
    assert (program, hook["language"]) == ("privatekube", "python")
    for file, code in ((clean, 0), (bad, 1)):
        command = [sys.executable, "-m", "privatekube_kfp.cli", *words, file]
        ended = subprocess.run(command, env=environment(), capture_output=True, check=False)
        assert ended.returncode == code


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_rules_are_told_in_sentences(rule):
    assert rule.code.startswith("PK")
    assert rule.mend.endswith(".")
    assert not rule.title.endswith(".")
    assert rule.severity in Severity


def test_a_manifest_for_kubernetes(run, folder, clean_text, bad_text):
    for text, code in ((clean_text, 0), (bad_text, 1)):
        pipeline, *_ = yaml.safe_load_all(text)
        head = {"apiVersion": "pipelines.kubeflow.org/v2beta1", "metadata": {"name": "p"}}
        version = {**head, "kind": "PipelineVersion", "spec": {"pipelineSpec": pipeline}}
        documents = [{**head, "kind": "Pipeline", "spec": {}}, version]
        (folder / "manifest.yaml").write_text(yaml.safe_dump_all(documents))
        result = run("lint", "--json", "manifest.yaml")
        assert result.code == code
        assert result.json["files"][0]["tasks"] == (7 if code == 0 else 3)
        assert all(each["line"] for each in result.json["findings"])


def test_a_job_in_json(run, folder, bad_text):
    [pipeline] = yaml.safe_load_all(bad_text)
    (folder / "job.json").write_text(json.dumps({"pipelineSpec": pipeline, "runtimeConfig": {}}))
    result = run("lint", "--json", "job.json")
    assert [each["code"] for each in result.json["findings"]] == ["PK401", "PK402"]
