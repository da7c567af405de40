"""Containment of shapes, decided exactly for polygons, and for circles on a plane.

    polygon in polygon     exact; within several polygons, if a single one contains it
    circle in circle       exact on a plane; on the earth by distance, with a margin of one metre
    polygon in circle      exact on a plane
    circle in polygon      exact on a plane
    corridors              along the same lines, by their widths

Any other pair counts as not contained, and so do polygons that touch and have too many edges.

If edges of two polygons cross, neither contains the other. If they do not meet, one corner of each
ring decides. If they touch, edges are split where a corner of the other polygon lies on them, and
each piece is inside, outside or on the border; this uses integers, so it is exact.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.kernels.jit import jit
from rangecast.model.shapes.exact.predicates import locate, orientation, side_of_circle
from rangecast.model.shapes.exact.sphere import ellipsoid_distance, sphere_distance
from rangecast.model.shapes.geometry import Circle, Corridor, Polygons
from rangecast.model.shapes.verification.programs import (
    CLOSED,
    ELLIPSOID_CIRCLE,
    PLANE_CIRCLE,
    PLANE_POLYGON,
    SPHERE_CIRCLE,
    STRAIGHT_POLYGON,
)
from rangecast.model.shapes.words import ShapeLiteral

_MAX_PAIRS, _MAX_TOUCHING = 1 << 28, 1 << 18
"""Pairs of edges that are compared, at all and in whole numbers."""
_MARGIN = 1.0
"""Metres that distances on the earth are off by, at most, with much to spare."""
_APART, _TOUCHING, _CROSSING = 0, 1, 2
Rings = tuple[F64, ...]
Point = tuple[int, int]
Edge = tuple[Point, Point]


def contains(outer: ShapeLiteral, inner: ShapeLiteral) -> bool:
    """Return whether one literal contains another; `False` if unknown."""
    if outer.text == inner.text:
        return True
    if outer.negated != inner.negated:
        return False
    if outer.negated:  # what lies outside of one shape lies outside of each that it contains
        outer, inner = inner, outer
    if outer.border not in (CLOSED, inner.border):
        return False
    a, b = outer.shape, inner.shape
    if isinstance(a, Corridor) and isinstance(b, Corridor):
        return a.along.text == b.along.text and b.width <= a.width
    kinds = {outer.kind, inner.kind}
    if isinstance(a, Circle) and isinstance(b, Circle):
        return len(kinds) == 1 and _circle_in_circle(a, b, outer.kind)
    if isinstance(a, Polygons) and isinstance(b, Polygons):
        if kinds == {PLANE_POLYGON}:
            return _polygons_in(a, b)
        turned = _with_shifted_copies(b) if kinds == {STRAIGHT_POLYGON} else []
        return any(_polygons_in(a, polygon) for polygon in turned)
    if isinstance(a, Circle) and isinstance(b, Polygons) and outer.kind == PLANE_CIRCLE:
        corners = np.concatenate([rings[0] for rings in b.polygons]).tolist()
        return all(side_of_circle(x, y, a.x, a.y, a.radius) <= 0 for x, y in corners)
    if isinstance(a, Polygons) and isinstance(b, Circle) and inner.kind == PLANE_CIRCLE:
        return any(_circle_in_polygon(rings, b) for rings in a.polygons)
    return False


def _with_shifted_copies(shape: Polygons) -> list[Polygons]:
    """Return polygons on the earth, plus copies shifted by 360 degrees where that is lossless."""
    made = [shape]
    for turn in (360.0, -360.0):
        rings = [ring for polygon in shape.polygons for ring in polygon]
        if all((ring[:, 0] + turn - turn == ring[:, 0]).all() for ring in rings):
            shift = np.array([turn, 0.0])
            made.append(
                Polygons(
                    tuple(tuple(ring + shift for ring in rings_of) for rings_of in shape.polygons)
                )
            )
    return made


def _circle_in_circle(a: Circle, b: Circle, kind: int) -> bool:
    if b.radius > a.radius:
        return False
    if (a.x, a.y) == (b.x, b.y):
        return True
    if kind == PLANE_CIRCLE:
        apart = (Fraction(a.x) - Fraction(b.x)) ** 2 + (Fraction(a.y) - Fraction(b.y)) ** 2
        return apart <= (Fraction(a.radius) - Fraction(b.radius)) ** 2
    measure = {SPHERE_CIRCLE: sphere_distance, ELLIPSOID_CIRCLE: ellipsoid_distance}[kind]
    return bool(measure(a.x, a.y, b.x, b.y) + b.radius + _MARGIN <= a.radius)


def _circle_in_polygon(rings: Rings, circle: Circle) -> bool:
    """Return whether the centre is inside and no edge is closer than the radius."""
    outline = _Outline.of(rings)
    if len(outline.edges) > _MAX_TOUCHING or outline.where(circle.x, circle.y) != 1:
        return False
    x, y, limit = Fraction(circle.x), Fraction(circle.y), Fraction(circle.radius) ** 2
    for ring in rings:
        for (ax, ay), (bx, by) in pairwise(ring.tolist()):
            ux, uy = Fraction(bx) - Fraction(ax), Fraction(by) - Fraction(ay)
            px, py = x - Fraction(ax), y - Fraction(ay)
            along, length = px * ux + py * uy, ux * ux + uy * uy
            along = min(max(along, Fraction(0)), length)
            # The foot is a + along / length * u.
            dx, dy = px * length - along * ux, py * length - along * uy
            if dx * dx + dy * dy < limit * length * length:
                return False
    return True


class _Outline(NamedTuple):
    """Concatenated rings of a polygon."""

    xs: F64
    ys: F64
    edges: I64

    @classmethod
    def of(cls, rings: Rings) -> _Outline:
        corners = np.concatenate(rings)
        ends = np.cumsum([len(ring) for ring in rings]) - 1
        xs, ys = np.ascontiguousarray(corners[:, 0]), np.ascontiguousarray(corners[:, 1])
        return cls(xs, ys, np.setdiff1d(np.arange(len(corners)), ends))

    def where(self, x: float, y: float) -> int:
        """Return 1 inside, 0 outside, 2 or more on the border."""
        return int(locate(self.xs, self.ys, self.edges, 0, len(self.edges), x, y))


def _polygons_in(a: Polygons, b: Polygons) -> bool:
    return all(any(_polygon_in(outer, inner) for outer in a.polygons) for inner in b.polygons)


def _polygon_in(a: Rings, b: Rings) -> bool:
    """Return whether polygon a contains polygon b."""
    low, high = b[0].min(axis=0), b[0].max(axis=0)
    if not ((a[0].min(axis=0) <= low) & (high <= a[0].max(axis=0))).all():
        return False
    outer, inner = _Outline.of(a), _Outline.of(b)
    pairs = len(outer.edges) * len(inner.edges)
    if pairs > _MAX_PAIRS:
        return False
    met = _meet(*outer, *inner)
    if met == _CROSSING:
        return False
    if met == _TOUCHING:
        return pairs <= _MAX_TOUCHING and _touching_in(a, b)
    inside = all(outer.where(*ring[0].tolist()) == 1 for ring in b)
    return inside and all(inner.where(*ring[0].tolist()) == 0 for ring in a)


@jit
def _meet(ax: F64, ay: F64, a: I64, bx: F64, by: F64, b: I64) -> int:
    """Return whether edges of two polygons cross, touch or neither."""
    contact = _APART
    for i in a:
        x1, y1, x2, y2 = ax[i], ay[i], ax[i + 1], ay[i + 1]
        for j in b:
            x3, y3, x4, y4 = bx[j], by[j], bx[j + 1], by[j + 1]
            if max(x3, x4) < min(x1, x2) or min(x3, x4) > max(x1, x2):
                continue
            if max(y3, y4) < min(y1, y2) or min(y3, y4) > max(y1, y2):
                continue
            first = orientation(x1, y1, x2, y2, x3, y3) * orientation(x1, y1, x2, y2, x4, y4)
            second = orientation(x3, y3, x4, y4, x1, y1) * orientation(x3, y3, x4, y4, x2, y2)
            if first < 0 and second < 0:
                return _CROSSING
            if first <= 0 and second <= 0:
                contact = _TOUCHING
    return contact


def _touching_in(a: Rings, b: Rings) -> bool:
    """Return whether polygon a contains b, given that their edges touch but do not cross."""
    values = np.unique(np.concatenate([*a, *b]))
    unit = 2 * max(Fraction(value).denominator for value in values.tolist())
    outer, inner = _whole_edges(a, unit), _whole_edges(b, unit)
    for middle, edge in _pieces(inner, outer):
        side = _place(outer, middle)
        if side == 0:
            return False
        # Along a shared border, both have their inside on the left.
        if side == 2 and any(_on(other, middle) and not _same_way(edge, other) for other in outer):
            return False
    return all(_place(inner, middle) != 1 for middle, _ in _pieces(outer, inner))


def _whole_edges(rings: Rings, unit: int) -> list[Edge]:
    """Return edges scaled to even integers, with the inside on their left."""
    edges: list[Edge] = []
    for number, ring in enumerate(rings):
        corners = [(int(Fraction(x) * unit), int(Fraction(y) * unit)) for x, y in ring.tolist()]
        area = sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in pairwise(corners))
        if (area > 0) == (number > 0):
            corners.reverse()
        edges += [edge for edge in pairwise(corners) if edge[0] != edge[1]]
    return edges


def _pieces(edges: list[Edge], others: list[Edge]) -> list[tuple[Point, Edge]]:
    """Split edges at the corners of others; return the midpoint and edge of each piece."""
    corners = {corner for corner, _ in others}
    made = []
    for edge in edges:
        cuts = sorted({*edge, *(corner for corner in corners if _on(edge, corner))})
        for (x1, y1), (x2, y2) in pairwise(cuts):
            made.append((((x1 + x2) // 2, (y1 + y2) // 2), edge))
    return made


def _on(edge: Edge, point: Point) -> bool:
    (x1, y1), (x2, y2) = edge
    x, y = point
    if not (min(x1, x2) <= x <= max(x1, x2) and min(y1, y2) <= y <= max(y1, y2)):
        return False
    return (x2 - x1) * (y - y1) == (y2 - y1) * (x - x1)


def _same_way(edge: Edge, other: Edge) -> bool:
    (x1, y1), (x2, y2) = edge
    (x3, y3), (x4, y4) = other
    return (x2 - x1) * (x4 - x3) + (y2 - y1) * (y4 - y3) > 0


def _place(edges: list[Edge], point: Point) -> int:
    """Return 1 inside, 0 outside, 2 on the border."""
    x, y = point
    parity = 0
    for edge in edges:
        (x1, y1), (x2, y2) = edge
        if min(y1, y2) > y or max(y1, y2) < y:
            continue
        if _on(edge, point):
            return 2
        if (y1 <= y) != (y2 <= y):
            turn = (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)
            parity ^= (turn > 0) == (y2 > y1)
    return int(parity)
