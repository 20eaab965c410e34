"""A run from the command line: what it tells, what it leaves, how it ends."""

from __future__ import annotations

import json
import subprocess

import pytest

from privatekube_kfp.core.claim import Phase
from tests.cli.running import command_line, environment, in_own_process
from tests.local.world import DATA, World

GOOD = """
@component
def train(model: Output[Model], metrics: Output[Metrics], rows: int) -> NamedTuple(
    "Outputs", [("loss", float), ("note", str)]
):
    with open(model.path, "w") as out:
        out.write(f"a model of {rows}")
    metrics.log_metric("accuracy", 0.5)
    return (0.25, "a secret note")

@dsl.pipeline(name="good")
def pipeline(epsilon: str = "0.25", rows: int = 3):
    with privacy_budget(**ASK, epsilon=epsilon) as budget:
        model = train(rows=rows).after(budget.allocated)
        budget.consume(after=[model])
"""


def test_json_is_one_document_of_all_that_came_of_it(world: World) -> None:
    result = world.run(GOOD, "--data", "data.yaml", "--arg", "epsilon=0.5", "--json")
    assert result.code == 0, result.err
    said = result.json
    amount = [{"blocks": ["monday"], "budget": {"epsilon": "0.5", "delta": "0"}}]
    assert said["run"] == "r"
    assert said["state"] == "Succeeded"
    assert said["folder"] == str(world.home)
    assert said["claims"] == [
        {
            "name": "r.claim",
            "stream": "reviews",
            "phase": "Consumed",
            "granted": amount,
            "consumed": amount,
            "released": [],
        }
    ]
    assert said["metrics"]["train"] == {"accuracy": 0.5, "loss": 0.25}
    assert said["metrics"]["allocate"] == {"block_count": 1}
    assert said["metrics"]["release"]["epsilon_spent"] == 0.5
    models = [a for a in said["artifacts"] if a["type"] == "system.Model"]
    path = world.home / "artifacts" / "train" / "model"
    assert models == [{"task": "train", "name": "model", "type": "system.Model", "path": str(path)}]
    assert path.read_text() == "a model of 3"
    assert all((world.folder / a["path"]).exists() for a in said["artifacts"])
    assert "error" not in said
    assert "train: done" in result.err
    assert "secret" not in result.out + result.err


@pytest.mark.slow
def test_the_summary_names_claim_amounts_metrics_and_artifacts(world: World) -> None:
    result = world.run(GOOD, "--data", "data.yaml")
    assert result.code == 0, result.err
    lines = [line.split() for line in result.out.splitlines()]
    assert ["state", "Succeeded"] in lines
    assert ["r.claim", "Consumed", "1", "epsilon", "0.25", "epsilon", "0.25", "nothing"] in lines
    assert ["train", "accuracy", "0.5"] in lines
    assert ["train", "model", "Model", "privatekube-runs/r/artifacts/train/model"] in lines


@pytest.mark.slow
def test_compiled_yaml_runs_too_and_again_runs_nothing_twice(world: World) -> None:
    source = world.write(
        """
        @dsl.pipeline(name="ticks")
        def pipeline(n: int = 2):
            tick(file="ticks")
        """
    )
    world.cli.ok("compile", source, "-o", "compiled.yaml")
    for _ in range(2):
        result = world.cli.ok("run", "compiled.yaml", "--run-id", "r", "--json")
        assert result.json["metrics"] == {"tick": {"Output": 7}}
    assert world.lines("ticks") == ["tick"]
    assert "tick: done before" in result.err


@pytest.mark.slow
def test_a_task_that_fails_ends_the_run_with_its_reason_last(world: World) -> None:
    result = world.run(
        """
        @dsl.pipeline(name="fails")
        def pipeline():
            with privacy_budget(**ASK, epsilon="0.5") as budget:
                failed = fail(why="no more memory").after(budget.allocated)
                tick(file="ticks").after(failed)
                budget.consume(after=[failed])
        """,
        "--data",
        "data.yaml",
        "--json",
    )
    assert result.code == 1
    assert result.json["state"] == "Failed"
    message = "ValueError: no more memory"
    assert result.json["error"] == {"reason": "TaskFailed", "message": message, "task": "fail"}
    assert result.json["claims"][0]["phase"] == "Released"
    assert "    about to fail\n" in result.err
    assert result.err.splitlines()[-1] == f"privatekube: run r failed at fail: {message}"
    # What kfp logs of inputs stays in the log.
    assert "executor_input" not in result.err
    assert "executor_input" in (world.home / "logs" / "fail.log").read_text()
    (claim,) = world.claims()
    assert claim.held().is_zero
    assert world.lines("ticks") == []


