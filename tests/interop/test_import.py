"""Rules of other systems: a plain evaluator of their meaning and our answers agree."""

import ipaddress
import json
import re
from operator import eq, ge, gt, le, lt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Boolean, Category, Engine, Filter, Hierarchy, Integer, Number, Space, String
from rangecast.errors import FileError, UsageError
from rangecast.interop import eventbridge, flatten, sns
from tests.support.examples import examples


def matches(imported, events):
    """The ids of what was imported that hold each event."""
    engine = Engine(imported.space, index="scan")
    engine.subscribe_many(imported.subscriptions)
    return [engine.match(event, ignore_unknown=True) for event in events]


def same_after_the_way_back(system, imported):
    """Every subscription that can be written is the same boxes when it is read again."""
    done = system.write(imported.subscriptions, imported.space)
    again = system.read(done.rules, imported.space)
    assert again.rejected == []
    before = {one["id"]: one["filter"] for one in imported.subscriptions}
    assert {one["id"] for one in again.subscriptions} == {*done.rules}
    assert {*before} == {*done.rules} | {one.id for one in done.unsupported}
    for one in again.subscriptions:
        assert Filter.parse(one["filter"], imported.space) == Filter.parse(
            before[one["id"]], imported.space
        ), one
    return done


def rejection(system, rule, **options):
    (found,) = system.read({"bad": rule}, **options).rejected
    return found.place, found.reason


def agree(imported, rules, events, holds):
    """Assert that the import agrees with a plain evaluator of the rules on all events."""
    assert imported.rejected == []
    for event, found in zip(events, matches(imported, events), strict=True):
        assert found == [id_ for id_, rule in rules.items() if holds(rule, event)], event


# ---- EventBridge and SNS: the patterns, as their documentation says they work


def pattern_holds(pattern, event):
    """Return whether a pattern matches a nested event, field by field."""
    for key, wanted in pattern.items():
        if key == "$or":
            if not any(pattern_holds(one, event) for one in wanted):
                return False
        elif isinstance(wanted, dict):
            inner = event.get(key)
            if not pattern_holds(wanted, inner if isinstance(inner, dict) else {}):
                return False
        elif not any(matcher_holds(one, key in event, event.get(key)) for one in wanted):
            return False
    return True


SIGNS = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq}


def matcher_holds(matcher, is_there, value):
    if not isinstance(matcher, dict):
        return is_there and type(matcher) is type(value) and matcher == value
    ((operator, wanted),) = matcher.items()
    if operator == "exists":
        return is_there == wanted
    if not is_there:
        return False
    if operator == "numeric":
        pairs = zip(wanted[::2], wanted[1::2], strict=True)
        return all(SIGNS[sign](value, number) for sign, number in pairs)
    if operator == "anything-but":
        if isinstance(wanted, dict):
            ((inner, texts),) = wanted.items()
            texts = texts if isinstance(texts, list) else [texts]
            return not any(matcher_holds({inner: text}, True, value) for text in texts)
        return value not in (wanted if isinstance(wanted, list) else [wanted])
    if isinstance(wanted, dict):
        return matcher_holds({operator: wanted["equals-ignore-case"].lower()}, True, value.lower())
    if operator == "cidr":
        return ipaddress.ip_address(value) in ipaddress.ip_network(wanted)
    if operator == "wildcard":
        return re.fullmatch(wanted.replace(".", r"\.").replace("*", ".*"), value) is not None
    tests = {"prefix": value.startswith, "suffix": value.endswith}
    if operator in tests:
        return tests[operator](wanted)
    return value.lower() == wanted.lower()


