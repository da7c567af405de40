"""Every importer with damaged files: bad rules are named, the others come through as they were."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rangecast import Engine, Space
from rangecast.errors import RangecastError
from rangecast.interop import (
    ImportResult,
    eventbridge,
    geojson,
    percolator,
    postgres,
    sns,
    tile38,
    vespa,
)
from tests import ROOT

PATTERNS = json.loads((ROOT / "examples" / "eventbridge.json").read_text())
QUERIES = {
    "range": {"range": {"price": {"gte": 5, "lt": 10}}},
    "bool": {
        "bool": {
            "must": [{"term": {"kind": "a"}}],
            "must_not": {"terms": {"kind": ["b", "c"]}},
            "should": [{"exists": {"field": "price"}}, {"match_all": {}}],
        }
    },
    "date": {"range": {"at": {"gt": "2026-01-01", "lte": "2026-02-01T10:00:00Z"}}},
    "score": {"constant_score": {"filter": {"term": {"flag": True}}}},
}
PREDICATES = {
    "both": "gender in [Female] and age in [20..30]",
    "either": "age in [..20] or not (hobby in ['Music', \"it's\"])",
    "never": "age not in [5..9]",
    "always": "true",
}
ROWS = """id,price,at
a,"[10,20)",
b,"(,10]","[2026-01-01,2026-02-01)"
c,"{[1,3),(7.5,9]}","(,)"
d,,
"""
SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]
TRIANGLE = [[1, 2], [3, 4], [1, 5], [1, 2]]
SHAPES = {
    "type": "FeatureCollection",
    "features": [
        {"type": "Feature", "id": "p", "geometry": {"type": "Point", "coordinates": [1, 2]}},
        {"type": "Feature", "id": "q", "geometry": {"type": "Polygon", "coordinates": [SQUARE]}},
        {
            "type": "Feature",
            "id": "r",
            "geometry": {"type": "MultiPolygon", "coordinates": [[TRIANGLE]]},
        },
        {
            "type": "Feature",
            "id": 7,
            "geometry": {
                "type": "GeometryCollection",
                "geometries": [{"type": "MultiPoint", "coordinates": [[5, 6], [7, 8]]}],
            },
        },
    ],
}
FENCES = f"""SETHOOK shop http://127.0.0.1:9 META a b NEARBY fleet FENCE POINT 52.5 13.4 500
SETCHAN area WITHIN fleet WHERE speed 5 (80 FENCE DETECT enter BOUNDS 52 13 53 14
SETCHAN park INTERSECTS fleet FENCE OBJECT {{"type":"Polygon","coordinates":[{SQUARE}]}}
"""
AZURE = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "properties": {"geometryId": "1", "subType": "Circle", "radius": 500},
            "geometry": {"type": "Point", "coordinates": [13.4, 52.5]},
        },
        {
            "type": "Feature",
            "properties": {"geometryId": "2"},
            "geometry": {"type": "Polygon", "coordinates": [SQUARE]},
        },
    ],
}
LISTED = {
    "Rules": [{"Name": name, "EventPattern": json.dumps(one)} for name, one in PATTERNS.items()]
}
POLICIES = [
    {"Attributes": {"SubscriptionArn": name, "FilterPolicy": json.dumps(one)}}
    for name, one in (("x", {"kind": ["a", "b"]}), ("y", {"n": [{"numeric": [">", 5]}]}))
]
HITS = {"hits": {"hits": [{"_id": n, "_source": {"query": q}} for n, q in QUERIES.items()]}}
FED = [{"put": f"id:x::{n}", "fields": {"predicate": p}} for n, p in PREDICATES.items()]
ENVELOPE = {"eventbridge-listed": 2, "percolator-hits": 3, "geojson": 2, "azure": 2}
"""Depth of the rules in their file; 1 if nothing is around them."""
FILES: dict[str, tuple[ModuleType, str]] = {
    "eventbridge": (eventbridge, json.dumps(PATTERNS)),
    "eventbridge-listed": (eventbridge, json.dumps(LISTED)),
    "sns": (sns, json.dumps({"x": {"kind": ["a"]}, "y": {"n": [{"numeric": ["<", 5]}]}})),
    "sns-listed": (sns, json.dumps(POLICIES)),
    "percolator": (percolator, json.dumps(QUERIES)),
    "percolator-hits": (percolator, json.dumps(HITS)),
    "vespa": (vespa, json.dumps(PREDICATES)),
    "vespa-fed": (vespa, json.dumps(FED)),
    "postgres": (postgres, ROWS),
    "geojson": (geojson, json.dumps(SHAPES)),
    "azure": (geojson, json.dumps(AZURE)),
    "tile38": (tile38, FENCES),
}
TEXTS = ("postgres", "tile38")
"""Files that aren't JSON."""
HOSTILE: list[Any] = [
    *(None, True, 0, -1, 10**30, 1.5, float("inf"), "", "x", "\x00", "'", "é\n", "\ud800"),
    *([], {}, [None], [[]], {"": {}}, [{}], {"type": ["Point"]}, ["a"] * 3, {"a": [1]}),
]
"""Values that may replace any other."""


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside of JSON data."""
    found = [path] if path else []
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            found += places(value, (*path, key))
    return found


def damaged_json(text: str, rng: random.Random, depth: int) -> str:
    """Return JSON with one value, key or list changed, at least this deep."""
    data = json.loads(text)
    *way, last = rng.choice([path for path in places(data) if len(path) >= depth])
    within = data
    for key in way:
        within = within[key]
    kind = rng.randrange(6)
    if kind == 0:
        within[last] = rng.choice(HOSTILE)
    elif kind == 1:
        within.pop(last)
    elif kind == 2 and isinstance(within, dict):
        within[rng.choice(["", "x", "$or", "type", "\ud800", last * 2])] = within.pop(last)
    elif kind == 3:
        for _ in range(rng.choice([1, 3, 300])):
            within[last] = [within[last]]
    elif kind == 4 and isinstance(within[last], str):
        at = rng.randrange(len(within[last]) + 1)
        piece = rng.choice(["9" * 5000, "(", "[", "..", "'", "\\", "not ", "\ud800", "{", '"'])
        within[last] = within[last][:at] + piece + within[last][at:]
    else:
        marked = "@".join(str(one) for one in (*way, last))
        within[last] = {"again": marked}
        inner = json.dumps(rng.choice(HOSTILE))
        once = json.dumps({"again": marked})
        return json.dumps(data).replace(once, f'{{"again": 1, "again": {inner}}}')
    return json.dumps(data)


def damaged_text(text: str, rng: random.Random) -> str:
    """Return a text with some characters cut out, put in or said twice."""
    at, end = sorted(rng.choices(range(len(text) + 1), k=2))
    end = min(end, at + rng.choice([1, 2, 30]))
    piece = rng.choice(
        ["", '"', ",", "\n", "[", "{", "x", "\x00", "é", text[at:end] * 2, "9" * 400]
    )
    return text[:at] + piece + text[end:]


def read(
    module: ModuleType, path: Path, text: str, space: Space | None = None
) -> ImportResult | None:
    """Return the imported rules of a file; None if the file is rejected as a whole."""
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        found: ImportResult = module.read(path, space)
    except RangecastError:
        return None
    return found


def check(found: ImportResult) -> None:
    """Reject a result that can't be used, or in which a rule is lost."""
    taken = [one["id"] for one in found.subscriptions]
    assert len(set(taken)) == len(taken)
    for one in found.rejected:
        assert one.id
        assert one.reason
        assert "can't be read" not in one.reason, one  # an exception that nobody thought of
        f"{one.id}{one.place}{one.reason}".encode()
    if found.space is not None:
        engine = Engine(found.space)
        assert engine.subscribe_many(found.subscriptions) == len(taken)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_value_is_rejected_with_its_rule_and_the_others_stay(name, tmp_path) -> None:
    module, text = FILES[name]
    whole = read(module, tmp_path / "rules", text)
    assert whole is not None
    rules = len(whole.subscriptions) + len(whole.rejected)
    right = {one["id"]: one["filter"] for one in whole.subscriptions}
    rng = random.Random(f"{name} 1")
    reached = 0
    for _ in range(60):
        if name in TEXTS:
            damaged = damaged_text(text, rng)
        else:
            damaged = damaged_json(text, rng, ENVELOPE.get(name, 1))
        for space in (whole.space, None):  # without one, rules decide about the types of others
            found = read(module, tmp_path / "rules", damaged, space)
            if found is None:
                continue
            check(found)
            reached += 1
            now = {one["id"]: one["filter"] for one in found.subscriptions}
            if name not in TEXTS:  # there a quote may take several rows with it
                assert len(now) + len(found.rejected) >= rules - 1
                same = sum(right.get(one) == said for one, said in now.items())
                assert same >= len(right) - 1 or space is None
    assert reached > 60


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_rejected_or_read_without_a_raw_exception(name, tmp_path) -> None:
    module, text = FILES[name]
    rng = random.Random(f"{name} 2")
    for _ in range(80):
        found = read(module, tmp_path / "rules", damaged_text(text, rng))
        if found is not None:
            check(found)


def rejections(module: ModuleType, path: Path, text: str) -> dict[str, str]:
    found = read(module, path, text)
    assert found is not None
    assert found.subscriptions
    return {one.id: one.reason for one in found.rejected}


TWICE: dict[str, tuple[ModuleType, str, str]] = {
    "eventbridge": (eventbridge, '{"ok": {"a": [1]}, "x": {"a": [1], "a": [2]}}', "x"),
    "eventbridge text": (
        eventbridge,
        json.dumps({"ok": {"a": [1]}, "x": '{"a": [1], "b": {"c": [1], "c": [2]}}'}),
        "x",
    ),
    "listed": (
        eventbridge,
        (
            '{"Rules": [{"Name": "ok", "EventPattern": {"a": [1]}},'
            ' {"Name": "x", "EventPattern": {"a": [1]}, "EventPattern": {"a": [2]}}]}'
        ),
        "x",
    ),
    "sns": (sns, '{"ok": {"a": [1]}, "x": {"a": [1], "a": [2]}}', "x"),
    "sns attributes": (
        sns,
        (
            '[{"SubscriptionArn": "ok"}, {"Attributes": {"SubscriptionArn": "x",'
            ' "FilterPolicy": {"a": [1]}, "FilterPolicy": {"a": [2]}}}]'
        ),
        "x",
    ),
    "percolator": (
        percolator,
        '{"ok": {"match_all": {}}, "x": {"range": {"a": {"gt": 1, "gt": 5}}}}',
        "x",
    ),
    "percolator hit": (
        percolator,
        (
            '{"hits": {"hits": [{"_id": "ok", "_source": {"query": {"match_all": {}}}}, '
            '{"_id": "x", "_source": {"query": {"match_all": {}}, "query": {"match_none": {}}}}]}}'
        ),
        "x",
    ),
    "vespa": (
        vespa,
        (
            '[{"put": "ok", "fields": {"predicate": "true"}}, {"put": "x", "fields": {"predicate":'
            ' "true", "predicate": "false"}}]'
        ),
        "x",
    ),
    "geojson": (
        geojson,
        json.dumps(SHAPES).replace(
            '"coordinates": [1, 2]', '"coordinates": [1, 2], "coordinates": [3, 4]'
        ),
        "p",
    ),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_rule_with_a_key_that_is_given_twice_is_rejected(name, tmp_path) -> None:
    module, text, id_ = TWICE[name]
    found = rejections(module, tmp_path / "rules", text)
    assert list(found) == [id_]
    assert "appears twice" in found[id_]


@pytest.mark.parametrize(
    ("module", "rule", "other"),
    [
        (eventbridge, {"a": [1]}, {"a": [2]}),
        (sns, {"a": [1]}, {"a": [2]}),
        (percolator, {"term": {"a": 1}}, {"term": {"a": 2}}),
        (vespa, "a in [1..1]", "a in [2..2]"),
    ],
)
def test_of_an_id_that_is_given_twice_the_first_counts(module, rule, other, tmp_path) -> None:
    first, second = json.dumps(rule), json.dumps(other)
    text = f'{{"x": {first}, "y": {second}, "x": {second}}}'
    found = read(module, tmp_path / "rules", text)
    assert found is not None
    assert [(one["id"], one["filter"]) for one in found.subscriptions] == [
        ("x", "a = 1"),
        ("y", "a = 2"),
    ]
    assert [(one.id, one.reason) for one in found.rejected] == [("x", "duplicate id")]


@pytest.mark.parametrize(
    ("rows", "id_", "reason"),
    [
        ("x", "x", "has 1 cells, but the header has 3"),
        ('x,"[1,2)"', "x", "has 2 cells, but the header has 3"),
        ('x,"[1,2)",,', "x", "has 4 cells, but the header has 3"),
        (',"[1,2)"', "line 3", "has 2 cells"),
        ('x,"[1,2)"y,', "line 3", "not CSV"),
        ('x,"[1,2)', "line 3", "not CSV"),
        ("x,[1],", "x", "takes a range"),
        (f'x,"[{"9" * 5000},)",', "x", "a number or a timestamp"),
        ("\udcff,,", "\\udcff", "UTF-8"),
    ],
)
def test_a_row_that_does_not_fit_the_header_is_rejected(rows, id_, reason, tmp_path) -> None:
    text = f'id,price,at\nok,"[10,20)",\n{rows}\n'
    path = tmp_path / "rules"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    found = postgres.read(path)
    assert [one["id"] for one in found.subscriptions] == ["ok"]
    assert [one.id for one in found.rejected] == [id_]
    assert reason in found.rejected[0].reason


def test_two_columns_of_one_name_are_rejected(tmp_path) -> None:
    (tmp_path / "rules").write_text('id,price,price\na,"[1,2)","[5,6)"\n')
    with pytest.raises(RangecastError, match=r"two columns are named 'price'\n  hint: rename"):
        postgres.read(tmp_path / "rules")


def deep(depth: int, inner: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(depth):
        inner = wrap(inner)
    return inner


@pytest.mark.parametrize(
    ("module", "rule", "reason"),
    [
        (vespa, f"n in [{'9' * 5000}..]", "digits"),
        (vespa, "not " * 3000 + "n in [1..2]", "expected"),
        (vespa, "(" * 3000, "nested"),
        (percolator, {"exists": {"field": ["a"]}}, "exists"),
        (percolator, {"range": {"a": {"gt": 10**400}}}, "takes a string, a number"),
        (percolator, deep(400, {"match_all": {}}, lambda q: {"bool": {"must": [q]}}), "nested"),
        (eventbridge, {"a": [{"cidr": "x"}]}, "cidr"),
        (eventbridge, deep(900, {"a": [1]}, lambda p: {"$or": [p]}), "nested"),
    ],
)
def test_a_hostile_rule_is_rejected_alone(module, rule, reason) -> None:
    good = {vespa: "n in [1..2]", percolator: {"term": {"n": 1}}}.get(module, {"n": [1]})
    found = module.read({"good": good, "bad": rule, "too": good})
    assert [one["id"] for one in found.subscriptions] == ["good", "too"]
    assert [one.id for one in found.rejected] == ["bad"]
    assert reason in found.rejected[0].reason


@pytest.mark.parametrize(
    "geometry", [{"type": ["Point"]}, {"type": {}}, None, 5, {"type": "Point"}]
)
def test_a_hostile_shape_is_rejected_alone(geometry) -> None:
    features = [*SHAPES["features"], {"id": "bad", "geometry": geometry}, 5]
    found = geojson.read({"features": features})
    assert [one["id"] for one in found.subscriptions] == ["p", "q", "r", "7"]
    assert [one.id for one in found.rejected] == ["bad", "features[5]"]


def test_an_export_of_damaged_ids_comes_back(tmp_path) -> None:
    """What is written by `csv` is read by the importer: quotes, commas and line breaks in ids."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerows([["id", "price"], ['a"b,c\nd', "[1,2)"], ["", "[3,4)"]])
    path = tmp_path / "rules"
    path.write_text(file.getvalue(), newline="")
    found = postgres.read(path)
    assert [one["id"] for one in found.subscriptions] == ['a"b,c\nd']
    assert [(one.id, one.reason) for one in found.rejected] == [("line 4", "the row has no id")]
