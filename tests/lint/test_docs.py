"""docs/lint.md tells of every rule, and its examples are what it says they are."""

import re
from pathlib import Path

import pytest
from kfp import dsl
from kfp.dsl import Dataset, Input

from privatekube_kfp import components
from privatekube_kfp.lint import RULES, Severity, lint_text
from privatekube_kfp.roles import Role
from tests.lint import parts
from tests.lint.cases import PLAN
from tests.lint.compiling import compiled

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "lint.md").read_text()
SECTIONS = {
    code: (title, text)
    for code, title, text in re.findall(
        r"^### (PK\d+): (.*?)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE
    )
}
NAMES = {
    **vars(parts),
    **{name: getattr(components, name) for name in components.__all__},
    "dsl": dsl,
    "Dataset": Dataset,
    "Input": Input,
    "asked": {"stream": "reviews", "epsilon": "0.5"},
    "plan": PLAN,
}


def test_every_rule_is_told():
    assert {code: title for code, (title, _) in SECTIONS.items()} == {
        code: rule.title for code, rule in RULES.items()
    }


def test_warnings_are_told_as_such():
    told = {code for code, (_, text) in SECTIONS.items() if "A warning: " in text}
    assert told == {code for code, rule in RULES.items() if rule.severity is Severity.WARNING}


def test_every_role_is_told():
    assert all(f"`{role}`" in PAGE for role in Role)


@pytest.mark.parametrize("code", RULES)
def test_examples(code):
    _, text = SECTIONS[code]
    [bad, good] = re.findall(r"^```py\n# (?:bad|good)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert code in codes_in(bad)
    assert code not in codes_in(good)
    if code != "PK604":  # whose outputs cannot be told from within an exit handler
        errors = [each for each in codes_in(good) if RULES[each].severity is Severity.ERROR]
        assert errors == []


def codes_in(example):
    names = dict(NAMES)
    if "@dsl.pipeline" not in example:
        body = "".join(f"    {line}\n" for line in example.splitlines())
        example = f"def pipeline():\n{body}"
    else:
        example = re.sub(r"@dsl\.pipeline\ndef pipeline\b", "def pipeline", example)
    exec(example, names)
    return [each.code for each in lint_text(compiled(names["pipeline"]), strict=True).findings]
