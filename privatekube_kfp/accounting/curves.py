"""What one mechanism costs at one Renyi order.

Each function returns an upper bound on the Renyi divergence between a mechanism's outputs on two
neighbouring datasets (one person's rows added or removed), in both directions. `mechanisms`
prices demands with them, `capacity` the user counter.

Nothing here goes through floats. A curve computed in floats loses its leading digits where a
sampled step costs little (the moment is then 1 plus almost nothing), and a training run
multiplies that loss by its number of steps. The float arithmetic below only picks grid widths,
which decide how tight a bound is, never whether it holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from privatekube_kfp.accounting.enclosure import ONE, PI, UP, Enclosure, exp_up, ln_up

# Above this order the binomial sum takes seconds, and nobody's stream has such an order.
MAX_BINOMIAL_ORDER = 2**16
# A point takes a tenth of a millisecond. Only noise too small to be of use needs more of them.
MAX_GRID_POINTS = 600

_GRID = Context(prec=50, rounding=ROUND_CEILING, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def laplace(order: Decimal, epsilon: Enclosure) -> Enclosure:
    """Laplace noise of scale 1/epsilon on a value of sensitivity 1 (Mironov 2017, prop. 6)."""
    above = Enclosure.of(Fraction(order) - 1)
    total = Enclosure.of(2 * Fraction(order) - 1)
    inner = Enclosure.of(order) / total + above / total * (-total * epsilon).exp()
    return epsilon + inner.ln() / above


def randomized_response(order: Decimal, epsilon: Enclosure) -> Enclosure:
    """The dearest curve any epsilon-DP mechanism can have: that of a biased coin."""
    above = Enclosure.of(Fraction(order) - 1)
    lie = (-epsilon).exp()
    inner = (ONE + lie * (-(above + above) * epsilon).exp()) / (ONE + lie)
    found = epsilon + inner.ln() / above
    # It comes closer to epsilon than we calculate, and must not cost a unit more for that.
    return Enclosure(found.low, min(found.high, epsilon.high))


def gaussian(order: Decimal, sigma: Decimal) -> Fraction:
    """Gaussian noise of deviation sigma on a value of sensitivity 1; exact."""
    return Fraction(order) / (2 * Fraction(sigma) ** 2)


@lru_cache(maxsize=16384)
def sampled_gaussian(order: Decimal, sigma: Decimal, rate: Decimal) -> Decimal:
    """One step of Gaussian noise over a Poisson sample of the rows, at least.

    Both ways between neighbours the divergence is at most that of the mixture from the plain
    Gaussian (Mironov, Talwar and Zhang 2019), whose moment of order a is

        A(a) = E[(1 - rate + rate * exp(x / sigma - 1 / (2 sigma**2)))**a],  x standard normal,

    and the divergence ln A(a) / (a - 1). Sampling is post-processing of the unsampled step, so
    the plain Gaussian's cost bounds it too, and stands in where the moment is out of reach.
    """
    plain = gaussian(order, sigma)
    ceiling = UP.divide(Decimal(plain.numerator), Decimal(plain.denominator))
    if rate == 1 or order > MAX_BINOMIAL_ORDER:
        return ceiling
    log_moment = _log_moment(order, sigma, rate)
    return min(UP.divide(log_moment, UP.subtract(order, Decimal(1))), ceiling)


def _log_moment(order: Decimal, sigma: Decimal, rate: Decimal) -> Decimal:
    if order == order.to_integral_value():
        return _log_moment_at_integer(int(order), sigma, rate)
    chord = _log_moment_between_integers(order, sigma, rate)
    grid = _Grid.choose(order, sigma, rate)
    if grid.points > MAX_GRID_POINTS:
        return chord
    return min(chord, ln_up(grid.moment(order, sigma, rate)))


@lru_cache(maxsize=16384)
def _log_moment_at_integer(order: int, sigma: Decimal, rate: Decimal) -> Decimal:
    """The binomial expansion of A; every term is positive and rounded up.

    `1 - rate` and `sigma**2` are exact: mechanisms keep at most half the digits we work with.
    """
    if order == 1:
        return Decimal(0)
    keep = UP.subtract(Decimal(1), rate)
    odds = UP.divide(rate, keep)
    growth = exp_up(UP.divide(Decimal(1), UP.multiply(sigma, sigma)))
    chosen = exp_up(UP.multiply(Decimal(order), ln_up(keep)))
    noise = ratio = Decimal(1)
    moment = Decimal(0)
    for k in range(order + 1):
        moment = UP.fma(chosen, noise, moment)
        chosen = UP.multiply(
            UP.multiply(chosen, odds), UP.divide(Decimal(order - k), Decimal(k + 1))
        )
        noise = UP.multiply(noise, ratio)
        ratio = UP.multiply(ratio, growth)
    return ln_up(moment)


def _log_moment_between_integers(order: Decimal, sigma: Decimal, rate: Decimal) -> Decimal:
    """A chord of ln A, which is convex in the order, between the two integers around it."""
    floor = int(order)
    part = UP.subtract(order, Decimal(floor))
    below = _log_moment_at_integer(floor, sigma, rate)
    above = _log_moment_at_integer(floor + 1, sigma, rate)
    return UP.fma(part, above, UP.multiply(UP.subtract(Decimal(1), part), below))


@dataclass(frozen=True, slots=True)
class _Grid:
    """The trapezoidal rule for A at a fractional order, with a bound on all that it leaves out.

    The integrand f is analytic in the strip |Im x| < pi * sigma and there |f(x + iy)| is at most
    exp(y**2 / 2) * f(x). So for any c below pi * sigma the rule of width h misses at most the
    fraction 2 exp(c**2 / 2) / (exp(2 pi c / h) - 1) of A (Trefethen and Weideman 2014, th. 5.1).
    The points cut off lie U or further from the centres of both normal densities that, mixed,
    bound f by convexity.
    """

    width: Decimal
    strip: Decimal
    left: int
    right: int

    @property
    def points(self) -> int:
        return self.left + 1 + self.right

    @classmethod
    def choose(cls, order: Decimal, sigma: Decimal, rate: Decimal) -> _Grid:
        above, s = float(UP.subtract(order, Decimal(1))), float(sigma)
        a = 1 + above
        wanted = math.log(1e27) - min(0.0, math.log(above))
        spread = min(a * above / (2 * s * s), -above * math.log(float(rate)))
        reach = math.sqrt(2 * (wanted + spread)) + 1
        strip = min(3 * s, 8.0)
        width = Decimal(f"{6.28 * strip / (wanted + strip * strip / 2):.4e}")
        left = math.ceil(reach / float(width))
        shift = UP.divide(order, UP.multiply(sigma, width))
        return cls(width, Decimal(f"{strip:.4e}"), left, left + math.ceil(shift))

    def moment(self, order: Decimal, sigma: Decimal, rate: Decimal) -> Decimal:
        up, half = _GRID, Decimal("0.5")
        keep = up.subtract(Decimal(1), rate)
        offset = up.divide(-half, up.multiply(sigma, sigma))
        total = Decimal(0)
        for n in range(-self.left, self.right + 1):
            x = up.multiply(Decimal(n), self.width)
            mixed = up.fma(rate, exp_up(up.add(up.divide(x, sigma), offset), up), keep)
            exponent = up.fma(order, ln_up(mixed, up), up.multiply(-half, up.multiply(x, x)))
            total = up.add(total, exp_up(exponent, up))
        root = (PI + PI).sqrt().low
        covered = up.divide(up.multiply(self.width, total), root)
        return up.divide(up.add(covered, self._cut_off(order, sigma, rate)), self._kept())

    def _cut_off(self, order: Decimal, sigma: Decimal, rate: Decimal) -> Decimal:
        """Two tails of each density: on the grid, at most exp(-U**2 / 2) (1 + h) of its mass."""
        reach = Fraction(self.left * self.width)
        tail = exp_up(Enclosure.of(-reach * reach / 2).high)
        peak = exp_up(Enclosure.of((Fraction(order) - 1) * gaussian(order, sigma)).high)
        return UP.multiply(
            UP.multiply(tail, UP.add(Decimal(1), self.width)), UP.fma(rate, peak, Decimal(1))
        )

    def _kept(self) -> Decimal:
        strip, width = Fraction(self.strip), Fraction(self.width)
        grown = Enclosure.of(strip * strip / 2).exp()
        missed = (grown + grown) / (Enclosure.of(Fraction(628, 100) * strip / width).exp() - ONE)
        return (ONE - missed).low
