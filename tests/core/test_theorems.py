"""The four properties of DPF that the paper proves (section 4.3, appendix B), on random workloads.

And what is left of them under other policies: everything granted is put to use under all of them,
and fair-first, which packs, still keeps DPF's promise to whoever asks for a fair share at most.

Where a theorem as the paper words it is not true of every workload, its test says so, tests the
strongest statement that is, and a concrete example beside it shows what goes wrong.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatekube_kfp.core.budget import BASIC, INFINITE, renyi
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.core.policy import POLICIES
from privatekube_kfp.core.pool import Pool
from privatekube_kfp.core.unlocking import ByPipelines, ByTime
from tests.core.oracle import Oracle, Waiting
from tests.core.walk import Choices
from tests.often import times

RENYI = renyi(["2", "8", "64"])
BLOCKS = ("b0", "b1", "b2")

workloads = st.binary(min_size=80, max_size=240)
many = settings(max_examples=times(80), deadline=None)
accountings = pytest.mark.parametrize("accounting", [BASIC, RENYI], ids=["basic", "renyi"])
unlockings = pytest.mark.parametrize("by", ["pipelines", "time"])
keeping_shares = pytest.mark.parametrize("policy", ["dpf", "fair-first"])


class Workload:
    """Blocks, and what happens over time: who asks for what, who consumes, who releases."""

    def __init__(self, accounting, by, choices, *, releases=True, pass_per_arrival=False):
        self.accounting = accounting
        choose = self.choose = Choices(choices)
        shares = choose.between(2, 6)
        self.unlocking = ByPipelines(shares) if by == "pipelines" else ByTime(shares * 5, 5)
        self.capacity = {block: self.some_capacity() for block in BLOCKS}
        self.demands = []
        self.events = []
        while not choose.over:
            event = choose.of(("ask", "ask", "ask", "consume", "release", "wait"))
            if event == "ask":
                self.demands.append(self.some_demand())
                self.events.append(("ask", len(self.demands) - 1))
            elif event != "release" or releases:
                self.events.append((event, choose.below(20)))
            if pass_per_arrival or choose.below(3):
                self.events.append(("pass", 0))
        self.events.append(("pass", 0))

    def some_capacity(self):
        between = self.choose.between
        if self.accounting.is_renyi:
            return between(-9, 40), between(0, 60), between(10, 60)
        return between(10, 60), between(0, 20)

    def some_demand(self):
        first = self.choose.below(3)
        blocks = BLOCKS[first : first + self.choose.between(1, 3)]
        return {block: self.some_amounts(block) for block in blocks}

    def some_amounts(self, block):
        """From a quarter of a fair share to two; under Renyi now and then infinite at an order."""
        quarters = self.choose.of((1, 2, 4, 4, 8))
        return tuple(
            INFINITE
            if self.accounting.is_renyi and not self.choose.below(12)
            else max(c, 0) // self.unlocking.shares * quarters // 4 + self.choose.below(2) * (c > 0)
            for c in self.capacity[block]
        )


@dataclass
class Pass:
    arrived: list
    granted: list
    waiting: list
    fair: list
    late: list


@dataclass
class Run:
    """What the pool makes of a workload, pass by pass; `misreport` replaces somebody's demand."""

    workload: Workload
    misreport: dict = field(default_factory=dict)
    policy: str = "dpf"

    def __post_init__(self):
        load = self.workload
        self.pool = Pool(load.accounting, load.unlocking, POLICIES[self.policy])
        for block, capacity in load.capacity.items():
            self.pool.add_block(block, load.accounting.budget(capacity), created=0)
        self.waiting, self.held, self.granted_in = [], [], {}
        self.late = set()  # not among the first N to ask for all its blocks

    def demand(self, claim):
        return self.misreport.get(claim, self.workload.demands[claim])

    def budgets(self, claim):
        budget = self.workload.accounting.budget
        return PerBlock.of({block: budget(d) for block, d in self.demand(claim).items()})

    def passes(self):
        now, arrived, fair = 0, [], []
        for event, number in self.workload.events:
            if event == "ask":
                arrived.append(number)
                self.waiting.append(number)
                if self.is_fair(number):
                    fair.append(number)
                weight = (1, 1000, 7)[number % 3] if POLICIES[self.policy].weighs else 1
                self.pool.arrive(str(number), self.budgets(number), arrival=number, weight=weight)
            elif event in ("consume", "release") and self.held:
                claim = self.held.pop(number % len(self.held))
                getattr(self.pool, event)(self.budgets(claim))
            elif event == "wait":
                now += 1 + number % 7
            elif event == "pass":
                outcome = self.pool.plan(now)
                granted = [int(claim) for claim in outcome.grants]
                gone = {*granted, *(int(refusal.claim) for refusal in outcome.refusals)}
                self.waiting = [claim for claim in self.waiting if claim not in gone]
                self.held += granted
                self.granted_in |= dict.fromkeys(granted, len(self.granted_in))
                yield Pass(arrived, granted, list(self.waiting), fair, list(self.late))
                arrived, fair = [], []

    def is_fair(self, claim):
        n = self.workload.unlocking.shares
        if any(self.pool.view(block).arrivals >= n for block in self.demand(claim)):
            self.late.add(claim)
        return self.is_small(claim) and claim not in self.late

    def is_small(self, claim):
        """Whether it asks for a fair share of each of its blocks at most, at every order."""
        return all(
            d <= c // self.workload.unlocking.shares
            for block, demand in self.demand(claim).items()
            for d, c in zip(demand, self.workload.capacity[block], strict=True)
            if c > 0 or not self.workload.accounting.is_renyi
        )

    def turn(self, claim):
        """By the exact share vector, as the paper sorts."""
        oracle = Oracle(any_order=self.workload.accounting.is_renyi, policy="dpf", shares=1)
        oracle.capacity = self.workload.capacity
        return oracle.rank(Waiting(self.demand(claim), claim, deadline=None, weight=1))


