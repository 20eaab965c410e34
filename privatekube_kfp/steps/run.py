"""What every step needs to know: which run it belongs to, its claim, its ledger.

Anything that the library raises on purpose, and a full disk, end a step in one sentence
(`in_a_sentence`), the last line of its log: see `log_lines`.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar

from privatekube_kfp.core.budget import Budget
from privatekube_kfp.core.claim import Claim, Kind
from privatekube_kfp.core.errors import Invalid, LedgerError, PrivateKubeError, Reason
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.data.places import in_one_line
from privatekube_kfp.ledger.ledger import Ledger
from privatekube_kfp.ledger.names import check_name
from privatekube_kfp.ledger.opening import IN_A_POD, LEDGER_VARIABLE, open_ledger
from privatekube_kfp.ledger.sqlite import SqliteLedger
from privatekube_kfp.steps.log_lines import error_lines

P = ParamSpec("P")
R = TypeVar("R")

START_A_NEW_RUN = "A run that is retried keeps its id and its claims: start a new run instead"
"""What to do about a claim that has ended."""

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
    if _blocks_said(artifact.metadata) != digest_of_blocks(claim.bound()):
        raise _tampered(f"its blocks are not those that claim {name} is bound to")
    return claim


def _blocks_said(metadata: Mapping[str, Any]) -> str:
    """The digest of the blocks that an artifact names.

    Artifacts of older versions have the names themselves, in a list, which Kubeflow's metadata
    store gives back as {"list": [...]}.
    """
    said = metadata.get("blocks_sha256")
    if isinstance(said, str):
        return said
    names = metadata.get("blocks") if said is None else None
    if isinstance(names, Mapping) and set(names) == {"list"}:
        names = names["list"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _tampered("it does not say which blocks the claim is bound to")
    return digest_of_blocks(names)


def digest_of_blocks(names: Iterable[str]) -> str:
    """What stands for the names of blocks, however many, in the metadata of an artifact."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def released_already(claim: str, reason: Reason = Reason.ALREADY_RELEASED) -> PrivateKubeError:
    """How a run ends that is retried after its claim was released."""
    return PrivateKubeError(
        reason, f"claim {claim} was released: what it held is given back. {START_A_NEW_RUN}"
    )


def describe_claim(artifact: Artifact, claim: Claim) -> None:
    """Make an artifact mean a claim.

    Texts and numbers only: Kubeflow's metadata store changes lists, objects and booleans, and
    refuses null. And few of them: all metadata of its inputs are part of a task's one argument.
    """
    blocks = claim.bound()
    artifact.metadata.update(
        claim=claim.name,
        run=claim.owner or "",
        stream=claim.stream,
        phase=str(claim.phase),
        blocks=len(blocks),
        blocks_sha256=digest_of_blocks(blocks),
        granted=_in_words(claim.total(Kind.ALLOCATE)),
        spent=_in_words(claim.total(Kind.CONSUME)),
        returned=_in_words(claim.total(Kind.RELEASE)),
    )


def _in_words(amounts: PerBlock) -> str:
    """Amounts per block, in a short text."""
    budgets = [budget for budget, _ in amounts.groups]
    if not budgets:
        return "nothing"
    if len(budgets) > 1:
        return f"{len(budgets)} different amounts, depending on the block"
    return _budget_in_words(budgets[0])


def _budget_in_words(budget: Budget) -> str:
    if budget.accounting.is_renyi:
        return budget.brief()
    return ", ".join(f"{label} {amount}" for label, amount in budget.to_json().items())


def _tampered(why: str) -> Invalid:
    return Invalid(Reason.INVALID_REQUEST, f"the claim artifact is not what Allocate made: {why}")
