"""`privatekube compile`: pipelines in Python to YAML, with the placement protocol checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from privatekube_kfp.cli.options import json_option
from privatekube_kfp.cli.output import say
from privatekube_kfp.cli.pipelines import (
    broken_protocol,
    findings_in,
    function_option,
    no_lint_option,
    read_pipeline,
    settings_option,
    with_settings,
)
from privatekube_kfp.cli.session import Session
from privatekube_kfp.local.pipeline import CompiledPipeline
from privatekube_kfp.settings import find_settings


@click.command(short_help="Compile pipelines to YAML, and check them.")
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    type=click.Path(path_type=Path),
    help="The YAML file, or with several FILEs a folder; beside each FILE unless given.",
)
@settings_option
@function_option
@no_lint_option
@json_option
@click.pass_obj
def compile(
    session: Session,
    files: tuple[Path, ...],
    output: Path | None,
    settings_address: str | None,
    function: str | None,
    no_lint: bool,
) -> None:
    """Compile the pipeline in each Python FILE to YAML for Kubeflow, and check its placement.

    The YAML is written even where the check finds something: exit code 1 says that it did. Site
    settings are written into it; service account and endpoint are for `submit`.

    \b
    Examples:
      privatekube compile pipelines/product_lstm.py
      privatekube compile pipeline.py -o build/pipeline.yaml --function train
    """
    for file in files:
        if file.suffix != ".py":
            raise click.UsageError(f"{file} is not Python: give a .py file")
    if function is not None and len(files) > 1:
        raise click.UsageError("--function goes with one FILE")
    if output is not None and len(files) > 1 and output.exists() and not output.is_dir():
        raise click.UsageError(f"{output} is not a folder; with several FILEs it must be one")
    paths = [_destination(file, output, one=len(files) == 1) for file in files]
    _refuse_to_overwrite(files, paths)
    settings = find_settings(settings_address)
    compiled = [with_settings(read_pipeline(file, function), settings) for file in files]
    written: list[tuple[CompiledPipeline, Path]] = []
    for pipeline, path in zip(compiled, paths, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pipeline.text)
        written.append((pipeline, path))
    found: list[tuple[CompiledPipeline, list[Any]]] = []
    if not no_lint:
        checked = ((pipeline, findings_in(pipeline, path)) for pipeline, path in written)
        found = [(pipeline, findings) for pipeline, findings in checked if findings]
    document = {
        "compiled": [
            {"pipeline": pipeline.name, "source": pipeline.source, "path": str(path)}
            for pipeline, path in written
        ]
    }
    if found:
        failure = broken_protocol(found)
        failure.details |= document
        raise failure
    session.answer(document | {"findings": []}, lambda: _tell(written))


def _destination(file: Path, output: Path | None, *, one: bool) -> Path:
    if output is None:
        return file.with_suffix(".yaml")
    if one and not output.is_dir():
        return output
    return output / file.with_suffix(".yaml").name


def _refuse_to_overwrite(files: Sequence[Path], paths: Sequence[Path]) -> None:
    """A FILE that would become YAML, or of whose YAML nothing would be left."""
    taken: dict[Path, Path] = {}
    sources = {file.resolve() for file in files}
    for file, path in zip(files, paths, strict=True):
        place = path.resolve()
        if place in sources:
            raise click.UsageError(f"{path} is a pipeline in Python: its YAML would replace it")
        if place in taken:
            raise click.UsageError(f"{taken[place]} and {file} would both be compiled to {path}")
        taken[place] = file


def _tell(written: list[tuple[CompiledPipeline, Path]]) -> None:
    for pipeline, path in written:
        say(f"{pipeline.name}: {path}")
