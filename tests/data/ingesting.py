"""Ingests that can be killed, as processes of their own: python -m tests.data.ingesting

A line of JSON on standard input begins one: its arguments. It says its pid, then what it is doing
as it begins with it, then its peak memory; when it has ended, how. They are forked from a process
that has everything loaded, so that a test which kills many of them spends its time on ingest. Their
noise is always the same, so that what one leaves can be compared with what another one left.
"""

import json
import os
import resource
import sys

from privatekube_kfp.data import ingest as module
from privatekube_kfp.data.tables import Source
from privatekube_kfp.ledger.opening import open_ledger
from tests.data.world import DAY, NOW, START, steady


def say(*words):
    print(*words, flush=True)


def ingest(source, place, ledger, until, interval, run_bytes):
    module._RUN_BYTES = run_bytes
    doing = [None]

    def told(what, done, of):
        if what != doing[0]:
            doing[0] = what
            say(what)

    with open_ledger(ledger) as opened:
        module.ingest(
            opened,
            "s",
            [Source(source)],
            place,
            start=START,
            until=START + until * DAY,
            interval=interval * DAY,
            clock=lambda: NOW,
            randbelow=steady,
            told=told,
        )
    say(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def main():
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                say(os.getpid())
                ingest(**json.loads(line))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        say("ended", os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
