"""What the doctor finds: one sentence each, and the command that mends it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

_LONGEST = 600


class Level(StrEnum):
    """How bad it is. Only `WRONG` makes an examination fail."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    UNCHECKED = "unchecked"
    """Neither well nor wrong, as far as is known: what would tell may not be read, gave no answer,
    or cannot be reached from this machine."""


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
    """The command that mends it, or that checks what could not be checked."""


@dataclass(frozen=True)
class Unknown:
    """Stands for a fact that could not be learned."""

    why: str
    """In words that follow `could not be checked: `."""
    from_here: bool = False
    """Whether it is for this machine alone that it could not: elsewhere it may be known."""


def ok(check: str, message: str) -> Finding:
    return Finding(check, Level.OK, _in_a_line(message))


def wrong(check: str, reason: str, message: str, mend: str | None) -> Finding:
    return Finding(check, Level.WRONG, _in_a_line(message), reason, mend)


def warning(check: str, reason: str, message: str, mend: str | None = None) -> Finding:
    return Finding(check, Level.WARNING, _in_a_line(message), reason, mend)


def unchecked(check: str, unknown: Unknown, find_out: str | None = None) -> Finding:
    """`find_out` is the command that checks it, if there is one."""
    from_here = " from here" if unknown.from_here else ""
    message = f"could not be checked{from_here}: {unknown.why}"
    return Finding(check, Level.UNCHECKED, _in_a_line(message), "NotChecked", find_out)


def _in_a_line(message: str) -> str:
    """Whatever servers and files say, which can be anything and is quoted in messages."""
    words = "".join(c if c.isprintable() else " " for c in message[: 2 * _LONGEST]).split()
    line = " ".join(words)
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."


def is_well(findings: Iterable[Finding]) -> bool:
    """Whether nothing is wrong; warnings, and what could not be checked, are allowed."""
    return all(finding.level is not Level.WRONG for finding in findings)


def is_complete(findings: Iterable[Finding]) -> bool:
    """Whether everything could be checked."""
    return all(finding.level is not Level.UNCHECKED for finding in findings)


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

    def doctor_in_cluster(self, namespace: str, account: str, settings: str) -> str:
        """The same examination, with places tried in a pod."""
        words = ["privatekube", "doctor", "--in-cluster", "--namespace", namespace]
        words += ["--service-account", account, "--settings", settings]
        return shlex.join([*words, *self._cluster()])

    def pull(self, image: str, namespace: str, account: str | None, secrets: Sequence[str]) -> str:
        """Pulls an image as a task of the namespace would, and runs nothing in it."""
        spec: dict[str, object] = {}
        if account is not None:
            spec["serviceAccountName"] = account
        if secrets:
            spec["imagePullSecrets"] = [{"name": name} for name in secrets]
        over = [f"--overrides={json.dumps({'spec': spec})}"] if spec else []
        words = ["-n", namespace, "run", "privatekube-pull", "--rm", "-i", "--restart=Never"]
        return self.kubectl(*words, f"--image={image}", *over, "--command", "--", "true")

    def install_definitions(self) -> str:
        return shlex.join(["privatekube", "install", "--apply", "--crds-only", *self._cluster()])

    def _cluster(self) -> list[str]:
        named = []
        if self.kubeconfig is not None:
            named += ["--kubeconfig", self.kubeconfig]
        if self.context is not None:
            named += ["--context", self.context]
        return named
