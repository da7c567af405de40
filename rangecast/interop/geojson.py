"""GeoJSON shapes as subscriptions: `read` and `write`.

Polygons are exact, as `within(position, ...)`; their borders belong to them, unless the location
says otherwise. A Point matches only that exact position, unless it is a circle in Azure Maps' form:
with the properties `subType` and `radius`, in metres.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rangecast.errors import UsageError, abbreviate
from rangecast.interop.export import ExportResult, Term, export, plain_number
from rangecast.interop.geometry.antimeridian import split_at_antimeridian
from rangecast.interop.geometry.notes import shape_notes
from rangecast.interop.result import (
    ImportResult,
    import_rules,
    json_text,
    load_json,
    rules_listed,
    unknown_shape,
)
from rangecast.interop.rules import AnyOf, FilterText, Rule, UnsupportedRuleError
from rangecast.kernels.arrays import F64
from rangecast.model.attributes.places import Location, Place
from rangecast.model.filters.lexer import name_text
from rangecast.model.shapes.geometry import (
    Polygons,
    ShapeError,
    from_geojson,
    number_text,
    winds_left,
)
from rangecast.model.shapes.words import literals_of
from rangecast.model.space import Space

_KINDS = ("Point", "MultiPoint", "Polygon", "MultiPolygon", "LineString", "MultiLineString")
_TIMES = ("validityTime", "expiredTime", "businessTime")
"""Properties of Azure Maps that limit a fence in time."""
_EXPECTED = "give a FeatureCollection of features with ids"


def read(
    source: str | Path | Mapping[str, Any],
    space: Space | None = None,
    *,
    id_property: str | None = None,
) -> ImportResult:
    """Import the features of a collection.

    source        a GeoJSON file or its data: a FeatureCollection
    space         a space with a location; by default one called `position`, whose coordinates are
                  `longitude` and `latitude`
    id_property   the property that is the id; a feature without it is rejected

    A subscription's id is the `id` of its feature, else the `id`, the `geometryId` or the `name` of
    its properties, else the position in the list. Features that share a name get the name and the
    position, `park (3)`; of features with the same id only the first is imported.
    """
    space = space or Space([Location("position")])
    location = location_of(space)
    data = load_json(source, "a FeatureCollection")
    features = data.get("features") if isinstance(data, Mapping) else None
    if not isinstance(features, list):
        raise unknown_shape(data, _EXPECTED)
    ids, shared = (
        _ids(features) if id_property is None else (_property_ids(features, id_property), [])
    )
    named = iter(ids)
    rules = rules_listed(
        features, lambda document: _identified(document, next(named)), _EXPECTED, "features"
    )
    imported = import_rules(rules, lambda feature: _rule(feature, location), space)
    imported.notes.extend(shape_notes(features, location))
    if shared:
        listed = ", ".join(shared[:10]) + (", ..." if len(shared) > 10 else "")
        imported.notes.append(
            f"{len(shared):,} name{'s'[: len(shared) != 1]} of several features: their ids are the "
            f"name and the position in the list ({listed})"
        )
    return imported


def _property_ids(features: Sequence[Any], name: str) -> list[Any]:
    """Return each feature's id property; `None` unless it is an integer or a non-empty string."""
    listed = []
    for feature in features:
        properties = feature.get("properties") if isinstance(feature, Mapping) else None
        value = properties.get(name) if isinstance(properties, Mapping) else None
        is_id = isinstance(value, str | int) and not isinstance(value, bool) and value != ""
        listed.append(value if is_id else None)
    return listed


def location_of(space: Space) -> Location:
    """Return the location of a space."""
    for attribute in space:
        if isinstance(attribute, Location):
            return attribute
    raise UsageError(
        f"GeoJSON shapes need a location; given: {space}\n"
        "  hint: add an attribute of the type 'location' to the space"
    )


