"""What cannot be right is refused: a sentence, a non-zero exit, and the ledger untouched."""

import json

import pytest

from tests.cli.running import digest

USAGE, REFUSED = 2, 1
ASK = ("claim", "allocate", "new", "--stream", "s", "--block", "b1", "--timeout", "0s")
NEW = ("stream", "create", "new", "--unlock-pipelines", "1")
RENYI = (*NEW, "--epsilon", "10", "--delta", "1e-7", "--accounting", "renyi")

BUDGETS = {
    "-0.1": "is negative",
    "-0": "is negative",
    "nan": "is not a decimal number",
    "NaN": "is not a decimal number",
    "inf": "is not a decimal number",
    "Infinity": "is not a decimal number",
    "": "is empty; give a decimal",
    " ": "is empty; give a decimal",
    "a lot": "is not a decimal number",
    "0.1.2": "is not a decimal number",
    "1_0": "is not a decimal number",
    "0x1": "is not a decimal number",
    "\u0660.\u0661": "is not a decimal number",
    "1e": "is not a decimal number",
    "0,1": "is not a decimal number",
    "0.1234567890123": "is finer than 1e-12",
    "1e-400": "is finer than 1e-12",
    "1e-99999": "is finer than 1e-12",
    "1e400": "is too large",
    "9007.199254740991": "is too large; it must be at most 9007.19925474099",
    "9" * 50: "is too large",
}


@pytest.fixture
def unchanged(basic, workplace):
    """Runs a command that must be refused, and leave the ledger byte for byte as it was."""
    basic.ok("claim", "allocate", "c1", "--stream", "s", "--block", "b1", "--epsilon", "0.1")
    path = workplace / "ledger.db"

    def refused(*args, code):
        before = digest(path)
        result = basic(*args)
        assert result.code == code, result
        assert result.out == ""
        assert result.err.startswith("privatekube: ")
        assert "Traceback" not in result.err
        in_json = basic(*args, "--json")
        assert in_json.code == code
        assert set(in_json.json["error"]) == {"reason", "message"}
        assert in_json.json["error"]["message"] in result.err
        assert digest(path) == before
        assert sorted(p.name for p in workplace.iterdir()) == ["ledger.db"]
        return result.err

    return refused


@pytest.mark.parametrize(("text", "problem"), BUDGETS.items())
@pytest.mark.parametrize("command", [ASK, NEW, ("claim", "consume", "c1")])
def test_an_epsilon_that_is_none(unchanged, command, text, problem):
    said = unchanged(*command, f"--epsilon={text}", code=USAGE)
    assert problem in said
    assert "--epsilon" in said


@pytest.mark.parametrize("text", ["-1e-9", "nan", "inf", "", "x", "1e-19", "1"])
@pytest.mark.parametrize("command", [ASK, NEW])
def test_a_delta_that_is_none(unchanged, command, text):
    said = unchanged(*command, "--epsilon", "0.1", f"--delta={text}", code=USAGE)
    assert "--delta" in said


def test_nothing_to_ask_for(unchanged):
    assert "must be above 0" in unchanged(*ASK, "--epsilon", "0", code=USAGE)
    assert "must be above 0" in unchanged(*NEW, "--epsilon", "0", code=USAGE)
    assert "How much?" in unchanged(*ASK, code=USAGE)


@pytest.mark.parametrize("text", ["0", "1001", "-1", "1.5", "x", ""])
def test_a_weight_that_is_none(unchanged, text):
    said = unchanged(*ASK, "--epsilon", "0.1", f"--weight={text}", code=USAGE)
    assert "--weight" in said
    assert "whole number" in said