def test_a_denied_claim_ends_the_run_before_anything_else_starts(world: World) -> None:
    result = world.run(
        """
        @dsl.pipeline(name="asks")
        def pipeline(epsilon: str):
            with privacy_budget(**ASK, epsilon=epsilon) as budget:
                done = tick(file="ticks").after(budget.allocated)
                budget.consume(after=[done])
        """,
        "--data",
        "data.yaml",
        "--arg",
        "epsilon=1.5",
    )
    assert result.code == 1
    assert "ExceedsCapacity" in result.err.splitlines()[-1]
    assert world.lines("ticks") == []
    assert [claim.phase for claim in world.claims()] == [Phase.DENIED]


@pytest.mark.slow
def test_what_the_pipeline_left_held_is_given_back(world: World) -> None:
    """A pipeline without a release of its own, which the check would not let through."""
    result = world.run(
        """
        @dsl.pipeline(name="keeps")
        def pipeline():
            allocate(**ASK, epsilon="0.5")
        """,
        "--data",
        "data.yaml",
        "--no-lint",
    )
    assert result.code == 0, result.err
    assert [claim.phase for claim in world.claims()] == [Phase.RELEASED]


def test_findings_are_told_and_nothing_runs(world: World) -> None:
    result = world.run(
        """
        @dsl.pipeline(name="keeps")
        def pipeline():
            tick(file="ticks")
            allocate(**ASK, epsilon="0.5")
        """,
        "--data",
        "data.yaml",
        "--json",
    )
    assert result.code == 1
    assert result.json["error"]["reason"] == "BreaksProtocol"
    assert any(finding["task"] == "allocate" for finding in result.json["findings"])
    assert result.json["findings"][0]["what"] in result.err
    assert world.lines("ticks") == []
    assert not world.home.exists()


@pytest.mark.slow
def test_a_task_that_prints_no_text_and_one_that_cannot_start(world: World) -> None:
    result = world.run(
        """
        @component
        def noise():
            import sys
            sys.stdout.buffer.write(b"\\xff\\xfe\\n")
            raise ValueError("after noise")

        @dsl.container_component
        def container():
            return dsl.ContainerSpec(image="python:3.11", command=["true"])

        @dsl.pipeline(name="odd")
        def pipeline():
            with dsl.ExitHandler(tick(file="ticks")):
                noise()
                container()
        """
    )
    assert result.code == 1
    assert "noise: failed" in result.err
    assert "container: failed" in result.err
    assert "Container Component" in (world.home / "logs" / "container.log").read_text()
    assert world.lines("ticks") == ["tick"]


def test_verbose_shows_what_tasks_print_and_not_what_kfp_does(world: World) -> None:
    text = """
        @component
        def talk(secret: str):
            print("hello")

        @dsl.pipeline(name="talks")
        def pipeline():
            talk(secret="the-input")
        """
    result = world.run(text, "--verbose")
    assert result.code == 0, result.err
    assert "talk | hello\n" in result.err
    assert "the-input" not in result.err
    assert "the-input" in (world.home / "logs" / "talk.log").read_text()


@pytest.mark.slow
def test_settings_for_a_cluster_and_imported_artifacts_do_no_harm(world: World) -> None:
    result = world.run(
        """
        @component
        def count(data: Input[Dataset]) -> int:
            return len(open(data.path).read())

        @dsl.pipeline(name="settings")
        def pipeline():
            settings = TaskSettings(labels={"team": "a"}, secrets_as_env={"s": {"key": "VARIABLE"}})
            with privacy_budget(**ASK, epsilon="0.5", settings=settings) as budget:
                data = dsl.importer(artifact_uri="data.yaml", artifact_class=Dataset)
                counted = count(data=data.output).after(budget.allocated)
                budget.consume(after=[counted])
        """,
        "--data",
        "data.yaml",
        "--json",
    )
    assert result.code == 0, result.err
    assert result.json["metrics"]["count"] == {"Output": len(DATA)}
    assert (world.home / "pipeline.yaml").read_text().count("VARIABLE") >= 3


