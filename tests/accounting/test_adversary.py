"""An adversary who chooses, after seeing an output, which order to spend the rest from.

It first runs Gaussian noise on a block of (10, 1e-7), looks at the privacy loss that came out,
then picks the order that helps most and spends all that is left there on the worst mechanism for
that order: one with two outputs, the rarer of which gives the secret away. The chance of failure
is the hockey-stick divergence of the two runs together, integrated numerically; every mechanism
it uses is checked, in both directions, to fit the order it was taken from.
"""

from collections.abc import Callable

import numpy as np
import pytest

from privatekube_kfp.accounting import (
    DEFAULT_ORDERS,
    Classic,
    Gaussian,
    Weighted,
    block_capacity,
    conversion_from_name,
)
from privatekube_kfp.core.budget import renyi
from privatekube_kfp.core.errors import Invalid, Reason
from tests.accounting.strategies import PAPER_ORDERS

EPSILON, DELTA = 10.0, 1e-7
SIGMAS = ("0.8", "1", "1.5", "1.75", "3", "4", "8", "20")

Capacities = dict[float, float]


def tight(orders: tuple[str, ...]) -> Capacities:
    """Each order translated at the full delta, as if it were the only one."""
    rooms = {
        a: EPSILON + np.log(DELTA * a) / (a - 1) - np.log(1 - 1 / a) for a in map(float, orders)
    }
    return {a: room for a, room in rooms.items() if room > 0}


def ours(conversion: Classic | Weighted) -> Callable[[tuple[str, ...]], Capacities]:
    def capacities(orders: tuple[str, ...]) -> Capacities:
        accounting = renyi(orders)
        found = block_capacity("10", "1e-7", accounting, conversion)
        return {
            float(a): amount / 1e12
            for a, amount in zip(accounting.order_values, found.amounts, strict=True)
            if amount > 0
        }

    return capacities


def reached(capacities: Capacities, sigma: str) -> float:
    """The failure probability at (EPSILON, .) that the adversary reaches, over DELTA."""
    s = float(sigma)
    # Between N(1, s**2) and N(0, s**2) the loss is normal, of mean 1/(2s**2) and variance 1/s**2.
    mean, deviation = 1 / (2 * s * s), 1 / s
    furthest = max(capacities) * deviation + 12
    z = np.linspace(-12, furthest, 12_001)
    loss = mean + deviation * z
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    spent = renyi([f"{a:g}" for a in sorted(capacities)])
    cost = dict(zip(sorted(capacities), Gaussian(sigma).price(spent).amounts, strict=True))
    gain = np.maximum(0, -np.expm1(np.minimum(EPSILON - loss, 0)))
    for a, capacity in capacities.items():
        room = capacity - cost[a] / 1e12
        if room > 0:
            gain = np.maximum(gain, gained_by_two_points(a, room, loss))
    return float(np.sum(density * gain)) / DELTA


def gained_by_two_points(a: float, room: float, loss: np.ndarray) -> np.ndarray:
    """Failure after this loss, by the worst two-point mechanism that costs `room` at order a."""
    target = np.maximum(EPSILON - loss, 0)
    log_ratio = target + np.log(a / (a - 1))
    # p * ratio**(a-1) + (1-p)**a (1-q)**(1-a) <= exp((a-1) room), and the second is at most 1.
    left = (a - 1) * room + np.log(-np.expm1(-(a - 1) * room))
    # In the other direction, q * ratio**(1-a) + (1-q)**a (1-p)**(1-a) has to stay within it too.
    largest = np.log(-np.expm1(-max(left, 1e-9) / (a - 1)))
    log_p = np.minimum(left - (a - 1) * log_ratio, largest)
    log_q = log_p - log_ratio
    assert_fits(a, room, log_p, log_q)
    p, q, boost = np.exp(log_p), np.exp(log_q), np.exp(EPSILON - loss)
    return np.maximum(p - q * boost, 0) + np.maximum((1 - p) - (1 - q) * boost, 0)


