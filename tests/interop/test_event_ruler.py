"""Imported EventBridge patterns, judged by event-ruler itself on the same patterns and events."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.java_peers import ruler
from benchmarks.started import Unavailable
from rangecast import Engine
from rangecast.interop import eventbridge, flatten

NAMES = ["ab", "abc", "Abc", "ABC", "b", "bab", "abab", "a*b", "a?b", "x y", "", "ba", "AB"]
ADDRESSES = ["10.0.0.1", "10.0.1.255", "10.1.0.0", "192.168.0.7", "9.255.255.255", "10.0.0.0"]
NETWORKS = ["10.0.0.0/8", "10.0.0.0/24", "10.0.1.0/25", "192.168.0.6/31", "0.0.0.0/0"]
NUMBERS = [-5, -0.5, 0, 0.1, 0.25, 1, 1.5, 2, 3.14159, 100, 4999999999]
WILDCARDS = ["a*", "*b", "*a*", "a*b", "*", "ab", "*b*c", "x*y", "b*b"]
Rule = dict[str, Any]


def one_or_more(r: random.Random, values: list[Any]) -> Any:
    return r.choice(values) if r.random() < 0.5 else r.sample(values, r.randint(1, 3))


def text_test(r: random.Random) -> Any:
    """A test of a name."""
    tests: list[Callable[[], Any]] = [
        lambda: r.choice(NAMES),
        lambda: {"prefix": r.choice(NAMES[:7])},
        lambda: {"suffix": r.choice(NAMES[:7])},
        lambda: {"wildcard": r.choice(WILDCARDS)},
        lambda: {"exists": r.random() < 0.5},
        lambda: {"anything-but": one_or_more(r, NAMES)},
        lambda: {"anything-but": {"prefix": one_or_more(r, NAMES[:7])}},
        lambda: {"anything-but": {"suffix": one_or_more(r, NAMES[:7])}},
        lambda: {"anything-but": {"wildcard": one_or_more(r, WILDCARDS)}},
    ]
    return r.choice(tests)()


def number_test(r: random.Random) -> Any:
    """A test of a load."""
    low, high = sorted(r.sample(NUMBERS, 2))
    tests: list[Callable[[], Any]] = [
        lambda: r.choice(NUMBERS),
        lambda: {"numeric": [r.choice(["<", "<=", "=", ">", ">="]), r.choice(NUMBERS)]},
        lambda: {"numeric": [r.choice([">", ">="]), low, r.choice(["<", "<="]), high]},
        lambda: {"exists": r.random() < 0.5},
        lambda: {"anything-but": one_or_more(r, NUMBERS)},
    ]
    return r.choice(tests)()


def address_test(r: random.Random) -> Any:
    """A test of an address."""
    return r.choice([r.choice(ADDRESSES), {"cidr": r.choice(NETWORKS)}, {"exists": True}])


FIELDS = {"name": text_test, "other": text_test, "load": number_test, "ip": address_test}


def fields(r: random.Random, names: list[str]) -> Rule:
    return {name: [FIELDS[name](r) for _ in range(r.randint(1, 3))] for name in names}


def rule(r: random.Random) -> Rule:
    """A pattern over some fields, a part of them inside of `detail`, perhaps with alternatives."""
    names = r.sample([*FIELDS], r.randint(1, 3))
    made = fields(r, names)
    if r.random() < 0.3:
        made["detail"] = fields(r, r.sample(["name", "load"], r.randint(1, 2)))
    rest = [name for name in FIELDS if name not in names]
    if r.random() < 0.3 and len(rest) > 1:
        # Of different fields: of one field, event-ruler 1.8.1 loses alternatives.
        made["$or"] = [fields(r, [name]) for name in r.sample(rest, 2)]
    return made


def event(r: random.Random) -> dict[str, Any]:
    values: dict[str, list[Any]] = {
        "name": NAMES,
        "other": NAMES,
        "load": NUMBERS,
        "ip": ADDRESSES,
    }
    made: dict[str, Any] = {n: r.choice(some) for n, some in values.items() if r.random() < 0.8}
    if r.random() < 0.7:
        inside = {"name": r.choice(NAMES), "load": r.choice(NUMBERS)}
        made["detail"] = {name: one for name, one in inside.items() if r.random() < 0.8}
    return made


def compare(rules: dict[str, Rule], events: list[Any], *, alone: bool) -> Counter[str]:
    """Compare all answers; return how many events each rule matches."""
    try:
        judged = ruler(rules, events, alone=alone)
    except Unavailable as missing:
        pytest.skip(f"event-ruler: {missing}")
    imported = eventbridge.read(rules)
    # Here a filter that can't match is rejected; there it matches nothing.
    never = {one.id for one in imported.rejected if one.reason == "this filter can never match"}
    assert len(never) == len(imported.rejected) < 10
    assert not judged.rejected
    assert not never & {name for ids in judged.ids for name in ids}
    engine = Engine(imported.space)
    engine.subscribe_many(imported.subscriptions)
    matched = Counter[str]()
    for place, given in enumerate(events):
        ours = set(engine.match(flatten(given), ignore_unknown=True))
        theirs = set(judged.ids[place])
        different = {name: rules[str(name)] for name in ours ^ theirs}
        assert not different, (given, ours - theirs, theirs - ours, different)
        matched.update(map(str, ours))
    return matched


@pytest.mark.process
def test_patterns_match_what_event_ruler_matches() -> None:
    r = random.Random(7)
    rules = {f"r{number}": rule(r) for number in range(300)}
    matched = compare(rules, [event(r) for _ in range(250)], alone=False)
    assert len(matched) > 200
    assert matched.total() > 2_500


@pytest.mark.process
def test_so_do_tests_that_ignore_case() -> None:
    """Each in a machine of its own: together with others, event-ruler 1.8.1 finds too much."""
    rules = {
        f"{kind}-{number}": {"name": [test]}
        for number, name in enumerate(NAMES)
        for kind, test in (
            ("equal", {"equals-ignore-case": name}),
            ("prefix", {"prefix": {"equals-ignore-case": name}}),
            ("suffix", {"suffix": {"equals-ignore-case": name}}),
            ("but", {"anything-but": {"equals-ignore-case": name}}),
            ("others", {"anything-but": {"equals-ignore-case": [name, "ab"]}}),
        )
    }
    matched = compare(rules, [{"name": name} for name in NAMES] + [{"other": "b"}], alone=True)
    assert len(matched) == len(rules)
