"""The last lines of a step that fails.

Kubeflow's log panel shows about 80 characters of a line, and marks lines that say "error". So the
last line is short and begins with `Error:` and the reason; a sentence that is longer stands before
it, on as many lines as it needs. After it come lines of Kubeflow's launcher only.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

WIDTH = 80
_MARK = "Error: "
_CUT = "…"
_OF_CLAIM = re.compile(r"^claim \S+: ")


def error_lines(reason: str, sentence: str) -> list[str]:
    """What to print: the short line last, and before it the whole sentence if it is longer."""
    whole = f"{reason}: {' '.join(sentence.split())}"
    if len(_MARK + whole) <= WIDTH:
        return [_MARK + whole]
    lines = textwrap.wrap(whole, WIDTH, break_long_words=False, break_on_hyphens=False)
    shorter = f"{_MARK}{reason}: {_OF_CLAIM.sub('', ' '.join(sentence.split()))}"
    return [*lines, _shortened(shorter)]


def error_in(lines: Sequence[str]) -> str | None:
    """The whole sentence of lines that end as `error_lines` says; None if they do not."""
    if not lines or not lines[-1].startswith(_MARK):
        return None
    last = lines[-1].removeprefix(_MARK)
    reason, _, shortened = last.partition(": ")
    for start in range(len(lines) - 2, -1, -1):
        if f"{lines[start]} ".startswith(f"{reason}: "):
            whole = " ".join(lines[start:-1])
            return whole if shortened.removesuffix(_CUT) in whole else last
    return last


def _shortened(line: str) -> str:
    """Up to where a part of the sentence ends, or a word; within one that is very long."""
    if len(line) <= WIDTH:
        return line
    room = WIDTH - len(_CUT)
    ends = [match.start() for match in re.finditer(r"[,;.]? ", line[: room + 1])]
    late = [end for end in ends if end > WIDTH // 2]
    clauses = [end for end in late if line[end] != " "]
    return line[: (clauses or late or [room])[-1]] + _CUT
