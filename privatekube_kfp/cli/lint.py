"""`privatekube lint`: whether compiled pipelines keep to the placement protocol."""

from __future__ import annotations

import click

from privatekube_kfp.cli.errors import DONE, REFUSED, USAGE
from privatekube_kfp.cli.options import json_option
from privatekube_kfp.cli.output import print_json, say
from privatekube_kfp.cli.session import Session
from privatekube_kfp.core.errors import Reason
from privatekube_kfp.lint import Report, Unreadable, lint_file


@click.command(short_help="Prove that a compiled pipeline keeps to the placement protocol.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--strict", is_flag=True, show_default=False, help="Let warnings count too.")
@click.option(
    "--sarif", "as_sarif", is_flag=True, show_default=False, help="Print SARIF 2.1.0, for CI."
)
@json_option
@click.pass_context
def lint(ctx: click.Context, files: tuple[str, ...], strict: bool, as_sarif: bool) -> None:
    """Check compiled pipelines (the YAML that `kfp dsl compile` writes) without running them.

    Every source takes the claim of a successful Allocate; every sink takes a consumed claim, of
    all claims in its data; nothing protected is cached; a Release guards every Allocate.

    \b
    Examples:
      privatekube lint pipeline.yaml
      privatekube lint --strict pipelines/*.yaml
      privatekube lint --sarif pipeline.yaml > lint.sarif

    Exit codes: 0 clean, 1 findings, 2 a file cannot be read.
    """
    session = ctx.ensure_object(Session)
    if as_sarif and session.as_json:
        raise click.UsageError("Print what? Give --json or --sarif, one of them.")
    reports, unreadable = _lint_all(files, strict)
    for file, why in unreadable.items():
        click.echo(f"privatekube: {file}: {why}", err=True)
    if as_sarif:
        from privatekube_kfp.lint.sarif import to_sarif

        print_json(to_sarif(reports, unreadable))
    else:
        session.answer(_document(reports, unreadable), lambda: _show(reports, bool(unreadable)))
    found = any(not report.clean for report in reports)
    ctx.exit(USAGE if unreadable else REFUSED if found else DONE)


def _lint_all(files: tuple[str, ...], strict: bool) -> tuple[list[Report], dict[str, str]]:
    """The reports of the files that can be read, and of the others why they cannot."""
    reports, unreadable = [], {}
    for file in dict.fromkeys(files):
        try:
            reports.append(lint_file(file, strict=strict))
        except Unreadable as error:
            unreadable[file] = error.message
    return reports, unreadable


def _document(reports: list[Report], unreadable: dict[str, str]) -> dict[str, object]:
    document: dict[str, object] = {
        "clean": not unreadable and all(report.clean for report in reports),
        "files": [
            {"file": report.file, "tasks": report.tasks, "warningsLeftOut": report.left_out}
            for report in reports
        ],
        "findings": [finding.to_json() for report in reports for finding in report.findings],
    }
    if unreadable:
        sentences = [f"{file}: {why}" for file, why in unreadable.items()]
        document["error"] = {"reason": Reason.UNREADABLE, "message": "; ".join(sentences)}
    return document


def _show(reports: list[Report], some_unreadable: bool) -> None:
    for report in reports:
        for finding in report.findings:
            say(str(finding))
    findings = sum(len(report.findings) for report in reports)
    bad = sum(not report.clean for report in reports)
    tasks = sum(report.tasks for report in reports)
    left_out = sum(report.left_out for report in reports)
    if some_unreadable and not findings:
        return  # what could be read is fine, and that is not to be taken for all
    if findings:
        of_all = "" if len(reports) == 1 else f" in {bad} of {len(reports)} files"
        summary = f"{_count(findings, 'finding')}{of_all}"
    else:
        summary = f"OK: {_count(len(reports), 'pipeline')}, {_count(tasks, 'task')}"
    say(f"{summary} ({_count(left_out, 'warning')} with --strict)" if left_out else summary)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
