"""What `compile`, `run` and `submit` share: reading a pipeline, and checking its placement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from privatekube_kfp.cli.errors import Failure
from privatekube_kfp.local.errors import PipelineError
from privatekube_kfp.local.pipeline import CompiledPipeline

pipeline_argument = click.argument("pipeline", type=click.Path(dir_okay=False, path_type=Path))

function_option = click.option(
    "--function", metavar="NAME", help="Which pipeline of the Python file, if it has several."
)

arguments_option = click.option(
    "--arg",
    "arguments",
    metavar="NAME=VALUE",
    multiple=True,
    help="A value for a parameter of the pipeline; lists and objects as JSON. Repeatable.",
)

no_lint_option = click.option(
    "--no-lint", is_flag=True, help="Do not check the placement of the protocol's tasks."
)


class MalformedPipeline(click.UsageError):
    """A command line that does not fit its pipeline."""

    def __init__(self, error: PipelineError) -> None:
        super().__init__(error.message, click.get_current_context(silent=True))
        self.reason = error.reason


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """What is wrong with a pipeline ends the command, not in a traceback."""
    try:
        yield
    except PipelineError as error:
        if error.malformed:
            raise MalformedPipeline(error) from None
        raise Failure(error.reason, error.message) from None


def read_pipeline(path: Path, function: str | None) -> CompiledPipeline:
    """A pipeline from its file, compiled if need be; by its name, if it is in `pipelines/`."""
    from privatekube_kfp.local.compiling import load_pipeline

    bundled = Path("pipelines", f"{path}.py")
    if path.name == str(path) and not path.suffix and not path.exists() and bundled.exists():
        path = bundled
    with in_a_sentence():
        return load_pipeline(path, function)


def findings_in(pipeline: CompiledPipeline, path: Path | None = None) -> list[Any]:
    """Where the pipeline breaks the placement protocol; `path` is where its YAML is, if it is."""
    from privatekube_kfp.lint import lint_text

    return list(lint_text(pipeline.text, file=str(path or "")).findings)


def refuse_findings(pipeline: CompiledPipeline) -> None:
    """A pipeline that breaks the placement protocol goes no further."""
    path = Path(pipeline.source)
    findings = findings_in(pipeline, None if path.suffix == ".py" else path)
    if findings:
        raise broken_protocol([(pipeline, findings)])


def broken_protocol(found: list[tuple[CompiledPipeline, list[Any]]]) -> Failure:
    count = sum(len(findings) for _, findings in found)
    names = ", ".join(pipeline.source for pipeline, _ in found)
    message = f"{names}: {count} finding{'s' if count > 1 else ''} of the placement protocol"
    told = "\n".join(str(finding) for _, findings in found for finding in findings)
    return Failure(
        "BreaksProtocol",
        message,
        sentence=f"{message}\n{told}",
        details={"findings": [f.to_json() for _, findings in found for f in findings]},
    )
