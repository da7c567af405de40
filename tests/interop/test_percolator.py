"""Percolator queries: a plain evaluator of their meaning and our answers agree."""

import math
import random
import re
from datetime import UTC, datetime

import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Engine, Number, Space, String
from rangecast.errors import UsageError
from rangecast.interop import flatten, percolator
from tests.interop.test_import import agree, matches, rejection, same_after_the_way_back
from tests.support.examples import examples


def query_holds(query, event):
    ((kind, body),) = query.items()
    if kind == "match_all":
        return True
    if kind == "match_none":
        return False
    if kind == "exists":
        return event.get(body["field"]) is not None
    if kind == "constant_score":
        return query_holds(body["filter"], event)
    if kind == "bool":
        return bool_holds(body, event)
    ((name, wanted),) = body.items()
    value = event.get(name)
    if value is None:
        return False
    if kind == "range":
        signs = {"gt": "__gt__", "gte": "__ge__", "lt": "__lt__", "lte": "__le__"}
        return all(
            getattr(moment(value), signs[key])(moment(bound, late=key in ("gt", "lte")))
            for key, bound in wanted.items()
        )
    if kind == "term":
        wanted = [wanted["value"] if isinstance(wanted, dict) else wanted]
    return value in wanted


def moment(value, late=False):
    """A bound or a value; what a date leaves out is its last or its first millisecond."""
    if not isinstance(value, str):
        return float(value)
    if len(value) == 10:
        value += "T23:59:59.999" if late else "T00:00:00.000"
    elif "." not in value and late:
        value = value[:19] + ".999" + value[19:]
    found = datetime.fromisoformat(value)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def bool_holds(body, event):
    def clauses(key):
        given = body.get(key, [])
        return [query_holds(one, event) for one in (given if isinstance(given, list) else [given])]

    needed = clauses("must") + clauses("filter")
    least = body.get("minimum_should_match", 0 if needed or not clauses("should") else 1)
    return all(needed) and not any(clauses("must_not")) and sum(clauses("should")) >= least


FLAG = {"term": {"flag": True}}
QUERIES = {
    "all": {"match_all": {}},
    "user": {"term": {"user": {"value": "kim", "boost": 1.0}}},
    "users": {"terms": {"user": ["kim", "o'b"]}},
    "adult": {"range": {"age": {"gte": 10, "lt": 20.5}}},
    "there": {"constant_score": {"filter": {"exists": {"field": "age"}}}},
    "not there": {"bool": {"must_not": {"exists": {"field": "age"}}}},
    "not kim": {"bool": {"must_not": [{"term": {"user": "kim"}}]}},
    "tree": {
        "bool": {
            "must": {"term": {"user": "kim"}},
            "filter": [{"range": {"age": {"gt": 10}}}],
            "must_not": [{"bool": {"must": [{"term": {"flag": True}}]}}],
            "should": [{"term": {"age": 11}}],
        }
    },
    "either": {"bool": {"should": [{"term": {"age": 11}}, {"term": {"flag": False}}]}},
    "both": {
        "bool": {
            "should": [{"term": {"age": 11}}, {"term": {"flag": False}}],
            "minimum_should_match": 2,
        }
    },
    "not both": {
        "bool": {
            "must_not": {"bool": {"filter": [{"term": {"age": 11}}, {"term": {"flag": True}}]}}
        }
    },
    "that day": {"range": {"at": {"gte": "2026-01-31", "lte": "2026-01-31"}}},
    "after that day": {"range": {"at": {"gt": "2026-01-31"}}},
    "before that second": {"range": {"at": {"lt": "2026-01-31T09:30:00Z"}}},
    "up to that second": {"range": {"at": {"lte": "2026-01-31T10:30:00+01:00"}}},
    "that millisecond": {"range": {"at": {"gte": "2026-01-31T09:30:00.250", "lte": "2026-02-01"}}},
}
DOCUMENTS = [
    {},
    {"user": "kim", "age": 11, "flag": True},
    {"user": "kim", "age": 11, "flag": False},
    {"user": "kim", "age": 20.5},
    {"user": "o'b", "age": 10, "flag": None},
    {"user": "lee", "flag": False},
    {"at": "2026-01-31T00:00:00Z"},
    {"at": "2026-01-31T09:30:00Z"},
    {"at": "2026-01-31T09:30:00.500Z"},
    {"at": "2026-01-31T23:59:59.999Z"},
    {"at": "2026-02-01T00:00:00Z", "user": "kim"},
]