def test_a_weight_for_nothing(unchanged):
    said = unchanged(*ASK, "--epsilon", "0.1", "--weight", "2", code=REFUSED)
    assert "the stream's policy dpf knows no weights" in said


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--laplace", "-1", "is negative"),
        ("--laplace", "0", "must be above 0"),
        ("--gaussian", "0", "out of range"),
        ("--gaussian", "nan", "is not a decimal number"),
        ("--gaussian", "", "is empty"),
        ("--gaussian", "1e30", "out of range"),
        ("--dp-sgd", "1.1,0.01", "must be NOISE,RATE,STEPS"),
        ("--dp-sgd", "1.1,2,100", "at most 1"),
        ("--dp-sgd", "1.1,0.01,x", "is not a whole number"),
        ("--dp-sgd", "1.1,0.01,0", "must be a whole number from 1"),
        ("--plan", "", "is empty"),
        ("--plan", "nowhere.json", "cannot read nowhere.json: No such file"),
        ("--plan", ".", "cannot read .: Is a directory"),
        ("--plan", "/dev/zero", "is longer than"),
        ("--plan", "{", "is not JSON"),
        ("--plan", "{}", "a plan is an object with 'steps'"),
        ("--plan", '{"a":' * 100_000, "is nested too deeply"),
        ("--plan", '{"steps": []}', "has no steps"),
        ("--plan", '{"steps": [], "steps": []}', "'steps' is there twice"),
        ("--plan", '{"mechanism": "magic"}', "unknown mechanism 'magic'; known are laplace"),
        ("--plan", '{"mechanism": "pure", "epsilon": 0.1}', "must be a decimal string"),
        ("--plan", '{"mechanism": "pure", "epsilon": "0.1", "x": "1"}', "unknown key 'x'"),
        ("--plan", '{"mechanism": "pure", "epsilon": NaN}', "must be a decimal string"),
    ],
)
def test_a_mechanism_that_is_none(unchanged, option, value, problem):
    assert problem in unchanged(*ASK, option, value, code=USAGE)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            ("--policy", "lifo"),
            "'lifo' is not one of 'dpf', 'fcfs', 'weighted-dpf', 'dpack', 'fair-first'",
        ),
        (("--semantic", "row"), "'row' is not one of 'event', 'user', 'user-time'"),
        (("--accounting", "zcdp"), "'zcdp' is not one of 'basic', 'renyi'"),
        (("--conversion", "magic"), "unknown conversion 'magic'; known are classic and weighted"),
        (("--orders", "2,x"), "order 'x' is not a decimal number"),
        (("--orders", "1"), "must be above 1"),
        (("--orders", "2,2.0"), "is given twice"),
        (("--orders", ""), "order is empty"),
        (("--orders", "2,inf"), "order 'inf' is not a decimal number"),
        (("--weights", "3"), "'3' is not a weight"),
        (("--weights", "3=1,3=1"), "each order once"),
        (("--weights", "3=-1"), "is negative"),
        (("--counter-days", "3", "--counter-epsilon", "0.1"), "must be a power of two"),
        (("--counter-days", "16"), "needs --counter-epsilon"),
        (("--counter-epsilon", "0.1"), "for --semantic user and user-time only"),
        (("--semantic", "user"), "needs --counter-epsilon"),
        (("--semantic", "user", "--counter-epsilon", "10"), "leaves nothing"),
        (("--accounting", "basic", "--orders", "2,3"), "--orders is for Renyi accounting"),
        (("--accounting", "basic", "--conversion", "classic"), "--conversion is for Renyi"),
        (("--conversion", "classic", "--weights", "3=1"), "classic takes none"),
        (("--unlock-at-once",), "one way to unlock"),
        (("--unlock-lifetime", "30d"), "one way to unlock"),
    ],
)
def test_a_stream_that_is_none(unchanged, options, problem):
    declared = (*NEW, "--epsilon", "10", "--delta", "1e-7")
    assert problem in unchanged(*declared, *options, code=USAGE)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "Policy dpf needs --unlock-pipelines N"),
        (("--unlock-pipelines", "0"), "must be from 1 to"),
        (("--unlock-pipelines", "-1"), "is not a whole number"),
        (("--unlock-pipelines", "1.5"), "is not a whole number"),
        (("--unlock-lifetime", "30d"), "go together"),
        (("--unlock-interval", "30d"), "go together"),
        (("--unlock-lifetime", "30", "--unlock-interval", "1d"), "'30' is not a duration"),
        (("--unlock-lifetime", "7d", "--unlock-interval", "2d"), "a whole number of intervals"),
        (("--unlock-lifetime", "0s", "--unlock-interval", "0s"), "must be above zero"),
        (("--unlock-lifetime", "9999999w", "--unlock-interval", "1d"), "a thousand years"),
    ],
)
def test_unlocking_that_is_none(unchanged, options, problem):
    assert problem in unchanged("stream", "create", "new", "--epsilon", "1", *options, code=USAGE)


def test_renyi_accounting_needs_a_delta_and_an_order_of_use(unchanged):
    without = (*NEW, "--epsilon", "10", "--accounting", "renyi")
    assert "needs a delta above 0" in unchanged(*without, code=USAGE)
    hopeless = (*NEW, "--epsilon", "1", "--delta", "1e-7", "--orders", "2,3")
    assert "has any capacity" in unchanged(*hopeless, code=USAGE)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--conversion", "tight"), "sound for one order only"),
        (("--orders", ",".join(map(str, range(3, 63)))), "can fail with"),
        (("--orders", "8,16", "--weights", "8=0.6,16=0.6"), "add up to 1.2"),
        (("--orders", "8,16", "--weights", "8=0.6"), "no weight at order 16"),
        (("--orders", "8", "--weights", "8=0.6,16=0.4"), "a weight at order 16"),
    ],
)
def test_a_capacity_that_is_not_sound(unchanged, options, problem):
    assert problem in unchanged(*RENYI, *options, code=REFUSED)


