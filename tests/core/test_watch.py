"""Where waiting claims are watched: cores lie within their claims, and are few."""

from hypothesis import given
from hypothesis import strategies as st

from privatekube_kfp.core.watch import core_of


@given(start=st.integers(0, 5_000), length=st.integers(1, 2_000))
def test_a_core_is_within_its_claim_and_not_much_smaller(start, length):
    core = core_of(slice(start, start + length))
    assert start <= core.start < core.stop <= start + length
    assert core.stop - core.start > length / 2 - 1


def test_a_great_many_claims_share_few_cores():
    claims = [slice(start, start + length) for start in range(500) for length in range(250, 500)]
    cores = {(core.start, core.stop) for core in map(core_of, claims)}
    assert len(claims) / len(cores) > 1_000
