"""Our own example pipelines keep the protocol, in the strictest reading."""

from pathlib import Path

import pytest

from privatekube_kfp.lint import lint_text
from privatekube_kfp.local.compiling import compile_file

PIPELINES = sorted((Path(__file__).parents[2] / "pipelines").glob("*.py"))


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_no_finding(path):
    report = lint_text(compile_file(path).text, strict=True)
    assert report.findings == ()
    assert report.tasks > 5
