"""An enclosure always holds the real number, however badly the numbers go together."""

from decimal import Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from privatekube_kfp.accounting.enclosure import PI, Enclosure

FINER = Context(prec=400)

fractions = st.builds(
    lambda top, bottom, scale: Fraction(top, bottom) * Fraction(10) ** scale,
    st.integers(-(10**40), 10**40),
    st.integers(1, 10**40),
    st.integers(-60, 60),
)
moderate = st.builds(
    lambda units, digits: Decimal(units).scaleb(-digits), st.integers(-(10**9), 10**9), st.just(6)
)


def holds(enclosure: Enclosure, value: Fraction | Decimal) -> bool:
    return enclosure.low <= value <= enclosure.high


@given(fractions, fractions)
def test_arithmetic_holds_the_exact_result(a: Fraction, b: Fraction) -> None:
    x, y = Enclosure.of(a), Enclosure.of(b)
    assert holds(x + y, a + b)
    assert holds(x - y, a - b)
    assert holds(x * y, a * b)
    assert holds(-x, -a)
    if b:
        assert holds(x / y, a / b)


@given(fractions)
def test_an_inexact_number_has_width_and_an_exact_one_has_none(a: Fraction) -> None:
    x = Enclosure.of(a)
    assert holds(x, a)
    assert (x.low == x.high) == (Fraction(x.low) == a)


@given(moderate)
@example(Decimal(0))
@example(Decimal(1))
def test_exp_and_ln_hold_the_value_at_a_higher_precision(x: Decimal) -> None:
    assert holds(Enclosure.of(x).exp(), FINER.exp(x))
    if x > 0:
        assert holds(Enclosure.of(x).ln(), FINER.ln(x))
        assert holds(Enclosure.of(x).sqrt(), FINER.sqrt(x))


def test_exp_of_the_hugely_negative_is_above_zero() -> None:
    vanishing = Enclosure.of(-(10**40)).exp()
    assert vanishing.low == 0 < vanishing.high


def test_pi_is_enclosed() -> None:
    machin = 16 * _arctan_of_inverse(5) - 4 * _arctan_of_inverse(239)
    assert holds(PI, machin)
    assert PI.high - PI.low < Decimal("1e-99")


def _arctan_of_inverse(n: int) -> Fraction:
    return sum(
        (Fraction((-1) ** k, (2 * k + 1) * n ** (2 * k + 1)) for k in range(90)), start=Fraction(0)
    )


def test_what_may_be_zero_cannot_be_divided_by() -> None:
    around_zero = Enclosure(Decimal(-1), Decimal(1))
    with pytest.raises(ZeroDivisionError):
        Enclosure.of(1) / around_zero
    with pytest.raises(ValueError, match="logarithm"):
        around_zero.ln()
