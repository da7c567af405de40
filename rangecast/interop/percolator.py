"""Queries of an Elasticsearch or OpenSearch percolator: `read` and `write`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rangecast.errors import InvalidValueError, abbreviate, did_you_mean
from rangecast.interop.export import ExportResult, Term, export, plain_number
from rangecast.interop.geojson import rule_of_geometry
from rangecast.interop.patterns.reader import kind_of
from rangecast.interop.result import (
    ImportResult,
    InvalidEntry,
    RepeatedKeys,
    import_rules,
    json_text,
    load_json,
    rules_by_id,
    rules_listed,
    unknown_shape,
)
from rangecast.interop.rules import (
    AllOf,
    AnyOf,
    Rule,
    Test,
    UnsupportedRuleError,
    like,
    negated,
    present,
    text_of,
)
from rangecast.model.attributes.base import quoted
from rangecast.model.attributes.places import Location
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.filters.lexer import name_text
from rangecast.model.shapes.geometry import number_text
from rangecast.model.space import Space
from rangecast.model.text.forms import words_in

_SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_PLACES = ("geo_bounding_box", "geo_distance", "geo_polygon", "geo_shape")
_QUERIES = (
    *("bool", "constant_score", "exists", "match", "match_all", "match_none", "match_phrase"),
    *("prefix", "range", "term", "terms", "wildcard", *_PLACES),
)
_ANALYSED = (
    "has its own rules for comparing words: use match or match_phrase, one per field, in a bool"
)
_PART = (
    "compares parts of strings, while a subscription compares whole values: list them in terms, "
    "or put the part into a separate field and use term"
)
_METRES = {"mm": 0.001, "cm": 0.01, "m": 1.0, "km": 1000.0, "in": 0.0254, "ft": 0.3048}
_METRES |= {"yd": 0.9144, "mi": 1609.344, "nmi": 1852.0, "NM": 1852.0}
_LENGTH = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([a-zA-Z]*)")
_DEFAULTS = {"distance_type": "arc", "validation_method": "strict", "type": None, "_cache": None}
_DEFAULTS |= {"ignore_unmapped": None}
"""Options of geo queries: `None` if any value may be given, else the only one."""
_CORNERS = {"top_left": ("left", "top"), "bottom_right": ("right", "bottom")}
_CORNERS |= {"top_right": ("right", "top"), "bottom_left": ("left", "bottom")}
_WITHOUT_COUNTERPART = {
    **dict.fromkeys(
        (
            *("combined_fields", "intervals", "match_bool_prefix", "match_phrase_prefix"),
            *("more_like_this", "multi_match", "query_string", "simple_query_string"),
        ),
        _ANALYSED,
    ),
    **dict.fromkeys(("fuzzy", "regexp"), _PART),
    "script": "runs a script, which a subscription can't: add its result to the event as a field",
    "nested": "tests elements of an array, but an attribute has a single value: publish one event "
    "per element",
}
"""Common queries that can't be imported, the reasons, and alternatives."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d{1,3})?(Z|[+-]\d\d:\d\d)?)?")
"""Whole dates, or moments to the second or millisecond."""
_IGNORED_KEYS = ("boost", "_name")
"""Keys without effect on the answer."""
_EXPECTED = (
    'give {"id": query, ...}, or the answer of a search: {"hits": {"hits": [{"_id": ..., '
    '"_source": {"query": ...}}, ...]}}'
)


def read(source: str | Path | Mapping[str, Any], space: Space | None = None) -> ImportResult:
    """Import percolator queries.

    source   a JSON file or its data: queries by id, or the answer of a search, with the query of
             each document in its field `query`
    space    the types of the fields; without it, they are inferred from the queries

    Fields of texts are taken as keywords: the whole text is compared, case-sensitively. `match` and
    `match_phrase` compare words, as `words(...)` of a filter does; on a field that the space
    declares as a category, they compare the whole value. Fields of geo queries are locations, with
    the coordinates `<field>.lon` and `<field>.lat`.
    """
    data = load_json(source, "queries by id")
    hits = data.get("hits") if isinstance(data, Mapping) else None
    if isinstance(hits, Mapping) and isinstance(hits.get("hits"), list):
        rules = rules_listed(hits["hits"], _hit, _EXPECTED, "hits")
    elif isinstance(data, Mapping):
        rules = rules_by_id(data)
    else:
        raise unknown_shape(data, _EXPECTED)
    return import_rules(rules, lambda query: _rule(query, "query"), space)