def test_queries_hold_where_they_held():
    imported = percolator.read(QUERIES)
    agree(imported, QUERIES, DOCUMENTS, query_holds)
    unwritten = [{"id": "us", "filter": "at = '2026-01-31T09:30:00.000001Z'"}]
    said = percolator.write(unwritten, imported.space).unsupported[0].reason
    assert "a precision of milliseconds" in said
    whole = [one for one in imported.subscriptions if one["id"] != "up to that second"]
    done = same_after_the_way_back(percolator, imported.__class__(whole, [], imported.space, []))
    assert done.unsupported == []
    for event in DOCUMENTS:
        for id_, query in done.rules.items():
            assert query_holds(query, event) == query_holds(QUERIES[id_], event), (id_, event)


def test_prefixes_and_wildcards_are_exact():
    queries = {
        "plain": {"term": {"user": "kim"}},
        "prefix": {"prefix": {"user": "k"}},
        "signs": {"prefix": {"user": {"value": "k_", "boost": 2}}},
        "wild": {"wildcard": {"user": {"value": "k?m*"}}},
        "escaped": {"wildcard": {"user": "k\\?*"}},
        "not": {"bool": {"must_not": [{"wildcard": {"user": "*m"}}]}},
    }
    imported = percolator.read(queries)
    assert imported.rejected == []
    engine = Engine(imported.space)
    engine.subscribe_many(imported.subscriptions)
    expected = {
        "kim": ["plain", "prefix", "wild"],
        "k_m!": ["prefix", "signs", "wild", "not"],
        "k?": ["prefix", "escaped", "not"],
        "k\U0001f600m": ["prefix", "wild"],
        "": ["not"],
        None: ["not"],
    }
    for user, names in expected.items():
        assert engine.match({"user": user}) == names


@pytest.mark.parametrize(
    ("query", "place", "reason"),
    [
        (
            {"multi_match": {"query": "x", "fields": ["a"]}},
            "query.multi_match",
            "one per field",
        ),
        ({"match": {"a": {"query": "x", "fuzziness": 1}}}, "query.match", "takes a query here"),
        ({"match": {"a": {"query": "x", "operator": "xor"}}}, "query.match", "takes or, and"),
        ({"match_phrase": {"a": {"query": "x", "slop": 2}}}, "query.match_phrase", "takes a query"),
        ({"geo_distance": {"a": "1,2"}}, "query.geo_distance", "distance must be such as '5km'"),
        ({"geo_distance": {"distance": "5 miles", "a": [1, 2]}}, "query.geo_distance", "such as"),
        ({"geo_distance": {"distance": 5, "a": "u33d"}}, "query.geo_distance", "position must be"),
        (
            {"geo_distance": {"distance": 5, "a": [1, 2], "distance_type": "plane"}},
            "query.geo_distance",
            "distance_type must be arc",
        ),
        ({"geo_bounding_box": {"a": {"top": 5}}}, "query.geo_bounding_box", "must have top_left"),
        ({"geo_polygon": {"a": {}}}, "query.geo_polygon", "must have points"),
        ({"geo_shape": {"a": {"indexed_shape": {}}}}, "query.geo_shape", "an inline shape"),
        (
            {"geo_shape": {"a": {"shape": {"type": "Point"}, "relation": "contains"}}},
            "query.geo_shape",
            "relation must be",
        ),
        ({"script": {"script": "x"}}, "query.script", "result to the event as a field"),
        ({"nested": {"path": "a"}}, "query.nested", "publish one event per element"),
        ({"trem": {"a": "x"}}, "query.trem", "has no exact counterpart: did you mean 'term'"),
        ({"range": {"a": {"gte": "now-1d/d"}}}, "query.range", "date math depends"),
        ({"range": {"a": {"gte": "2026-01-31||/M"}}}, "query.range", "date math depends"),
        ({"range": {"a": {"gte": "abc"}}}, "query.range", "only imported if they are dates"),
        ({"range": {"a": {"gte": "2026-01"}}}, "query.range", "only imported if they are dates"),
        ({"range": {"a": {"gte": 1, "lt": "2026-01-31"}}}, "query.range", "have different types"),
        ({"range": {"a": {"gte": 1, "time_zone": "+01:00"}}}, "query.range", "'time_zone' changes"),
        ({"range": {"a": {}}}, "query.range", "takes an object of bounds"),
        ({"terms": {"a": "x"}}, "query.terms", "takes a list"),
        ({"terms": {"a": [1, "x"]}}, "query.terms", "different types"),
        (
            {"bool": {"must": [{"regexp": {"a": "x.*"}}]}},
            "query.bool.must[0].regexp",
            "list them in terms",
        ),
        ({"bool": {"mustnt": []}}, "query.bool.mustnt", "did you mean 'must_not' or 'must'"),
        (
            {"bool": {"should": [], "minimum_should_match": "75%"}},
            "query.bool.minimum_should_match",
            "must be 0, 1 or",
        ),
        (
            {"term": {"a": 1}, "exists": {"field": "a"}},
            "query",
            "a query must have exactly one type",
        ),
        ({"match_none": {}}, "", "can never match"),
        ({"prefix": {"a": 1}}, "query.prefix", "takes a string"),
        (
            {"wildcard": {"a": {"value": "x*", "case_insensitive": True}}},
            "query.wildcard",
            "folds only ASCII letters there",
        ),
    ],
)
def test_queries_without_an_exact_counterpart_are_rejected(query, place, reason):
    found = rejection(percolator, query)
    assert found[0] == place
    assert reason in found[1]
    assert "match_all" not in found[1]


