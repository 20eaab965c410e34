"""What contract tests share: a clock that is set by hand, and short ways to say things."""

from privatekube_kfp.accounting import Classic, Plan, PureEpsilon
from privatekube_kfp.core.budget import renyi
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.unlocking import MICROSECONDS, ByPipelines
from privatekube_kfp.ledger.requests import AllocateRequest, ConsumeRequest
from privatekube_kfp.ledger.streams import StreamSpec

SECOND = MICROSECONDS["s"]
DAY = MICROSECONDS["d"]
ORDERS = ("2", "3", "4", "5", "6", "8", "16", "32", "64")


class ManualClock:
    """Time in microseconds that passes only when told; sleeping is telling."""

    def __init__(self, now=1_700_000_000 * SECOND):
        self.now = now

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += max(1, int(seconds * SECOND))

    def monotonic(self):
        return self.now / SECOND


def basic_stream(name="s", epsilon="1", delta="1e-7", unlocking=None, **more):
    return StreamSpec(name, epsilon, delta, unlocking or ByPipelines(1), **more)


def renyi_stream(name="r", epsilon="10", delta="1e-7", unlocking=None, **more):
    return StreamSpec(
        name,
        epsilon,
        delta,
        unlocking or ByPipelines(1),
        accounting=renyi(ORDERS),
        conversion=Classic(),
        **more,
    )


def pure(epsilon):
    return Plan.of(PureEpsilon(epsilon))


def ask(epsilon, *blocks, stream="s", timeout=0, id="allocate", **more):
    plan = epsilon if isinstance(epsilon, Plan) else pure(epsilon)
    return AllocateRequest(id, stream, Selection(names=blocks), plan, timeout, **more)


def spend(epsilon, id):
    return ConsumeRequest(id, amount=pure(epsilon))


def epsilons(ledger, block):
    """locked, unlocked, allocated and consumed epsilon of a Basic block, as decimals."""
    budget = ledger.block(block).budget
    parts = (budget.locked, budget.unlocked, budget.allocated, budget.consumed)
    return tuple(part.to_json()["epsilon"] for part in parts)
