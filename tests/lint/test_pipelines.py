"""Pipelines of a few lines each, and exactly what is found in each."""

import pytest

from privatekube_kfp.lint import RULES, lint_text
from tests.lint.cases import CASES
from tests.lint.compiling import compiled


@pytest.mark.parametrize("name", CASES)
def test_findings(name):
    case = CASES[name]
    report = lint_text(compiled(case.pipeline), strict=case.strict)
    assert sorted(f"{each.code} {each.task}" for each in report.findings) == case.findings


def test_every_rule_has_a_bad_case():
    found = {finding.split()[0] for case in CASES.values() for finding in case.findings}
    assert found == set(RULES)