def test_unknown_names(unchanged):
    ask = ("--epsilon", "0.1", "--timeout", "0s")
    for command in [
        ("stream", "show", "zz"),
        ("stream", "delete", "zz"),
        ("block", "create", "b2", "--stream", "zz"),
        ("block", "list", "--stream", "zz"),
        ("claim", "list", "--stream", "zz"),
        ("claim", "allocate", "c", "--stream", "zz", "--block", "b1", *ask),
        ("account", "--stream", "zz", "--pure", "1"),
    ]:
        assert "there is no stream 'zz' (UnknownStream)" in unchanged(*command, code=REFUSED)
    for command in [("block", "show", "zz"), ("block", "retire", "zz")]:
        assert "there is no block 'zz' (UnknownBlock)" in unchanged(*command, code=REFUSED)
    said = unchanged("claim", "allocate", "c", "--stream", "s", "--block", "zz", *ask, code=REFUSED)
    assert "there is no block 'zz' in the stream" in said
    for verb in ("show", "consume", "release", "wait"):
        assert "there is no claim 'zz'" in unchanged("claim", verb, "zz", code=REFUSED)
    said = unchanged("claim", "wait", "c1", "--request-id", "zz", code=REFUSED)
    assert "claim c1 has no request 'zz'" in said


def test_an_unknown_order(unchanged, basic, workplace):
    declared = ("--epsilon", "10", "--delta", "1e-7", "--orders", "8,16", "--unlock-at-once")
    basic.ok("stream", "create", "r", *declared)
    basic.ok("block", "create", "rb", "--stream", "r")
    ask = ("claim", "allocate", "c", "--stream", "r", "--block", "rb", "--timeout", "0s")
    for orders, problem in [
        ({"8": "0.1", "17": "0.2"}, "no epsilon at order 16"),
        ({"8": "0.1", "16": "0.2", "17": "0.3"}, "order 17, which the stream does not have"),
    ]:
        plan = json.dumps({"mechanism": "curve", "orders": orders})
        assert problem in unchanged(*ask, "--plan", plan, code=REFUSED)
    plain = unchanged(*ask, "--epsilon", "0.1", "--delta", "1e-9", code=REFUSED)
    assert "name the mechanism" in plain


@pytest.mark.parametrize(
    ("selection", "problem"),
    [
        ((), "Which blocks?"),
        (("--block", "b1", "--last", "2"), "not both"),
        (("--block", "b1", "--block", "b1"), "block b1 is named twice"),
        (("--block", ""), "block name ''"),
        (("--block", "B1"), "must be lower-case"),
        (("--start", "2026-11-17", "--end", "2026-11-16"), "the time range is empty"),
        (("--start", "yesterday"), "write it like 2026-11-16"),
        (("--start", "9999-12-31T23:59:59-23:00"), "the years 1 to 9999"),
        (("--users", "9-1"), "is not a range of user indexes"),
        (("--users", "-5"), "is not a range of user indexes"),
        (("--users", "0-" + "9" * 30), "is not a range of user indexes"),
        (("--last", "0"), "it must be from 1 to"),
        (("--last", "two"), "is not a whole number"),
        (("--last", "3", "--at-least", "4"), "at least 4 blocks"),
        (("--block", "b1", "--at-least", "1"), "for ranges of blocks"),
    ],
)
def test_a_selection_that_is_none(unchanged, selection, problem):
    ask = ("claim", "allocate", "c", "--stream", "s", "--epsilon", "0.1", "--timeout", "0s")
    assert problem in unchanged(*ask, *selection, code=USAGE)


def test_an_empty_selection(unchanged):
    ask = ("claim", "allocate", "c", "--stream", "s", "--epsilon", "0.1", "--timeout", "0s")
    for options in [
        ("--start", "2026-11-16", "--end", "2026-11-17"),
        ("--users", "0-9"),
        ("--last", "5", "--at-least", "2"),
    ]:
        said = unchanged(*ask, *options, code=REFUSED)
        assert "active blocks match the selection; at least" in said or "NoMatching" in said


