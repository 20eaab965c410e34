"""What every step needs to know: which run it belongs to, its claim, its ledger.

Anything that the library raises on purpose, and a full disk, end a step in one sentence
(`in_a_sentence`), the last line of its log: see `log_lines`.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar

from privatekube_kfp.core.claim import Claim
from privatekube_kfp.core.errors import Invalid, LedgerError, PrivateKubeError, Reason
from privatekube_kfp.data.places import in_one_line
from privatekube_kfp.ledger.ledger import Ledger
from privatekube_kfp.ledger.names import check_name
from privatekube_kfp.ledger.opening import IN_A_POD, LEDGER_VARIABLE, open_ledger
from privatekube_kfp.ledger.sqlite import SqliteLedger
from privatekube_kfp.steps.log_lines import error_lines

P = ParamSpec("P")
R = TypeVar("R")

TERMINATION_LOG = "/dev/termination-log"
"""Where Kubernetes looks for the reason of a container that ended. It takes 4,096 bytes."""
_LONGEST_MESSAGE = 1000
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLAIM_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


class Artifact(Protocol):
    """As much of a Kubeflow artifact as steps use."""

    path: str
    metadata: dict[str, Any]


def in_a_sentence(step: Callable[P, R]) -> Callable[P, R]:
    """A step whose failures are one line, not a traceback."""

    @functools.wraps(step)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return step(*args, **kwargs)
        except PrivateKubeError as error:
            _fail(error.reason, error.message)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            sentence = f"what the step makes cannot be written: {in_one_line(error)}"
            _fail(Reason.DATA_UNWRITABLE, sentence)

    return run


def _fail(reason: Reason, sentence: str) -> NoReturn:
    """End the process: Python writes the lines to standard error, after all that was printed."""
    sys.stdout.flush()
    if IN_A_POD in os.environ:
        # Kubernetes keeps it in the pod's status, and Argo in that of the Workflow.
        with suppress(OSError), open(TERMINATION_LOG, "r+", encoding="utf-8") as file:
            file.write(f"{reason}: {sentence}"[:_LONGEST_MESSAGE])
    sys.exit("\n".join(error_lines(reason, sentence)))


def write_page(artifact: Artifact, text: str) -> None:
    """Write a report, whatever the locale of the pod."""
    Path(artifact.path).write_text(text, encoding="utf-8")


def as_said(value: Any) -> Any:
    """A parameter as its author said it: Kubeflow makes floats of numbers in lists and objects."""
    if isinstance(value, Mapping):
        return {key: as_said(part) for key, part in value.items()}
    if isinstance(value, list):
        return [as_said(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def where_it_failed(error: BaseException) -> str:
    """What can be told of an error that may know what is in the data."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}, at {Path(last.filename).name}:{last.lineno}"


def name_of_claim(run_id: str, claim_name: str) -> str:
    """The name of a run's claim in the ledger. No two runs can share one.

    A claim's name within its run has no dot, so the last dot is where the run's id ends.
    """
    if not isinstance(claim_name, str) or not _CLAIM_NAME.fullmatch(claim_name):
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"claim name {claim_name!r} must be 1 to 63 lower-case letters, digits or dashes, and"
            " begin and end with a letter or digit",
        )
    return check_name("claim", f"{check_run(run_id)}.{claim_name}")


def check_run(run_id: str) -> str:
    if not run_id or "{{" in run_id:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"{run_id!r} is not the id of a run: pass dsl.PIPELINE_JOB_ID_PLACEHOLDER as run_id,"
            " alone, not as a part of another text",
        )
    return check_name("run", run_id)


@contextmanager
def ledger_of_run(environment: Mapping[str, str] = os.environ) -> Iterator[Ledger]:
    """The ledger that the run names; in a pod, that of its cluster.

    There is nothing to fall back to: a step that cannot reach its ledger fails.
    """
    address = environment.get(LEDGER_VARIABLE)
    if not address and IN_A_POD in environment:
        address = "kubernetes"
    with open_ledger(address, source=LEDGER_VARIABLE) as ledger:
        yield ledger


def live_with_run(ledger: Ledger, environment: Mapping[str, str] = os.environ) -> None:
    """See to it that claims in a cluster do not outlive their run. A file has nobody to watch."""
    if not isinstance(ledger, SqliteLedger):
        # Here, since a run on a file needs no Kubernetes client.
        from privatekube_kfp.ledger.kubernetes.ledger import KubernetesLedger

        assert isinstance(ledger, KubernetesLedger)
        print(f"the claim is {ledger.lives_with(environment)}")


def claim_of_artifact(ledger: Ledger, artifact: Artifact, run_id: str) -> Claim:
    """The claim that an artifact means, as the ledger has it.

    An artifact is only a name: it may have been changed on its way, or come from another run.
    """
    name = artifact.metadata.get("claim")
    if not isinstance(name, str):
        raise _tampered("it names no claim")
    run, _, claim_name = name.rpartition(".")
    if run != check_run(run_id):
        raise _tampered(f"it names claim {name!r}, which is not one of run {run_id}")
    try:
        claim = ledger.claim(name_of_claim(run, claim_name))
    except LedgerError:
        raise
    except Invalid as error:
        raise _tampered(error.message) from None
    if claim.owner != run_id:
        raise _tampered(f"claim {name} belongs to {claim.owner!r}, not to run {run_id}")
    said = artifact.metadata.get("blocks")
    if said != list(claim.bound()):
        raise _tampered(f"its blocks are not those that claim {name} is bound to")
    return claim


def describe_claim(artifact: Artifact, claim: Claim) -> None:
    """Make an artifact mean a claim."""
    artifact.metadata.update(
        claim=claim.name,
        run=claim.owner,
        stream=claim.stream,
        phase=str(claim.phase),
        blocks=list(claim.bound()),
    )


def _tampered(why: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, f"the claim artifact is not what Allocate made: {why}")
