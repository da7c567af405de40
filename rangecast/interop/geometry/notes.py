"""Notes on imported shapes: doubtful parts that are imported unchanged or dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.model.attributes.places import Location
from rangecast.model.display import counted
from rangecast.model.shapes.earth import unit_vectors
from rangecast.model.shapes.exact.sphere import sphere_distance

_DEPTHS = {"Polygon": 1, "MultiPolygon": 2}
_FAR = 1e6
"""Numbers beyond aren't looked at: they are no coordinates, nor heights."""
_SHOWN = 1.0
"""Metres between straight and geodesic edges from which on the difference is noted."""


def shape_notes(features: Sequence[Any], location: Location) -> list[str]:
    """Return notes on a collection: swapped axes, heights, turned rings, edges that differ."""
    swapped = high = turned = 0
    difference, longest = 0.0, 0.0
    for feature in features:
        geometry = feature.get("geometry") if isinstance(feature, dict) else None
        positions = _array([*_positions(geometry)])
        x, y = np.abs(positions[:, :2]).T
        swapped += bool(((x <= 90) & (y > 90) & (y <= 180)).any())
        high += has_heights(geometry)
        is_turned = False
        for polygon in _polygons(geometry):
            for index, ring in enumerate(polygon):
                corners = _array(ring)[:, :2]
                is_turned |= _area(corners) * (1 if index else -1) > 0
                apart, edge = _off_great_circles(corners)
                if apart > difference:
                    difference, longest = apart, edge
        turned += is_turned
    notes = []
    if swapped:
        notes.append(
            f"{counted(swapped, 'feature')} with a latitude beyond 90: longitude and latitude may "
            "be swapped; GeoJSON has the longitude first"
        )
    if high:
        notes.append(f"{counted(high, 'feature')} with heights or measures, which are dropped")
    if turned:
        notes.append(
            f"{counted(turned, 'feature')} with rings wound opposite to RFC 7946, which makes no "
            "difference here"
        )
    if difference >= _SHOWN:
        meant, other = "straight in degrees", "great circles"
        if location.edges == "geodesic":
            meant, other = other, meant
        notes.append(
            f"edges are {meant}; as {other} they would be off by up to {difference:,.0f} m along "
            f"an edge of {longest / 1000:,.0f} km (`edges` of the location)"
        )
    return notes


def has_heights(geometry: Any) -> bool:
    """Return whether the positions of a geometry have heights or measures, which are dropped."""
    widths = {len(position) for position in _positions(geometry)}
    return min(widths, default=2) > 2


def _is_position(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= 2
        and all(type(number) in (int, float) and abs(number) <= _FAR for number in value)
    )


def _positions(geometry: Any) -> Iterator[list[float]]:
    """Yield all positions of a geometry."""
    pending: list[Any] = [geometry.get("coordinates")] if isinstance(geometry, dict) else []
    while pending:
        item = pending.pop()
        if _is_position(item):
            yield item
        elif isinstance(item, list):
            pending += item


def _array(positions: list[list[float]]) -> F64:
    """Return positions as an array of two columns, or of three, if all have a height."""
    width = min((len(position) for position in positions), default=2)
    made: F64 = np.array(
        [position[:3] if width > 2 else position[:2] for position in positions], np.float64
    )
    return made.reshape(len(positions), min(width, 3))


def _polygons(geometry: Any) -> Iterator[list[list[list[float]]]]:
    """Yield the rings of each polygon, if all of them are lists of positions."""
    depth = _DEPTHS.get(str(geometry.get("type")), 0) if isinstance(geometry, dict) else 0
    coordinates = geometry.get("coordinates") if depth else None
    if not isinstance(coordinates, list):
        return
    for polygon in [coordinates] if depth == 1 else coordinates:
        rings = polygon if isinstance(polygon, list) else []
        if all(isinstance(r, list) and len(r) > 3 and all(map(_is_position, r)) for r in rings):
            yield rings


def _area(corners: F64) -> float:
    """Return twice the area of a ring, positive if it winds to the left."""
    x, y = (corners - corners[0]).T
    return float(np.dot(x[:-1], y[1:]) - np.dot(x[1:], y[:-1]))


def _off_great_circles(corners: F64) -> tuple[float, float]:
    """Return how far edges lie from great circles, at most, and how long that edge is."""
    steps = np.abs(np.diff(corners, axis=0)).sum(axis=1)
    if not len(steps) or not np.isfinite(steps).all() or np.abs(corners[:, 1]).max() > 90:
        return 0.0, 0.0
    at = int(np.argmax(steps))
    (x1, y1), (x2, y2) = corners[at].tolist(), corners[at + 1].tolist()
    if abs(x2 - x1) >= 180:
        return 0.0, 0.0
    between = unit_vectors(corners[at : at + 2]).sum(axis=0)
    between /= np.linalg.norm(between)
    middle = np.degrees(np.arctan2(between[1], between[0])), np.degrees(np.arcsin(between[2]))
    apart = sphere_distance((x1 + x2) / 2, (y1 + y2) / 2, float(middle[0]), float(middle[1]))
    return float(apart), float(sphere_distance(x1, y1, x2, y2))