def test_an_id_used_for_something_else(unchanged):
    ask = ("claim", "allocate", "c1", "--stream", "s", "--block", "b1")
    said = unchanged(*ask, "--epsilon", "0.2", code=REFUSED)
    assert "claim c1 already has a request 'allocate' that says something else" in said
    said = unchanged("claim", "consume", "c1", "--request-id", "allocate", code=REFUSED)
    assert "says something else" in said
    said = unchanged("block", "create", "b1", "--stream", "s", "--data-source", "x", code=REFUSED)
    assert "block b1 exists" in said
    same = ("stream", "create", "s", "--delta", "1e-7", "--unlock-pipelines", "1")
    assert "exists with another declaration" in unchanged(*same, "--epsilon", "2", code=REFUSED)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ((*ASK, "--epsilon", "0.1", "--gaussian", "1"), "--epsilon or --gaussian, not both"),
        ((*ASK, "--laplace", "0.1", "--delta", "1e-9"), "--delta goes with"),
        ((*ASK, "--epsilon", "0.1", "--timeout", "soon"), "'soon' is not a duration"),
        ((*ASK, "--epsilon", "0.1", "--timeout", "-1s"), "'-1s' is not a duration"),
        ((*ASK, "--epsilon", "0.1", "--request-id", "a b"), "request id 'a b' must be"),
        ((*ASK, "--epsilon", "0.1", "--owner", ""), "must be printable text"),
        ((*ASK, "--epsilon", "0.1", "--owner", "a\nb"), "must be printable text"),
        (("claim", "consume", "c1", "--step", "a", "--epsilon", "0.1"), "not both"),
        (("claim", "consume", "c1", "--step", "a b"), "step name 'a b'"),
        (("claim", "list", "--phase", "Stuck"), "'Stuck' is not one of 'Pending'"),
        (("claim", "show", "C1"), "claim name 'C1' must be lower-case"),
        (("stream", "show", "x" * 300), "at most 253 characters"),
        (("block", "create", "b2", "--stream", "s", "--start", "2026-11-16"), "go together"),
        (
            (
                "block",
                "create",
                "b2",
                "--stream",
                "s",
                "--start",
                "2026-11-17",
                "--end",
                "2026-11-16",
            ),
            "--start 2026-11-17T00:00:00Z must be before --end 2026-11-16T00:00:00Z",
        ),
        (("block", "create", "b2"), "Missing option '--stream'"),
        (("account", "--epsilon", "1"), "What to price?"),
        (("account", "--gaussian", "1"), "Price on what?"),
        (("account", "--epsilon", "1", "--stream", "s", "--pure", "1"), "Price on what?"),
        (("account", "--delta", "1e-7", "--pure", "1"), "Missing option '--epsilon'"),
        (("account", "--epsilon", "1", "--epsilon-delta", "1"), "must be EPS,DELTA"),
        (("account", "--epsilon", "1", "--pure", "1", "--mechanism-delta", "1e-9"), "goes with"),
        (("calibrate", "laplace"), "Give --scale to find the epsilon"),
        (("calibrate", "laplace", "--scale", "1", "--epsilon", "1"), "Give --scale"),
        (("calibrate", "gaussian", "--sigma", "1", "--delta", "0"), "must be above 0"),
        (("frobnicate",), "No such command"),
        (("claim", "--frobnicate"), "No such option"),
    ],
)
def test_a_command_that_is_none(unchanged, args, problem):
    assert problem in unchanged(*args, code=USAGE)


def test_a_demand_that_cannot_be_priced(unchanged):
    said = unchanged(*ASK, "--gaussian", "6.5", code=REFUSED)
    assert "gaussian has no epsilon without a delta" in said
    said = unchanged("account", "--epsilon", "10", "--gaussian", "6.5", code=REFUSED)
    assert "(CannotPrice)" in said
    renyi = ("account", "--epsilon", "10", "--delta", "1e-7", "--accounting", "renyi")
    said = unchanged(*renyi, "--epsilon-delta", "1,1e-9", code=REFUSED)
    assert "name the mechanism" in said


def test_users_only_where_the_stream_has_them(unchanged):
    said = unchanged("block", "create", "u", "--stream", "s", "--users", "0-9", code=REFUSED)
    assert "event semantic has no user ranges" in said


def test_deleting_a_stream_that_was_used(unchanged):
    said = unchanged("stream", "delete", "s", code=REFUSED)
    assert "stream s has 1 block; deleting it would forget what was spent on them" in said


def test_a_refused_stream_makes_no_ledger(run, workplace):
    assert run(*NEW, "--epsilon", "-1").code == USAGE
    assert run(*RENYI, "--conversion", "tight").code == REFUSED
    assert list(workplace.iterdir()) == []
