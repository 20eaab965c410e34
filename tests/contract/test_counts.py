"""What every ledger promises about the published count of a stream's users."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privatekube_kfp.accounting import Counter
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.ledger.kubernetes.objects import COUNT, annotated_count
from privatekube_kfp.ledger.ledger import PublishedCount
from privatekube_kfp.ledger.streams import Semantic
from tests.contract.world import DAY, ask, basic_stream

MONDAY = PublishedCount(estimate=120, lower=100, upper=140, confidence="0.999", time=20_000 * DAY)
TUESDAY = replace(MONDAY, estimate=110, time=MONDAY.time + DAY)


@pytest.fixture(params=[Semantic.USER, Semantic.USER_TIME])
def users(ledger, request):
    return ledger.create_stream(basic_stream(semantic=request.param, counter=Counter("0.1")))


def test_a_count_is_published_with_its_stream(ledger, users):
    assert users.count is None
    assert ledger.publish_count("s", MONDAY) == replace(users, count=MONDAY)
    assert ledger.stream("s").count == MONDAY
    assert ledger.publish_count("s", TUESDAY).count == TUESDAY
    assert [record.count for record in ledger.streams()] == [TUESDAY]
    assert ledger.create_stream(users.spec).count == TUESDAY


def test_the_same_again_or_an_older_one_changes_nothing(ledger, users):
    ledger.publish_count("s", TUESDAY)
    for count in (TUESDAY, MONDAY, replace(MONDAY, lower=0, upper=10**15)):
        assert ledger.publish_count("s", count).count == TUESDAY


@pytest.mark.parametrize("change", [{"estimate": 121}, {"upper": 150}, {"confidence": "0.9"}])
def test_another_one_for_the_same_time_is_refused(ledger, users, change):
    ledger.publish_count("s", MONDAY)
    with pytest.raises(Invalid, match="a second look at the same people") as refused:
        ledger.publish_count("s", replace(MONDAY, **change))
    assert refused.value.reason is Reason.ALREADY_PUBLISHED
    assert ledger.stream("s").count == MONDAY


def test_users_do_not_become_fewer(ledger, users):
    ledger.publish_count("s", MONDAY)
    with pytest.raises(Invalid, match="at least 100 users, and users do not become fewer"):
        ledger.publish_count("s", replace(TUESDAY, lower=99))
    assert ledger.stream("s").count == MONDAY
    assert ledger.publish_count("s", replace(TUESDAY, upper=130)).count.upper == 130


def test_only_streams_that_count_users_have_a_count(ledger):
    ledger.create_stream(basic_stream())
    with pytest.raises(Invalid, match="stream s is of event semantic and counts no users"):
        ledger.publish_count("s", MONDAY)
    with pytest.raises(Invalid, match="no stream 'zz'") as refused:
        ledger.publish_count("zz", MONDAY)
    assert refused.value.reason is Reason.UNKNOWN_STREAM
    assert ledger.stream("s").count is None


def test_a_count_stays_while_claims_come_and_go(ledger, users):
    ledger.publish_count("s", MONDAY)
    ledger.create_block("b1", "s", users=(0, 99))
    assert ledger.submit("c1", ask("0.1", "b1")).done
    assert ledger.stream("s").count == MONDAY


def test_a_stream_that_is_made_anew_has_no_count(ledger, users):
    ledger.publish_count("s", MONDAY)
    ledger.delete_stream("s")
    assert ledger.create_stream(users.spec).count is None
    assert ledger.publish_count("s", replace(MONDAY, lower=1)).count.lower == 1


@pytest.mark.parametrize(
    "change",
    [
        {"lower": -1},
        {"lower": 121},
        {"upper": 119},
        {"estimate": 120.0},
        {"lower": False},
        {"time": "2026-11-16"},
        {"time": 10**18},
        {"upper": 2**63},
        {"confidence": "1"},
        {"confidence": "0"},
        {"confidence": "nearly all"},
        {"confidence": " 0.9"},
        {"confidence": 0.999},
    ],
    ids=str,
)
def test_a_count_that_is_none_cannot_be_made(change):
    with pytest.raises(Invalid):
        replace(MONDAY, **change)


FIELDS = {
    "estimate": st.integers() | st.floats() | st.none(),
    "lowerBound": st.integers(-1, 200) | st.booleans(),
    "upperBound": st.integers(-1, 2**65),
    "confidence": st.sampled_from(["0.9", "1", "", " .5", "1e-999999"]) | st.text() | st.floats(),
    "time": st.just("2026-11-16T00:00:00Z") | st.text() | st.integers(),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(list(FIELDS)), inner),
)


@given(st.text() | (JSON | st.fixed_dictionaries(FIELDS, optional={"x": JSON})).map(json.dumps))
def test_whatever_an_annotation_says_is_a_count_or_refused(text):
    try:
        count = annotated_count({"metadata": {"annotations": {COUNT: text}}})
    except Invalid:
        return
    assert PublishedCount.from_json(json.loads(text)) == count


@pytest.mark.parametrize("count", [MONDAY, PublishedCount(0, 0, 2**63 - 1, "1e-9", -1)])
def test_a_count_reads_back_as_it_was_written(count):
    assert PublishedCount.from_json(count.to_json()) == count
