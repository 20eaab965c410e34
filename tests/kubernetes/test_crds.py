"""The custom resource definitions: what the server stores, shows, explains and refuses."""

import copy
import json
import re
import time
from dataclasses import MISSING, fields

import pytest
import yaml
from kubernetes.client import ApiextensionsV1Api
from kubernetes.client.exceptions import ApiException

from privatekube_kfp.accounting.capacity import DEFAULT_DAYS, Classic, Counter, Weighted
from privatekube_kfp.accounting.mechanisms import MECHANISMS, mechanism_from_json
from privatekube_kfp.core.budget import parse_decimal
from privatekube_kfp.core.claim import Kind, Phase
from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.core.policy import POLICIES
from privatekube_kfp.core.stream import BlockPhase
from privatekube_kfp.ledger.streams import Semantic
from tests.kubernetes.objects import (
    BLOCKS,
    CLAIMS,
    CRDS,
    DEFINITIONS,
    EXAMPLES,
    GROUP,
    PLURALS,
    REMOVED,
    SINGULARS,
    STREAMS,
    Objects,
    example,
    schema,
)


@pytest.fixture(scope="module")
def installed(control_plane):
    """What the README says to type; returns the names of what was applied."""
    return control_plane.apply(CRDS)


@pytest.fixture
def objects(control_plane, installed, namespace):
    made = Objects(control_plane, namespace)
    yield made
    made.clean()


# Installing


def test_kustomization_installs_all_and_they_are_established(control_plane, installed):
    assert sorted(installed) == sorted(
        f"customresourcedefinition.apiextensions.k8s.io/{plural}.{GROUP}" for plural in PLURALS
    )
    api = ApiextensionsV1Api(control_plane.admin)
    for plural in PLURALS:
        conditions = api.read_custom_resource_definition(f"{plural}.{GROUP}").status.conditions
        held = {condition.type: condition.status for condition in conditions}
        assert held["Established"] == held["NamesAccepted"] == "True"
        # The server says so where a schema is not structural, or publishes none.
        assert "NonStructuralSchema" not in held