# Sharing incentive


@keeping_shares
@accountings
@many
@given(choices=workloads)
def test_sharing_incentive(accounting, policy, choices):
    """Theorem: a fair demand pipeline is granted immediately.

    It is among the first N to ask for each of its blocks, and asks for at most the fair share of
    each, at every order. Holds where each arrival has its own pass and nobody gives budget back;
    see below for the rest. Under fair-first, too, whatever the weights are: whoever asks for more
    than a fair share of something comes after it there as well.
    """
    load = Workload(accounting, "pipelines", choices, releases=False, pass_per_arrival=True)
    run = Run(load, policy=policy)
    for step in run.passes():
        assert set(step.fair) <= set(step.granted)


@keeping_shares
@accountings
@many
@given(choices=workloads)
def test_sharing_incentive_in_general(accounting, policy, choices):
    """A fair demand pipeline is granted immediately, unless a latecomer before it in line is.

    The paper's induction says that whoever waits asks for more than a fair share of something.
    A pipeline may also wait because it was not among the first N for one of its blocks. It may
    ask for little, so it goes first: when that block gets budget back, or when it arrived too
    late for its own share but in time for the same pass as the fair one.
    """
    run = Run(Workload(accounting, "pipelines", choices), policy=policy)
    for step in run.passes():
        for claim in set(step.fair) - set(step.granted):
            before = [k for k in step.granted if k in step.late and run.turn(k) < run.turn(claim)]
            assert any(map(run.is_small, before))


class Small:
    """A pool of blocks of 30 with fair shares of 10; demands by keyword."""

    def __init__(self, *blocks, accounting=BASIC, capacity=(30, 0), policy="dpf"):
        self.accounting = accounting
        self.pool = Pool(accounting, ByPipelines(3), POLICIES[policy])
        for block in blocks:
            self.pool.add_block(block, accounting.budget(capacity), created=0)
        self.demands = {}

    def ask(self, claim, **amounts):
        self.arrive(claim, **amounts)
        return self.pool.plan(0).grants

    def arrive(self, claim, **amounts):
        budgets = {
            block: self.accounting.budget(a if isinstance(a, tuple) else (a, 0))
            for block, a in amounts.items()
        }
        self.demands[claim] = PerBlock.of(budgets)
        self.pool.arrive(claim, self.demands[claim], arrival=len(self.demands))

    def release(self, claim):
        self.pool.release(self.demands[claim])
        return self.pool.plan(0).grants