def test_the_answer_of_a_search_is_read():
    hits = [{"_id": "7", "_source": {"query": {"term": {"a": 1}}, "owner": "ann"}}]
    imported = percolator.read({"hits": {"hits": hits}})
    assert imported.subscriptions == [{"id": "7", "filter": "a = 1"}]
    for bad in ({"hits": {"hits": [{"_id": 1}]}}, [1]):
        with pytest.raises(UsageError, match="no rules were found"):
            percolator.read(bad)


LEAVES = st.one_of(
    st.sampled_from([{"match_all": {}}, {"exists": {"field": "n"}}, {"exists": {"field": "s"}}]),
    st.builds(lambda v: {"terms": {"n": v}}, st.lists(st.integers(0, 3), max_size=2)),
    st.builds(lambda v: {"term": {"s": v}}, st.sampled_from(["p", "q"])),
    st.builds(
        lambda low, high: {"range": {"n": {"gt": low, "lte": high}}},
        st.integers(0, 3),
        st.integers(0, 3),
    ),
)


def combined(queries):
    clause = st.lists(queries, min_size=1, max_size=2)
    keys = dict.fromkeys(("must", "filter", "should", "must_not"), clause)
    return st.fixed_dictionaries({}, optional=keys).map(lambda body: {"bool": body})


RANDOM = st.recursive(LEAVES, combined, max_leaves=8)
ROWS = [
    {key: value for key, value in (("n", n), ("s", s)) if value is not None}
    for n in (None, 0, 1, 2, 3)
    for s in (None, "p", "q", "r")
]


@examples(60)
@given(st.lists(RANDOM, min_size=1, max_size=4))
def test_random_queries_hold_where_they_held(queries):
    rules = {str(number): query for number, query in enumerate(queries)}
    imported = percolator.read(rules, Space([Number("n"), String("s")]))
    assert all("can never match" in one.reason for one in imported.rejected)
    held = [[i for i, one in rules.items() if query_holds(one, event)] for event in ROWS]
    if not imported.subscriptions:
        assert not any(held)
        return
    assert matches(imported, ROWS) == held
    assert same_after_the_way_back(percolator, imported).unsupported == []