def test_only_the_owner_can_read_the_folder_of_a_run(world: World) -> None:
    assert world.run(NAMED).code == 0
    assert world.home.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_a_run_on_a_named_ledger_leaves_it_there(world: World) -> None:
    ledger = ("--ledger", "sqlite:///budget.db")
    world.cli.ok(
        *ledger, "stream", "create", "reviews", "--epsilon", "1", "--delta", "1e-7",
        "--unlock-pipelines", "1",
    )  # fmt: skip
    world.cli.ok(*ledger, "block", "create", "monday", "--stream", "reviews")
    result = world.run(GOOD, *ledger, "--json")
    assert result.json["claims"][0]["phase"] == "Consumed"
    assert not (world.home / "ledger.db").exists()
    listed = world.cli.json(*ledger, "claim", "list")["claims"]
    assert [claim["owner"] for claim in listed] == ["r"]
    # The same id elsewhere is not the same run: it would use the claim's data again, unpaid.
    elsewhere = world.run(GOOD, *ledger, "--folder", "elsewhere", "--json")
    assert elsewhere.code == 1
    assert elsewhere.json["error"]["reason"] == "RunIdTaken"
    assert world.run(GOOD, *ledger).code == 0


def test_a_named_ledger_that_is_not_there_stops_the_run(world: World) -> None:
    result = world.run(GOOD, "--ledger", "sqlite:///nowhere.db", "--json")
    assert result.code == 1
    assert result.json["error"]["reason"] == "LedgerMissing"
    assert not (world.folder / "nowhere.db").exists()


def test_a_run_that_could_get_no_budget_is_not_begun(world: World) -> None:
    result = world.run(GOOD)
    assert result.code == 2
    assert "declare streams and blocks with --data" in result.err
    assert not world.home.parent.exists()


# The same run again

