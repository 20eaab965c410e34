"""No property fails because the machine is slow."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=2)
@given(st.just(None))
def test_an_example_may_take_long(nothing):
    time.sleep(0.3)  # longer than Hypothesis allows unless it is told otherwise