def _ids(features: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Return the id of each feature, and the names that aren't unique.

    An id is the feature's own `id`, else the property `id`, `geometryId` or `name`. A name that
    isn't unique is followed by the feature's position in the collection, and a feature without any
    of these has its position as id.
    """
    labels = [_label(feature) for feature in features]
    counts = Counter(str(label) for label, _ in labels if label is not None)
    ids: list[Any] = []
    shared: dict[str, None] = {}
    for number, (label, is_name) in enumerate(labels):
        if is_name and counts[str(label)] > 1:
            shared[str(label)] = None
            label = f"{label} ({number})"
        ids.append(number if label is None else label)
    return ids, list(shared)


def _label(feature: Any) -> tuple[Any, bool]:
    """Return a feature's id or name, `None` if it has neither, and whether it is a name."""
    if not isinstance(feature, Mapping):
        return None, False
    if feature.get("id") is not None:
        return feature["id"], False
    properties = feature.get("properties")
    if isinstance(properties, Mapping):
        for key in ("id", "geometryId", "name"):
            value = properties.get(key)
            if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
                return value, key == "name"
    return None, False


def _identified(feature: Any, id_: Any) -> tuple[Any, Any] | None:
    """Return the id of a feature, and the properties that have a meaning."""
    if not isinstance(feature, Mapping):
        return None
    properties = feature.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    used = {key: known[key] for key in ("subType", "radius", *_TIMES) if key in known}
    return id_, {"geometry": feature.get("geometry"), "properties": used}


def _shapes(geometry: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the geometries of a collection, or the geometry itself."""
    kind = geometry.get("type") if isinstance(geometry, Mapping) else None
    if kind == "GeometryCollection" and isinstance(geometry.get("geometries"), list):
        for geometry_ in geometry["geometries"]:
            yield from _shapes(geometry_)
    elif isinstance(kind, str) and kind in _KINDS:
        yield geometry
    else:
        raise UnsupportedRuleError(
            "geometry", f"is not a GeoJSON shape; given: {abbreviate(geometry)}"
        )


def _rule(feature: Mapping[str, Any], location: Location) -> Rule:
    geometry, properties = feature["geometry"], feature["properties"]
    for key in _TIMES:
        if properties.get(key):
            reason = (
                "the fence is temporary: add a timestamp to the space, and its range to the filter"
            )
            raise UnsupportedRuleError(key, reason)
    if isinstance(properties.get("subType"), str):
        return _circle(geometry, properties, location)
    return rule_of_geometry(geometry, location)


def _circle(geometry: Any, properties: Mapping[str, Any], location: Location) -> Rule:
    """Return the circle of an Azure Maps feature: a point with a radius in metres."""
    is_point = isinstance(geometry, Mapping) and geometry.get("type") == "Point"
    if properties["subType"].lower() != "circle" or not is_point:
        raise UnsupportedRuleError("subType", "Circle must be a Point with a radius")
    radius = properties.get("radius")
    if (
        isinstance(radius, bool)
        or not isinstance(radius, int | float)
        or not 0 <= radius < math.inf
    ):
        raise UnsupportedRuleError("radius", f"not a length in metres: {abbreviate(radius)}")
    x, y = _position(geometry.get("coordinates"))
    size = number_text(float(radius))
    return FilterText(f"within({name_text(location.name)}, circle({x}, {y}, {size} m))")


def rule_of_geometry(geometry: Any, location: Location) -> Rule:
    """Convert a geometry to the rule of a location: inside a shape, or at a point."""
    parts: list[Rule] = []
    for shape in _shapes(geometry):
        if "Point" in shape["type"]:
            listed = shape.get("coordinates")
            points = [listed] if shape["type"] == "Point" else listed
            if not isinstance(points, list):
                raise UnsupportedRuleError("geometry", f"not positions: {abbreviate(points)}")
            parts += [_point(point, location) for point in points]
        else:
            parts.append(_polygons(shape, location))
    if not parts:
        raise UnsupportedRuleError("geometry", "a geometry without shapes")
    return AnyOf(tuple(parts))


def _position(value: Any) -> tuple[str, str]:
    """Return longitude and latitude as filters write them."""
    good = isinstance(value, list) and len(value) >= 2
    for number, limit in zip(value[:2] if good else [None], (180, 90), strict=False):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise UnsupportedRuleError("geometry", f"not a position: {abbreviate(value)}")
        if not abs(number) <= limit:  # nor is it NaN
            reason = f"not a longitude and a latitude in degrees: {abbreviate(value)}"
            raise UnsupportedRuleError("geometry", reason)
    return number_text(float(value[0])), number_text(float(value[1]))


def _point(value: Any, location: Location) -> Rule:
    x, y = _position(value)
    longitude, latitude = (name_text(axis.name) for axis in location.coordinates)
    return FilterText(f"{longitude} = {x} and {latitude} = {y}")


def _polygons(geometry: Mapping[str, Any], location: Location) -> Rule:
    try:
        shape = from_geojson(dict(geometry))
    except ShapeError as error:
        raise UnsupportedRuleError("geometry", error.reason) from None
    if not isinstance(shape, Polygons):
        raise UnsupportedRuleError(
            "geometry", "a line has no inside; write a corridor: buffer('LINESTRING ...', 200 m)"
        )
    return FilterText(f"within({name_text(location.name)}, '{shape.text}')")


def write(subscriptions: Any, space: Space) -> ExportResult:
    """Convert subscriptions to features with polygons, as a FeatureCollection.

    subscriptions    what `Engine.subscribe_many` takes: a file, a table, a list of dicts

    Their filters are polygons of a location, or ranges of its two coordinates with bounds that
    belong to them, and nothing else.
    """
    location = location_of(space)

    def feature(alternatives: list[list[Term]]) -> dict[str, Any]:
        return _feature(alternatives, location)

    return export(subscriptions, space, feature, _collection, takes_shapes=True)


def _feature(alternatives: list[list[Term]], location: Location) -> dict[str, Any]:
    polygons: list[Any] = []
    for terms in alternatives:
        shapes = [term for term in terms if isinstance(term.attribute, Place)]
        if not shapes:
            polygons += _rectangles(terms, location)
            continue
        if len(terms) > 1 or shapes[0].attribute.name != location.name:
            other = next(term for term in terms if term is not shapes[0])
            raise UnsupportedRuleError(other.attribute.name, "a feature can only hold a shape")
        for word in shapes[0].values:
            for literal in literals_of(location, word):
                if literal.negated or not isinstance(literal.shape, Polygons) or " and " in word:
                    raise UnsupportedRuleError(location.name, "GeoJSON can express polygons only")
                polygons += [
                    _rings(part)
                    for polygon in literal.shape.polygons
                    for part in _within_a_turn(polygon, location)
                ]
    if len(polygons) == 1:
        return {"type": "Polygon", "coordinates": polygons[0]}
    return {"type": "MultiPolygon", "coordinates": polygons}


def _within_a_turn(rings: tuple[F64, ...], location: Location) -> list[tuple[F64, ...]]:
    """Return the parts of a polygon on both sides of the antimeridian.

    With an open border a cut would leave out the positions on it: such a polygon stays whole.
    """
    if location.border == "open":
        return [rings]
    return split_at_antimeridian(rings, geodesic=location.edges == "geodesic")


def _rings(rings: tuple[F64, ...]) -> list[Any]:
    """Return the rings of a polygon as RFC 7946 winds them: the outer one to the left."""
    written = []
    for number, ring in enumerate(rings):
        if ring[0, 0] != ring[-1, 0]:
            # The inside of a ring round a pole is on its left: turned, it would be another one.
            turns = np.floor((ring[:, 0] + 180) / 360)
            ring = np.column_stack([ring[:, 0] - 360 * turns, ring[:, 1]])
        elif winds_left(ring) == (number > 0):
            ring = ring[::-1]
        written.append([[plain_number(x), plain_number(y)] for x, y in ring.tolist()])
    return written


def _rectangles(terms: list[Term], location: Location) -> list[Any]:
    x, y = (axis.name for axis in location.coordinates)
    others = [term.attribute.name for term in terms if term.attribute.name not in (x, y)]
    if others:
        raise UnsupportedRuleError(others[0], "a shape can only bound its longitude and latitude")
    polygons = [
        [[[lon, lat] for lon, lat in ((w, s), (e, s), (e, n), (w, n), (w, s))]]
        for w, e in _sides(terms, x, 180)
        for s, n in _sides(terms, y, 90)
    ]
    if any(a == b for ring in polygons for a, b in zip(ring[0][0], ring[0][2], strict=True)):
        raise UnsupportedRuleError("", "it is a line or a point, not a rectangle")
    return polygons


def _sides(terms: list[Term], name: str, limit: int) -> list[tuple[float, float]]:
    for term in terms:
        if term.attribute.name == name and not term.missing and not term.excluded:
            sides = [(value, value) for value in term.values]
            for bounds in (*term.spans, *([()] if term.any_value else [])):
                ends = {sign[0]: (sign, value) for sign, value in bounds}
                low = ends.get(">", (">=", term.attribute.domain[0]))
                high = ends.get("<", ("<=", term.attribute.domain[1]))
                if (low[0], high[0]) != (">=", "<=") or max(-low[1], high[1]) > limit:
                    raise UnsupportedRuleError(name, "a GeoJSON shape includes its border")
                sides.append((plain_number(low[1]), plain_number(high[1])))
            return sides
    raise UnsupportedRuleError(
        name, "a rectangle needs bounds on both coordinates, and no missing values"
    )


def _collection(shapes: dict[str, Any]) -> str:
    features = [
        {"type": "Feature", "id": id_, "properties": {}, "geometry": shape}
        for id_, shape in shapes.items()
    ]
    return json_text({"type": "FeatureCollection", "features": features})