PATTERNS = {
    "stopped": {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Instance State-change Notification"],
        "detail": {"state": ["stopped", "terminated"]},
    },
    "not starting": {"detail": {"state": [{"anything-but": "initializing"}]}},
    "none of": {"detail": {"state": [{"anything-but": ["stopped", "overloaded"]}]}},
    "counts": {
        "detail": {
            "c-count": [{"numeric": [">", 0, "<=", 5]}],
            "d-count": [{"numeric": ["<", 10]}],
            "x-limit": [{"anything-but": [100, 200, 300]}],
        }
    },
    "equal": {"detail": {"x-limit": [{"numeric": ["=", 3.018e2]}]}},
    "has": {"detail": {"c-count": [{"exists": True}]}},
    "has not": {"detail": {"c-count": [{"exists": False}]}},
    "null or none": {"detail": {"c-count": [None, {"exists": False}]}},
    "none or few": {"detail": {"c-count": [{"exists": False}, 1, {"numeric": ["<", 0]}]}},
    "any of": {
        "source": ["aws.ec2", "aws.s3"],
        "detail": {
            "$or": [
                {"c-count": [{"numeric": [">", 0, "<=", 5]}]},
                {"d-count": [{"numeric": ["<", 10]}], "state": [""]},
                {"flag": [True]},
            ]
        },
    },
    "top or": {"$or": [{"source": ["a'b"]}, {"detail": {"flag": [False]}}]},
}
EVENTS = [
    {},
    {"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification"}
    | {"detail": {"state": "stopped"}},
    {"source": "aws.s3", "detail": {"state": "running", "c-count": 5}},
    {"source": "aws.s3", "detail": {"state": "", "d-count": 9.5}},
    {"source": "aws.ec2", "detail": {"c-count": 0, "d-count": 10, "x-limit": 301.8}},
    {"detail": {"c-count": 3, "d-count": -1, "x-limit": 100, "state": "initializing"}},
    {"detail": {"c-count": 3, "d-count": -1, "x-limit": 100.5, "flag": True}},
    {"source": "aws.ec2", "detail": {"flag": True, "c-count": -2}},
    {"source": "a'b", "detail": {"flag": False, "c-count": 1, "state": "overloaded"}},
]


@pytest.mark.parametrize("system", [eventbridge, sns])
def test_patterns_hold_where_they_held(system):
    imported = system.read(PATTERNS)
    assert imported.rejected == []
    for event, found in zip(EVENTS, matches(imported, map(flatten, EVENTS)), strict=True):
        expected = [id_ for id_, pattern in PATTERNS.items() if pattern_holds(pattern, event)]
        assert found == expected, event
    done = same_after_the_way_back(system, imported)
    assert done.unsupported == []
    for event in EVENTS:
        for id_, pattern in done.rules.items():
            assert pattern_holds(pattern, event) == pattern_holds(PATTERNS[id_], event)


REGIONS = {"us": ["us-east-1", "us-west-2"], "eu": ["eu-west-1", "EU-North-1"]}
ADDRESSES = ["10.0.0.7", "10.0.1.7", "192.168.0.1"]
ON_TEXTS = {
    "in the us": {"region": [{"prefix": "us-"}]},
    "not in the us": {"region": [{"anything-but": {"prefix": "us-"}}]},
    "neither": {"region": [{"anything-but": {"prefix": ["us-", "EU"]}}]},
    "ends": {"region": [{"suffix": "-1"}]},
    "any case": {"region": [{"equals-ignore-case": "eu-NORTH-1"}]},
    "prefix in any case": {"region": [{"prefix": {"equals-ignore-case": "Eu-"}}]},
    "wild": {"region": [{"wildcard": "*-w*-*"}]},
    "not wild": {"region": [{"anything-but": {"wildcard": "*-1"}}]},
    "network": {"ip": [{"cidr": "10.0.0.0/24"}]},
    "plain or suffix": {"region": ["us-west-2", {"suffix": "h-1"}]},
    "a concept is no value": {"region": ["us", "eu-west-1"]},
}