def test_a_release_may_let_a_latecomer_before_a_fair_pipeline():
    """One exception: `fair` is among the first three for its block, and has to wait."""
    small = Small("old", "new")
    for claim in ("first", "second", "third"):
        assert small.ask(claim, old=10) == (claim,)
    assert small.ask("latecomer", old=5, new=5) == ()
    assert small.ask("greedy", new=20) == ("greedy",)
    assert small.release("first") == ()
    assert small.ask("fair", new=10) == ("latecomer",)


def test_a_latecomer_in_the_same_pass_may_go_before_a_fair_pipeline():
    """The other exception; a host that makes a pass for each arrival does not see it."""
    small = Small("b")
    assert small.ask("large", b=15) == ()
    assert small.ask("larger", b=20) == ("large",)
    small.arrive("fair", b=10)
    small.arrive("fourth of three", b=9)
    assert small.pool.plan(0).grants == ("fourth of three",)


def test_dpack_may_keep_a_fair_pipeline_waiting():
    """Why fair-first: the smaller of two that wait packs better, but the fair one has a right.

    `wide` asks for more than a fair share of `a`, and for so little of it that it goes first.
    """

    def play(policy):
        small = Small("a", "b", policy=policy)
        small.arrive("wide", a=12)
        small.arrive("fair", a=10, b=10)
        return small.pool.plan(0).grants

    assert play("dpack") == ("wide",)
    assert play("dpf") == play("fair-first") == ("fair",)


# Strategy-proofness


@unlockings
@accountings
@many
@given(choices=workloads, lie=st.binary(min_size=20, max_size=20))
def test_strategy_proofness_asking_for_more(accounting, by, choices, lie):
    """Theorem: a pipeline has no incentive to misreport its demand.

    Asking for more budget than it needs, of any of its blocks at any orders, it is granted no
    earlier than with its true demand. Where time unlocks, that goes for blocks that it does not
    need, too; where arrivals do, see below.
    """
    load = Workload(accounting, by, choices)
    if not load.demands:
        return
    choose = Choices(lie)
    liar = choose.below(len(load.demands))
    true = load.demands[liar]
    more = {
        block: tuple(min(d + choose.of((0, 0, 1, 3, 20, INFINITE)), INFINITE) for d in demand)
        for block, demand in true.items()
    }
    if by == "time":
        more |= {block: load.some_amounts(block) for block in BLOCKS if block not in true}
    assert granted_in(Run(load, {liar: more}), liar) >= granted_in(Run(load), liar)


def granted_in(run, claim):
    """The number of the pass that grants the claim, if any does."""
    passes = enumerate(run.passes())
    return next((number for number, step in passes if claim in step.granted), float("inf"))