def test_every_yaml_file_is_in_the_kustomization():
    listed = yaml.safe_load((CRDS / "kustomization.yaml").read_text())["resources"]
    files = {path.name for path in CRDS.glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(listed) == sorted(files) == sorted(f"{plural}.yaml" for plural in PLURALS)


@pytest.mark.parametrize(
    ("plural", "short", "scope"),
    [
        (STREAMS, "pstream", "Cluster"),
        (BLOCKS, "pblock", "Cluster"),
        (CLAIMS, "pclaim", "Namespaced"),
    ],
)
def test_short_names_and_scopes(control_plane, installed, plural, short, scope):
    definition = DEFINITIONS[plural]["spec"]
    assert (definition["scope"], definition["names"]["shortNames"]) == (scope, [short, f"{short}s"])
    for word in (short, f"{short}s", plural, definition["names"]["singular"]):
        done = control_plane.kubectl("get", word, "-o", "name")
        assert done.returncode == 0, done.stderr


def test_all_kinds_are_listed_together(objects):
    for plural in PLURALS:
        objects.create(plural, example(plural, objects.name(plural)))
    for words in ("pstreams,pblocks,pclaims", "privatekube"):
        done = objects.cluster.kubectl("get", words, "-n", objects.namespace, "-o", "name")
        assert {f"{name}.{GROUP}/{objects.name(plural)}" for name, plural in SINGULARS} <= set(
            done.stdout.split()
        )


def test_describe_shows_what_was_asked_and_answered(objects):
    objects.create(CLAIMS, example(CLAIMS, "train"))
    objects.set_status(CLAIMS, "train", CLAIM_STATUS)
    said = objects.cluster.kubectl("describe", "pclaim", "train", "-n", objects.namespace).stdout
    for words in ("dp-sgd", "WaitingForUnlock", "block monday: more is still locked", "inf"):
        assert words in said


# Showing


@pytest.mark.parametrize("plural", PLURALS)
def test_examples_of_the_readme_apply(objects, plural):
    done = objects.apply(EXAMPLES[plural])
    assert done.returncode == 0, done.stderr
    stored = objects.get(plural, EXAMPLES[plural]["metadata"]["name"])
    for field, value in EXAMPLES[plural]["spec"].items():
        assert stored["spec"][field] == value


def test_columns_of_streams(objects):
    name = objects.name(STREAMS)
    objects.create(STREAMS, example(STREAMS, name))
    count = {"estimate": 120, "lowerBound": 100, "upperBound": 140}
    count |= {"confidence": "0.999", "time": "2026-11-16T00:00:00Z"}
    objects.set_status(STREAMS, name, {"blocks": 3, "count": count})
    [row] = objects.shown("pstream", name)
    assert row.pop("AGE")
    assert row == {
        "NAME": name,
        "SEMANTIC": "Event",
        "EPSILON": "10",
        "DELTA": "1e-7",
        "ACCOUNTING": "Renyi",
        "POLICY": "DPF",
        "BLOCKS": "3",
        "USERS": "100",
    }


def test_columns_of_blocks(objects):
    name = objects.name(BLOCKS)
    objects.create(BLOCKS, example(BLOCKS, name, **{"spec.users": [0, 99]}))
    status = {
        "phase": "Active",
        "capacity": {"epsilon": "1", "delta": "0"},
        "locked": {"epsilon": "0.5", "delta": "0"},
        "unlocked": {"epsilon": "-0.125", "delta": "0"},
        "allocated": {"epsilon": "0.5", "delta": "0"},
        "consumed": {"epsilon": "0.125", "delta": "0"},
        "consumedShare": "12.5%",
        "arrivals": 2,
        "openedShares": 2,
        "folded": {"consumed": {"epsilon": "0", "delta": "0"}, "claims": ["a-uid"]},
    }
    assert objects.set_status(BLOCKS, name, status)["status"] == status
    [row] = objects.shown("pblock", name)
    assert row.pop("AGE")
    assert row == {
        "NAME": name,
        "STREAM": "reviews",
        "PHASE": "Active",
        "START": "2026-11-16T00:00:00Z",
        "END": "2026-11-17T00:00:00Z",
        "USERS": "[0,99]",
        "CONSUMED": "12.5%",
    }


AMOUNTS = [{"blocks": ["monday", "tuesday"], "budget": {"4": "0.1", "64": "inf"}}]
CLAIM_STATUS = {
    "phase": "Pending",
    "reason": "WaitingForUnlock",
    "message": "block monday: more is still locked",
    "blocks": 2,
    "boundBlocks": ["monday", "tuesday"],
    "allocated": AMOUNTS,
    "consumed": [],
    "released": [],
    "receipts": [
        {
            "id": "allocate",
            "kind": "allocate",
            "digest": "0123abcd",
            "time": "2026-11-16T08:30:00Z",
            "blocks": ["monday"],
            "steps": [{"name": "all", "budget": {"4": "0.1", "64": "inf"}}],
            "arrival": 7,
        }
    ],
    "responses": [
        {
            "id": "allocate",
            "state": "Done",
            "reason": "Allocated",
            "message": "as asked",
            "time": "2026-11-16T08:30:00.000001Z",
            "amounts": AMOUNTS,
        }
    ],
    "conditions": [
        {
            "type": "Bound",
            "status": "True",
            "reason": "Selected",
            "message": "as asked",
            "lastTransitionTime": "2026-11-16T08:30:00Z",
        }
    ],
}


def test_columns_of_claims(objects):
    objects.create(CLAIMS, example(CLAIMS, "train"))
    assert objects.set_status(CLAIMS, "train", CLAIM_STATUS)["status"] == CLAIM_STATUS
    [row] = objects.shown("pclaim", "train")
    assert row.pop("AGE")
    assert row == {
        "NAME": "train",
        "STREAM": "reviews",
        "PHASE": "Pending",
        "REASON": "WaitingForUnlock",
        "BLOCKS": "2",
        "OWNER": "run-4f1c",
    }
    [wide] = objects.shown("pclaim", "train", "-o", "wide")
    assert wide["MESSAGE"] == "block monday: more is still locked"


def test_commit_record_and_count_of_a_stream_are_kept(objects):
    name = objects.name(STREAMS)
    objects.create(STREAMS, example(STREAMS, name))
    moment = "2026-11-16T08:30:00Z"
    status = {
        "capacity": {"3": "-1.5", "4": "4.63"},
        "blocks": 1,
        "count": {
            "estimate": 5000,
            "lowerBound": 4800,
            "upperBound": 5200,
            "confidence": "0.999",
            "time": moment,
        },
        "commit": {
            "epoch": 2,
            "sequence": 9,
            "holder": "s-0",
            "time": moment,
            "arrivals": 7,
            "claims": 1,
            "batch": "eJw=",
        },
    }
    assert objects.set_status(STREAMS, name, status)["status"] == status


SERVERS_OWN = ("The version of this schema", "The kind of object")
"""What the server describes in its own words, whatever a definition says."""


def described(node, path):
    """Every field of a schema with its description, `None` where it has none."""
    for name, child in node.get("properties", {}).items():
        yield f"{path}.{name}", child.get("description")
        yield from described(child, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        if part in node:
            yield f"{path}[]", node[part].get("description")
            yield from described(node[part], f"{path}[]")


@pytest.mark.parametrize("plural", PLURALS)
def test_every_field_has_a_description(plural):
    # Of metadata, the server allows no schema but its type.
    found = dict(described(schema(plural), plural))
    assert len(found) > 30
    assert schema(plural)["description"].endswith(".")
    for path, text in found.items():
        assert path == f"{plural}.metadata" or (text and text.endswith(".")), path
    for column in DEFINITIONS[plural]["spec"]["versions"][0]["additionalPrinterColumns"]:
        assert column["description"], column["name"]


@pytest.mark.parametrize(
    ("plural", "path"),
    [
        (STREAMS, ""),
        (STREAMS, "spec.accounting.conversion"),
        (STREAMS, "status.commit"),
        (BLOCKS, "spec.users"),
        (BLOCKS, "status.unlocked"),
        (CLAIMS, "spec.requests"),
        (CLAIMS, "spec.requests.allocate.plan.steps.mechanism"),
        (CLAIMS, "status.responses.reason"),
    ],
)
def test_explain_shows_the_descriptions(control_plane, installed, plural, path):
    wanted = schema(plural, path)
    shown = [wanted, *wanted.get("items", wanted).get("properties", {}).values()]
    texts = [" ".join(each["description"].split()) for each in shown if "description" in each]
    texts = [text for text in texts if path or not text.startswith(SERVERS_OWN)]
    what = ".".join(filter(None, [plural, path]))
    deadline = time.monotonic() + 180  # The server publishes a schema a moment later.
    while True:
        done = control_plane.kubectl("explain", what)
        said = " ".join(done.stdout.split())
        missing = [text for text in texts if text not in said]
        if not missing:
            return
        assert time.monotonic() < deadline, (missing, done.stdout, done.stderr)
        time.sleep(0.5)


# Refusing

STEP = "spec.requests.0.allocate.plan.steps.0"
SELECT = "spec.requests.0.allocate.select"
STEP_FIELD = "spec.requests.allocate.plan.steps"
MALFORMED = [
    # Streams
    ("no spec", STREAMS, {"spec": REMOVED}, "spec"),
    ("no semantic", STREAMS, {"spec.semantic": REMOVED}, "spec.semantic"),
    ("unknown semantic", STREAMS, {"spec.semantic": "event"}, "spec.semantic"),
    ("epsilon a number", STREAMS, {"spec.epsilon": 10}, "spec.epsilon"),
    ("epsilon negative", STREAMS, {"spec.epsilon": "-1"}, "spec.epsilon"),
    ("epsilon signed", STREAMS, {"spec.epsilon": "+1"}, "spec.epsilon"),
    ("epsilon zero", STREAMS, {"spec.epsilon": "0.0e5"}, "spec.epsilon"),
    ("epsilon empty", STREAMS, {"spec.epsilon": ""}, "spec.epsilon"),
    ("epsilon infinite", STREAMS, {"spec.epsilon": "inf"}, "spec.epsilon"),
    ("epsilon not a number", STREAMS, {"spec.epsilon": "NaN"}, "spec.epsilon"),
    ("epsilon with a line end", STREAMS, {"spec.epsilon": "1\n"}, "spec.epsilon"),
    ("exponent too long", STREAMS, {"spec.delta": "1e-1234567"}, "spec.delta"),
    ("other digits", STREAMS, {"spec.delta": "\u0663"}, "spec.delta"),
    ("no delta", STREAMS, {"spec.delta": REMOVED}, "spec.delta"),
    ("unknown accounting", STREAMS, {"spec.accounting.type": "Zero"}, "spec.accounting.type"),
    ("renyi without orders", STREAMS, {"spec.accounting.orders": REMOVED}, "spec.accounting"),
    ("an order twice", STREAMS, {"spec.accounting.orders": ["4", "4"]}, "spec.accounting.orders"),
    ("unsound conversion", STREAMS, {"spec.accounting.conversion": "Tight"}, "conversion"),
    ("basic with orders", STREAMS, {"spec.accounting.type": "Basic"}, "spec.accounting"),
    (
        "classic with weights",
        STREAMS,
        {"spec.accounting.conversion": "Classic", "spec.accounting.weights": {"4": "1"}},
        "spec.accounting",
    ),
    ("weight zero", STREAMS, {"spec.accounting.weights": {"4": "0"}}, "accounting.weights.4"),
    ("unlocking two ways", STREAMS, {"spec.unlocking.atOnce": True}, "spec.unlocking"),
    ("unlocking no way", STREAMS, {"spec.unlocking": {}}, "spec.unlocking"),
    ("lifetime alone", STREAMS, {"spec.unlocking": {"lifetime": "30d"}}, "spec.unlocking"),
    ("not at once", STREAMS, {"spec.unlocking": {"atOnce": False}}, "spec.unlocking.atOnce"),
    ("no pipelines", STREAMS, {"spec.unlocking.pipelines": 0}, "spec.unlocking.pipelines"),
    (
        "not a duration",
        STREAMS,
        {"spec.unlocking": {"lifetime": "30", "interval": "1d"}},
        "spec.unlocking.lifetime",
    ),
    ("unknown policy", STREAMS, {"spec.policy": "RR"}, "spec.policy"),
    ("users uncounted", STREAMS, {"spec.semantic": "User"}, "spec"),
    ("events counted", STREAMS, {"spec.counter": {"epsilon": "0.1"}}, "spec"),
    (
        "days no power of two",
        STREAMS,
        {"spec.semantic": "User", "spec.counter": {"epsilon": "0.1", "days": 1000}},
        "spec.counter.days",
    ),
    # Blocks
    ("no stream", BLOCKS, {"spec.stream": REMOVED}, "spec.stream"),
    ("stream no name", BLOCKS, {"spec.stream": "Reviews!"}, "spec.stream"),
    ("start without end", BLOCKS, {"spec.end": REMOVED}, "spec"),
    ("a date alone", BLOCKS, {"spec.start": "2026-11-16"}, "spec.start"),
    ("no such day", BLOCKS, {"spec.start": "2026-02-31T00:00:00Z"}, "spec.start"),
    ("one user of two", BLOCKS, {"spec.users": [1]}, "spec.users"),
    ("user below zero", BLOCKS, {"spec.users": [-1, 5]}, "spec.users"),
    ("user too high", BLOCKS, {"spec.users": [0, 10**15 + 1]}, "spec.users"),
    ("retired a word", BLOCKS, {"spec.retired": "yes"}, "spec.retired"),
    ("empty data source", BLOCKS, {"spec.dataSource": ""}, "spec.dataSource"),
    # Claims
    ("claim of no stream", CLAIMS, {"spec.stream": REMOVED}, "spec.stream"),
    ("no requests", CLAIMS, {"spec.requests": []}, "spec.requests"),
    ("no id", CLAIMS, {"spec.requests.0.id": REMOVED}, "spec.requests.id"),
    ("bad id", CLAIMS, {"spec.requests.0.id": "a b"}, "spec.requests.id"),
    ("long id", CLAIMS, {"spec.requests.0.id": "a" * 129}, "spec.requests.id"),
    ("one id twice", CLAIMS, {"spec.requests.1.id": "allocate"}, "spec.requests[1]"),
    ("two verbs", CLAIMS, {"spec.requests.0.release": {}}, "spec.requests"),
    ("no verb", CLAIMS, {"spec.requests.0": {"id": "a"}}, "spec.requests"),
    ("no selection", CLAIMS, {SELECT: REMOVED}, "spec.requests.allocate.select"),
    ("selection of nothing", CLAIMS, {SELECT: {}}, "spec.requests.allocate.select"),
    ("name and range", CLAIMS, {f"{SELECT}.names": ["b"]}, "spec.requests.allocate.select"),
    ("a block twice", CLAIMS, {SELECT: {"names": ["b", "b"]}}, "allocate.select.names[1]"),
    ("the last none", CLAIMS, {f"{SELECT}.last": 0}, "spec.requests.allocate.select.last"),
    ("timeout a number", CLAIMS, {"spec.requests.0.allocate.timeout": 3600}, "allocate.timeout"),
    ("weight a word", CLAIMS, {"spec.requests.0.allocate.weight": "2"}, "allocate.weight"),
    ("no weight at all", CLAIMS, {"spec.requests.0.allocate.weight": 0}, "allocate.weight"),
    ("too much weight", CLAIMS, {"spec.requests.0.allocate.weight": 1001}, "allocate.weight"),
    ("half a weight", CLAIMS, {"spec.requests.0.allocate.weight": 1.5}, "allocate.weight"),
    ("no steps", CLAIMS, {"spec.requests.0.allocate.plan.steps": []}, STEP_FIELD),
    ("a step twice", CLAIMS, {f"{STEP}.name": "training"}, "allocate.plan.steps[1]"),
    ("unknown mechanism", CLAIMS, {f"{STEP}.mechanism": "magic"}, f"{STEP_FIELD}.mechanism"),
    ("laplace without epsilon", CLAIMS, {f"{STEP}.epsilon": REMOVED}, STEP_FIELD),
    ("laplace epsilon zero", CLAIMS, {f"{STEP}.epsilon": "0"}, STEP_FIELD),
    ("sgd delta zero", CLAIMS, {f"{STEP[:-1]}1.delta": "0.0"}, STEP_FIELD),
    ("laplace with sigma", CLAIMS, {f"{STEP}.sigma": "1"}, STEP_FIELD),
    ("sgd steps a string", CLAIMS, {f"{STEP[:-1]}1.steps": "1000"}, f"{STEP_FIELD}.steps"),
    ("sgd noise zero", CLAIMS, {f"{STEP[:-1]}1.noiseMultiplier": "0"}, "noiseMultiplier"),
    (
        "curve of numbers",
        CLAIMS,
        {STEP: {"name": "s", "mechanism": "curve", "orders": {"4": 0.1}}},
        f"{STEP_FIELD}.orders.4",
    ),
    (
        "step and amount",
        CLAIMS,
        {
            "spec.requests.1.consume.amount": {
                "steps": [{"name": "s", "mechanism": "pure", "epsilon": "1"}]
            }
        },
        "spec.requests.consume",
    ),
    ("workflow without uid", CLAIMS, {"spec.workflow": {"name": "w"}}, "spec.workflow.uid"),
    ("lease not renewed", CLAIMS, {"spec.lease": {"duration": "10m"}}, "spec.lease.renewed"),
]


def is_named(field, refusal):
    """Whether the refusal is about this field; servers differ in numbering a list's items."""
    causes = json.loads(refusal.body)["details"]["causes"]
    told = [cause["field"] for cause in causes]
    # What fails a `not` or `oneOf` is named in the sentence only.
    told += [name for each in causes for name in re.findall(r'"([^"]+)" must', each["message"])]
    told += [re.sub(r"\[\d+\]", "", each) for each in told]
    return any(f".{each}".endswith(f".{field}") for each in told)


@pytest.mark.parametrize(
    ("plural", "changes", "field"),
    [pytest.param(*rest, id=f"{rest[0]}: {name}") for name, *rest in MALFORMED],
)
def test_malformed_objects_are_refused(objects, plural, changes, field):
    with pytest.raises(ApiException) as refused:
        objects.create(plural, example(plural, objects.name(plural), **changes))
    assert refused.value.status == 422
    assert is_named(field, refused.value)


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"phase": "Waiting"}, "status.phase"),
        ({"reason": "BecauseISaySo"}, "status.reason"),
        (
            {"released": [{"blocks": ["b"], "budget": {"epsilon": "1e-3"}}]},
            "released.budget.epsilon",
        ),
        ({"released": [{"blocks": [], "budget": {"epsilon": "1"}}]}, "status.released.blocks"),
        ({"responses": [{"id": "allocate", "state": "Done"}]}, "status.responses.reason"),
        ({"responses": [CLAIM_STATUS["responses"][0] | {"state": "Maybe"}]}, "responses.state"),
        ({"conditions": [{"type": "Bound", "status": "yes"}]}, "status.conditions.status"),
    ],
)
def test_malformed_status_is_refused(objects, status, field):
    objects.create(CLAIMS, example(CLAIMS, "train"))
    with pytest.raises(ApiException) as refused:
        objects.set_status(CLAIMS, "train", status)
    assert refused.value.status == 422
    assert is_named(field, refused.value)