def test_operators_on_texts_are_exact_where_all_texts_are_listed():
    space = Space([Hierarchy("region", REGIONS), Category("ip", ADDRESSES)])
    imported = eventbridge.read(ON_TEXTS, space)
    assert imported.rejected == []
    assert imported.subscriptions[0] == {"id": "in the us", "filter": "region = 'us'"}
    regions = [*REGIONS["us"], *REGIONS["eu"]]
    events = [{"region": region, "ip": ip} for region in regions for ip in ADDRESSES]
    for event, found in zip([{}, *events], matches(imported, [{}, *events]), strict=True):
        assert found == [id_ for id_, one in ON_TEXTS.items() if pattern_holds(one, event)]
    same_after_the_way_back(eventbridge, imported)
    unlisted = eventbridge.read(ON_TEXTS, Space([String("region"), String("ip")]))
    assert {one.id for one in unlisted.rejected} == {*ON_TEXTS} - {"a concept is no value"}
    assert "declare it as a text, a category or" in unlisted.rejected[0].reason


def test_operators_on_texts_are_exact_on_texts():
    rules = {"plain first": {"region": ["us-west-2"]}, **ON_TEXTS}
    rules["signs"] = {"region": [{"wildcard": "a%*\\\\_\\*"}, {"prefix": "100%_"}]}
    rules["quote"] = {"region": [{"suffix": "'s"}]}
    imported = eventbridge.read(rules)
    assert imported.rejected == []
    assert [one.type for one in imported.space.valued] == ["text", "text"]
    regions = [*REGIONS["us"], *REGIONS["eu"], "a%b\\_*", "a%b_*", "100%_x", "1000_", "it's", ""]
    events = [{"region": region, "ip": ip} for region in regions for ip in ADDRESSES]
    wild = re.compile(r"a%.*\\_\*", re.DOTALL)
    for event, found in zip([{}, *events], matches(imported, [{}, *events]), strict=True):
        expected = [
            id_
            for id_, one in rules.items()
            if (
                id_ == "signs"
                and "region" in event
                and (wild.fullmatch(event["region"]) or event["region"].startswith("100%_"))
            )
            or (id_ != "signs" and pattern_holds(one, event))
        ]
        assert found == expected
    assert imported.notes == [
        "'region' is compared with full Unicode case folding, where ß equals ss"
    ]
    back = eventbridge.write(imported.subscriptions, imported.space)
    assert "text patterns have no counterpart" in back.unsupported[0].reason
    assert back.rules["in the us"] == ON_TEXTS["in the us"]
    denied = eventbridge.read({"a": {"ip": [{"anything-but": {"cidr": "10.0.0.0/8"}}]}})
    assert "declare it as a category" in denied.rejected[0].reason


@pytest.mark.parametrize(
    ("pattern", "place", "reason"),
    [
        ({"a": [None]}, "a", "both are a missing value"),
        ({"a": [1, "1"]}, "a", "values of different types"),
        ({"a": {"b": ["x"]}, "a.b": ["y"]}, "a.b", "has a dot"),
        ({"a": "x"}, "a", "a field takes a list of matchers"),
        ({"a": []}, "a", "a field takes a list of matchers"),
        ({"a": [{"prefx": "x"}]}, "a", "did you mean 'prefix'"),
        ({"a": [{"numeric": [">", "5"]}]}, "a", "numeric takes numbers"),
        ({"a": [{"numeric": ["!=", 5]}]}, "a", "numeric takes a list such as"),
        ({"a": [{"exists": 1}]}, "a", "exists takes true or false"),
        ({"a": [[1]]}, "a", "takes a string, a number"),
        ({"a": [10**400]}, "a", "takes a string, a number"),
        ({"a": [{"anything-but": {"numeric": 1}}]}, "a", "anything-but takes one operator"),
        ({"a": [{"numeric": [">", 5, "<", 3]}]}, "", "can never match"),
        ({"id": ["x"]}, "id", "a column reserved in files"),
        ({"a": [1], "a_lo": [2]}, "a_lo", "a column of attribute 'a'"),
        (
            {"a": [1], "b": [{"exists": True}, True], "$or": [{"b": ["x"]}]},
            "b",
            "its type is boolean by",
        ),
        ({}, "", "a pattern must be an object"),
        ("{", "", "not JSON"),
        ({"$or": {"a": [1]}}, "$or", "a list of patterns"),
        ({"\ud800": [1]}, "\\ud800", "UTF-8"),
    ],
)
def test_what_has_no_exact_counterpart_is_rejected_with_its_place(pattern, place, reason):
    imported = eventbridge.read({"good": {"z": [1]}, "bad": pattern, "too": {"z": [2]}})
    assert [one["id"] for one in imported.subscriptions] == ["good", "too"]
    (rejection,) = imported.rejected
    assert (rejection.id, rejection.place) == ("bad", place)
    assert reason in rejection.reason


