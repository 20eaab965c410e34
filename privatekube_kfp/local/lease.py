"""Signs of life for claims in a cluster whose run is on this machine.

Nobody there can see whether the run still lives. Its claims have a lease, which is renewed from
here for as long as the command runs; when the machine dies, the scheduler takes back what they hold
once the lease has run out. Until then the run can go on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from privatekube_kfp.core.errors import PrivateKubeError
from privatekube_kfp.ledger.opening import open_ledger
from privatekube_kfp.steps.claims import claims_of_run

DURATION = "15m"
_EVERY = 60.0


@contextmanager
def kept_alive(address: str, run: str, every: float = _EVERY) -> Iterator[Mapping[str, str]]:
    """Renews the leases of the run's claims meanwhile; what the tasks' environment says of it."""
    if address.startswith("sqlite:"):
        yield {}
        return
    # Here, since a run on a file needs no Kubernetes client.
    from privatekube_kfp.ledger.kubernetes.life import LEASE_VARIABLE

    over = threading.Event()
    thread = threading.Thread(target=_renew, args=(address, run, every, over), daemon=True)
    thread.start()
    try:
        yield {LEASE_VARIABLE: DURATION}
    finally:
        over.set()
        thread.join()


def _renew(address: str, run: str, every: float, over: threading.Event) -> None:
    from privatekube_kfp.ledger.kubernetes.ledger import KubernetesLedger

    while not over.wait(every):
        # A cluster that is away for a while is asked again: the lease outlasts many turns.
        with suppress(PrivateKubeError), open_ledger(address) as ledger:
            assert isinstance(ledger, KubernetesLedger)
            for claim in claims_of_run(ledger, run):
                ledger.renew(claim.name)
