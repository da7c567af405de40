"""Paths between two events of an object, and whether a filter matches anywhere on one.

On a path, ordered values are interpolated linearly; longitudes go the short way round. Other values
are those of the earlier event. A path is a segment, parametrised by t from 0 to 1. Each condition
holds on some intervals of t; a filter is met if the intervals of all its conditions intersect.

A corridor is a union of capsules (all positions within a distance of a segment), and a circle is a
capsule around a point. A path meets a capsule in one interval. It meets a polygon between the
points where it cuts an edge, by signs that are exact on a plane.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.kernels.jit import jit
from rangecast.model.attributes.base import MISSING
from rangecast.model.shapes.earth import unit_vectors
from rangecast.model.shapes.exact.predicates import orientation
from rangecast.model.shapes.exact.sphere import (
    ellipsoid_distance,
    segment_distance,
    unit_vector,
)
from rangecast.model.shapes.geometry import Circle, Corridor, Polygons
from rangecast.model.shapes.verification.places import Places, word_holds
from rangecast.model.shapes.verification.programs import (
    CLOSED,
    ELLIPSOID_CIRCLE,
    GEODESIC_POLYGON,
    PLANE_CIRCLE,
    PLANE_CORRIDOR,
    PLANE_POLYGON,
)
from rangecast.model.shapes.words import ShapeLiteral
from rangecast.track.geometry.forms import Alternative, ShapeConjunction, Term

Intervals = list[tuple[float, float]]
_WHOLE: Intervals = [(0.0, 1.0)]
_PLANE, _EARTH, _ELLIPSOID = 0, 1, 2
"""Grounds that distances are measured on."""
_PLANES = (PLANE_POLYGON, PLANE_CIRCLE, PLANE_CORRIDOR)
_GOLDEN = (math.sqrt(5) - 1) / 2
_STEPS = 80
_PIECES = 8
"""Pieces of a path in each of which it cuts a great circle at most once."""


@jit
def _distance_of(kind: int, n: F64, x: float, y: float) -> float:
    """Return the distance from a plane segment, a great-circle segment, or a point."""
    if kind == _ELLIPSOID:
        return float(ellipsoid_distance(n[0], n[1], x, y))
    if kind == _EARTH:
        px, py, pz = unit_vector(x, y)
        return float(segment_distance(n[0], n[1], n[2], n[3], n[4], n[5], px, py, pz))
    dx, dy = n[2] - n[0], n[3] - n[1]
    length = dx * dx + dy * dy
    along = 0.0
    if length > 0.0:
        along = min(max(((x - n[0]) * dx + (y - n[1]) * dy) / length, 0.0), 1.0)
    return math.hypot(x - (n[0] + along * dx), y - (n[1] + along * dy))


@jit
def _at(n: F64, kind: int, path: F64, t: float) -> float:
    return _distance_of(
        kind, n, path[0] + t * (path[2] - path[0]), path[1] + t * (path[3] - path[1])
    )


@jit
def _end(n: F64, kind: int, path: F64, width: float, inside: float, outside: float) -> float:
    """Return t where a path leaves a capsule, between a t inside and a t outside."""
    for _ in range(_STEPS):
        middle = (inside + outside) / 2
        if _at(n, kind, path, middle) <= width:
            inside = middle
        else:
            outside = middle
    return inside


@jit
def _in_capsule(n: F64, kind: int, path: F64, width: float) -> tuple[float, float]:
    """Return the interval of a path, (x0, y0, x1, y1), inside a capsule; (1, 0) if empty."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):  # the distance along a path falls, then rises
        first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if _at(n, kind, path, first) <= _at(n, kind, path, second):
            high = second
        else:
            low = first
    best = (low + high) / 2
    for end in (0.0, 1.0):
        if _at(n, kind, path, end) <= _at(n, kind, path, best):
            best = end
    if _at(n, kind, path, best) > width:
        return 1.0, 0.0
    begin, end = 0.0, 1.0
    if _at(n, kind, path, 0.0) > width:
        begin = _end(n, kind, path, width, best, 0.0)
    if _at(n, kind, path, 1.0) > width:
        end = _end(n, kind, path, width, best, 1.0)
    return begin, end


