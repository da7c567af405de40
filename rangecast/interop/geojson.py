"""Shapes of GeoJSON as boxes of longitude and latitude: `read` and `write`.

A point and a rectangle whose sides run along the meridians and parallels are exact; of any other
shape, the box around it finds candidates, which a geometry library then decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rangecast.errors import abbreviate
from rangecast.interop.export import ExportResult, Term, export, plain_number
from rangecast.interop.result import (
    ImportResult,
    import_rules,
    json_text,
    load_json,
    rules_listed,
    unknown_shape,
)
from rangecast.interop.rules import All, Either, Rule, Test, UnsupportedRuleError
from rangecast.model.attributes.base import Number
from rangecast.model.space import Space

LONGITUDE, LATITUDE = "longitude", "latitude"
_DEPTHS = {"Point": 0, "MultiPoint": 1, "LineString": 1, "MultiLineString": 2}
_DEPTHS |= {"Polygon": 2, "MultiPolygon": 3}
"""Levels of lists around the positions of a shape."""
_EXPECTED = "give a FeatureCollection, whose features have ids"


def read(given: str | Path | Mapping[str, Any], space: Space | None = None) -> ImportResult:
    """Carry the features of a collection over, as boxes of `longitude` and `latitude`.

    given    a GeoJSON file or its data: a FeatureCollection
    space    a space with these two attributes, in degrees; there is one for it without

    A subscription's id is the `id` of its feature, else the `id` or the `name` of its properties,
    else the position in the list. Features that share a name get the name and the position,
    `park (3)`; of features with the same id only the first is imported.

    The notes name the features whose box is larger than their shape: those are candidates.
    """
    data = load_json(given, "a FeatureCollection")
    features = data.get("features") if isinstance(data, Mapping) else None
    if not isinstance(features, list):
        raise unknown_shape(data, _EXPECTED)
    ids, shared = _ids(features)
    named = iter(ids)
    rules = rules_listed(features, lambda one: _identified(one, next(named)), _EXPECTED, "features")
    degrees = [Number(LONGITUDE, min=-180, max=180), Number(LATITUDE, min=-90, max=90)]
    imported = import_rules(rules, _rule, space or Space(degrees))
    shapes: dict[str, Any] = {}
    for id_, shape in rules:
        shapes.setdefault(id_, shape)  # of features with one id the first is imported
    larger = [one["id"] for one in imported.subscriptions if not _is_exact(shapes[one["id"]])]
    if larger:
        shown_ids = ", ".join(larger[:10]) + (", ..." if len(larger) > 10 else "")
        imported.notes.append(
            f"{len(larger):,} of {len(rules):,} are candidates: their boxes are larger than the "
            f"shapes, which must be checked on what matches ({shown_ids})"
        )
    if shared:
        listed = ", ".join(shared[:10]) + (", ..." if len(shared) > 10 else "")
        imported.notes.append(
            f"{len(shared):,} name{'s'[: len(shared) != 1]} of several features: their ids are the "
            f"name and the position in the list ({listed})"
        )
    return imported


def _ids(features: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Return the id of each feature, and the names that aren't unique.

    An id is the feature's own, that of its properties, or their name; a name that isn't unique is
    followed by the position of the feature, which is the id of a feature without any of these.
    """
    labels = [_label(feature) for feature in features]
    counts = Counter(str(label) for label, _ in labels if label is not None)
    ids: list[Any] = []
    shared: dict[str, None] = {}
    for place, (label, is_name) in enumerate(labels):
        if is_name and counts[str(label)] > 1:
            shared[str(label)] = None
            label = f"{label} ({place})"
        ids.append(place if label is None else label)
    return ids, list(shared)


def _label(feature: Any) -> tuple[Any, bool]:
    """Return a feature's id or name, `None` if it has neither, and whether it is a name."""
    if not isinstance(feature, Mapping):
        return None, False
    if feature.get("id") is not None:
        return feature["id"], False
    properties = feature.get("properties")
    if isinstance(properties, Mapping):
        for key in ("id", "name"):
            value = properties.get(key)
            if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
                return value, key == "name"
    return None, False


def _identified(feature: Any, id_: Any) -> tuple[Any, Any] | None:
    """Return the id and the geometry of a feature."""
    return (id_, feature.get("geometry")) if isinstance(feature, Mapping) else None


