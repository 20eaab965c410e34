"""The paper's example run of DPF (section 4.2): three pipelines over two private blocks."""

from privatekube_kfp.core.budget import BASIC, basic
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.core.policy import POLICIES
from privatekube_kfp.core.pool import Pool
from privatekube_kfp.core.unlocking import ByPipelines

N = 4
FAIR_SHARE = basic("1")


class Example:
    """Two blocks with a fair share of 1 each; budget is consumed as soon as it is granted."""

    def __init__(self):
        self.pool = Pool(BASIC, ByPipelines(N), POLICIES["dpf"])
        for block in ("PB1", "PB2"):
            self.pool.add_block(block, FAIR_SHARE.times(N), created=0)
        self.demands = {}

    def arrives(self, pipeline, t, of_pb1, of_pb2):
        """The pipeline arrives at `t`; returns whom DPF schedules then."""
        demand = PerBlock.of({"PB1": basic(of_pb1), "PB2": basic(of_pb2)})
        self.demands[pipeline] = demand
        self.pool.arrive(pipeline, demand, arrival=t)
        granted = self.pool.plan(t).grants
        for winner in granted:
            self.pool.consume(self.demands[winner])
        return granted

    def holds(self, block, *, locked, unlocked, consumed):
        view = self.pool.view(block)
        assert view.allocated.is_zero
        assert (view.locked, view.unlocked, view.consumed) == (
            basic(locked),
            basic(unlocked),
            basic(consumed),
        )


def test_three_pipelines_over_two_blocks():
    example = Example()
    example.holds("PB1", locked="4", unlocked="0", consumed="0")
    example.holds("PB2", locked="4", unlocked="0", consumed="0")

    # "When P1 arrives it unlocks a privacy budget of 1 in each block. [...] However it is unable
    # to do so, since P1 requires a budget of 1.5 from PB2 but only 1 is unlocked."
    assert example.arrives("P1", t=1, of_pb1="0.5", of_pb2="1.5") == ()
    example.holds("PB1", locked="3", unlocked="1", consumed="0")
    example.holds("PB2", locked="3", unlocked="1", consumed="0")
    assert "PB2: epsilon 1.5 asked, 1 unlocked" in example.pool.why_waiting("P1").message

    # "When P2 arrives, more budget is unlocked. [...] the scheduler tries to allocate budget to P2,
    # and does so successfully. It then tries to allocate budget to P1, but is unable to (since
    # there is only a budget of 1 left in PB2)."
    assert example.arrives("P2", t=2, of_pb1="1.0", of_pb2="1.0") == ("P2",)
    example.holds("PB1", locked="2", unlocked="1", consumed="1")
    example.holds("PB2", locked="2", unlocked="1", consumed="1")

    # "When P3 arrives, its dominant share is for block 1 (1.5), while the dominant share for P1 is
    # block 2 (1.5). Since their dominant share is the same, DPF orders them based on their second
    # highest share [...]. Therefore, the scheduler allocates the budget for P1. P3 must wait, since
    # the remaining unlocked budget for block 2 is only 0.5."
    assert example.arrives("P3", t=3, of_pb1="1.5", of_pb2="1.0") == ("P1",)
    example.holds("PB1", locked="1", unlocked="1.5", consumed="1.5")
    example.holds("PB2", locked="1", unlocked="0.5", consumed="2.5")
    assert "PB2: epsilon 1 asked, 0.5 unlocked" in example.pool.why_waiting("P3").message
    assert example.pool.waiting == 1


def test_the_tie_is_broken_by_the_second_share_and_not_by_who_came_first():
    """As at t=3 above, where P1 was also there first: here the smaller second share comes last."""
    pool = Pool(BASIC, ByPipelines(2), POLICIES["dpf"])
    for block in ("PB1", "PB2"):
        pool.add_block(block, FAIR_SHARE.times(2), created=0)
    pool.arrive("P3", PerBlock.of({"PB1": basic("1.5"), "PB2": basic("1")}), arrival=1)
    assert pool.plan(1).grants == ()
    pool.arrive("P1", PerBlock.of({"PB1": basic("0.5"), "PB2": basic("1.5")}), arrival=2)
    assert pool.plan(2).grants == ("P1",)