def test_kubectl_refuses_an_unknown_field(objects):
    done = objects.apply(example(CLAIMS, "train", **{"spec.urgency": "high"}))
    assert done.returncode != 0
    assert "urgency" in done.stderr


GOOD = [
    (STREAMS, {"spec.accounting": {"type": "Basic"}, "spec.delta": "0"}),
    (STREAMS, {"spec.semantic": "UserTime", "spec.counter": {"epsilon": ".1"}}),
    (STREAMS, {"spec.unlocking": {"lifetime": "30d", "interval": "1h30m"}}),
    (STREAMS, {"spec.unlocking": {"atOnce": True}, "spec.policy": "FCFS"}),
    (STREAMS, {"spec.accounting.weights": {"3": "0.5", "4": "5e-1"}}),
    (STREAMS, {"spec.policy": "WeightedDPF"}),
    (STREAMS, {"spec.policy": "DPack"}),
    (STREAMS, {"spec.policy": "FairFirst"}),
    (BLOCKS, {"spec": {"stream": "reviews"}}),
    (BLOCKS, {"spec": {"stream": "reviews", "users": [0, 0]}}),
    (CLAIMS, {SELECT: {"names": ["monday", "tuesday"]}}),
    (CLAIMS, {SELECT: {"start": "2026-11-16T00:00:00.5+01:00", "users": [0, 99], "atMost": 2}}),
    (CLAIMS, {"spec.requests.1.consume": {}}),
    (CLAIMS, {"spec.requests.0.allocate.weight": 1000}),
    (CLAIMS, {f"{STEP[:-1]}1.delta": "1e-9"}),
    (CLAIMS, {f"{STEP}.mechanism": "epsilon-delta", f"{STEP}.delta": "0"}),
    (CLAIMS, {STEP: {"name": "s", "mechanism": "curve", "orders": {"4": "0.1", "64": "inf"}}}),
    (CLAIMS, {"spec.workflow": {"name": "w", "uid": "u"}, "spec.deadline": "2026-11-16T00:00:00Z"}),
]


