"""`python -m scheduler`: the command line, and nothing else."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import uuid

import click

from privatekube_kfp import __version__
from privatekube_kfp.core.errors import Invalid, PrivateKubeError
from privatekube_kfp.core.unlocking import parse_duration
from privatekube_kfp.ledger.kubernetes.api import Api
from privatekube_kfp.ledger.kubernetes.connecting import connecting, default_namespace
from scheduler.election import Election
from scheduler.leader import Habits
from scheduler.logs import set_up_logs
from scheduler.metrics import Metrics
from scheduler.scheduling import Scheduler
from scheduler.server import StatusServer

log = logging.getLogger("scheduler")


class _Duration(click.ParamType[int]):
    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_duration(str(value))
        except Invalid as refusal:
            self.fail(refusal.message, param, ctx)


_DURATION = _Duration()


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="privatekube scheduler")
@click.option("--kubeconfig", type=click.Path(), help="Which kubeconfig; a pod needs none.")
@click.option("--context", help="Which context of the kubeconfig.")
@click.option("--namespace", help="Where the Lease is.  [default: the pod's or context's]")
@click.option("--identity", help="This scheduler's name in the Lease.  [default: the host's name]")
@click.option("--lease-name", default="privatekube-scheduler", help="The name of the Lease.")
@click.option(
    "--lease-duration",
    type=_DURATION,
    default="15s",
    help="After how long without renewal another may take the lease.",
)
@click.option(
    "--renew-deadline",
    type=_DURATION,
    default="10s",
    help="After how long without renewal a leader stops.",
)
@click.option(
    "--retry-period", type=_DURATION, default="2s", help="How often to renew or to try for it."
)
@click.option(
    "--connections", type=click.IntRange(1, 256), default=8, help="How many writes at a time."
)
@click.option(
    "--block-status-every",
    type=_DURATION,
    default="1s",
    help="How often to write what blocks show, at most.",
)
@click.option(
    "--keep-finished",
    type=_DURATION,
    default="7d",
    help="How long to keep finished claims; 0s keeps them for ever.",
)
@click.option(
    "--clock-tolerance",
    type=_DURATION,
    default="1m",
    help="How far this machine's clock may be off the API server's before it stops leading.",
)
@click.option("--listen", default="0.0.0.0:8080", help="Where /healthz, /readyz, /metrics are.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="What to log.",
)
@click.option(
    "--log-format", type=click.Choice(["json", "text"]), default="json", help="How to log it."
)
def main(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    identity: str | None,
    lease_name: str,
    lease_duration: int,
    renew_deadline: int,
    retry_period: int,
    connections: int,
    block_status_every: int,
    keep_finished: int,
    clock_tolerance: int,
    listen: str,
    log_level: str,
    log_format: str,
) -> None:
    """Grant privacy budget to the claims of a cluster.

    Several of these may run: one leads, the others stand by. Kill any of them at any time.
    """
    set_up_logs(log_level, log_format)
    # Two pods never have one name, but two processes on a host do.
    name = identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    try:
        connect = connecting(kubeconfig, context, connections=connections + 8)
        election = Election(
            Api(connect, patience=retry_period / 1e6),
            namespace or default_namespace(kubeconfig, context),
            lease_name,
            name,
            duration=lease_duration / 1e6,
            renew_deadline=renew_deadline / 1e6,
            retry=retry_period / 1e6,
            version=__version__,
        )
        metrics = Metrics(__version__)
        scheduler = Scheduler(
            connect,
            election,
            Habits(
                connections=connections,
                block_status_every=block_status_every / 1e6,
                keep_finished=keep_finished or None,
            ),
            metrics,
            clock_tolerance=clock_tolerance / 1e6,
        )
        server = StatusServer(listen, metrics, scheduler.why_unhealthy, scheduler.why_not_ready)
        server.start()
    except (PrivateKubeError, ValueError, OSError) as error:
        click.echo(f"scheduler: {error}", err=True)
        sys.exit(2)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: scheduler.stop())
    log.info("started", extra={"identity": name, "version": __version__, "port": server.port})
    try:
        scheduler.run()
    finally:
        server.close()
    log.info("stopped")


if __name__ == "__main__":
    main(prog_name="python -m scheduler")