def _hit(value: Any) -> tuple[Any, Any] | None:
    source = value.get("_source") if isinstance(value, Mapping) else None
    if not isinstance(source, Mapping) or "query" not in source:
        return None
    if isinstance(source, RepeatedKeys):
        return value.get("_id"), InvalidEntry(f"the key {source.key!r} appears twice")
    return value.get("_id"), source["query"]


def _rule(query: Any, path: str) -> Rule:
    kind, body = _single_item(query, path, "a query must have exactly one type")
    path = f"{path}.{kind}"
    if kind in _WITHOUT_COUNTERPART:
        raise UnsupportedRuleError(path, _WITHOUT_COUNTERPART[kind])
    if kind not in _QUERIES:
        raise UnsupportedRuleError(
            path, f"has no exact counterpart: {did_you_mean(kind, _QUERIES)}"
        )
    if kind == "bool":
        return _bool(body, path)
    if kind in ("match_all", "match_none"):
        return AllOf(()) if kind == "match_all" else AnyOf(())
    if not isinstance(body, Mapping):
        raise UnsupportedRuleError(path, f"takes an object; given: {abbreviate(body)}")
    body = {key: value for key, value in body.items() if key not in _IGNORED_KEYS}
    if kind in _PLACES:
        return _geo_test(kind, body, path)
    if kind == "constant_score":
        _, inner = _single_item(body, path, "constant_score takes a filter", "filter")
        return _rule(inner, f"{path}.filter")
    name, wanted = _single_item(body, path, f"{kind} takes one field")
    if kind == "exists":
        _single_item(body, path, "exists takes a field", "field")
        if not isinstance(wanted, str):
            raise UnsupportedRuleError(
                path, f"exists takes the name of a field; given: {abbreviate(wanted)}"
            )
        return present(wanted, path)
    if kind in ("prefix", "wildcard"):
        return _pattern(kind, name, wanted, path)
    if kind in ("match", "match_phrase"):
        return _match(kind, name, wanted, path)
    return {"term": _term, "terms": _terms, "range": _range}[kind](name, wanted, path)


def _single_item(value: Any, path: str, expected: str, key: str | None = None) -> tuple[str, Any]:
    """Return the one key of an object and its value."""
    if isinstance(value, Mapping) and len(value) == 1 and key in (None, *value):
        return next(iter(value.items()))
    raise UnsupportedRuleError(path, f"{expected}; given: {abbreviate(value)}")


def _bool(body: Any, path: str) -> Rule:
    clauses = ("must", "filter", "should", "must_not")
    known = (*clauses, "minimum_should_match", *_IGNORED_KEYS)
    if not isinstance(body, Mapping):
        raise UnsupportedRuleError(path, f"takes an object; given: {abbreviate(body)}")
    for key in body:
        if key not in known:
            raise UnsupportedRuleError(
                f"{path}.{key}", f"unknown key: {did_you_mean(str(key), known)}"
            )
    rules: dict[str, list[Rule]] = {}
    for clause in clauses:
        queries = body.get(clause, [])
        listed = queries if isinstance(queries, list) else [queries]
        rules[clause] = [_rule(query, f"{path}.{clause}[{i}]") for i, query in enumerate(listed)]
    parts = [*rules["must"], *rules["filter"], *map(negated, rules["must_not"])]
    # Beside must or filter, should only counts for the score, unless a number is given.
    default = 0 if rules["must"] or rules["filter"] or not rules["should"] else 1
    least = body.get("minimum_should_match", default)
    if isinstance(least, bool) or least not in (0, 1, len(rules["should"])):
        reason = f"must be 0, 1 or the number of clauses; given: {abbreviate(least)}"
        raise UnsupportedRuleError(f"{path}.minimum_should_match", reason)
    if least == 1:
        parts.append(AnyOf(tuple(rules["should"])))
    elif least:
        parts.extend(rules["should"])
    return AllOf(tuple(parts))


def _term(name: str, wanted: Any, path: str) -> Test:
    if isinstance(wanted, Mapping):
        wanted = {key: value for key, value in wanted.items() if key not in _IGNORED_KEYS}
        _, wanted = _single_item(wanted, path, "term takes a value", "value")
    return _terms(name, [wanted], path)