def test_a_rejected_rule_decides_no_type():
    imported = eventbridge.read({"bad": {"a": [1], "b": [None]}, "good": {"a": ["x"]}})
    assert imported.space == Space([String("a")])
    assert imported.notes == []
    only = eventbridge.read({"there": {"a": [{"exists": True}]}})
    assert only.space == Space([String("a")])
    assert "only tested for presence" in only.notes[0]
    typed = eventbridge.read({"there": {"a": [{"exists": True}]}, "flag": {"a": [True]}})
    assert (typed.space, typed.notes) == (Space([Boolean("a")]), [])
    other = eventbridge.read({"b": {"b": [1]}}, Space([Number("a")]))
    assert "the space has no attribute 'b'" in other.rejected[0].reason
    assert eventbridge.read({}).space is None


def test_listings_of_aws_are_read(tmp_path):
    listing = {"Rules": [{"Name": "r", "EventPattern": '{"a": [1]}', "State": "ENABLED"}]}
    (tmp_path / "rules.json").write_text(json.dumps(listing))
    assert eventbridge.read(tmp_path / "rules.json").subscriptions == [
        {"id": "r", "filter": "a = 1"}
    ]
    scoped = {"FilterPolicy": '{"a.b": [1]}', "FilterPolicyScope": "MessageAttributes"}
    nested = {"FilterPolicy": '{"a": {"b": [1]}}'}
    imported = sns.read(
        [
            {"Attributes": {"SubscriptionArn": "arn:1"} | scoped},
            {"Attributes": {"SubscriptionArn": "arn:2"} | nested},
            {"SubscriptionArn": "arn:3"} | nested | {"FilterPolicyScope": "MessageBody"},
            {"SubscriptionArn": "arn:4"},
            {"SubscriptionArn": "arn:5", "FilterPolicy": "{}", "FilterPolicyScope": "?"},
            {"SubscriptionArn": "arn:4"},
        ]
    )
    assert {one["id"]: one["filter"] for one in imported.subscriptions} == {
        "arn:1": "`a.b` = 1",
        "arn:3": "`a.b` = 1",
        "arn:4": "true",
    }
    reasons = [one.reason for one in imported.rejected]
    assert "a field takes a list of matchers; given" in reasons[0]
    assert reasons[1:] == ["unknown scope '?'", "duplicate id"]
    for system, bad in ((eventbridge, [1]), (sns, 5), (sns, [{"FilterPolicy": "{}"}])):
        with pytest.raises(UsageError, match="no rules were found"):
            system.read(bad)
    (tmp_path / "rules.json").write_text("{")
    with pytest.raises(FileError, match=r"rules\.json: not JSON"):
        eventbridge.read(tmp_path / "rules.json")
    with pytest.raises(FileError, match="can't be read"):
        eventbridge.read(tmp_path / "none.json")


def test_an_array_of_an_event_is_rejected():
    assert flatten({"a": {"b": 1}, "c": None}) == {"a.b": 1, "c": None}
    with pytest.raises(UsageError, match=r"'a\.b' is an array"):
        flatten({"a": {"b": [1, 2]}})
    with pytest.raises(UsageError, match=r"two fields 'a\.b'"):
        flatten({"a": {"b": 1}, "a.b": 2})