@pytest.mark.parametrize(("plural", "changes"), GOOD)
def test_other_ways_to_say_it_are_kept_as_they_are(objects, plural, changes):
    body = example(plural, objects.name(plural), **changes)
    stored = objects.create(plural, body)
    for field, value in body["spec"].items():
        if field == "counter":
            value = {"days": DEFAULT_DAYS} | value
        assert stored["spec"][field] == value


# Who writes what


@pytest.mark.parametrize("plural", PLURALS)
def test_status_is_ignored_but_through_its_subresource(objects, plural):
    status = {STREAMS: {"blocks": 5}, BLOCKS: {"phase": "Retired"}, CLAIMS: {"phase": "Denied"}}
    name = objects.name(plural)
    created = objects.create(plural, example(plural, name) | {"status": status[plural]})
    assert "status" not in created
    assert "status" not in objects.replace(plural, created | {"status": status[plural]})
    assert objects.set_status(plural, name, status[plural])["status"] == status[plural]


@pytest.mark.parametrize("plural", PLURALS)
def test_spec_is_ignored_through_the_status_subresource(objects, plural):
    name = objects.name(plural)
    created = objects.create(plural, example(plural, name))
    changed = copy.deepcopy(created)
    if plural == STREAMS:
        changed["spec"]["epsilon"] = "20"
    else:
        changed["spec"]["stream"] = "another"
    changed["status"] = {"conditions": []}
    written = objects.replace(plural, changed, "_status")
    assert written["spec"] == created["spec"]
    assert written["metadata"]["generation"] == created["metadata"]["generation"]