def _shapes(geometry: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a geometry that get a box each: kind and coordinates."""
    kind = geometry.get("type") if isinstance(geometry, Mapping) else None
    if kind == "GeometryCollection" and isinstance(geometry.get("geometries"), list):
        for one in geometry["geometries"]:
            yield from _shapes(one)
    elif (
        isinstance(kind, str) and kind in _DEPTHS and isinstance(geometry.get("coordinates"), list)
    ):
        coordinates = geometry["coordinates"]
        if kind.startswith("Multi"):
            yield from ((kind.removeprefix("Multi"), one) for one in coordinates)
        else:
            yield kind, coordinates
    else:
        raise UnsupportedRuleError(
            "geometry", f"is no shape of GeoJSON; given: {abbreviate(geometry)}"
        )


def _positions(coordinates: Any, depth: int) -> Iterator[tuple[float, float]]:
    if depth and isinstance(coordinates, list):
        for one in coordinates:
            yield from _positions(one, depth - 1)
        return
    good = not depth and isinstance(coordinates, list) and len(coordinates) >= 2
    for number, limit in zip(coordinates[:2] if good else [None], (180, 90), strict=False):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise UnsupportedRuleError("geometry", f"not a position: {abbreviate(coordinates)}")
        if not abs(number) <= limit:  # nor is it NaN
            reason = f"not a longitude and a latitude in degrees: {abbreviate(coordinates)}"
            raise UnsupportedRuleError("geometry", reason)
    yield coordinates[0], coordinates[1]


def _rule(geometry: Any) -> Rule:
    boxes = []
    for kind, coordinates in _shapes(geometry):
        found = [*_positions(coordinates, _DEPTHS[kind])]
        if not found:
            raise UnsupportedRuleError("geometry", "a shape without positions")
        sides = []
        for name, numbers in zip((LONGITUDE, LATITUDE), zip(*found, strict=True), strict=True):
            bounds = ((">=", min(numbers)), ("<=", max(numbers)))
            sides.append(Test(name, "geometry", "number", bounds=bounds))
        boxes.append(All(tuple(sides)))
    if not boxes:
        raise UnsupportedRuleError("geometry", "a geometry without shapes")
    return Either(tuple(boxes))


def _is_exact(geometry: Any) -> bool:
    """Whether every shape is a point or a rectangle along the axes; its border belongs to it."""
    return all(
        kind == "Point" or (kind == "Polygon" and _is_rectangle(coordinates))
        for kind, coordinates in _shapes(geometry)
    )


def _is_rectangle(rings: Any) -> bool:
    if len(rings) != 1 or len(rings[0]) != 5:
        return False
    ring = [(one[0], one[1]) for one in rings[0]]
    same = [(a[0] == b[0], a[1] == b[1]) for a, b in pairwise(ring)]
    upright = [(True, False), (False, True)] * 2
    return ring[0] == ring[-1] and same in (upright, upright[::-1])


def write(subscriptions: Any, space: Space) -> ExportResult:
    """Say subscriptions as features with rectangles, as a FeatureCollection.

    subscriptions    what `Engine.subscribe_many` takes: a file, a table, a list of dicts

    Their filters bound `longitude` and `latitude`, on both sides, and nothing else.
    """
    return export(subscriptions, space, _feature, _collection)


def _feature(alternatives: list[list[Term]]) -> dict[str, Any]:
    polygons = [
        [[[x, y] for x, y in ((w, s), (e, s), (e, n), (w, n), (w, s))]]
        for terms in alternatives
        for w, e in _sides(terms, LONGITUDE)
        for s, n in _sides(terms, LATITUDE)
    ]
    if any(a == b for ring in polygons for a, b in zip(ring[0][0], ring[0][2], strict=True)):
        raise UnsupportedRuleError("", "it is a line or a point, and no rectangle")
    if len(polygons) == 1:
        return {"type": "Polygon", "coordinates": polygons[0]}
    return {"type": "MultiPolygon", "coordinates": polygons}


def _sides(terms: list[Term], name: str) -> list[tuple[float, float]]:
    limits = {LONGITUDE: 180, LATITUDE: 90}
    others = [term.attribute.name for term in terms if term.attribute.name not in limits]
    if others:
        raise UnsupportedRuleError(others[0], "a shape has a longitude and a latitude alone")
    for term in terms:
        if term.attribute.name == name and not term.missing and not term.excluded:
            sides = [(value, value) for value in term.values]
            for bounds in (*term.spans, *([()] if term.any_value else [])):
                ends = {sign[0]: (sign, value) for sign, value in bounds}
                low = ends.get(">", (">=", term.attribute.domain[0]))
                high = ends.get("<", ("<=", term.attribute.domain[1]))
                if (low[0], high[0]) != (">=", "<=") or max(-low[1], high[1]) > limits[name]:
                    raise UnsupportedRuleError(name, "the border of a shape belongs to it")
                sides.append((plain_number(low[1]), plain_number(high[1])))
            return sides
    raise UnsupportedRuleError(name, "a shape needs both, and no missing value")


def _collection(shapes: dict[str, Any]) -> str:
    features = [
        {"type": "Feature", "id": id_, "properties": {}, "geometry": shape}
        for id_, shape in shapes.items()
    ]
    return json_text({"type": "FeatureCollection", "features": features})
