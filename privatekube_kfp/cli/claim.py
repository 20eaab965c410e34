"""`privatekube claim`: ask for budget, spend it, give it back.

A command that is run again after a crash resumes: it sends the same request under the same id,
which the ledger does once. A request that was denied may be made again, under the next id.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import click

from privatekube_kfp.accounting import Plan, PureEpsilon, Step
from privatekube_kfp.cli.claim_tables import CLAIM_TITLES, claim_row, print_claim
from privatekube_kfp.cli.describe import claim_json
from privatekube_kfp.cli.errors import Failure
from privatekube_kfp.cli.mechanisms import claim_mechanism_options
from privatekube_kfp.cli.options import InOrder, json_option, ledger_option
from privatekube_kfp.cli.output import moment, print_table, say
from privatekube_kfp.cli.selecting import selection_options
from privatekube_kfp.cli.session import Session
from privatekube_kfp.cli.values import (
    CLAIM_NAME,
    DURATION,
    REQUEST_ID,
    STREAM_NAME,
    TIMEOUT,
    WEIGHT,
    WORDS,
    Value,
)
from privatekube_kfp.core.claim import Claim, Kind, Phase, Response
from privatekube_kfp.core.errors import PrivateKubeError, Reason
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.ledger.requests import AllocateRequest

if TYPE_CHECKING:
    from privatekube_kfp.core.pool import Refusal
    from privatekube_kfp.ledger.ledger import Ledger


def _read_step(text: str) -> str:
    return Step(text, PureEpsilon("1")).name


STEP_NAME = Value("STEP", _read_step)


@click.group(cls=InOrder)
def claim() -> None:
    """Ask for budget, spend it, give it back."""


@claim.command(short_help="Ask for budget on blocks, and wait for the answer.")
@click.argument("name", type=CLAIM_NAME)
@click.option("--stream", type=STREAM_NAME, required=True, help="Whose blocks.")
@selection_options
@claim_mechanism_options
@click.option(
    "--timeout",
    type=TIMEOUT,
    default="1h",
    help="Refuse the request after waiting so long; 0s is now or never, 'none' never.",
)
@click.option(
    "--weight",
    type=WEIGHT,
    default=1,
    help="How much it matters beside others, where the stream's policy knows weights.",
)
@click.option("--owner", type=WORDS, metavar="RUN", help="The run that the claim belongs to.")
@click.option(
    "--request-id", type=REQUEST_ID, help="Names this request among the claim's; see docs/cli.md."
)
@click.option("--no-wait", is_flag=True, help="Get in line and return; see `claim wait`.")
@ledger_option
@json_option
@click.pass_obj
def allocate(
    session: Session,
    name: str,
    stream: str,
    selection: Selection,
    plan: Plan | None,
    timeout: int | str,
    weight: int,
    owner: str | None,
    request_id: str | None,
    no_wait: bool,
) -> None:
    """Ask for budget on blocks of a stream, under the claim NAME, and wait for the answer.

    What is asked for is asked of every block, all or nothing. Say what the pipeline runs: an
    --epsilon, a mechanism, or a --plan of several steps.

    \b
    Examples:
      privatekube claim allocate c1 --stream clicks --block monday --epsilon 0.1 --timeout 0s
      privatekube claim allocate c2 --stream clicks --last 7 --gaussian 6.5 --delta 1e-9
      privatekube claim allocate c3 --stream reviews --start 2026-11-01 --end 2026-12-01 \\
          --plan plan.json --owner run-17
    """
    if plan is None:
        raise click.UsageError(
            "How much? Give --epsilon, --laplace, --gaussian, --dp-sgd or --plan."
        )
    lasting = None if isinstance(timeout, str) else timeout
    with session.ledger() as ledger:
        known = _known(ledger, name)
        id = request_id or _not_denied(known, "allocate")
        asked_before = _has_answer(known, id)
        if no_wait:
            response = ledger.submit(
                name, AllocateRequest(id, stream, selection, plan, lasting, owner, weight)
            )
        else:
            from privatekube_kfp.cli.waiting import waiting_client

            with waiting_client(ledger, name, id) as client:
                response = client.allocate(
                    name,
                    stream=stream,
                    selection=selection,
                    plan=plan,
                    timeout=lasting,
                    request_id=id,
                    owner=owner,
                    weight=weight,
                )
        _conclude(session, ledger, name, id, response, asked_before)


@claim.command(short_help="Spend what a claim holds, or a part of it.")
@click.argument("name", type=CLAIM_NAME)
@click.option("--step", type=STEP_NAME, help="What this step of the plan was allocated.")
@claim_mechanism_options
@click.option(
    "--request-id", type=REQUEST_ID, help="Names this request among the claim's; see docs/cli.md."
)
@ledger_option
@json_option
@click.pass_obj
def consume(
    session: Session, name: str, step: str | None, plan: Plan | None, request_id: str | None
) -> None:
    """Spend, for good, what the claim NAME holds: a step's part, an amount on each block, or all.

    An amount is spent once per run of this command; give --request-id to be able to retry it.

    \b
    Examples:
      privatekube claim consume c1
      privatekube claim consume c1 --epsilon 0.04
      privatekube claim consume c3 --step train
    """
    if step is not None and plan is not None:
        raise click.UsageError("Give a --step or an amount, not both.")
    with session.ledger() as ledger:
        known = _known(ledger, name)
        id = request_id or _consume_id(known, step, plan)
        asked_before = _has_answer(known, id)
        from privatekube_kfp.cli.waiting import waiting_client

        with waiting_client(ledger, name, id) as client:
            response = client.consume(name, step=step, amount=plan, request_id=id)
        _conclude(session, ledger, name, id, response, asked_before)


@claim.command(short_help="Give back what a claim holds; withdraw it if it waits.")
@click.argument("name", type=CLAIM_NAME)
@ledger_option
@json_option
@click.pass_obj
def release(session: Session, name: str) -> None:
    """Give back all that the claim NAME holds and has not spent; withdraws it if it waits.

    \b
    Example:
      privatekube claim release c1
    """
    with session.ledger() as ledger:
        from privatekube_kfp.ledger.client import ClaimClient

        asked_before = _has_answer(_known(ledger, name), "release")
        response = ClaimClient(ledger).release(name)
        _conclude(session, ledger, name, "release", response, asked_before)


@claim.command(short_help="Wait for the answer to a request.")
@click.argument("name", type=CLAIM_NAME)
@click.option(
    "--request-id",
    type=REQUEST_ID,
    help="Which request; the first without an answer, else the last, unless given.",
)
@click.option(
    "--patience", type=DURATION, help="Stop waiting after so long; for ever unless given."
)
@ledger_option
@json_option
@click.pass_obj
def wait(session: Session, name: str, request_id: str | None, patience: int | None) -> None:
    """Wait for the answer to a request of the claim NAME.

    When the patience ends, the request stays in line.

    \b
    Example:
      privatekube claim wait c1 --patience 10s
    """
    with session.ledger() as ledger:
        record = ledger.claim(name)
        turn = record.unanswered() or record.requests[-1]
        id = request_id or turn.id
        from privatekube_kfp.cli.waiting import waiting_client
        from privatekube_kfp.ledger.client import StillWaiting

        try:
            with waiting_client(ledger, name, id) as client:
                response = client.wait(name, id, patience=patience)
        except StillWaiting as error:
            message = error.message.removeprefix(f"claim {name}: ")
            raise Failure(
                error.reason,
                message,
                sentence=f"claim {name} still waits: {error.reason}: {message}",
                details={"claim": _document(ledger, ledger.claim(name))},
            ) from None
        _conclude(session, ledger, name, id, response)


@claim.command("list")
@click.option("--stream", type=STREAM_NAME, help="On this stream only.")
@click.option(
    "--phase", type=click.Choice([phase.value for phase in Phase]), help="In this phase only."
)
@click.option("-n", "--namespace", metavar="NAME", help="In a cluster: of this namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="In a cluster: of all namespaces.")
@ledger_option
@json_option
@click.pass_obj
def list_claims(
    session: Session,
    stream: str | None,
    phase: str | None,
    namespace: str | None,
    all_namespaces: bool,
) -> None:
    """List claims, oldest first.

    In a cluster, the claims of one namespace: that of the kubeconfig's context unless given.

    \b
    Examples:
      privatekube claim list --stream clicks --phase Pending
      privatekube claim list --ledger kubernetes --all-namespaces
    """
    if namespace is not None and all_namespaces:
        raise click.UsageError("Give --namespace or --all-namespaces, not both.")
    with session.ledger(tend=True) as ledger:
        in_cluster = hasattr(ledger, "namespace")
        if not in_cluster and (namespace is not None or all_namespaces):
            raise click.UsageError("This ledger is a file: it has no namespaces.")
        found = _claims(ledger, stream, namespace, everywhere=all_namespaces)
        records = [
            (place, record, _waiting(at, record))
            for place, at, record in found
            if phase is None or record.phase == phase
        ]
        looked_at = namespace or getattr(ledger, "namespace", None)
    claims = [claim_json(record, waiting) for _, record, waiting in records]
    document: dict[str, object] = {"claims": claims}
    if in_cluster:
        for described, (place, _, _) in zip(claims, records, strict=True):
            described["namespace"] = place
        document["namespace"] = None if all_namespaces else looked_at
    session.answer(document, lambda: _show_claims(records, looked_at, everywhere=all_namespaces))


def _claims(
    ledger: Any, stream: str | None, namespace: str | None, *, everywhere: bool
) -> list[tuple[str, Any, Claim]]:
    """Claims, each with its namespace and the ledger that knows it."""
    try:
        if everywhere:
            found = ledger.claims_everywhere(stream)
            return [(place, ledger.at(place), record) for place, record in found]
        at = ledger if namespace is None else ledger.at(namespace)
        return [(getattr(at, "namespace", ""), at, record) for record in at.claims(stream)]
    except PrivateKubeError as error:
        if error.reason is not Reason.CLUSTER_REFUSED:
            raise
        mend = (
            "look at one namespace with --namespace, or ask for a ClusterRoleBinding to"
            " privatekube-viewer"
            if everywhere
            else "name another with --namespace, or ask for a RoleBinding to privatekube-viewer"
        )
        raise PrivateKubeError(error.reason, f"{error.message}; {mend}") from None


def _show_claims(
    records: list[tuple[str, Claim, dict[str, Refusal]]], looked_at: str | None, *, everywhere: bool
) -> None:
    rows = [claim_row(record, waiting) for _, record, waiting in records]
    if everywhere:
        places = [place for place, _, _ in records]
        print_table(
            ("NAMESPACE", *CLAIM_TITLES), [(p, *row) for p, row in zip(places, rows, strict=True)]
        )
        return
    print_table(CLAIM_TITLES, rows)
    if looked_at and not rows:
        say(f"no such claims in namespace {looked_at}; --all-namespaces looks into the others")


@claim.command(short_help="Show a claim's requests, answers and budget.")
@click.argument("name", type=CLAIM_NAME)
@ledger_option
@json_option
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show the claim NAME: its requests, their answers, and its budget on each block.

    \b
    Example:
      privatekube claim show c1
    """
    with session.ledger(tend=True) as ledger:
        record = ledger.claim(name)
        waiting = _waiting(ledger, record)
    session.answer(claim_json(record, waiting), lambda: print_claim(record, waiting))


