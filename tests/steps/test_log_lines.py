"""How a step's log ends when it fails: short, the reason first, and nothing lost."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privatekube_kfp.core.errors import PrivateKubeError, Reason
from privatekube_kfp.steps import run
from privatekube_kfp.steps.log_lines import WIDTH, error_in, error_lines

RUN = "a05ab16a-fb63-4fba-a82f-384ec82369e6"
DENIED = f"claim {RUN}.claim: block three-1: epsilon 0.3 asked, 0.1 left, and no more will ever be"


def test_a_short_sentence_is_one_line():
    lines = error_lines(Reason.UNKNOWN_STREAM, "there is no stream 'none'")
    assert lines == ["Error: UnknownStream: there is no stream 'none'"]
    assert error_in(["before", *lines]) == "UnknownStream: there is no stream 'none'"


def test_a_long_one_stands_before_a_short_line():
    lines = error_lines(Reason.EXCEEDS_CAPACITY, DENIED)
    assert lines == [
        f"ExceedsCapacity: claim {RUN}.claim: block",
        "three-1: epsilon 0.3 asked, 0.1 left, and no more will ever be",
        "Error: ExceedsCapacity: block three-1: epsilon 0.3 asked, 0.1 left…",
    ]
    assert error_in(["Allocated: something", *lines]) == f"ExceedsCapacity: {DENIED}"


WORDS = st.lists(
    st.text("abc,;.:-", max_size=9) | st.text("abc/", min_size=60, max_size=120), max_size=20
).map(" ".join)


@given(WORDS | st.text(st.characters(codec="utf-8")), st.sampled_from(list(Reason)))
def test_nothing_is_lost_and_the_last_line_fits(sentence, reason):
    said = " ".join(sentence.split())
    lines = error_lines(reason, sentence)
    assert lines[-1].startswith(f"Error: {reason}:")
    assert len(lines[-1]) <= WIDTH
    assert all("\n" not in line for line in lines)
    assert error_in(lines).rstrip() == f"{reason}: {said}".rstrip()


@pytest.mark.parametrize("lines", [[], ["done"], ["ValueError: no"], ["Error: x", "after it"]])
def test_other_logs_have_no_such_line(lines):
    assert error_in(lines) is None


def test_what_somebody_else_printed_is_not_taken_for_it():
    assert error_in(["TimedOut: an hour ago", "Error: TimedOut: now"]) == "TimedOut: now"


def test_it_is_the_last_of_all_that_is_printed():
    """Standard output of a pipe is written late, unless somebody sees to it."""
    script = (
        "from privatekube_kfp.core.errors import Invalid, Reason\n"
        "from privatekube_kfp.steps.run import in_a_sentence\n"
        "@in_a_sentence\n"
        "def step():\n"
        "    print('first')\n"
        "    raise Invalid(Reason.INVALID_PLAN, 'no such plan')\n"
        "step()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["first", "Error: InvalidPlan: no such plan"]


def test_a_pod_keeps_the_whole_sentence(tmp_path, monkeypatch):
    """Kubernetes reads it from a file that it makes before the container starts."""
    kept = tmp_path / "termination-log"
    monkeypatch.setattr(run, "TERMINATION_LOG", str(kept))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")

    @run.in_a_sentence
    def step():
        raise PrivateKubeError(Reason.EXCEEDS_CAPACITY, DENIED)

    with pytest.raises(SystemExit):
        step()
    assert not kept.exists()
    kept.touch()
    with pytest.raises(SystemExit):
        step()
    assert kept.read_text() == f"ExceedsCapacity: {DENIED}"