def _terms(name: str, wanted: Any, path: str) -> Test:
    if not isinstance(wanted, list):
        raise UnsupportedRuleError(path, f"takes a list of values; given: {abbreviate(wanted)}")
    kinds = {kind_of(path, value) for value in wanted}
    if len(kinds) > 1:
        raise UnsupportedRuleError(path, "the list has values of different types")
    return Test(name, path, kinds.pop() if kinds else None, values=tuple(wanted))


def _pattern(kind: str, name: str, wanted: Any, path: str) -> Test:
    """Return the test of a prefix or of a pattern with * and ?, where \\ escapes a character."""
    if isinstance(wanted, Mapping):
        ignored = (*_IGNORED_KEYS, "rewrite")
        wanted = {key: value for key, value in wanted.items() if key not in ignored}
        if wanted.pop("case_insensitive", False):
            reason = "case_insensitive folds only ASCII letters there, but all letters here"
            raise UnsupportedRuleError(path, reason)
        key = "wildcard" if "wildcard" in wanted else "value"
        _, wanted = _single_item(wanted, path, f"{kind} takes a value", key)
    if not isinstance(wanted, str):
        raise UnsupportedRuleError(path, f"takes a string; given: {abbreviate(wanted)}")
    if kind == "prefix":
        prefix: str = wanted
        patterns = (like(prefix, after="%"),)
        return Test(name, path, "text", words=lambda x: x.startswith(prefix), patterns=patterns)
    pieces = _PIECES.findall(wanted)
    expression = re.compile("".join(map(_expression, pieces)), re.DOTALL)
    pattern = "".join(
        _SIGNS_OF_LIKE.get(piece) or re.sub(r"([%_\\])", r"\\\1", piece[-1]) for piece in pieces
    )
    return Test(
        name,
        path,
        "text",
        words=lambda text: expression.fullmatch(text) is not None,
        patterns=(f"like {quoted(pattern)}",),
    )


def _match(kind: str, name: str, wanted: Any, path: str) -> Rule:
    """Return the test of a `match` or `match_phrase` query: any word, all words, or a phrase."""
    operator = "or"
    if isinstance(wanted, Mapping):
        wanted = {key: value for key, value in wanted.items() if key not in _IGNORED_KEYS}
        if kind == "match":
            operator = str(wanted.pop("operator", operator)).lower()
        elif wanted.get("slop") == 0:
            del wanted["slop"]
        _, wanted = _single_item(wanted, path, f"{kind} takes a query here", "query")
    if operator not in ("or", "and"):
        raise UnsupportedRuleError(path, f"operator takes or, and; given: {abbreviate(operator)}")
    if not isinstance(wanted, str):
        return _terms(name, [wanted], path)
    exact, words = wanted, words_in(wanted)
    if not words:
        return AnyOf(())
    if kind == "match_phrase":
        pattern = f"has {quoted(' '.join(words))}"
    else:
        which = "all" if operator == "and" else "any"
        pattern = f"has {which} ({', '.join(map(quoted, words))})"
    return Test(name, path, "text", words=lambda text: text == exact, patterns=(pattern,))


def _geo_test(kind: str, body: dict[str, Any], path: str) -> Test:
    """Return the test of a geo query; the field is its one key that is not an option."""
    distance = body.pop("distance", None) if kind == "geo_distance" else None
    for key, only in _DEFAULTS.items():
        option = body.pop(key, only)
        if only is not None and str(option).lower() != only:
            reason = f"{key} must be {only}; given: {abbreviate(option)}"
            raise UnsupportedRuleError(path, reason)
    name, wanted = _single_item(body, path, f"{kind} takes one field")
    inverse = False
    if kind == "geo_distance":
        shape = _circle(_position(wanted, path), _metres(distance, path))
    elif kind == "geo_bounding_box":
        shape = _rectangle(_corners(wanted, path))
    elif kind == "geo_polygon":
        points = wanted.get("points") if isinstance(wanted, Mapping) else None
        if not isinstance(points, list) or not points:
            raise UnsupportedRuleError(path, f"must have points; given: {abbreviate(wanted)}")
        ring = [list(_position(point, path)) for point in points]
        shape = _within({"type": "Polygon", "coordinates": [[*ring, ring[0]]]}, path)
    else:
        shape, inverse = _geo_shape(wanted, path)
    return Test(name, path, "location", shape=shape, inverse=inverse)


