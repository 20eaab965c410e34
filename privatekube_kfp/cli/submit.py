"""`privatekube submit`: a pipeline to a Kubeflow cluster."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from privatekube_kfp.cli.errors import DONE, REFUSED, Failure
from privatekube_kfp.cli.options import json_option
from privatekube_kfp.cli.output import print_facts
from privatekube_kfp.cli.pipelines import (
    arguments_option,
    function_option,
    in_a_sentence,
    no_lint_option,
    pipeline_argument,
    read_pipeline,
    refuse_findings,
    settings_option,
    with_settings,
)
from privatekube_kfp.cli.run_details import LINES, FailedTask, failed_tasks, states
from privatekube_kfp.cli.session import Session
from privatekube_kfp.cli.values import Value, invalid
from privatekube_kfp.local.pipeline import CompiledPipeline
from privatekube_kfp.settings import find_settings

ENDPOINT_VARIABLE = "KF_PIPELINES_ENDPOINT"
_OVER = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED", "ERROR")
_POLL = 5.0


def read_endpoint(text: str) -> str:
    """kfp takes an empty one for a cluster of its own choice, and says so to nobody."""
    if not text or any(letter.isspace() for letter in text) or not text.isprintable():
        raise invalid(f"{text!r} is not an address; write it like http://localhost:8888")
    return text


@click.command(short_help="Run a pipeline on a Kubeflow cluster.")
@pipeline_argument
@arguments_option
@click.option(
    "--endpoint",
    type=Value("URL", read_endpoint),
    envvar=ENDPOINT_VARIABLE,
    help=f"Where Kubeflow Pipelines serves its API (or set {ENDPOINT_VARIABLE}, or in settings).",
)
@click.option("--experiment", metavar="NAME", help="The experiment; made if there is none.")
@click.option("--run-name", metavar="NAME", help="What the run is called in Kubeflow.")
@click.option("--service-account", metavar="NAME", help="Whom the tasks run as.")
@click.option("--namespace", metavar="NAME", help="The namespace, where users have their own.")
@click.option("--pipeline-root", metavar="URI", help="Where artifacts are kept.")
@click.option(
    "--token-env", metavar="VARIABLE", help="The environment variable that holds a bearer token."
)
@settings_option
@click.option("--wait", is_flag=True, help="Wait until the run is over.")
@function_option
@no_lint_option
@json_option
@click.pass_obj
def submit(
    session: Session,
    pipeline: Path,
    arguments: tuple[str, ...],
    endpoint: str | None,
    experiment: str | None,
    run_name: str | None,
    service_account: str | None,
    namespace: str | None,
    pipeline_root: str | None,
    token_env: str | None,
    settings_address: str | None,
    wait: bool,
    function: str | None,
    no_lint: bool,
) -> int:
    """Compile and check the PIPELINE, a Python file or compiled YAML, and run it on a cluster.

    Site settings are written into it first; what the command line says comes before them. Caching
    stays as the pipeline says: nothing of the protocol is cached.

    \b
    Example:
      privatekube submit pipeline.py --endpoint http://localhost:8888 --arg epsilon=1 --wait

    Exit codes: 0 submitted, and with --wait succeeded; 1 refused or failed; 2 usage.
    """
    settings = find_settings(settings_address)
    endpoint = endpoint or (read_endpoint(settings.endpoint) if settings.endpoint else None)
    if endpoint is None:
        raise click.UsageError(
            f"No endpoint: give --endpoint, set {ENDPOINT_VARIABLE} or write it into settings."
        )
    namespace = namespace or settings.namespace or None
    compiled = with_settings(read_pipeline(pipeline, function), settings)
    with in_a_sentence():
        given = compiled.arguments(arguments)
    if not no_lint:
        refuse_findings(compiled)
    token = read_token(token_env)
    with _telling_what_fails(endpoint), tempfile.TemporaryDirectory() as folder:
        client = _client(endpoint, namespace, token)
        # kfp takes a pipeline's name from its file.
        package = Path(folder) / f"{compiled.name}.yaml"
        package.write_text(compiled.text)
        result = client.create_run_from_pipeline_package(
            str(package),
            arguments=given,
            run_name=run_name or f"{compiled.name} {time.strftime('%Y-%m-%d %H-%M-%S')}",
            experiment_name=experiment,
            namespace=namespace,
            pipeline_root=pipeline_root or settings.pipeline_root or None,
            service_account=service_account or settings.service_account or None,
        )
        known = result.run_info
        if wait:
            known = _wait_for(client, compiled, result.run_id)
        failed = failed_tasks(client, compiled, known, namespace) if wait else []
    document: dict[str, Any] = {
        "run": result.run_id,
        "name": known.display_name,
        "state": known.state or "PENDING",
        "url": f"{endpoint.rstrip('/')}/#/runs/details/{result.run_id}",
    }
    facts = [(key, str(value)) for key, value in document.items()]
    if wait:
        document["failed"] = [task.to_json(namespace) for task in failed]
    session.answer(document, lambda: print_facts(facts))
    if wait and known.state != "SUCCEEDED":
        _tell_why(known, failed, namespace)
        return REFUSED
    return DONE


def _tell_why(known: Any, failed: Sequence[FailedTask], namespace: str | None) -> None:
    """The end of each failed task's log; the reason comes last, where people look."""
    for task in failed:
        click.echo(f"\n{task.name}, {'the last of its log' if task.log else 'its log'}:", err=True)
        for line in task.log[-LINES:] or [f"see it with {task.command(namespace)}"]:
            click.echo(f"    {line}", err=True)
    said = getattr(known.error, "message", None)
    if failed:
        why = failed[0].why
        said = f"{failed[0].name} failed{f': {why}' if why else ''}"
        said += (
            f" (also failed: {', '.join(task.name for task in failed[1:])})" if failed[1:] else ""
        )
    click.echo(
        f"privatekube: run {known.run_id} ended {known.state}{f': {said}' if said else ''}",
        err=True,
    )


