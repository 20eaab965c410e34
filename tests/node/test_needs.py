"""Where no pods can run, it is said why."""

import pytest

from tests.node import needs


def test_who_is_not_root_is_told_so(monkeypatch):
    monkeypatch.setattr(needs.platform, "system", lambda: "Linux")
    monkeypatch.setattr(needs.os, "geteuid", lambda: 1000)
    assert needs.why_not() == "pods need root: run `sudo make test-node`"


def test_programs_that_nobody_can_install_are_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(needs, "PACKAGES", {"such-a-program": "such-a-package"})
    monkeypatch.setattr(needs.os, "geteuid", lambda: 0)
    monkeypatch.setattr(needs, "_may_make_namespaces", lambda: True)
    assert needs.why_not() == (
        "pods need the programs of such-a-package, and there is no apt-get for them"
    )


@pytest.mark.parametrize("system", ["Darwin", "Windows"])
def test_another_system_is_named(monkeypatch, system):
    monkeypatch.setattr(needs.platform, "system", lambda: system)
    assert needs.why_not() == f"pods need Linux, and this is {system}"