def test_requests_keep_their_order_when_appended(objects):
    created = objects.create(CLAIMS, example(CLAIMS, "train"))
    created["spec"]["requests"].append({"id": "another", "consume": {}})
    stored = objects.replace(CLAIMS, created)
    ids = [request["id"] for request in stored["spec"]["requests"]]
    assert ids == ["allocate", "consume-statistics", "release", "another"]


# The words on the wire are those of the library (no server needed)


def words(plural, path):
    return set(schema(plural, path)["enum"])


def plainly(words):
    return {re.sub("[^a-z]", "", word.lower()) for word in words}


def test_phases_are_the_librarys():
    assert words(CLAIMS, "status.phase") == set(Phase)
    assert words(BLOCKS, "status.phase") == set(BlockPhase)


def test_reasons_are_the_librarys():
    answers = words(CLAIMS, "status.responses.reason")
    waiting = {reason for reason in Reason if reason.startswith("Waiting")}
    elsewhere = {reason for reason in Reason if reason.startswith(("Ledger", "Cluster"))} | {
        Reason.SPEC_CHANGED,
        Reason.REQUEST_CHANGED,
        Reason.UNREADABLE,
        Reason.DELETION_REFUSED,
        Reason.UNKNOWN_OBJECT,
        Reason.UNSOUND_CAPACITY,
        Reason.UNKNOWN_CLAIM,
        Reason.UNKNOWN_REQUEST,
        Reason.ALREADY_EXISTS,
        Reason.IN_USE,
        Reason.CLOCK_WENT_BACK,
        Reason.DATA_UNREADABLE,
        Reason.DATA_UNWRITABLE,
        Reason.WRONG_COLUMNS,
        Reason.TOO_MANY_BAD_ROWS,
        Reason.NOT_CONSUMED,
        Reason.ALREADY_PUBLISHED,
    }
    assert answers == set(Reason) - waiting - elsewhere
    # That no scheduler has read a claim is what a client says, not a scheduler.
    assert words(CLAIMS, "status.reason") == answers | waiting - {Reason.WAITING_FOR_SCHEDULER}