def _circle(centre: tuple[float, float], metres: float) -> Callable[[Location], str]:
    x, y, radius = map(number_text, (*centre, metres))
    return lambda location: f"within({name_text(location.name)}, circle({x}, {y}, {radius} m))"


def _rectangle(corners: tuple[float, float, float, float]) -> Callable[[Location], str]:
    """Return a rectangle in degrees, which goes eastwards from its west side."""
    west, south, east, north = map(number_text, corners)

    def shape(location: Location) -> str:
        x, y = (name_text(axis.name) for axis in location.coordinates)
        joined = "or" if corners[0] > corners[2] else "and"
        return f"({x} >= {west} {joined} {x} <= {east}) and {y} >= {south} and {y} <= {north}"

    return shape


def _within(geometry: Any, path: str) -> Callable[[Location], str]:
    def shape(location: Location) -> str:
        text = text_of(rule_of_geometry(geometry, location))
        if not isinstance(text, str):
            raise UnsupportedRuleError(path, "a geometry without shapes")
        return text

    return shape


def _geo_shape(wanted: Any, path: str) -> tuple[Callable[[Location], str], bool]:
    """Return the condition of a geo_shape, and whether it is negated."""
    geometry = wanted.get("shape") if isinstance(wanted, Mapping) else None
    if not isinstance(geometry, Mapping):
        reason = f"must have an inline shape; given: {abbreviate(wanted)}"
        raise UnsupportedRuleError(path, reason)
    relation = str(wanted.get("relation", "intersects")).lower()
    if relation not in ("intersects", "within", "disjoint"):
        reason = f"relation must be intersects, within or disjoint; given: {abbreviate(relation)}"
        raise UnsupportedRuleError(path, reason)
    if str(geometry.get("type")).lower() != "envelope":
        return _within(geometry, path), relation == "disjoint"
    corners = geometry.get("coordinates")
    if not isinstance(corners, list) or len(corners) != 2:
        raise UnsupportedRuleError(path, "an envelope must have two positions")
    (west, north), (east, south) = (_position(corner, path) for corner in corners)
    return _rectangle((west, south, east, north)), relation == "disjoint"


def _position(value: Any, path: str) -> tuple[float, float]:
    """Return longitude and latitude of {lat, lon}, [lon, lat], 'lat,lon' or a GeoJSON point."""
    numbers = value
    if isinstance(value, Mapping):
        is_point = value.get("type") == "Point"
        numbers = value.get("coordinates") if is_point else [value.get("lon"), value.get("lat")]
    elif isinstance(value, str):
        numbers = [*reversed(value.split(","))]
    with contextlib.suppress(TypeError, ValueError):
        x, y = (float(number) for number in numbers if not isinstance(number, bool))
        if abs(x) <= 180 and abs(y) <= 90:
            return x, y
    reason = f"a position must be such as {{'lat': 52.5, 'lon': 13.4}}; given: {abbreviate(value)}"
    raise UnsupportedRuleError(path, reason)


def _metres(value: Any, path: str) -> float:
    match = _LENGTH.fullmatch(str(value).strip())
    unit = match and (match[2] or "m")
    if match is not None and unit in _METRES and match[1].count(".") <= 1 and match[1] != ".":
        return float(match[1]) * _METRES[unit]
    reason = f"the distance must be such as '5km'; given: {abbreviate(value)}"
    raise UnsupportedRuleError(path, reason)


def _corners(wanted: Any, path: str) -> tuple[float, float, float, float]:
    """Return west, south, east and north of a bounding box."""
    rest = dict(wanted) if isinstance(wanted, Mapping) else {}
    sides: dict[str, float] = {}
    for corner, (x, y) in _CORNERS.items():
        if corner in rest:
            sides[x], sides[y] = _position(rest.pop(corner), path)
    for x, y in (("left", "top"), ("right", "bottom")):
        if x in rest and y in rest:
            sides[x], sides[y] = _position([rest.pop(x), rest.pop(y)], path)
    if rest or len(sides) < 4:
        reason = f"must have top_left and bottom_right; given: {abbreviate(wanted)}"
        raise UnsupportedRuleError(path, reason)
    return sides["left"], sides["bottom"], sides["right"], sides["top"]


_PIECES = re.compile(r"\\.|.", re.DOTALL)
_SIGNS_OF_LIKE = {"*": "%", "?": "_"}


