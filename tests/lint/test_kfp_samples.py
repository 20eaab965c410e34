"""Pipelines of others, which know nothing of privacy budget: no finding in any.

The wheel of kfp has its compiler's own tests, with about a hundred pipelines of every shape that
the compiler can make. They are run here for the pipelines they compile.
"""

import sys
import unittest
import warnings
from pathlib import Path

import pytest
from kfp.compiler import compiler

from privatekube_kfp.lint import lint_text


@pytest.fixture(scope="module")
def samples():
    found = []
    compile_it = compiler.Compiler.compile

    def keep(self, pipeline_func, package_path, *args, **options):
        compile_it(self, pipeline_func, package_path, *args, **options)
        found.append(Path(package_path).read_text())

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(compiler.Compiler, "compile", keep)
        from kfp.compiler import compiler_test

        tests = unittest.defaultTestLoader.loadTestsFromModule(compiler_test)
        tests.run(unittest.TestResult())
        sys.modules.pop("kfp.compiler.compiler_test")
    return found


@pytest.mark.slow
def test_no_false_alarm(samples):
    assert len(samples) > 80
    for text in samples:
        report = lint_text(text, strict=True)
        assert report.clean, report
        assert report.tasks > 0
