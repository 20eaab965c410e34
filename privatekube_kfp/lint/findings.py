"""What a check of a pipeline tells: the rules, what was found, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privatekube_kfp.lint.flow import Flow
    from privatekube_kfp.lint.reading import Task

DOCS = "docs/lint.md"


class Severity(StrEnum):
    """Whether the protocol is broken, or only not proven as far as it could be."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Problem:
    """One place where a rule is broken: a task, or the pipeline's own output of that name."""

    task: Task | None
    what: str
    output: str = ""


@dataclass(frozen=True)
class Rule:
    """One rule of the placement protocol.

    Attributes:
        code: Names the rule, for good.
        title: What must hold.
        mend: What to do where it does not.
        severity: Warnings count only in a strict check.
        check: Finds where a pipeline breaks the rule.
    """

    code: str
    title: str
    mend: str
    severity: Severity
    check: Callable[[Flow], Iterable[Problem]]


@dataclass(frozen=True)
class Finding:
    """Where a pipeline breaks a rule, and how to mend it."""

    code: str
    severity: Severity
    task: str
    what: str
    mend: str
    file: str = ""
    line: int | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "code": self.code,
            "severity": self.severity.value,
            "task": self.task,
            "what": self.what,
            "mend": self.mend,
            "file": self.file,
            "line": self.line,
        }

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        start = f"{where}: " if where else ""
        return f"{start}{self.severity} {self.code} {self.task}: {self.what}\n    {self.mend}"


@dataclass(frozen=True)
class Report:
    """The outcome for one pipeline.

    Attributes:
        file: Where the pipeline was read from; empty if from memory.
        tasks: How many tasks it has, those of nested pipelines counted each time they are used.
        findings: What counts.
        left_out: How many warnings a strict check would have added.
    """

    file: str
    tasks: int
    findings: tuple[Finding, ...]
    left_out: int = 0

    @property
    def clean(self) -> bool:
        return not self.findings
