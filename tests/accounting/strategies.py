"""Mechanisms and plans as authors might write them."""

from decimal import Decimal

from hypothesis import strategies as st

from privatekube_kfp.accounting import (
    Curve,
    DpSgd,
    EpsilonDelta,
    Gaussian,
    Laplace,
    Mechanism,
    Plan,
    PureEpsilon,
)
from privatekube_kfp.core.budget import format_amount

PAPER_ORDERS = ("2", "3", "4", "5", "6", "8", "16", "32", "64")

names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)
epsilons = st.integers(1, 20 * 10**12).map(lambda units: format_amount(units, 12))
deltas = st.integers(1, 10**12).map(lambda units: format_amount(units, 18))
noises = st.decimals("0.3", "100", places=3).map(str)
rates = st.decimals("0.001", "1", places=3).map(str)


def _rising(values: list[int]) -> dict[str, str]:
    shown = [format_amount(value, 12) for value in sorted(values)]
    return dict(zip(PAPER_ORDERS, shown, strict=True))


curves = st.lists(
    st.integers(1, 10**13), min_size=len(PAPER_ORDERS), max_size=len(PAPER_ORDERS)
).map(lambda values: Curve(_rising(values)))

pure: st.SearchStrategy[Mechanism] = st.one_of(
    st.builds(Laplace, epsilons), st.builds(PureEpsilon, epsilons)
)
sampled = st.builds(DpSgd, noises, rates, st.integers(1, 10**9), st.none() | deltas)
gaussians = st.builds(Gaussian, noises, st.none() | deltas)
with_curves: st.SearchStrategy[Mechanism] = st.one_of(pure, gaussians, sampled, curves)
mechanisms = with_curves | st.builds(EpsilonDelta, epsilons, deltas)


def plans(steps: st.SearchStrategy[Mechanism]) -> st.SearchStrategy[Plan]:
    return st.dictionaries(names, steps, min_size=1, max_size=5).map(Plan.of)


def order_lists(highest: int = 200) -> st.SearchStrategy[list[str]]:
    tenths = st.integers(11, highest * 10).map(lambda n: str(Decimal(n) / 10))
    return st.lists(tenths, min_size=1, max_size=15, unique=True)
