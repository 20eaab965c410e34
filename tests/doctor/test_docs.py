"""What the page about the doctor shows is what it prints, and it has every reason."""

import re
from pathlib import Path

import pytest

from tests.doctor.bed import KUBEFLOW, ROOT, good_settings

PAGE = (ROOT / "docs/doctor.md").read_text()
_ADDRESS = re.compile(r"https://127\.0\.0\.1:\d+")
_HOLDER = re.compile(r"led by \S+")
_STREAMS = re.compile(r"\d+ streams?,")


def shown() -> list[list[str]]:
    return [block.splitlines() for block in re.findall(r"^```text\n(.*?)^```$", PAGE, re.S | re.M)]


def settled(text: str) -> str:
    """Without what differs from cluster to cluster, or was left by other tests."""
    text = _HOLDER.sub("led by LEADER", _ADDRESS.sub("ADDRESS", text))
    return _STREAMS.sub("N streams,", text)


@pytest.mark.server
def test_what_it_shows(bed):
    (bed.folder / "privatekube.yaml").write_text(Path(bed.settings[1]).read_text())
    good, bad, inside = shown()
    try:
        printed = bed.text("doctor", "--namespace", KUBEFLOW, "--settings", "privatekube.yaml")
        assert settled(printed).splitlines() == [settled(line) for line in good]
        bed.kubectl(f"-n {KUBEFLOW} delete rolebinding privatekube-pipeline-runner")
        printed = bed.text("doctor", "--namespace", KUBEFLOW, "--settings", "none", code=1)
        assert "\n".join(bad) in printed
        bed.shell(bad[-1].partition("run: ")[2])
        settings = good_settings(bed.store)
        settings["tasks"]["env"]["AWS_ENDPOINT_URL"] = "http://seaweedfs.kubeflow:9000"
        bed.write_settings("privatekube.yaml", settings)
        printed = bed.text("doctor", "--settings", "privatekube.yaml")
        assert "\n".join(inside) in printed
    finally:
        (bed.folder / "privatekube.yaml").unlink()


def test_every_reason():
    named = set()
    for path in (ROOT / "privatekube_kfp/doctor").glob("*.py"):
        source = path.read_text()
        named |= set(re.findall(r'(?:wrong|warning|level)\(\s*\w[^"()]*?, "([A-Z]\w+)"', source))
        named |= set(re.findall(r'(?:wrong|warning)\(\s*"[a-z ]+", "([A-Z]\w+)"', source))
        named |= set(re.findall(r'"((?:MayNot|NotChecked)\w*)"', source))
    table = PAGE.partition("## What it finds")[2]
    documented = set(re.findall(r"`([A-Z][A-Za-z]+)`", table)) - {"ConfigMap"}
    assert documented == named
