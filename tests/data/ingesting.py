"""An ingest as a process of its own, for tests that kill it: python -m tests.data.ingesting ...

Its noise is always the same, so that what it leaves can be compared with what another one left. It
says on standard output what it is doing, as it begins with it.
"""

import resource
import sys

from privatekube_kfp.data import ingest as module
from privatekube_kfp.data.tables import Source
from privatekube_kfp.ledger.opening import open_ledger
from tests.data.world import DAY, NOW, START, steady


def main(source, place, ledger, until, interval, run_bytes):
    module._RUN_BYTES = int(run_bytes)
    doing = [None]

    def told(what, done, of):
        if what != doing[0]:
            doing[0] = what
            print(what, flush=True)

    with open_ledger(ledger) as opened:
        module.ingest(
            opened,
            "s",
            [Source(source)],
            place,
            start=START,
            until=START + int(until) * DAY,
            interval=int(interval) * DAY,
            clock=lambda: NOW,
            randbelow=steady,
            told=told,
        )
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
