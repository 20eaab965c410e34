"""Branches are told apart only where they exclude each other for sure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privatekube_kfp.lint.conditions import contradict


@pytest.mark.parametrize(
    ("one", "other", "exclusive"),
    [
        ("<0> == 'a'", "!(<0> == 'a')", True),
        ("<0> == 'a'", "!(<0> == 'a') && <0> == 'b'", True),
        ("!(<0> == 'a') && <1> == 'b'", "!(<0> == 'a') && !(<1> == 'b')", True),
        ("<0> == 'a'", "<0> == 'b'", True),
        ("<0> == 'a'", "<1> == 'b'", False),
        ("<0> == 'a'", "<0> == 'a'", False),
        ("<0> == 'a && !(b)'", "<0> == 'a && !(b)'", False),
        ("int(<0>) == 1", "int(<0>) == 2", True),
        ("int(<0>) == 1", "int(<0>) == 1.0", False),
        ("<0> == true", "<0> == false", True),
        ("<0> == <1>", "<0> == <2>", False),
        ("<0> > 1", "<0> < 1", False),
        ("<0> == 'x' || <1> == 'a'", "<0> == 'x' || <1> == 'b'", False),
        ("<0> == 'it\\'s'", "<0> == 'b'", False),
        ("inputs.parameters['x'] == 'a'", "!(inputs.parameters['x'] == 'a')", False),
        ("", "<0> == 'a'", False),
    ],
)
def test_contradict(one, other, exclusive):
    assert contradict([one], [other]) is exclusive
    assert contradict([other], [one]) is exclusive


comparisons = st.builds("<{}> == '{}'".format, st.integers(0, 1), st.sampled_from("ab"))
parts = comparisons | comparisons.map("!({})".format)
conditions = st.lists(parts, min_size=1, max_size=3).map(" && ".join)


@given(st.lists(conditions, max_size=2), st.lists(conditions, max_size=2))
def test_what_contradicts_never_holds_together(some, others):
    if contradict(some, others):
        for first in "abc":
            for second in "abc":
                assert not all(holds(each, first, second) for each in (*some, *others))


def holds(condition, *values):
    text = condition.replace("&&", " and ").replace("!(", " not (")
    for number, value in enumerate(values):
        text = text.replace(f"<{number}>", repr(value))
    return eval(text)