def test_words_are_those_of_filters():
    """As a pattern analyzer makes them: runs of letters, marks and digits, in any case."""
    queries = {
        "any": {"match": {"title": "Red bike"}},
        "all": {"match": {"title": {"query": "red-BIKE", "operator": "and"}}},
        "phrase": {"match_phrase": {"title": {"query": "red bike", "slop": 0}}},
        "none": {"bool": {"must_not": [{"match": {"title": "red"}}]}},
        "number": {"match": {"price": 3}},
        "both": {"bool": {"must": [{"match": {"title": "old"}}, {"range": {"price": {"gt": 2}}}]}},
    }
    imported = percolator.read({**queries, "nothing": {"match": {"title": "?!"}}})
    assert [one.id for one in imported.rejected] == ["nothing"]
    engine = Engine(imported.space)
    engine.subscribe_many(imported.subscriptions)
    for title in ("a red bike", "Bike, RED", "bike_red bike", "an old car", "", None):
        words = re.findall("[a-z]+", (title or "").lower())
        expected = {
            "any": "red" in words or "bike" in words,
            "all": "red" in words and "bike" in words,
            "phrase": "red bike" in " ".join(words),
            "none": "red" not in words,
            "number": True,
            "both": "old" in words,
        }
        found = engine.match({"title": title, "price": 3})
        assert found == [name for name, held in expected.items() if held]
    typed = percolator.read({"a": queries["any"]}, Space([String("title")]))
    assert "declare it as a text, a category" in typed.rejected[0].reason


def test_places_are_those_of_geo_queries():
    """Against shapely on degrees, and the haversine formula on the sphere of Lucene."""
    square = [[10, 50], [12, 50], [12, 52], [10, 52]]
    ring = [{"lon": x, "lat": y} for x, y in square[:3]]
    box = {"top_left": [170, 60], "bottom_right": {"lat": 40, "lon": -170}}
    queries = {
        "circle": {"geo_distance": {"distance": "150km", "at": "51,11", "_name": "x"}},
        "miles": {"geo_distance": {"distance": "10mi", "at": [11, 51], "distance_type": "ARC"}},
        "box": {"geo_bounding_box": {"at": {"top": 52, "left": 10, "bottom": 50, "right": 12}}},
        "across": {"geo_bounding_box": {"at": box, "validation_method": "STRICT"}},
        "triangle": {"geo_polygon": {"at": {"points": ring}}},
        "shape": {
            "geo_shape": {
                "at": {"shape": {"type": "Polygon", "coordinates": [[*square, square[0]]]}}
            }
        },
        "disjoint": {
            "geo_shape": {
                "at": {
                    "shape": {"type": "envelope", "coordinates": [[10, 52], [12, 50]]},
                    "relation": "disjoint",
                }
            }
        },
        "not": {"bool": {"must_not": [{"geo_polygon": {"at": {"points": ring}}}]}},
        "there": {"exists": {"field": "at"}},
        "both": {"bool": {"filter": [{"term": {"kind": "a"}}, {"exists": {"field": "at"}}]}},
    }
    imported = percolator.read(queries)
    assert not imported.rejected
    assert (imported.space["at"].type, imported.space["at"].model) == ("location", "sphere")
    engine = Engine(imported.space)
    engine.subscribe_many(imported.subscriptions)
    r = random.Random(3)
    triangle, filled = shapely.Polygon(square[:3]), shapely.Polygon(square)
    for _ in range(500):
        x, y = r.choice([(r.uniform(9, 13), r.uniform(49, 53)), (r.uniform(-180, 180), 50.5)])
        away = haversine(x, y, 11, 51)
        if min(abs(away - 150_000), abs(away - 16_093.44)) < 1:
            continue
        inside = filled.covers(shapely.Point(x, y))
        expected = {
            "circle": away <= 150_000,
            "miles": away <= 16_093.44,
            "box": inside,
            "across": abs(x) >= 170 and 40 <= y <= 60,
            "triangle": triangle.covers(shapely.Point(x, y)),
            "shape": inside,
            "disjoint": not inside,
            "not": not triangle.covers(shapely.Point(x, y)),
            "there": True,
            "both": False,
        }
        found = engine.match(flatten({"at": {"lon": x, "lat": y}}))
        assert {*found} == {name for name, holds in expected.items() if holds}
    assert engine.match({"kind": "a"}) == ["not"]


def haversine(x1, y1, x2, y2):
    x1, y1, x2, y2 = map(math.radians, (x1, y1, x2, y2))
    half = math.sin((y2 - y1) / 2) ** 2 + math.cos(y1) * math.cos(y2) * math.sin((x2 - x1) / 2) ** 2
    return 2 * 6_371_008.7714 * math.asin(math.sqrt(half))
