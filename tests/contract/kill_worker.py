"""One of the processes of the kill test: makes its claims one after the other, logs every answer.

It begins where its log ends, less a few claims, and asks for those again word for word: what was
answered before must be answered the same.
"""

import json
import random
import sys
from pathlib import Path

from privatekube_kfp.accounting import Gaussian, Plan, PureEpsilon
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.unlocking import MICROSECONDS
from privatekube_kfp.ledger.client import ClaimClient
from privatekube_kfp.ledger.opening import open_ledger

BLOCKS = 12


def work(address, log_path, worker, claims):
    client = ClaimClient(open_ledger(address))
    done = log_path.read_text().count('"last"') if log_path.exists() else 0
    with log_path.open("a") as log:
        for number in range(max(0, done - 3), claims):
            rng = random.Random(f"{worker}/{number}")
            claim = f"w{worker}-{number}"

            def keep(request, response, claim=claim):
                answer = {
                    "claim": claim,
                    "request": request,
                    "done": response.done,
                    "reason": response.reason,
                    "message": response.message,
                    "at": response.at,
                    "amounts": response.amounts.to_json(),
                }
                log.write(json.dumps(answer) + "\n")
                log.flush()

            stream = rng.choice(["basic", "renyi"])
            first = rng.randrange(BLOCKS)
            blocks = [f"{stream}-{b % BLOCKS}" for b in range(first, first + rng.randrange(1, 4))]
            plan = Plan.of(
                {"prepare": PureEpsilon("0.01"), "train": Gaussian("4")}
                if stream == "renyi"
                else {"prepare": PureEpsilon("0.01"), "train": PureEpsilon("0.09")}
            )
            response = client.allocate(
                claim,
                stream=stream,
                selection=Selection(names=tuple(blocks)),
                plan=plan,
                timeout=rng.choice([0, 50_000, MICROSECONDS["s"] // 5]),
            )
            keep("allocate", response)
            if rng.random() < 0.8:
                keep("consume-prepare", client.consume(claim, step="prepare"))
            if rng.random() < 0.5:
                keep("consume", client.consume(claim))
            keep("release", client.release(claim))
            log.write('{"last": true}\n')
            log.flush()


if __name__ == "__main__":
    work(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