def read_token(variable: str | None) -> str | None:
    if variable is None:
        return None
    token = os.environ.get(variable)
    if not token:
        raise click.UsageError(f"--token-env {variable}: there is no such variable, or it is empty")
    return token


def _client(endpoint: str, namespace: str | None, token: str | None) -> Any:
    import kfp

    class Client(kfp.Client):  # type: ignore[misc]
        """Asks once how the server is: what is wrong with it is told, not tried again."""

        def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
            return self._healthz_api.healthz_service_get_healthz()

    more = {"namespace": namespace} if namespace else {}
    return Client(host=endpoint, existing_token=token, **more)


def _wait_for(client: Any, compiled: CompiledPipeline, run: str) -> Any:
    """Ask until the run is over, and say meanwhile which tasks start and end."""
    told: dict[str, str] = {}
    while True:
        known = client.get_run(run)
        for name, state in states(compiled, known).items():
            if told.get(name) != state:
                told[name] = state
                click.echo(f"{name}: {state.lower()}", err=True)
        if known.state in _OVER:
            return known
        time.sleep(_POLL)


@contextlib.contextmanager
def _telling_what_fails(endpoint: str) -> Iterator[None]:
    """What a server or the way to it refuses is a sentence; kfp's own words are not for output."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        import kfp_server_api
        import urllib3

        try:
            yield
        except kfp_server_api.ApiException as error:
            raise Failure("EndpointRefused", f"{endpoint}: {_refusal(error)}") from None
        except (urllib3.exceptions.HTTPError, OSError, UnicodeError) as error:
            reason = getattr(error, "reason", None) or error
            said = " ".join(str(reason).split()).rpartition("object at 0x")[2]
            said = said.partition(">: ")[2] or said
            raise Failure("EndpointUnreachable", f"{endpoint} cannot be reached: {said}") from None
        except (ValueError, TypeError) as error:
            said = " ".join(str(error).split())
            raise Failure("EndpointRefused", f"{endpoint}: {said}") from None


def _refusal(error: Any) -> str:
    """What a server says, in its own words where it has some."""
    said = ""
    with contextlib.suppress(ValueError, TypeError):
        body = json.loads(error.body or "")
        if isinstance(body, dict):
            said = str(body.get("message") or body.get("error") or "")
    if error.status == 401:
        said = said or "name a bearer token with --token-env"
    status = f"{error.status} {error.reason or ''}".strip() if error.status else "no answer"
    return " ".join(f"{status}{f': {said}' if said else ''}".split())
