"""Reports as SARIF 2.1.0, which code hosts show beside the lines they are about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from urllib.parse import quote

from privatekube_kfp import __version__
from privatekube_kfp.lint.findings import DOCS, Finding, Report, Rule
from privatekube_kfp.lint.rules import RULES

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def to_sarif(reports: Iterable[Report], unreadable: Mapping[str, str]) -> dict[str, object]:
    """One log of one run; `unreadable` says of each file that could not be read why."""
    codes = list(RULES)
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "privatekube lint",
                        "version": __version__,
                        "rules": [_rule(rule) for rule in RULES.values()],
                    }
                },
                "invocations": [
                    {
                        "executionSuccessful": not unreadable,
                        "toolExecutionNotifications": [
                            {
                                "level": "error",
                                "message": {"text": f"{file}: {why}"},
                                "locations": [_location(file)],
                            }
                            for file, why in unreadable.items()
                        ],
                    }
                ],
                "results": [
                    _result(finding, codes.index(finding.code))
                    for report in reports
                    for finding in report.findings
                ],
            }
        ],
    }


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.code,
        "shortDescription": {"text": f"{rule.title}."},
        "help": {
            "text": f"{rule.title}. {rule.mend}",
            "markdown": f"{rule.title}. {rule.mend} See {DOCS}, {rule.code}.",
        },
        "defaultConfiguration": {"level": rule.severity.value},
    }


def _result(finding: Finding, rule_index: int) -> dict[str, object]:
    location = _location(finding.file, finding.line)
    location["logicalLocations"] = [{"fullyQualifiedName": finding.task, "kind": "member"}]
    return {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": finding.severity.value,
        "message": {"text": f"{finding.task}: {finding.what} {finding.mend}"},
        "locations": [location],
    }


def _location(file: str, line: int | None = None) -> dict[str, object]:
    path = PurePath(file)
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    physical: dict[str, object] = {"artifactLocation": {"uri": uri}}
    if line:
        physical["region"] = {"startLine": line}
    return {"physicalLocation": physical}
