"""What `compile`, `run` and `submit` share: reading a pipeline, and checking its placement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from privatekube_kfp.cli.errors import Failure
from privatekube_kfp.local.errors import PipelineError
from privatekube_kfp.local.pipeline import CompiledPipeline
from privatekube_kfp.settings import SETTINGS_VARIABLE, Settings, apply_settings

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

settings_option = click.option(
    "--settings",
    "settings_address",
    metavar="FILE",
    envvar=SETTINGS_VARIABLE,
    help="Site settings: a file, configmap:NAMESPACE/NAME or none; the nearest privatekube.yaml"
    f" unless given (or set {SETTINGS_VARIABLE}).",
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


def with_settings(pipeline: CompiledPipeline, settings: Settings) -> CompiledPipeline:
    """The pipeline as it goes to a cluster, with site settings written into it."""
    documents, _ = apply_settings(pipeline.documents, settings)
    if documents == list(pipeline.documents):
        return pipeline
    head = pipeline.text.splitlines(keepends=True)
    comments = head[: next((n for n, line in enumerate(head) if line[:1] != "#"), len(head))]
    return replace(
        pipeline, text="".join(comments) + _as_yaml(documents), documents=tuple(documents)
    )


def _as_yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    """In the layout of kfp's compiler."""
    import yaml

    return "---\n".join(yaml.safe_dump(dict(one), sort_keys=True) for one in documents)


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