# Which request


def _known(ledger: Ledger, name: str) -> Claim | None:
    try:
        return ledger.claim(name)
    except PrivateKubeError as error:
        if error.reason is Reason.UNKNOWN_CLAIM:
            return None
        raise


def _has_answer(known: Claim | None, id: str) -> bool:
    return known is not None and id in known.responses


def _not_denied(known: Claim | None, first: str) -> str:
    """`first`, or where that was denied `first-2`, and so on: a person may try again."""
    id, number = first, 1
    while known and (response := known.responses.get(id)) and response.denied:
        number += 1
        id = f"{first}-{number}"
    return id


def _consume_id(known: Claim | None, step: str | None, amount: Plan | None) -> str:
    if amount is not None:
        return f"consume-{uuid.uuid4().hex[:12]}"
    if step is not None:
        return _not_denied(known, f"consume-{step}")
    id, number = "consume", 1
    # Done before, and the claim holds something: it has been allocated more since.
    while (
        known
        and (response := known.responses.get(id))
        and (response.denied or not known.held().is_zero)
    ):
        number += 1
        id = f"consume-{number}"
    return id


# What came of it


def _conclude(
    session: Session,
    ledger: Ledger,
    name: str,
    id: str,
    response: Response | None,
    asked_before: bool = False,
) -> None:
    """Show the answer to a request; a denial ends the command."""
    record = ledger.claim(name)
    waiting = _waiting(ledger, record)
    document = claim_json(record, waiting)
    if response is None:
        waits = waiting.get(id)
        sentence = f"claim {name} waits: {waits.reason}: {waits.message}" if waits else ""
        session.answer(document, lambda: say(sentence or f"claim {name}: {record.phase}"))
        return
    if response.denied:
        request = record.request(id)
        asks = request is None or request.kind is Kind.ALLOCATE
        subject = f"claim {name}" if asks else f"consume on claim {name}"
        raise Failure(
            response.reason,
            response.message,
            sentence=f"{subject} denied: {response.reason}: {response.message}",
            details={"claim": document},
        )
    sentence = f"claim {name}: {response.reason}: {response.message}"
    if asked_before:
        sentence += f" (done before, at {moment(response.at)}; the claim is now {record.phase})"
    session.answer(document, lambda: say(sentence))


def _document(ledger: Ledger, record: Claim) -> dict[str, object]:
    return claim_json(record, _waiting(ledger, record))


def _waiting(ledger: Ledger, record: Claim) -> dict[str, Refusal]:
    """What each request without an answer waits for."""
    found: dict[str, Refusal] = {}
    for request in record.requests:
        if request.id not in record.responses:
            waiting_for = ledger.why_waiting(record.name, request.id)
            if waiting_for is not None:
                found[request.id] = waiting_for
    return found