NAMED = """
@dsl.pipeline(name="named")
def pipeline(word: str = "a", number: int = 1):
    tick(file="ticks")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "args", "what"),
    [
        ("", ("--arg", "word=b"), 'word="a", not "b"'),
        ("", ("--arg", "number=2"), "number=1, not 2"),
        ("    tick(file='others')\n", (), "has changed since"),
        ("", ("--ledger", "sqlite:///other.db", "--data", "data.yaml"), "its budget is in"),
    ],
)
def test_a_run_does_not_go_on_as_another(
    world: World, change: str, args: tuple[str, ...], what: str
) -> None:
    assert world.run(NAMED).code == 0
    result = world.run(NAMED + change, *args)
    assert result.code == 1
    assert what in result.err
    assert "Start a new run" in result.err
    assert world.lines("ticks") == ["tick"]


@pytest.mark.slow
def test_runs_have_ids_and_folders_of_their_own(world: World) -> None:
    source = world.write(NAMED)
    first = world.cli.ok("run", source, "--json", "--folder", "elsewhere").json
    second = world.cli.ok("run", source, "--json", "--folder", "elsewhere").json
    assert first["run"].startswith("named-")
    assert first["run"] != second["run"]
    assert first["folder"] == str(world.folder / "elsewhere" / first["run"])
    assert world.lines("ticks") == ["tick", "tick"]
    assert not (world.folder / "privatekube-runs").exists()


@pytest.mark.slow
def test_a_run_that_gave_its_budget_back_unspent_does_not_go_on(world: World) -> None:
    text = """
        @dsl.pipeline(name="fails")
        def pipeline():
            with privacy_budget(**ASK, epsilon="0.5") as budget:
                failed = fail(why="no").after(budget.allocated)
                budget.consume(after=[failed])
        """
    assert world.run(text, "--data", "data.yaml").code == 1
    result = world.run(text, "--data", "data.yaml", "--json")
    assert result.code == 1
    assert result.json["error"]["reason"] == "GivenBack"


@pytest.mark.slow
def test_a_run_that_spent_its_budget_and_failed_later_goes_on_and_spends_once(
    world: World,
) -> None:
    text = """
        @component
        def publish(flag: str):
            import os
            if not os.path.exists(flag):
                raise OSError("the disk is full")

        @dsl.pipeline(name="publishes")
        def pipeline():
            with privacy_budget(**ASK, epsilon="0.5") as budget:
                spent = budget.consume(after=[tick(file="ticks").after(budget.allocated)])
                publish(flag="space").after(spent)
        """
    first = world.run(text, "--data", "data.yaml", "--json")
    assert first.json["error"]["message"] == "OSError: the disk is full"
    (world.folder / "space").touch()
    again = world.run(text, "--data", "data.yaml", "--json")
    assert again.code == 0, again.err
    (claim,) = again.json["claims"]
    assert claim["consumed"] == [{"blocks": ["monday"], "budget": {"epsilon": "0.5", "delta": "0"}}]
    assert world.lines("ticks") == ["tick"]


# Bad input


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("--arg", "speed=3"), "no parameter 'speed'"),
        (("--arg", "word"), "'word' is not an argument"),
        (("--arg", "number=1.5"), "number=1.5 is not a whole number"),
        (("--arg", "word=a", "--arg", "word=b"), "given twice"),
        (("--run-id", "Not_An_Id"), "run id 'Not_An_Id'"),
        (("--function", "other"), "no pipeline function 'other'"),
    ],
)
def test_a_command_line_that_does_not_fit(world: World, args: tuple[str, ...], what: str) -> None:
    result = world.cli("run", world.write(NAMED), *args, "--json")
    assert result.code == 2
    assert what in result.json["error"]["message"]
    assert not (world.folder / "privatekube-runs").exists()


def test_missing_arguments_list_the_parameters_and_defaults(world: World) -> None:
    source = world.write(
        """
        @dsl.pipeline(name="asks")
        def pipeline(epsilon: float, parts: list = ["a"], last: Optional[int] = None):
            tick(file="ticks")
        """
    )
    result = world.cli("run", source)
    assert result.code == 2
    assert "needs a value for epsilon" in result.err
    assert "epsilon (a number)" in result.err
    assert 'parts (a JSON list, ["a"] unless given)' in result.err
    assert "last (a whole number, null unless given)" in result.err


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.yaml", "a: [", "a.yaml is not a compiled pipeline: line 1"),
        ("a.yaml", "", "it is empty"),
        ("a.yaml", "- 1", "it is not a mapping"),
        ("a.yaml", "a: 1", "it has no pipelineInfo"),
        ("a.txt", "a: 1", "neither Python (.py) nor a compiled pipeline"),
        ("a.py", "x = 1\n", "a.py has no pipeline"),
        ("a.py", "import no_such_module\n", "a.py:1: ModuleNotFoundError"),
        ("a.py", "x = 1\ndef f(:\n", "a.py:2: invalid syntax"),
        ("a.py", "import sys\nsys.exit(3)\n", "a.py:2: it ends the program"),
    ],
)
def test_a_file_that_is_no_pipeline(world: World, name: str, text: str, what: str) -> None:
    (world.folder / name).write_text(text)
    result = world.cli("run", name)
    assert result.code in (1, 2)
    assert what in result.err
    assert "Traceback" not in result.err
    assert not (world.folder / "privatekube-runs").exists()


def test_a_file_that_is_not_there(world: World) -> None:
    result = world.cli("run", "nowhere.py")
    assert result.code == 1
    assert "nowhere.py" in result.err


# Whoever reads is gone


@pytest.mark.slow
def test_a_run_goes_on_when_nobody_reads_it(world: World) -> None:
    source = world.write(NAMED)
    closed = subprocess.Popen(
        command_line("run", source, "--run-id", "r"),
        cwd=world.folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert closed.stdout is not None
    assert closed.stderr is not None
    closed.stdout.close()
    closed.stderr.close()
    assert closed.wait(180) == 141
    assert world.lines("ticks") == ["tick"]
    assert json.loads((world.home / "run.json").read_text())["state"] == "Succeeded"


@pytest.mark.slow
def test_what_a_pipeline_file_prints_is_not_in_the_document(world: World) -> None:
    source = world.write("print('hello from the file')\n" + NAMED)
    result = in_own_process("run", source, "--json", cwd=world.folder)
    assert json.loads(result.stdout)["state"] == "Succeeded"
    assert "hello from the file" in result.stderr
    assert "Warning" not in result.stderr


def test_a_pipeline_by_its_name(world: World) -> None:
    """What is in `pipelines/` needs neither the folder nor the ending."""
    text = """
    @dsl.pipeline(name="{0}")
    def pipeline():
        tick(file="{0}")
    """
    (world.folder / "pipelines").mkdir()
    world.write(text.format("bundled"), "pipelines/mine.py")
    assert world.cli("run", "mine", "--run-id", "a").code == 0
    assert (world.folder / "bundled").exists()
    refused = world.cli("run", "yours", "--run-id", "b")
    assert refused.code == 2
    assert "yours" in refused.err