@jit
def _cut_edges(ring: F64, path: F64, cuts: F64) -> int:
    """Write the values of t where a path meets the edges of a ring; return their number."""
    px, py, qx, qy = path[0], path[1], path[2], path[3]
    count = 0
    for i in range(len(ring) - 1):
        ax, ay, bx, by = ring[i, 0], ring[i, 1], ring[i + 1, 0], ring[i + 1, 1]
        if max(ax, bx) < min(px, qx) or min(ax, bx) > max(px, qx):
            continue
        if max(ay, by) < min(py, qy) or min(ay, by) > max(py, qy):
            continue
        a, b = orientation(px, py, qx, qy, ax, ay), orientation(px, py, qx, qy, bx, by)
        p, q = orientation(ax, ay, bx, by, px, py), orientation(ax, ay, bx, by, qx, qy)
        if a * b > 0 or p * q > 0:
            continue
        if a == 0 and b == 0:  # along the edge
            length = (qx - px) * (qx - px) + (qy - py) * (qy - py)
            for x, y in ((ax, ay), (bx, by)):
                t = ((x - px) * (qx - px) + (y - py) * (qy - py)) / length
                cuts[count] = min(max(t, 0.0), 1.0)
                count += 1
            continue
        dx, dy = bx - ax, by - ay
        across = (qx - px) * dy - (qy - py) * dx
        t = 0.5 if across == 0.0 else ((ax - px) * dy - (ay - py) * dx) / across
        cuts[count] = min(max(t, 0.0), 1.0)
        count += 1
    return count


def _cut_great_circles(ring: F64, path: F64) -> list[float]:
    """Return the values of t where a path meets great-circle edges, to double precision."""
    ends = unit_vectors(ring)
    a, b = ends[:-1], ends[1:]
    normal = np.cross(a, b)

    def side(t: F64) -> tuple[F64, F64]:
        positions = path[:2] + t[:, None] * (path[2:] - path[:2])
        vectors = unit_vectors(positions)
        return (normal * vectors).sum(axis=1), vectors

    low, high = np.zeros(len(a)), np.ones(len(a))
    first, _ = side(low)
    last, _ = side(high)
    crossed = np.flatnonzero(first * last <= 0)
    normal, a, b = normal[crossed], a[crossed], b[crossed]
    low, high, first = low[crossed], high[crossed], first[crossed]
    vectors = a
    for _ in range(60):
        middle = (low + high) / 2
        value, vectors = side(middle)
        before = value * first > 0
        low, high = np.where(before, middle, low), np.where(before, high, middle)
    inner = (np.cross(normal, a) * vectors).sum(axis=1) >= -1e-12
    inner &= (np.cross(normal, b) * vectors).sum(axis=1) <= 1e-12
    middles: list[float] = ((low + high) / 2)[inner].tolist()
    return middles


def meets(places: Places | None, form: list[Alternative], start: F64, end: F64) -> bool:
    """Return whether a filter that matches neither end of a path matches in between.

    Alternatives with arithmetic never match in between.
    """
    return any(_meets_one(places, alternative, start, end) for alternative in form)


def _meets_one(places: Places | None, alternative: Alternative, start: F64, end: F64) -> bool:
    if alternative.arithmetic:
        return False
    for axis, lo, hi in alternative.fixed:
        if not lo <= start[axis] <= hi:
            return False
    if not alternative.moving and len(alternative.shapes) == 1 and _is_plain(alternative.shapes[0]):
        shape = alternative.shapes[0]
        path = np.array([start[shape.x], start[shape.y], end[shape.x], end[shape.y]])
        return bool(np.isfinite(path).all()) and bool(_polygon_cuts(shape.literals[0], path))
    turning = {shape.x for shape in alternative.shapes if shape.earth}
    held = _WHOLE
    for term in alternative.moving:
        held = _common(held, _in_range(term, start, end, term[0] in turning))
        if not held:
            return False
    for shape in alternative.shapes:
        assert places is not None
        held = _common(held, _in_word(places, shape, start, end))
        if not held:
            return False
    return True


def _is_plain(shape: ShapeConjunction) -> bool:
    """Return whether a path between outside points meets a shape exactly if it cuts an edge."""
    literal = shape.literals[0]
    is_one = len(shape.literals) == 1 and isinstance(literal.shape, Polygons)
    is_straight = literal.kind != GEODESIC_POLYGON
    return is_one and is_straight and not literal.negated and literal.border == CLOSED


def _in_range(term: Term, start: F64, end: F64, turns: bool) -> Intervals:
    axis, lo, hi = term
    first, last = float(start[axis]), float(end[axis])
    if not (math.isfinite(first) and math.isfinite(last)):
        return _WHOLE if lo == MISSING and first == last else []
    intervals: Intervals = []
    for turn in (-360.0, 0.0, 360.0) if turns else (0.0,):
        low, high = lo + turn, hi + turn
        if first == last:
            if low <= first <= high:
                return _WHOLE
            continue
        if max(first, last) < low or min(first, last) > high:
            continue
        ends = [(low - first) / (last - first), (high - first) / (last - first)]
        intervals.append((max(min(ends), 0.0), min(max(ends), 1.0)))
    return intervals


