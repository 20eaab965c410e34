"""Allocate, consume, release: each can be done again after a crash, and is done once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from privatekube_kfp.accounting import EpsilonDelta, Plan, PureEpsilon, Step, plan_from_json
from privatekube_kfp.core.budget import parse_delta
from privatekube_kfp.core.claim import Claim, Kind, Phase
from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.unlocking import parse_duration
from privatekube_kfp.ledger.client import ClaimClient, raise_if_denied
from privatekube_kfp.ledger.ledger import Ledger
from privatekube_kfp.ledger.times import parse_time
from privatekube_kfp.steps.report import (
    StreamFacts,
    final_metrics,
    final_report,
    report_on_allocation,
    report_on_failure,
    report_on_spending,
)
from privatekube_kfp.steps.results import prove_writable
from privatekube_kfp.steps.run import (
    START_A_NEW_RUN,
    Artifact,
    as_said,
    check_run,
    claim_of_artifact,
    describe_claim,
    in_a_sentence,
    ledger_of_run,
    live_with_run,
    name_of_claim,
    released_already,
    write_page,
)

_LOOK_EVERY = 15.0
"""Seconds between looks at what a claim waits for."""
_ONE_BY_ONE = 10
"""How many blocks are asked for one by one; more are listed with all of their stream."""


@in_a_sentence
def allocate(
    claim: Artifact,
    report: Artifact,
    *,
    run_id: str,
    claim_name: str,
    stream: str,
    epsilon: str = "",
    delta: str = "0",
    plan: Mapping[str, Any] | None = None,
    start: str = "",
    end: str = "",
    last_blocks: int = 0,
    users: tuple[int, int] = (-1, -1),
    block_names: Sequence[str] = (),
    min_blocks: int = 1,
    max_blocks: int = 0,
    timeout: str = "1h",
    results: str = "",
) -> int:
    """Make or resume the run's claim, and wait for its budget; how many blocks it is bound to."""
    name = name_of_claim(run_id, claim_name)
    with _reported(None, name, report, "No budget was asked for"):
        wanted = _plan(epsilon, delta, plan)
        selection = Selection(
            names=tuple(block_names),
            start=parse_time(start, "start") if start else None,
            end=parse_time(end, "end") if end else None,
            users=None if users == (-1, -1) else users,
            last=_count("last_blocks", last_blocks),
            at_least=min_blocks,
            at_most=_count("max_blocks", max_blocks),
        )
        lasting = None if timeout == "none" else parse_duration(timeout, "timeout")
        prove_writable(results, run_id)
    with ledger_of_run() as ledger, _reported(ledger, name, report, "Budget denied"):
        live_with_run(ledger)
        _refuse_if_denied_before(ledger, name)
        client = ClaimClient(ledger, sleep=_Telling(ledger, name).sleep)
        answer = client.allocate(
            name,
            stream=stream,
            selection=selection,
            plan=wanted,
            timeout=lasting,
            owner=run_id,
        )
        raise_if_denied(name, answer)
        made = ledger.claim(name)
        if made.phase is Phase.RELEASED:
            raise released_already(name)
        facts = _facts(ledger, [made]).get(made.stream)
    print(f"claim {name}: {answer.reason}: {answer.message}")
    _write(claim, made)
    write_page(report, report_on_allocation(made, facts))
    return len(made.bound())


@in_a_sentence
def consume(
    claim: Artifact,
    consumed: Artifact,
    report: Artifact,
    *,
    run_id: str,
    plan_step: str = "",
    amounts: Sequence[Any] | None = None,
    name: str = "",
) -> None:
    """Spend a step of the plan, the amounts that steps report, or all that is left."""
    if plan_step and amounts:
        raise Invalid(Reason.INVALID_REQUEST, "consume a step or amounts, not both")
    if amounts and not name:
        raise Invalid(
            Reason.INVALID_REQUEST,
            "amounts need a name, once in a claim: without one, a retry would spend them twice",
        )
    if amounts is not None and not amounts:
        raise Invalid(
            Reason.INVALID_REQUEST, "the list of amounts is empty: nothing was reported as spent"
        )
    with ledger_of_run() as ledger:
        known = claim_of_artifact(ledger, claim, run_id)
        with _reported(ledger, known.name, report, "Nothing was spent"):
            client = ClaimClient(ledger)
            if amounts:
                id = f"consume-amount-{name}"
                answer = client.consume(known.name, amount=_together(amounts), request_id=id)
            elif name:
                raise Invalid(
                    Reason.INVALID_REQUEST, f"name {name!r} is for amounts; there are none"
                )
            else:
                answer = client.consume(known.name, step=plan_step or None)
            if answer.reason is Reason.ALREADY_RELEASED:
                raise released_already(known.name)
            raise_if_denied(known.name, answer)
        spent = ledger.claim(known.name)
        facts = _facts(ledger, [spent]).get(spent.stream)
    print(f"claim {spent.name}: {answer.reason}: {answer.message}")
    _write(consumed, spent)
    write_page(report, report_on_spending(spent, facts))
    consumed.metadata["consumed"] = answer.request


