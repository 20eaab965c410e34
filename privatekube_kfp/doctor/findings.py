"""What the doctor finds: one sentence each, and the command that mends it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is. Only `WRONG` makes an examination fail."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    UNCHECKED = "unchecked"
    """Nobody knows: what would tell may not be read, or gave no answer."""


@dataclass(frozen=True)
class Finding:
    """One result of one check."""

    check: str
    """What was looked at: `scheduler`, `secrets`, ..."""
    level: Level
    message: str
    """One sentence: what is wrong, or what is well."""
    reason: str | None = None
    """The same as a word, for programs; nothing that is well has one."""
    mend: str | None = None
    """The command that mends it."""


@dataclass(frozen=True)
class Unknown:
    """Stands for a fact that could not be learned."""

    why: str
    """In words that follow `could not be checked: `."""


def ok(check: str, message: str) -> Finding:
    return Finding(check, Level.OK, message)


def wrong(check: str, reason: str, message: str, mend: str | None) -> Finding:
    return Finding(check, Level.WRONG, message, reason, mend)


def warning(check: str, reason: str, message: str, mend: str | None = None) -> Finding:
    return Finding(check, Level.WARNING, message, reason, mend)


def unchecked(check: str, unknown: Unknown) -> Finding:
    message = f"could not be checked: {unknown.why}"
    return Finding(check, Level.UNCHECKED, message, "NotChecked")


def is_well(findings: Iterable[Finding]) -> bool:
    """Whether nothing is wrong; warnings, and what could not be checked, are allowed."""
    return all(finding.level is not Level.WRONG for finding in findings)


@dataclass(frozen=True)
class Commands:
    """Commands to show, for the cluster that the doctor was sent to."""

    kubeconfig: str | None = None
    context: str | None = None

    def kubectl(self, *args: str) -> str:
        return shlex.join(["kubectl", *self._cluster(), *args])

    def install(self, namespace: str | None = None, image: str | None = None) -> str:
        """`privatekube install --apply`, with what must stay as it is."""
        kept = []
        if namespace is not None:
            kept += ["--namespace", namespace]
        if image is not None:
            kept += ["--image", image]
        return shlex.join(["privatekube", "install", "--apply", *kept, *self._cluster()])

    def install_definitions(self) -> str:
        return shlex.join(["privatekube", "install", "--apply", "--crds-only", *self._cluster()])

    def _cluster(self) -> list[str]:
        named = []
        if self.kubeconfig is not None:
            named += ["--kubeconfig", self.kubeconfig]
        if self.context is not None:
            named += ["--context", self.context]
        return named