def _expression(piece: str) -> str:
    return {"*": ".*", "?": "."}.get(piece) or re.escape(piece[-1])


def _range(name: str, wanted: Any, path: str) -> Test:
    if not isinstance(wanted, Mapping) or not wanted:
        raise UnsupportedRuleError(path, f"takes an object of bounds; given: {abbreviate(wanted)}")
    bounds = []
    kinds = set()
    for key, value in wanted.items():
        if key in _IGNORED_KEYS or (key in _SIGNS and value is None):
            continue
        if key not in _SIGNS:
            reason = f"{key!r} changes what is compared: {did_you_mean(key, [*_SIGNS])}"
            raise UnsupportedRuleError(path, reason)
        kind = kind_of(path, value)
        if kind == "text":
            _check_moment(value, path)
            kind = "moment"
        elif kind == "boolean":
            raise UnsupportedRuleError(path, f"has no order: {abbreviate(value)}")
        kinds.add(kind)
        bounds.append(_moment_bound(key, value) if kind == "moment" else (_SIGNS[key], value))
    if len(kinds) > 1:
        raise UnsupportedRuleError(path, "the bounds have different types")
    if not bounds:
        return present(name, path)
    return Test(name, path, kinds.pop(), bounds=tuple(bounds))


def _check_moment(text: str, path: str) -> None:
    if "now" in text or "||" in text:
        reason = (
            f"date math depends on the current time, a subscription doesn't: {abbreviate(text)}"
        )
        raise UnsupportedRuleError(path, reason)
    try:
        if not _DATE.fullmatch(text):
            raise InvalidValueError("not a complete date")
        Timestamp("at").at_least(text)
    except InvalidValueError:
        reason = (
            "a range of strings is only imported if they are dates such as 2026-01-31 or "
            f"timestamps such as 2026-01-31T09:30:00Z; given: {abbreviate(text)}"
        )
        raise UnsupportedRuleError(path, reason) from None


def _moment_bound(key: str, text: str) -> tuple[str, str]:
    """Return the bound of a date: missing parts are as late as possible for gt and lte."""
    if "T" not in text:
        text += "T23:59:59.999999" if key in ("gt", "lte") else "T00:00:00"
    elif "." not in text and key in ("gt", "lte"):
        text = f"{text[:19]}.999999{text[19:]}"
    return _SIGNS[key], text


def write(subscriptions: Any, space: Space) -> ExportResult:
    """Convert subscriptions to percolator queries, by id, as JSON.

    subscriptions    what `Engine.subscribe_many` takes: a file, a table, a list of dicts
    """
    return export(subscriptions, space, _query, json_text)


def _query(alternatives: list[list[Term]]) -> dict[str, Any]:
    return _either([_all([_field(term) for term in terms]) for terms in alternatives])


def _all(queries: list[dict[str, Any]]) -> dict[str, Any]:
    if not queries:
        return {"match_all": {}}
    return queries[0] if len(queries) == 1 else {"bool": {"filter": queries}}


def _either(queries: list[dict[str, Any]]) -> dict[str, Any]:
    return queries[0] if len(queries) == 1 else {"bool": {"should": queries}}


def _field(term: Term) -> dict[str, Any]:
    name = term.attribute.name
    there = {"exists": {"field": name}}
    queries: list[dict[str, Any]] = [there] if term.any_value else []
    spans = list(term.spans)
    if term.attribute.type == "timestamp":  # so that a moment means just that, never a day
        spans.extend(((">=", value), ("<=", value)) for value in term.values)
    elif term.values:
        queries.append({"terms": {name: [_value(name, value) for value in term.values]}})
    for bounds in spans:
        keys = {sign: key for key, sign in _SIGNS.items()}
        ends = {keys[sign]: _value(name, value) for sign, value in bounds}
        queries.append({"range": {name: ends}})
    if term.excluded:
        without = {"terms": {name: list(term.excluded)}}
        queries.append({"bool": {"filter": [there], "must_not": [without]}})
    if term.missing:
        queries.append({"bool": {"must_not": [there]}})
    return _either(queries)


def _value(name: str, value: Any) -> Any:
    if isinstance(value, float):
        return plain_number(value)
    if not isinstance(value, datetime):
        return value
    if value.microsecond % 1000:
        raise UnsupportedRuleError(
            name, f"dates there have a precision of milliseconds; given: {value.isoformat()}"
        )
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