@in_a_sentence
def release(
    *,
    run_id: str,
    claim_name: str = "",
    report: Artifact | None = None,
    metrics: Artifact | None = None,
) -> None:
    """Give back what the run's claims hold and have not consumed; safe in every state.

    What Kubeflow keeps of a run that failed comes from here: of a task that fails it keeps no
    artifact but the log.
    """
    check_run(run_id)
    with ledger_of_run() as ledger:
        if claim_name:
            names = [name_of_claim(run_id, claim_name)]
        else:
            names = [claim.name for claim in claims_of_run(ledger, run_id)]
        for name in names:
            print(release_claim(ledger, name))
        if not names:
            print(f"run {run_id} has made no claim: there is nothing to give back")
        claims = [claim for claim in claims_of_run(ledger, run_id) if claim.name in names]
        streams = _facts(ledger, claims)
    if report is not None:
        write_page(report, final_report(run_id, claims, streams))
    if metrics is not None:
        metrics.metadata.update(final_metrics(claims, streams))


def claims_of_run(ledger: Ledger, run_id: str) -> list[Claim]:
    return [claim for claim in ledger.claims() if claim.owner == run_id]


def release_claim(ledger: Ledger, name: str) -> str:
    """Give back what a claim holds, if anything; says what became of it."""
    try:
        claim = ledger.claim(name)
    except Invalid as error:
        if error.reason is not Reason.UNKNOWN_CLAIM:
            raise
        return f"claim {name} was never made: there is nothing to give back"
    if not claim.is_live:
        return f"claim {name} is {claim.phase}: there is nothing to give back"
    return f"claim {name}: {ClaimClient(ledger).release(name).message}"


def _refuse_if_denied_before(ledger: Ledger, name: str) -> None:
    """A denial is final, and a run that is retried asks by the same name."""
    try:
        answer = ledger.claim(name).responses.get("allocate")
    except Invalid as error:
        if error.reason is not Reason.UNKNOWN_CLAIM:
            raise
        return
    if answer is not None and answer.denied:
        raise PrivateKubeError(
            answer.reason, f"claim {name} was denied before: {answer.message}. {START_A_NEW_RUN}"
        )


class _Telling:
    """Says in a step's log what it waits for, when that changes.

    It looks now and then only: in a cluster, that reads all blocks of the stream.
    """

    def __init__(self, ledger: Ledger, claim: str) -> None:
        self._ledger = ledger
        self._claim = claim
        self._told: str | None = None
        self._look_again = 0.0

    def sleep(self, seconds: float) -> None:
        if time.monotonic() >= self._look_again:
            self._say_why()
            self._look_again = time.monotonic() + _LOOK_EVERY
        time.sleep(seconds)

    def _say_why(self) -> None:
        waiting_for = self._ledger.why_waiting(self._claim, "allocate")
        if waiting_for is not None and waiting_for.reason != self._told:
            self._told = waiting_for.reason
            print(
                f"claim {self._claim} waits: {waiting_for.reason}: {waiting_for.message}",
                flush=True,
            )


def _plan(epsilon: str, delta: str, plan: Mapping[str, Any] | None) -> Plan:
    if bool(epsilon) == bool(plan):
        raise Invalid(
            Reason.INVALID_PLAN,
            f"give epsilon or a plan, {'not both' if plan else 'for how much to ask'}",
        )
    if plan:
        return plan_from_json(as_said(plan))
    if parse_delta(delta):
        return Plan.of(EpsilonDelta(epsilon, delta))
    return Plan.of(PureEpsilon(epsilon))


def _together(amounts: Iterable[Any]) -> Plan:
    """What several steps report, as one plan."""
    steps = [step for amount in amounts for step in plan_from_json(as_said(amount)).steps]
    return Plan(tuple(Step(f"part-{n}", step.mechanism) for n, step in enumerate(steps, start=1)))


def _count(name: str, count: int) -> int | None:
    if count < 0:
        raise Invalid(Reason.INVALID_REQUEST, f"{name} is {count}; it must be 0 or more")
    return count or None


@contextmanager
def _reported(ledger: Ledger | None, name: str, report: Artifact, title: str) -> Iterator[None]:
    """Write why it failed into the report too, as far as that can be done."""
    try:
        yield
    except PrivateKubeError as error:
        claim: Claim | None = None
        streams: dict[str, StreamFacts] = {}
        with suppress(PrivateKubeError):
            if ledger is not None:
                claim = ledger.claim(name)
                streams = _facts(ledger, [claim])
        with suppress(OSError):
            stream = streams.get(claim.stream) if claim is not None else None
            write_page(report, report_on_failure(title, error, claim, stream))
        raise


def _facts(ledger: Ledger, claims: Sequence[Claim]) -> dict[str, StreamFacts]:
    """The streams of the claims, by name, with the blocks that the claims are bound to.

    A report is not worth a failure: what cannot be read is said in the log, and left out.
    """
    streams: dict[str, StreamFacts] = {}
    for name in dict.fromkeys(claim.stream for claim in claims):
        bound = {block: None for claim in claims if claim.stream == name for block in claim.bound()}
        try:
            record = ledger.stream(name)
            if len(bound) > _ONE_BY_ONE:
                listed = [each for each in ledger.blocks(name) if each.block.name in bound]
            else:
                listed = [ledger.block(block) for block in bound]
        except PrivateKubeError as error:
            print(f"the report does not say what is left of the blocks: {error.message}")
            continue
        streams[name] = StreamFacts.of(record, listed)
    return streams


def _write(artifact: Artifact, claim: Claim) -> None:
    describe_claim(artifact, claim)
    document = {
        **artifact.metadata,
        "blocks": list(claim.bound()),
        "granted": claim.total(Kind.ALLOCATE).to_json(),
        "spent": claim.total(Kind.CONSUME).to_json(),
        "returned": claim.total(Kind.RELEASE).to_json(),
    }
    Path(artifact.path).write_text(json.dumps(document, indent=2) + "\n")
