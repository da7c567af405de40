"""Distances of points from the borders of shapes, as `why` and `why_not` report them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.kernels.bundle import opened, pointer, pointers
from rangecast.kernels.jit import jit
from rangecast.model.shapes.exact.sphere import (
    ellipsoid_distance,
    segment_distance,
    sphere_distance,
    unit_vector,
)
from rangecast.model.shapes.geometry import Circle, Corridor
from rangecast.model.shapes.verification.programs import (
    ELLIPSOID_CIRCLE,
    GEODESIC_POLYGON,
    LITERAL,
    PLANE_CIRCLE,
    PLANE_CORRIDOR,
    PLANE_POLYGON,
    PLANE_RING,
    POLYGON,
    RING,
    Literal,
    Programs,
    beside_lines,
    verify_literal,
)
from rangecast.model.shapes.verification.sketches import SKETCH


@jit
def _to_edge(
    x1: float, y1: float, x2: float, y2: float, x: float, y: float, is_earth: bool
) -> float:
    """Return the distance of a point from an edge, in metres on the earth."""
    if is_earth:
        ax, ay, az = unit_vector(x1, y1)
        bx, by, bz = unit_vector(x2, y2)
        px, py, pz = unit_vector(x, y)
        return segment_distance(ax, ay, az, bx, by, bz, px, py, pz)
    dx, dy = x2 - x1, y2 - y1
    length = dx * dx + dy * dy
    along = 0.0
    if length > 0.0:
        along = min(max(((x - x1) * dx + (y - y1) * dy) / length, 0.0), 1.0)
    return math.hypot(x - (x1 + along * dx), y - (y1 + along * dy))


@jit
def _to_line(line: F64, x: float, y: float, is_earth: bool) -> float:
    """Return the distance of a point from a line, (corners, 2)."""
    least = math.inf
    for i in range(len(line) - 1):
        x1, y1, x2, y2 = line[i, 0], line[i, 1], line[i + 1, 0], line[i + 1, 1]
        least = min(least, _to_edge(x1, y1, x2, y2, x, y, is_earth))
    return least


@jit
def _to_circle(x: float, y: float, cx: float, cy: float, radius: float, kind: int) -> float:
    """Return the distance of a point from a circle."""
    if kind == PLANE_CIRCLE:
        return abs(math.hypot(x - cx, y - cy) - radius)
    if kind == ELLIPSOID_CIRCLE:
        return abs(ellipsoid_distance(cx, cy, x, y) - radius)
    return abs(sphere_distance(cx, cy, x, y) - radius)


def distance_to_border(literal: Literal, x: float, y: float) -> float:
    """Return the distance of a point from the border of a shape, in metres on the earth."""
    shape, earth = literal.shape, literal.kind not in (PLANE_POLYGON, PLANE_CIRCLE, PLANE_CORRIDOR)
    assert not isinstance(shape, np.ndarray)
    if isinstance(shape, Circle):
        return float(_to_circle(x, y, shape.x, shape.y, shape.radius, literal.kind))
    lines = shape.along.lines if isinstance(shape, Corridor) else sum(shape.polygons, ())
    least = min(float(_to_line(line, x, y, earth)) for line in lines)
    return abs(least - shape.width) if isinstance(shape, Corridor) else least


@jit
def _to_literal(p: Any, literal: int, x: float, y: float, is_earth: bool) -> float:
    """Return the distance of a point from the border of a literal's shape."""
    kind, first, last = p.literals[literal], p.literals[literal + 3], p.literals[literal + 4]
    n, least = p.numbers, math.inf
    if kind >= PLANE_RING:
        edges = int(n[first + SKETCH])
        xs, ys = first + RING, first + RING + edges + 1
        for i in range(edges):
            x1, y1, x2, y2 = n[xs + i], n[ys + i], n[xs + i + 1], n[ys + i + 1]
            least = min(least, _to_edge(x1, y1, x2, y2, x, y, is_earth))
        return least
    if kind <= GEODESIC_POLYGON:
        for polygon in range(POLYGON * first, POLYGON * last, POLYGON):
            cells, side = p.polygons[polygon], p.polygons[polygon + 1]
            entries, corners = p.polygons[polygon + 2], p.polygons[polygon + 3]
            stripes = p.polygons[polygon + 7]
            count = p.cells[cells + side * side] >> 2 if side else p.cells[cells + stripes]
            for i in range(entries, entries + count):  # an edge of several cells comes again
                at = 2 * (corners + p.listed[i])
                x1, y1, x2, y2 = (
                    p.corners[at],
                    p.corners[at + 1],
                    p.corners[at + 2],
                    p.corners[at + 3],
                )
                least = min(least, _to_edge(x1, y1, x2, y2, x, y, is_earth))
        return least
    if kind <= ELLIPSOID_CIRCLE:
        return _to_circle(x, y, n[first], n[first + 1], n[first + 2], kind)
    apart = beside_lines(p, literal, x, y, kind)
    return float(abs((math.sqrt(apart) if kind == PLANE_CORRIDOR else apart) - n[first]))


@jit
def distances_to_words(table: I64, words: I64, point: F64, is_earth: bool, distances: F64) -> None:
    """Write how far a point is from matching each conjunction: 0 if it matches.

    That is the greatest distance from the border of a shape that it fails.
    """
    p = pointers(opened(table, Programs))
    at = pointer(point, 0)
    for i in range(len(words)):
        distances[i] = 0.0
        for number in range(p.words[words[i]], p.words[words[i] + 1]):
            if not verify_literal(p, number, at, 0) & 1:
                axes = p.literals[LITERAL * number + 5]
                x, y = at[axes >> 16], at[axes & 0xFFFF]
                apart = _to_literal(p, LITERAL * number, x, y, is_earth)
                distances[i] = max(distances[i], apart)
