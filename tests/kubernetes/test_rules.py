"""Each CEL rule of our definitions refuses what it is there for, and nothing else.

What a server without rules leaves to the scheduler is tested in test_without_rules.py.
"""

import json
import re

import pytest
from kubernetes.client.exceptions import ApiException

from tests.kubernetes.objects import (
    BLOCKS,
    CLAIMS,
    PLURALS,
    REMOVED,
    STREAMS,
    Objects,
    changed,
    example,
)
from tests.kubernetes.rules import CASES, rules
from tests.scheduler.running import install


@pytest.fixture
def objects(control_plane, namespace):
    install(control_plane)
    made = Objects(control_plane, namespace)
    yield made
    made.clean()


def test_every_rule_has_a_case():
    written = {(rule.plural, rule.path, rule.message) for rule in rules()}
    assert written == {(case.plural, case.path, case.message) for case in CASES}
    assert len(written) == len(rules()), "two rules of a field have one message"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_rule_refuses_it_and_no_other_does(objects, case):
    if case.edit:
        made = objects.before(case)
        with pytest.raises(ApiException) as refused:
            objects.edit(case.plural, made, case.edit)
    else:
        with pytest.raises(ApiException) as refused:
            objects.before(case)
    assert refused.value.status == 422
    causes = json.loads(refused.value.body)["details"]["causes"]
    told = [(re.sub(r"\[\d+\]", "[]", cause["field"]), cause["message"]) for cause in causes]
    [(field, message)] = told
    assert field == case.path
    assert message.endswith(f": {case.message}")


ALLOWED = [
    # What is the same in other words.
    (STREAMS, {}, {"spec.accounting.orders": ["64", "8", "4", "3"]}),
    (STREAMS, {"spec.policy": REMOVED}, {"spec.policy": "DPF"}),
    (STREAMS, {}, {"spec.policy": REMOVED}),
    (BLOCKS, {}, {"spec.start": "2026-11-16T01:00:00+01:00"}),
    (
        CLAIMS,
        {"spec.requests.0.allocate.select": {"names": ["a", "b"]}},
        {"spec.requests.0.allocate.select": {"names": ["b", "a"]}},
    ),
    # What people and programs do.
    (STREAMS, {}, {"metadata.annotations": {"privatekube.io/count": "{}"}}),
    (STREAMS, {}, {"status": {"blocks": 1}}),
    (BLOCKS, {}, {"spec.retired": True}),
    (BLOCKS, {"spec.retired": True}, {"metadata.labels": {"a": "b"}}),
    (BLOCKS, {}, {"status": {"capacity": {"epsilon": "1", "delta": "0"}}}),
    (CLAIMS, {}, {"spec.requests.3": {"id": "another", "consume": {}}}),
    (CLAIMS, {}, {"spec.lease": {"duration": "10m", "renewed": "2026-11-16T00:00:00Z"}}),
    (CLAIMS, {"spec.deadline": "2026-11-16T00:00:00Z"}, {"spec.deadline": REMOVED}),
    (CLAIMS, {}, {"metadata.finalizers": []}),
    (CLAIMS, {}, {"status": {"phase": "Pending"}}),
]


@pytest.mark.parametrize(("plural", "before", "edit"), ALLOWED)
def test_no_rule_is_in_the_way_of(objects, plural, before, edit):
    name = objects.name(plural)
    made = objects.create(plural, example(plural, name, **before))
    wanted = changed(made, edit)
    stored = objects.edit(plural, made, edit)
    for path in edit:
        part = path.split(".")[0]
        if edit[path] is not REMOVED:
            assert stored[part] == wanted[part] or part == "metadata"


@pytest.mark.parametrize("plural", PLURALS)
def test_applying_the_same_again_changes_nothing(objects, plural):
    body = example(plural, objects.name(plural))
    assert objects.apply(body).returncode == 0
    again = objects.apply(body)
    assert (again.returncode, again.stdout.split()[-1]) == (0, "unchanged")


# The largest objects stay within what the server spends on rules


def test_the_last_of_256_requests_can_be_appended(objects):
    """Whether any is missing is looked up for each: the rule that costs most."""
    ids = [f"{'a' * 125}{number:03}" for number in range(256)]
    requests = [{"id": each, "consume": {"step": "statistics"}} for each in ids]
    made = objects.create(CLAIMS, example(CLAIMS, "c", **{"spec.requests": requests[:255]}))
    made["spec"]["requests"].append(requests[255])
    stored = objects.replace(CLAIMS, made)
    assert [each["id"] for each in stored["spec"]["requests"]] == ids
    stored["spec"]["requests"].reverse()
    stored = objects.replace(CLAIMS, stored)
    del stored["spec"]["requests"][-1]
    with pytest.raises(ApiException, match="requests are append-only"):
        objects.replace(CLAIMS, stored)


def test_a_claim_on_10_000_blocks_can_ask_for_more(objects):
    names = [f"{'a' * 100}-{number}" for number in range(10_000)]
    select = {"spec.requests.0.allocate.select": {"names": names}}
    made = objects.create(CLAIMS, example(CLAIMS, "c", **select))
    made["spec"]["requests"].append({"id": "another", "consume": {}})
    stored = objects.replace(CLAIMS, made)
    stored["spec"]["requests"][0]["allocate"]["select"]["names"][-1] = "another"
    with pytest.raises(ApiException, match="a request never changes"):
        objects.replace(CLAIMS, stored)


def test_requests_with_the_largest_plans_can_be_appended_to(objects):
    steps = [
        {
            "name": f"step-{number}",
            "mechanism": "curve",
            "orders": {f"{order}": "0." + "1" * 40 for order in range(2, 34)},
        }
        for number in range(64)
    ]
    requests = [
        {"id": f"r{number}", "allocate": {"select": {"last": 1}, "plan": {"steps": steps}}}
        for number in range(8)
    ]
    made = objects.create(CLAIMS, example(CLAIMS, "c", **{"spec.requests": requests[:7]}))
    made["spec"]["requests"].append(requests[7])
    assert len(objects.replace(CLAIMS, made)["spec"]["requests"]) == 8


def test_a_block_at_256_orders_keeps_its_status(objects):
    name = objects.name(BLOCKS)
    capacity = {f"{order}.5": "1" * 30 + "." + "1" * 18 for order in range(256)}
    objects.create(BLOCKS, example(BLOCKS, name))
    objects.set_status(BLOCKS, name, {"capacity": capacity})
    shown = objects.set_status(BLOCKS, name, {"capacity": capacity, "phase": "Active"})
    assert shown["status"] == {"capacity": capacity, "phase": "Active"}


def test_a_stream_at_256_orders_keeps_its_status(objects):
    name = objects.name(STREAMS)
    orders = [f"{order}.5" for order in range(1, 257)]
    weights = dict.fromkeys(orders, "0.00" + "1" * 40)
    changes = {"spec.accounting.orders": orders, "spec.accounting.weights": weights}
    objects.create(STREAMS, example(STREAMS, name, **changes))
    assert objects.set_status(STREAMS, name, {"blocks": 1})["status"] == {"blocks": 1}
