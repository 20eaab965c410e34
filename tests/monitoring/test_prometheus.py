"""Where Prometheus comes from, and what is said when it cannot come from anywhere."""

import pytest

from tests.monitoring import debian
from tests.monitoring.prometheus import (
    Programs,
    PrometheusFailed,
    PrometheusMissing,
    cache_entry,
    find_or_fetch,
    prometheus,
)

NAMES = ("prometheus", "promtool")
STANZAS = """\
# Comment
Types: deb
# Another
URIs: mirror+file:/somewhere
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By:
 -----BEGIN-----
 .
 abc

Types: deb
URIs: mirror+file:/elsewhere
Suites: nodistro
Components: main

Types: deb
Enabled: no
URIs: mirror+file:/off
Suites: bookworm
Components: main
"""


@pytest.fixture(autouse=True)
def nothing(monkeypatch, tmp_path):
    """An empty cache and an empty PATH."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))


def made(folder):
    folder.mkdir(parents=True)
    for name in NAMES:
        program = folder / name
        program.write_text("#!/bin/sh\necho started; exit 3\n")
        program.chmod(0o755)
    return Programs(*(folder / name for name in NAMES))


class FakeApt:
    """Unpacks a package without the network."""

    def __init__(self, folder, run):
        self.run = run

    def update(self):
        pass

    def unpack(self, packages, into):
        assert packages == ["prometheus"]
        for name in NAMES:
            program = into / "usr/bin" / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)


def test_on_the_path(tmp_path):
    there = made(tmp_path / "path")
    assert find_or_fetch() == there


def test_in_the_cache():
    there = made(cache_entry())
    assert find_or_fetch() == there


def test_one_of_two_on_the_path_is_not_enough(tmp_path):
    made(tmp_path / "path").promtool.unlink()
    there = made(cache_entry())
    assert find_or_fetch() == there


def test_fetched_once(monkeypatch):
    monkeypatch.setattr(debian, "why_not", lambda: None)
    monkeypatch.setattr(debian, "Apt", FakeApt)
    left = cache_entry().parent / ".fetching-and-killed"
    left.mkdir(parents=True)
    assert find_or_fetch() == Programs(*(cache_entry() / name for name in NAMES))
    monkeypatch.setattr(debian, "Apt", None)
    assert find_or_fetch() == Programs(*(cache_entry() / name for name in NAMES))
    assert sorted(each.name for each in cache_entry().parent.iterdir()) == [
        cache_entry().name,
        "lock",
    ]


def test_nowhere(monkeypatch):
    monkeypatch.setattr(debian, "why_not", lambda: "this is not Debian 12")
    with pytest.raises(PrometheusMissing, match=r"this is not Debian 12.* on the PATH, or run on"):
        find_or_fetch()


def test_fetching_fails(monkeypatch):
    class Unreachable(FakeApt):
        def update(self):
            self.run(["/bin/sh", "-c", "echo cannot resolve; exit 100"])

    monkeypatch.setattr(debian, "why_not", lambda: None)
    monkeypatch.setattr(debian, "Apt", Unreachable)
    with pytest.raises(PrometheusMissing, match=r"sh ended with 100: cannot resolve\. Put prom"):
        find_or_fetch()
    assert [each.name for each in cache_entry().parent.iterdir()] == ["lock"]


def test_one_that_does_not_start(tmp_path):
    made(tmp_path / "path")
    failed = pytest.raises(PrometheusFailed, match="did not start; its log ends: started")
    with failed, prometheus([]):
        pass


def test_only_debians_own_sources_are_asked():
    assert debian.of_debian_822(STANZAS) == (
        "types: deb\n"
        "uris: mirror+file:/somewhere\n"
        "suites: bookworm bookworm-updates\n"
        "components: main contrib\n"
        "signed-by:\n -----BEGIN-----\n .\n abc\n"
    )
    assert (
        debian.of_debian(
            "# deb mirror+file:/off bookworm main\n"
            "deb [signed-by=/a/key] mirror+file:/here bookworm-security main contrib # why\n"
            "deb-src mirror+file:/here bookworm main\n"
            "deb mirror+file:/other trixie main\n"
            "deb mirror+file:/vendor bookworm stable\n"
        )
        == "deb [signed-by=/a/key] mirror+file:/here bookworm-security main contrib\n"
    )