def test_words_of_a_stream_are_the_librarys():
    assert plainly(words(STREAMS, "spec.semantic")) == plainly(Semantic)
    assert plainly(words(STREAMS, "spec.policy")) == plainly(POLICIES)
    assert plainly(words(STREAMS, "spec.accounting.conversion")) == {Classic.name, Weighted.name}
    assert words(STREAMS, "spec.accounting.type") == {"Basic", "Renyi"}
    assert schema(STREAMS, "spec.counter.days")["default"] == DEFAULT_DAYS
    for days in words(STREAMS, "spec.counter.days"):
        Counter("0.1", days)
    assert len(words(STREAMS, "spec.counter.days")) == 40


def test_verbs_are_the_librarys():
    request = schema(CLAIMS, "spec.requests")["items"]
    assert {one for each in request["oneOf"] for one in each["required"]} == set(Kind)
    assert set(request["properties"]) == {"id", *Kind}


@pytest.mark.parametrize("place", ["spec.requests.allocate.plan", "spec.requests.consume.amount"])
def test_mechanisms_and_their_fields_are_the_librarys(place):
    step = schema(CLAIMS, f"{place}.steps")["items"]
    assert set(step["properties"]["mechanism"]["enum"]) == set(MECHANISMS)
    allowed = {}
    everything = set(step["properties"]) - {"name", "mechanism"}
    for each in step["oneOf"]:
        [kind] = each["properties"]["mechanism"]["enum"]
        barred = {name for one in each["not"]["anyOf"] for name in one["required"]}
        allowed[kind] = (set(each["required"]), everything - barred)
    for kind, cls in MECHANISMS.items():
        known = {_camel(field.name): field.default is MISSING for field in fields(cls)}
        needed = {name for name, must in known.items() if must}
        assert allowed[kind] == (needed, set(known)), kind


def _camel(name):
    return re.sub("_(.)", lambda match: match[1].upper(), name)


@pytest.mark.parametrize(
    "text",
    [
        *("0", "1", "0.1", ".5", "5.", "1e-7", "1E+7", "007", "1" * 60, "0." + "1" * 60),
        *("", ".", "e5", ".e5", "-1", "+1", "1e", "1e1234567", "inf", "nan", "1,5", "1_0", "0x1"),
        *("1" * 61, "1.2.3", "1 2", "1e5.5", "\u0663"),
    ],
)
def test_decimals_are_those_the_library_reads(text):
    try:
        parse_decimal(text, "delta")
        read = True
    except Invalid:
        read = False
    delta = schema(STREAMS, "spec.delta")
    assert bool(re.fullmatch(delta["pattern"], text)) == read
    assert not read or delta["minLength"] <= len(text) <= delta["maxLength"]


def test_example_plan_is_one_the_library_reads():
    [request, *_] = EXAMPLES[CLAIMS]["spec"]["requests"]
    for step in request["allocate"]["plan"]["steps"]:
        rest = {key: value for key, value in step.items() if key != "name"}
        assert mechanism_from_json(rest).to_json() == rest
