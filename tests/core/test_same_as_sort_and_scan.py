"""The incremental pass grants exactly what sorting and trying everybody grants."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privatekube_kfp.core import asking, lazy_heap, packing
from privatekube_kfp.core.budget import BASIC, INFINITE, renyi
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.core.policy import POLICIES
from privatekube_kfp.core.pool import Pool
from privatekube_kfp.core.unlocking import ByPipelines
from tests.core.walk import Walk
from tests.often import times

RENYI = renyi(["2", "4", "8"])
every_kind = pytest.mark.parametrize(
    ("accounting", "policy"),
    [(accounting, policy) for accounting in (BASIC, RENYI) for policy in POLICIES],
    ids=[f"{accounting}-{policy}" for accounting in ("basic", "renyi") for policy in POLICIES],
)


@pytest.fixture(autouse=True, scope="module")
def _small_scale():
    """A walk has few blocks and claims: they should span stretches and be swept all the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "_STRETCH_BITS", 1)
        patch.setattr(asking, "SLACK", 0)
        patch.setattr(lazy_heap, "SLACK", 0)
        patch.setattr(packing, "GRANTS_PER_RANKING", 2)
        yield


@every_kind
@settings(max_examples=times(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(choices=st.binary(min_size=200, max_size=500))
def test_same_grants_in_the_same_order(accounting, policy, choices):
    Walk(accounting, policy, choices).run()


@every_kind
@pytest.mark.parametrize("seed", range(15))
def test_same_grants_on_a_longer_walk(accounting, policy, seed):
    Walk(accounting, policy, random.Random(seed).randbytes(1_000)).run()


@pytest.mark.slow
@every_kind
@pytest.mark.parametrize("seed", range(1_000, 1_050))
def test_same_grants_on_many_long_walks(accounting, policy, seed):
    Walk(accounting, policy, random.Random(seed).randbytes(2_000)).run()


def test_thousands_of_claims_that_are_infinite_at_one_order_add_up_exactly():
    accounting = renyi(["2", "64"])
    pool = Pool(accounting, ByPipelines(1), POLICIES["dpf"])
    pool.add_block("b", accounting.budget((10_000, 10_000)), 0)
    demand = PerBlock.uniform(accounting.budget((2, INFINITE)), ["b"])
    for arrival in range(5_000):
        pool.arrive(f"c{arrival}", demand, arrival=arrival)
        assert pool.plan(0).grants == (f"c{arrival}",)
    assert pool.view("b").allocated.amounts == (10_000, 5_000 * INFINITE)
    assert pool.view("b").unlocked.amounts == (0, 10_000 - 5_000 * INFINITE)
    pool.arrive("one-more", demand, arrival=5_000)
    assert pool.plan(0).grants == ()
    for _ in range(5_000):
        pool.release(demand)
    assert pool.plan(0).grants == ("one-more",)
    assert pool.view("b").unlocked.amounts == (9_998, 10_000 - INFINITE)
