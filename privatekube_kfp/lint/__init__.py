"""Proves the placement protocol on compiled pipelines, without running them.

    from privatekube_kfp.lint import lint_file

    report = lint_file("pipeline.yaml")
    for finding in report.findings:
        print(finding)

It reads only the compiled pipeline and needs no kfp.
"""

from __future__ import annotations

from pathlib import Path

from privatekube_kfp.lint.files import Compiled, read_file, read_text
from privatekube_kfp.lint.findings import Finding, Problem, Report, Rule, Severity
from privatekube_kfp.lint.flow import Flow
from privatekube_kfp.lint.reading import Document, Unreadable, read_pipeline
from privatekube_kfp.lint.rules import RULES

__all__ = [
    "RULES",
    "Finding",
    "Report",
    "Rule",
    "Severity",
    "Unreadable",
    "lint_file",
    "lint_pipeline",
    "lint_text",
]


def lint_file(path: str | Path, *, strict: bool = False) -> Report:
    """What is wrong with the compiled pipeline in a file.

    Raises:
        Unreadable: The file cannot be read, or is no pipeline that can be understood.
    """
    return _lint(read_file(path), strict, str(path))


def lint_text(text: str, *, strict: bool = False, file: str = "") -> Report:
    """The same, of YAML (or JSON) text; `file` is what findings say."""
    return _lint(read_text(text), strict, file)


def lint_pipeline(
    pipeline: Document, platform: Document | None = None, *, strict: bool = False, file: str = ""
) -> Report:
    """The same, of a compiled pipeline's two documents; findings have no lines."""
    return _lint(Compiled(pipeline, platform or {}), strict, file)


def _lint(compiled: Compiled, strict: bool, file: str) -> Report:
    flow = Flow(read_pipeline(compiled.pipeline, compiled.platform))
    found = [
        _finding(rule, problem, compiled, file)
        for rule in RULES.values()
        for problem in rule.check(flow)
    ]
    counting = [each for each in found if strict or each.severity is Severity.ERROR]
    counting.sort(key=lambda finding: (finding.line or 0, finding.task, finding.code))
    return Report(file, len(flow.leaves), tuple(counting), len(found) - len(counting))


def _finding(rule: Rule, problem: Problem, compiled: Compiled, file: str) -> Finding:
    task = problem.task
    what = problem.what[0].upper() + problem.what[1:]
    return Finding(
        rule.code,
        rule.severity,
        task.path if task else f"output {problem.output}",
        what,
        rule.mend,
        file,
        compiled.line_of(task) if task else None,
    )
