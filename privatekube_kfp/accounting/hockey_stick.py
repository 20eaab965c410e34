"""From noise to the (epsilon, delta) that it gives.

Two roads. Plain Gaussian noise has an exact answer, the hockey-stick divergence between two
normal distributions (Balle and Wang 2018). Everything else with a Renyi curve is converted at the
one order that serves it best; any fixed order gives a true bound, so looking for the best one is
free. `mechanisms` prices Basic demands with both, `calibration` runs them backwards.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

from privatekube_kfp.accounting.enclosure import DOWN, ONE, PI, UP, Enclosure
from privatekube_kfp.core.budget import DELTA_DIGITS, EPSILON_DIGITS, INFINITE, ceil_units

_SERIES_BELOW = 6
_FRACTION_TERMS = 120
_NEGLIGIBLE = Decimal("1e-130")
_ROOT_TWO_PI = (PI + PI).sqrt()


def smallest(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest number in (low, high] at which `holds`, if it holds from some point on.

    `high` is taken to hold. Where `holds` is not monotone, some number at which it holds.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@lru_cache(maxsize=4096)
def gaussian_epsilon(variance: Fraction, delta: int) -> int:
    """The smallest epsilon, in units, at which noise of this variance fails within `delta`."""
    return smallest(lambda epsilon: gaussian_holds(epsilon, variance, delta), 0, INFINITE)


def gaussian_holds(epsilon: int, variance: Fraction, delta: int) -> bool:
    """Whether noise of this variance is sure to be (epsilon, delta)-DP, both in units."""
    reached = gaussian_delta(Fraction(epsilon, 10**EPSILON_DIGITS), variance)
    return reached <= Fraction(delta, 10**DELTA_DIGITS)


def gaussian_delta(epsilon: Fraction, variance: Fraction) -> Decimal:
    """At least the delta of Gaussian noise of this variance, at sensitivity 1 and this epsilon.

    With m = 1 / sigma, a = epsilon / m - m / 2 and b = a + m it is Phi(-a) - e**epsilon Phi(-b),
    and since e**epsilon phi(b) = phi(a), also phi(a) * (M(a) - M(b)), M being Mills' ratio.
    """
    shift = Enclosure.of(1 / variance).sqrt()
    centre = Enclosure.of(epsilon) / shift
    half = shift / (ONE + ONE)
    a, b = centre - half, centre + half
    if a.low < -_SERIES_BELOW:
        return Decimal(1)
    density = (-(a * a) / (ONE + ONE)).exp() / _ROOT_TWO_PI
    # Mills' ratio decreases.
    difference = _mills(a.low) - _mills(b.high)
    return min((density * difference).high, Decimal(1))


def _mills(x: Decimal) -> Enclosure:
    """Mills' ratio (1 - Phi(x)) / phi(x)."""
    size = x.copy_abs()
    ratio = _mills_series(size) if size <= _SERIES_BELOW else _mills_fraction(size)
    if x >= 0:
        return ratio
    return _inverse_density(size) - ratio


def _inverse_density(x: Decimal) -> Enclosure:
    """1 / phi(x), that is sqrt(2 pi) exp(x**2 / 2)."""
    point = Enclosure(x, x)
    return _ROOT_TWO_PI * (point * point / (ONE + ONE)).exp()


def _mills_series(x: Decimal) -> Enclosure:
    """Half of 1 / phi(x), less the sum of x**(2n+1) / (1 * 3 * ... * (2n+1)); x not negative."""
    low = _odd_series(x, DOWN)
    # Once summing stops, each term left out is less than half the one before it.
    high = UP.add(_odd_series(x, UP), _NEGLIGIBLE)
    return _inverse_density(x) / (ONE + ONE) - Enclosure(low, high)


def _odd_series(x: Decimal, context: Context) -> Decimal:
    square = context.multiply(x, x)
    term = total = x
    n = 1
    while term > _NEGLIGIBLE or n < 2 * square:
        n += 2
        term = context.divide(context.multiply(term, square), Decimal(n))
        total = context.add(total, term)
    return total


def _mills_fraction(x: Decimal) -> Enclosure:
    """1 / (x + 1 / (x + 2 / (x + 3 / ...))), its far end enclosed between x and x + n / x."""
    low, high = x, UP.add(x, UP.divide(Decimal(_FRACTION_TERMS + 1), x))
    for n in range(_FRACTION_TERMS, 0, -1):
        low, high = (
            DOWN.add(x, DOWN.divide(Decimal(n), high)),
            UP.add(x, UP.divide(Decimal(n), low)),
        )
    return ONE / Enclosure(low, high)


def _candidate_orders() -> tuple[Decimal, ...]:
    """Dense where a training run's best order usually lies, geometric above."""
    tenths = [Decimal(n) / 10 for n in range(11, 20)]
    quarters = [Decimal(n) / 4 for n in range(8, 48)]
    whole = [Decimal(n) for n in range(12, 64)]
    distant = [Decimal(round(64 * 1.125**k)) for k in range(42)]
    return (*tenths, *quarters, *whole, *distant)


_ORDERS = _candidate_orders()
_START, _STRIDE = _ORDERS.index(Decimal(8)), 16


def renyi_epsilon(curve: Callable[[Decimal], Decimal], delta: int, enough: int = 0) -> int:
    """The epsilon, in units, that a mechanism with this Renyi curve has at `delta`.

    The search for the best order stops as soon as an epsilon of at most `enough` is found.
    """
    known: dict[int, Decimal] = {}

    def epsilon(index: int) -> Decimal:
        if index not in known:
            order = _ORDERS[index]
            known[index] = converted(order, curve(order), delta)
        return known[index]

    best, stride = _START, _STRIDE
    while stride and ceil_units(epsilon(best)) > enough:
        near = [i for i in (best - stride, best + stride) if 0 <= i < len(_ORDERS)]
        better = min(near, key=epsilon)
        if epsilon(better) < epsilon(best):
            best = better
        else:
            stride //= 2
    return max(ceil_units(epsilon(best)), 1)


def converted(order: Decimal, divergence: Decimal, delta: int) -> Decimal:
    """At least the epsilon at `delta` of what has this divergence at this one order.

    The tight conversion (Canonne, Kamath and Steinke 2020, prop. 12). Sound for one order fixed
    in advance; a block, which any of its orders may grant from, needs `capacity`.
    """
    a = Fraction(order)
    allowed = Fraction(delta, 10**DELTA_DIGITS)
    spread = Enclosure.of((a - 1) / a).ln() - Enclosure.of(allowed * a).ln() / Enclosure.of(a - 1)
    return UP.add(divergence, spread.high)
