"""Random calls on a ledger, so that two ledgers can be taken down the same path and compared."""

from privatekube_kfp.accounting import Gaussian, Laplace, Plan
from privatekube_kfp.core.errors import PrivateKubeError
from privatekube_kfp.core.policy import POLICIES
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.unlocking import AtOnce, ByPipelines, ByTime
from privatekube_kfp.ledger.requests import AllocateRequest, ConsumeRequest, ReleaseRequest
from tests.contract.world import DAY, SECOND, basic_stream, pure, renyi_stream

STREAMS = {
    "by-pipelines": basic_stream("by-pipelines", unlocking=ByPipelines(4)),
    "by-time": basic_stream("by-time", unlocking=ByTime(5 * DAY, DAY)),
    "fcfs": basic_stream("fcfs", unlocking=AtOnce(), policy="fcfs"),
    "renyi": renyi_stream("renyi", unlocking=ByPipelines(3)),
    "weighted-dpf": basic_stream("weighted-dpf", unlocking=ByPipelines(4), policy="weighted-dpf"),
    "fair-first": basic_stream("fair-first", unlocking=ByPipelines(4), policy="fair-first"),
    "renyi-dpack": renyi_stream("renyi-dpack", unlocking=ByPipelines(3), policy="dpack"),
    "renyi-by-time": renyi_stream("renyi-by-time", unlocking=ByTime(5 * DAY, DAY)),
}


def random_call(rng, step):
    """One call as (method, arguments); `pass` lets time go by."""
    stream = rng.choice(list(STREAMS))
    kind = rng.choices(
        ["block", "allocate", "consume", "release", "retire", "pass", "repeat"],
        [6, 40, 20, 10, 1, 10, 5],
    )[0]
    if step < len(STREAMS):
        return "create_stream", (list(STREAMS.values())[step],)
    if kind == "block" or step < 3 * len(STREAMS):
        day = rng.randrange(6)
        stream = list(STREAMS)[step % len(STREAMS)] if step < 3 * len(STREAMS) else stream
        return (
            "create_block",
            (f"{stream}-{day}", stream),
            {"start": day * DAY, "end": (day + 1) * DAY},
        )
    if kind == "allocate":
        claim = f"{stream}-c{rng.randrange(40)}"
        if rng.random() < 0.5:
            selection = Selection(names=(f"{stream}-{rng.randrange(6)}",))
        else:
            selection = Selection(last=rng.randrange(1, 4))
        timeout = rng.choice([0, None, 3 * SECOND, 2 * DAY])
        id = rng.choice(["allocate", "allocate", "more"])
        weight = rng.choice([1, 2, 9]) if POLICIES[STREAMS[stream].policy].weighs else 1
        weight = 3 if rng.random() < 0.02 else weight  # refused by most
        plan = _plan(rng, stream)
        request = AllocateRequest(id, stream, selection, plan, timeout, weight=weight)
        return "submit", (claim, request)
    claim = f"{stream}-c{rng.randrange(40)}"
    if kind == "consume":
        id = f"consume-{rng.randrange(3)}"
        amount = None if rng.random() < 0.4 else _plan(rng, stream)
        step_name = "train" if amount is None and rng.random() < 0.5 else None
        return "submit", (claim, ConsumeRequest(id, step_name, amount))
    if kind == "release":
        return "submit", (claim, ReleaseRequest("release"))
    if kind == "retire":
        return "retire_block", (f"{stream}-{rng.randrange(6)}",)
    return "pass", (rng.choice([SECOND, DAY // 2, DAY]),)


def _plan(rng, stream):
    if stream.startswith("renyi"):
        mechanisms = [Gaussian("2.5"), Gaussian("4"), Laplace("0.8"), Gaussian("1.1")]
        return Plan.of(rng.choice(mechanisms))
    if rng.random() < 0.3:
        return Plan.split("0.2", {"prepare": "25", "train": "75"})
    return pure(rng.choice(["0.05", "0.1", "0.25", "0.3", "0.7"]))


def do(ledger, call):
    """The call's result, or the reason of its refusal: what must be the same on every ledger."""
    method, arguments, *named = call
    try:
        return getattr(ledger, method)(*arguments, **(named[0] if named else {}))
    except PrivateKubeError as refused:
        return refused.reason, refused.message


def everything(ledger):
    """All that a ledger shows."""
    waiting = [
        (claim.name, ledger.why_waiting(claim.name, claim.unanswered().id))
        for claim in ledger.claims()
        if claim.unanswered()
    ]
    claims = [(claim, claim.phase) for claim in ledger.claims()]
    return ledger.streams(), ledger.blocks(), claims, waiting