def _in_word(places: Places, shape: ShapeConjunction, start: F64, end: F64) -> Intervals:
    """Return the intervals of a path on which all literals of a word hold."""
    path = np.array([start[shape.x], start[shape.y], end[shape.x], end[shape.y]])
    if not np.isfinite(path).all():
        return []
    is_one = len(shape.literals) == 1 and not shape.literals[0].negated
    if is_one and not isinstance(shape.literals[0].shape, Polygons):
        return _capsules(shape.literals[0], path)
    cuts: list[float] = []
    for literal in shape.literals:
        if isinstance(literal.shape, Polygons):
            cuts += _polygon_cuts(literal, path)
        else:
            cuts += [t for both in _capsules(literal, path) for t in both]
    bounds = np.unique(np.array([0.0, *cuts, 1.0]))
    middles = (bounds[:-1] + bounds[1:]) / 2
    ts = np.concatenate([middles, np.unique(np.array(cuts))])
    points = np.repeat(start[None], len(ts), axis=0)
    points[:, [shape.x, shape.y]] = path[:2] + ts[:, None] * (path[2:] - path[:2])
    if shape.earth:
        points[:, shape.x] -= 360.0 * np.round(points[:, shape.x] / 360.0)
    held = word_holds(places, shape.axis, shape.word, points)
    if is_one and shape.literals[0].border == CLOSED:
        held[len(middles) :] = True  # on the border
    between = zip(pairwise(bounds.tolist()), held, strict=False)
    intervals = [both for both, holds in between if holds]
    return intervals + [(t, t) for t in ts[len(middles) :][held[len(middles) :]].tolist()]


def _polygon_cuts(literal: ShapeLiteral, path: F64) -> list[float]:
    assert isinstance(literal.shape, Polygons)
    cuts_found: list[float] = []
    if path[0] == path[2] and path[1] == path[3]:
        return cuts_found
    for ring in (ring for rings in literal.shape.polygons for ring in rings):
        if literal.kind == GEODESIC_POLYGON:
            # A path may cut one edge twice: a great circle bulges.
            for piece in range(_PIECES):
                ends = [path[:2] + (piece + t) / _PIECES * (path[2:] - path[:2]) for t in (0, 1)]
                cuts = _cut_great_circles(ring, np.concatenate(ends))
                cuts_found += [(piece + t) / _PIECES for t in cuts]
            continue
        room = np.empty(2 * len(ring))
        for turn in (0.0,) if literal.kind in _PLANES else (-360.0, 0.0, 360.0):
            count = _cut_edges(ring, path + np.array([turn, 0.0, turn, 0.0]), room)
            cuts_found += room[:count].tolist()
    return cuts_found


def _capsules(literal: ShapeLiteral, path: F64) -> Intervals:
    """Return the intervals of a path within a circle or a corridor."""
    shape, earth = literal.shape, literal.kind not in _PLANES
    intervals: Intervals = []
    for kind, numbers, width in _capsules_of(shape, earth, literal.kind):
        begin, end = _in_capsule(numbers, kind, path, width)
        if begin <= end:
            intervals.append((begin, end))
    return intervals


def _capsules_of(shape: object, earth: bool, kind: int) -> list[tuple[int, F64, float]]:
    if isinstance(shape, Circle):
        centre = np.array([[shape.x, shape.y]])
        if kind == ELLIPSOID_CIRCLE:
            return [(_ELLIPSOID, np.array([shape.x, shape.y]), shape.radius)]
        ends = unit_vectors(centre) if earth else centre
        return [(_EARTH if earth else _PLANE, np.concatenate([ends[0], ends[0]]), shape.radius)]
    assert isinstance(shape, Corridor)
    made = []
    for line in shape.along.lines:
        ends = unit_vectors(line) if earth else line
        for pair in np.column_stack([ends[:-1], ends[1:]]):
            made.append((_EARTH if earth else _PLANE, np.ascontiguousarray(pair), shape.width))
    return made


def _common(first: Intervals, second: Intervals) -> Intervals:
    both = [(max(a, c), min(b, d)) for a, b in first for c, d in second]
    return [(begin, end) for begin, end in both if begin <= end]