def assert_fits(a: float, room: float, log_p: np.ndarray, log_q: np.ndarray) -> None:
    for x, y in ((log_p, log_q), (log_q, log_p)):
        rare = a * x + (1 - a) * y
        common = a * np.log1p(-np.exp(x)) + (1 - a) * np.log1p(-np.exp(y))
        assert np.all(np.logaddexp(rare, common) <= (a - 1) * room + 1e-9)


ORDERS = [("4", "8"), ("4", "8", "16"), PAPER_ORDERS, DEFAULT_ORDERS]


@pytest.mark.parametrize("orders", ORDERS)
def test_the_tight_conversion_at_the_full_delta_breaks_its_promise(orders: tuple[str, ...]) -> None:
    assert max(reached(tight(orders), sigma) for sigma in SIGMAS) > 1.65


def test_a_third_order_takes_the_adversary_beyond_twice_delta() -> None:
    assert reached(tight(("4", "8", "16")), "4") > 2


def test_one_order_cannot_be_broken_and_is_nearly_reached() -> None:
    assert 0.99 < reached(tight(("8",)), "4") <= 1 + 1e-9


@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.parametrize("conversion", [Classic(), Weighted()], ids=lambda c: c.name)
@pytest.mark.parametrize("sigma", SIGMAS)
def test_our_capacities_keep_their_promise(
    orders: tuple[str, ...], conversion: Classic | Weighted, sigma: str
) -> None:
    assert reached(ours(conversion)(orders), sigma) <= 1


def test_the_weighted_promise_is_nearly_reached_so_the_attack_has_teeth() -> None:
    assert reached(ours(Weighted())(("4", "8")), "1.75") > 0.85


@pytest.mark.parametrize("sigma", [2.0, 3.0])
def test_the_attack_agrees_with_its_formula(sigma: float) -> None:
    """Under tight capacities it is the mean of the largest exp((a - 1)(loss - cost(a)))."""
    z = np.linspace(-12, 30, 12_001)
    loss = 1 / (2 * sigma**2) + z / sigma
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    largest = np.max([np.exp((a - 1) * (loss - a / (2 * sigma**2))) for a in (4, 8)], axis=0)
    formula = float(np.sum(density * largest))
    assert reached(tight(("4", "8")), f"{sigma:g}") == pytest.approx(formula, rel=0.02)


@pytest.mark.parametrize("orders", ORDERS)
def test_the_formula_for_unit_noise_alone_shows_the_same(orders: tuple[str, ...]) -> None:
    """Without the bound that a probability is at most 1: about 2 delta, and more with more."""
    z = np.linspace(-12, 90, 12_001)
    log_density = -z * z / 2 - np.log(np.sqrt(2 * np.pi)) + np.log(z[1] - z[0])

    def formula(capacities: Capacities) -> float:
        exponents = [
            np.log((1 / a) * (1 - 1 / a) ** (a - 1)) + (a - 1) * (room - a / 2 - EPSILON + 0.5 + z)
            for a, room in capacities.items()
            if room > a / 2
        ]
        return float(np.sum(np.exp(np.max(exponents, axis=0) + log_density))) / DELTA

    assert formula(tight(orders)) > 1.9
    assert formula(ours(Classic())(orders)) <= 1
    assert formula(ours(Weighted())(orders)) <= 1


def test_unsound_configurations_are_refused() -> None:
    with pytest.raises(Invalid, match="use weighted") as refusal:
        conversion_from_name("tight")
    assert refusal.value.reason is Reason.UNSOUND_CAPACITY
    with pytest.raises(Invalid, match="add up to 9") as refusal:
        Weighted(dict.fromkeys(PAPER_ORDERS, "1"))
    assert refusal.value.reason is Reason.UNSOUND_CAPACITY
    sixty = renyi([str(order) for order in range(2, 62)])
    with pytest.raises(Invalid, match="fewer orders, or use the weighted") as refusal:
        block_capacity("10", "1e-7", sixty, Classic())
    assert refusal.value.reason is Reason.UNSOUND_CAPACITY
    assert block_capacity("10", "1e-7", sixty, Weighted())


def test_the_default_orders_are_sound() -> None:
    assert block_capacity("10", "1e-7", renyi(DEFAULT_ORDERS), Classic())
