"""What a newcomer has: the wheel in a new environment, and the README."""

import os
import subprocess
import sys

import pytest

from tests.docs.test_examples import ROOT, run_sessions

pytestmark = pytest.mark.slow


def test_the_readme_with_the_wheel_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    quiet = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    python = tmp_path / "venv" / "bin" / "python"
    dist = tmp_path / "dist"
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", dist, ROOT]
    subprocess.run(build, check=True, env=quiet, stdout=subprocess.DEVNULL)
    (wheel,) = dist.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    install = [python, "-m", "pip", "install", "-q", f"{wheel}[pipelines]"]
    subprocess.run(install, check=True, env=quiet)
    where = subprocess.run(
        [python, "-c", "import privatekube_kfp; print(privatekube_kfp.__file__)"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert str(tmp_path) in where.stdout
    run_sessions(ROOT / "README.md", tmp_path, {}, python)