SPACE = Space(
    [
        Number("n"),
        Integer("i", min=0, max=9),
        Boolean("b"),
        Category("c", ["x", "y", "z"]),
        String("s"),
        Number("in.n"),
    ]
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("true", "it matches everything"),
        ("n < 1e10", "numbers up to 5,000,000,000"),
        ("n > 0.1234567", "at most 6 decimals"),
        ("n = 5 or s = 'a' and `in.n` < 3 or i is null", None),
        ("n < 5 and i > 3 and b = true and c != 'x' and s not in ('p', 'q')", None),
        ("i < 3 or i > 5 or i is null", None),
        ("s = 'p' or s is null or b is not null", None),
    ],
)
def test_what_patterns_cannot_say_is_rejected_on_the_way_back(text, reason):
    done = eventbridge.write([{"id": 7, "filter": text, "score": 2.0}], SPACE)
    assert done.notes == ["scores and weights have no counterpart and are left out"]
    if reason is None:
        (again,) = eventbridge.read(json.loads(done.text), SPACE).subscriptions
        assert Filter.parse(again["filter"], SPACE) == Filter.parse(text, SPACE)
    else:
        assert done.rules == {}
        assert (done.unsupported[0].id, reason in done.unsupported[0].reason) == ("7", True)


def test_names_that_cannot_be_fields_are_rejected_on_the_way_back():
    space = Space([Number("a"), Number("a.b"), Number("c..d"), Number("$or")])
    filters = ["a = 1 and `a.b` = 1", "`c..d` = 1", "`$or` = 1", "a = 1"]
    done = eventbridge.write([{"id": i, "filter": one} for i, one in enumerate(filters)], space)
    assert {*done.rules} == {"3"}


# ---- random patterns

NUMBERS = st.sampled_from([-1, 0, 0.5, 1, 2, 3])
TEXTS = st.sampled_from(["", "p", "q", "it's"])
EXISTS = st.builds(lambda yes: {"exists": yes}, st.booleans())


def bounds(draw_from):
    one = st.tuples(st.sampled_from(["<", "<=", ">", ">=", "="]), draw_from)
    pairs = st.lists(one, min_size=1, max_size=2)
    return pairs.map(lambda found: {"numeric": [part for pair in found for part in pair]})


def but(values):
    return st.lists(values, min_size=1, max_size=3).map(lambda found: {"anything-but": found})


def field(matchers):
    return st.lists(matchers, min_size=1, max_size=3)


FIELDS = {
    "n": field(NUMBERS | bounds(NUMBERS) | but(NUMBERS) | EXISTS),
    "s": field(TEXTS | but(TEXTS) | EXISTS),
    "b": field(st.booleans() | EXISTS),
}
LEAVES = st.fixed_dictionaries({}, optional=FIELDS).filter(bool)
NESTED = st.fixed_dictionaries({}, optional=FIELDS | {"in": LEAVES}).filter(bool)
RANDOM = st.one_of(
    NESTED,
    st.tuples(NESTED, st.lists(NESTED, min_size=2, max_size=3)).map(
        lambda both: both[0] | {"$or": both[1]}
    ),
)
RANDOM_SPACE = Space(
    kind(prefix + name)
    for prefix in ("", "in.")
    for name, kind in (("n", Number), ("s", String), ("b", Boolean))
)
LEAF_EVENT = st.fixed_dictionaries({}, optional={"n": NUMBERS, "s": TEXTS, "b": st.booleans()})
EVENT = st.tuples(LEAF_EVENT, LEAF_EVENT).map(lambda both: both[0] | {"in": both[1]})


@examples(60)
@given(st.lists(RANDOM, min_size=1, max_size=6), st.lists(EVENT, min_size=1, max_size=8))
def test_random_patterns_hold_where_they_held(patterns, events):
    rules = {str(number): pattern for number, pattern in enumerate(patterns)}
    imported = eventbridge.read(rules)
    if imported.notes:  # the type of a field that is only tested for presence was guessed
        imported = eventbridge.read(rules, RANDOM_SPACE)
    rejected = {one.id for one in imported.rejected}
    assert all("can never match" in one.reason for one in imported.rejected)
    held = [[i for i, one in rules.items() if pattern_holds(one, event)] for event in events]
    assert not rejected & {id_ for ids in held for id_ in ids}
    if imported.subscriptions:
        assert matches(imported, map(flatten, events)) == held
        done = same_after_the_way_back(eventbridge, imported)
        assert all("matches everything" in one.reason for one in done.unsupported)
