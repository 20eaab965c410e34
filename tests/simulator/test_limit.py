"""The bound that HiGHS finds: what trying all sets finds, and never below what a policy grants."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatekube_kfp.core.budget import BASIC, INFINITE, renyi
from privatekube_kfp.core.unlocking import AtOnce
from privatekube_kfp.simulator.limit import upper_bound
from privatekube_kfp.simulator.replaying import replay
from privatekube_kfp.simulator.workload import Workload
from tests.often import times

RENYI = renyi(["2", "4"])
claims = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(1, 3),
        st.integers(1, 12),
        st.integers(1, 12) | st.just(INFINITE),
    ),
    min_size=0,
    max_size=7,
)


def workload_of(claims, accounting):
    claims = [(first, min(count, 3 - first), *amounts) for first, count, *amounts in claims]
    columns = np.array(claims, dtype=np.int64).reshape(-1, 4).T
    return Workload(
        accounting=accounting,
        capacity=accounting.budget((10, 14)),
        blocks=(0, 0, 0),
        at=np.arange(len(claims)),
        first=columns[0],
        count=columns[1],
        demand=np.arange(len(claims)),
        demands=[accounting.budget(claim[2:]) for claim in claims],
    )


def most(workload):
    """The largest set that every block can serve."""
    everybody = range(len(workload))
    for size in range(len(workload), 0, -1):
        if any(_serves(workload, chosen) for chosen in combinations(everybody, size)):
            return size
    return 0


def _serves(workload, chosen):
    for block in range(3):
        there = [
            workload.demands[i].amounts
            for i in chosen
            if workload.first[i] <= block < workload.first[i] + workload.count[i]
        ]
        within = [
            sum(amounts) <= capacity
            for amounts, capacity in zip(
                zip(*there, strict=True), workload.capacity.amounts, strict=False
            )
        ]
        combine = any if workload.accounting.is_renyi else all
        if there and not combine(within):
            return False
    return True


@pytest.mark.parametrize("accounting", [BASIC, RENYI], ids=["basic", "renyi"])
@settings(max_examples=times(60), deadline=None)
@given(claims=claims)
def test_the_bound_is_what_trying_all_sets_finds(accounting, claims):
    workload = workload_of(claims, accounting)
    found = upper_bound(workload)
    assert found.exact
    assert found.pipelines == most(workload)


@pytest.mark.parametrize("accounting", [BASIC, RENYI], ids=["basic", "renyi"])
@pytest.mark.parametrize("policy", ["dpf", "fcfs", "dpack", "fair-first"])
@settings(max_examples=times(30), deadline=None)
@given(claims=claims)
def test_no_policy_grants_more(accounting, policy, claims):
    workload = workload_of(claims, accounting)
    assert replay(workload, policy, AtOnce()).granted <= upper_bound(workload).pipelines


def test_a_search_that_is_broken_off_still_bounds():
    from privatekube_kfp.simulator.workloads import multi_block

    workload = multi_block(0, seconds=30)
    found = upper_bound(workload, seconds=0.01)
    assert replay(workload, "dpf", AtOnce()).granted <= found.pipelines <= len(workload)