@accountings
@many
@given(choices=workloads, lie=st.binary(min_size=4, max_size=4))
def test_strategy_proofness_asking_for_less(accounting, choices, lie):
    """What is granted is what was asked for: less than its demand, of which it has no use."""
    load = Workload(accounting, "pipelines", choices)
    choose = Choices(lie)
    if not load.demands:
        return
    liar = choose.below(len(load.demands))
    true = load.demands[liar]
    block = choose.of(sorted(true))
    less = true | {block: tuple(d // 2 for d in true[block])}
    if less == true:
        return
    run = Run(load, {liar: less})
    for step in run.passes():
        if liar in step.granted:
            assert run.budgets(liar).first_not_covering(Run(load).budgets(liar)) == block
            assert allocated_by_block(run) == summed(run, run.held)
            return


def test_asking_for_a_block_one_does_not_need_may_pay_where_arrivals_unlock():
    """Why the theorem is about amounts: an arrival unlocks budget of every block that it names.

    `liar` needs `a` alone. Naming `b` too, it lets `small` run, which takes from `c` what `big`
    needs, and `big` would have taken `a`. The paper's proof looks at the liar's own share only.
    """

    def play(**lie):
        small = Small("a", "b", "c")
        granted = list(small.ask("liar", a=25, **lie))
        granted += small.ask("small", b=15, c=15)
        granted += small.ask("other", a=30, c=30)
        granted += small.ask("big", a=20, c=20)
        return granted

    assert play() == ["big"]
    assert play(b=1) == ["small", "liar"]


# Dynamic envy-freeness


@unlockings
@accountings
@many
@given(choices=workloads)
def test_dynamic_envy_freeness(accounting, by, choices):
    """Theorem: a pipeline present at time t cannot envy the allocation of another pipeline present
    at time t, except if their dominant shares are identical.

    Whoever waits would have no use for what was granted to another since it came: it does not
    cover its demand (of every block, at every order). Stronger than the paper: except if all
    their shares are identical, and the other came first.
    """
    run = Run(Workload(accounting, by, choices))
    for step in run.passes():
        for i in step.waiting:
            for j in step.granted:
                if run.budgets(j).first_not_covering(run.budgets(i)) is None:
                    (shares_i, came_i), (shares_j, came_j) = run.turn(i), run.turn(j)
                    assert shares_i == shares_j
                    assert came_j < came_i


@unlockings
@accountings
@many
@given(choices=workloads)
def test_no_envy_within_a_fair_share_under_fair_first(accounting, by, choices):
    """The same of whoever asks for a fair share at most, whatever the weights are."""
    run = Run(Workload(accounting, by, choices), policy="fair-first")
    for step in run.passes():
        for i in filter(run.is_small, step.waiting):
            for j in step.granted:
                if run.budgets(j).first_not_covering(run.budgets(i)) is None:
                    (shares_i, came_i), (shares_j, came_j) = run.turn(i), run.turn(j)
                    assert shares_i == shares_j
                    assert came_j < came_i


def test_envy_under_renyi_is_about_every_order():
    """Why the theorem compares at every order, though one order is enough to be granted.

    `waiting` asks for little at order 2 and infinitely much at order 4. From the allocation of
    `granted` alone it could run, at order 2; but its dominant share is the largest there is.
    """
    small = Small("b", accounting=renyi(["2", "4"]), capacity=(30, 30))
    assert small.ask("earlier", b=(10, 10)) == ("earlier",)
    small.ask("waiting", b=(12, INFINITE))
    assert small.ask("granted", b=(15, 15)) == ("granted",)
    [(_, wanted)], [(_, given)] = (small.demands[c].items() for c in ("waiting", "granted"))
    assert small.pool.waiting == 1
    assert wanted.fits(given, small.pool.view("b").capacity)
    assert not given.covers(wanted)


# Pareto efficiency


@pytest.mark.parametrize("policy", POLICIES)
@unlockings
@accountings
@many
@given(choices=workloads)
def test_pareto_efficiency(accounting, by, policy, choices):
    """Theorem: no allocation from unlocked budget can increase a pipeline's utility without
    decreasing another pipeline's utility.

    After a pass nobody who waits could run from what is unlocked, and nobody holds more than it
    asked for, so that budget for one more could only come from another's allocation. This holds
    of every policy: it is about trying everybody, in whatever order.
    """
    run = Run(Workload(accounting, by, choices), policy=policy)
    for step in run.passes():
        views = {block: run.pool.view(block) for block in BLOCKS}
        for claim in step.waiting:
            assert not all(
                demand.fits(views[block].unlocked, views[block].capacity)
                for block, demand in run.budgets(claim).items()
            )
        assert allocated_by_block(run) == summed(run, run.held)


def allocated_by_block(run):
    return {block: run.pool.view(block).allocated.amounts for block in BLOCKS}


def summed(run, claims):
    total = {block: run.workload.accounting.zero() for block in BLOCKS}
    for claim in claims:
        for block, demand in run.budgets(claim).items():
            total[block] += demand
    return {block: budget.amounts for block, budget in total.items()}
