"""Shapes as flat arrays, and the kernel that verifies them for a point.

A *word* is a conjunction: one or more literals on one location that must all match. A literal is a
shape that may be negated. Words are only ever added; kernels read the arrays while others are
appended.

    words      (words + 1,)      first literal of each word
    literals   (literals, 6)     kind, negated, border, first, last, and the two axes in one number
    polygons   (polygons, 8)     first cell, columns (as many as rows), first listed edge, first
                                 corner, edges; if they are geodesic: whether the north pole is
                                 inside, first vector, and stripes; otherwise 0, 0, literal
    hulls      (polygons, 8)     the grid of its cells, or its stripes
    cells      (cells,)          see `cells`; of geodesic edges, see `stripes`
    listed     (entries,)        corner at which an edge starts, counted from the polygon's first;
                                 it ends at the next one
    corners    (corners, 2)      x, y
    vectors    (vectors, 3)      corners of geodesic polygons as unit vectors
    numbers    (numbers,)        centres and radii; segments of corridors; whole short rings,
                                 aligned to a cache line: the sketch, then edges, literal, 0, 0,
                                 bounds (x0, y0, x1, y1), then x of all corners, then y of all
                                 corners; programs of arithmetic

A large polygon has a grid of cells, each with the edges that may meet it, so that a point is
compared with few of them; one with geodesic edges has stripes of longitude. Most points are decided
by the cell, or by the sketch of a short ring.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.kernels.bits import prefetch
from rangecast.kernels.bundle import Bundle
from rangecast.kernels.jit import jit
from rangecast.model.arithmetic.programs import comparison_holds
from rangecast.model.shapes.bulk import Rings
from rangecast.model.shapes.earth import holds_north_pole, unit_vectors
from rangecast.model.shapes.exact.geodesic import in_geodesic, vectors_of
from rangecast.model.shapes.exact.predicates import (
    BORDER,
    INSIDE,
    ORIENTATION_ERROR,
    OUTSIDE,
    cross_edge,
    side_of_circle,
)
from rangecast.model.shapes.exact.sphere import (
    BAND,
    ellipsoid_distance,
    segment_distance,
    squared_chord,
    unit_vector,
)
from rangecast.model.shapes.geometry import Circle, Corridor, Polygons, Shape
from rangecast.model.shapes.verification.cells import cell_at, cells_of, in_cells
from rangecast.model.shapes.verification.grids import DOUBTFUL, GRID
from rangecast.model.shapes.verification.sketches import SKETCH, in_sketch, put_sketch
from rangecast.model.shapes.verification.stripes import stripes_of
from rangecast.model.text.programs import text_holds

PLANE_POLYGON, STRAIGHT_POLYGON, GEODESIC_POLYGON = 0, 1, 2
PLANE_CIRCLE, SPHERE_CIRCLE, ELLIPSOID_CIRCLE = 3, 4, 5
PLANE_CORRIDOR, EARTH_CORRIDOR = 6, 7
PLANE_RING, _STRAIGHT_RING = 8, 9
"""Polygons of one short ring: most of them."""
ARITHMETIC = 10
"""No shape but a comparison: its numbers are a program of `rangecast.model.arithmetic`."""
TEXT = 11
"""A condition on a text: a program of `rangecast.model.text`, whose kind is TEXT or one more; its
form is in place of the border."""
CLOSED, OPEN, ONCE = 0, 1, 2
"""A point on the border of a shape: inside, outside, or inside of one of its neighbours."""
BORDERS = {"closed": CLOSED, "open": OPEN, "once": ONCE}
_SHORT = 64
"""Corners up to which a ring is stored as a whole."""


class Programs(NamedTuple):
    """Conjunctions of a space as flat arrays."""

    words: I64
    literals: Annotated[I64, 2]
    polygons: Annotated[I64, 2]
    hulls: Annotated[F64, 2]
    cells: I32
    listed: I32
    corners: Annotated[F64, 2]
    vectors: Annotated[F64, 2]
    numbers: F64


LITERAL, POLYGON = 6, 8
RING = SKETCH + 8
"""Numbers of a short ring before its corners."""
_LINE = 8
"""Numbers of a cache line."""


@jit
def in_ring(n: Any, ring: int, x: float, y: float) -> int:
    """Return whether a short ring contains a point: 1, 0, or DOUBTFUL if doubles cannot tell.

    All edges are visited without branches, so the compiler vectorizes the loop. The sign of an
    orientation is certain by the same bound as in `predicates.orientation`. A point on the level of
    a corner is not decided here, so a point on the border is always doubtful.
    """
    edges = int(n[ring + SKETCH])
    xs, ys = ring + RING, ring + RING + edges + 1
    crossed = doubts = 0
    for i in range(edges):
        x1, y1, x2, y2 = n[xs + i], n[ys + i], n[xs + i + 1], n[ys + i + 1]
        left, right = (x1 - x) * (y2 - y), (y1 - y) * (x2 - x)
        determinant = left - right
        is_sure = abs(determinant) > ORIENTATION_ERROR * (abs(left) + abs(right))
        begins_below = y1 <= y
        straddles = begins_below != (y2 <= y)
        crossed += straddles & ((determinant > 0.0) == begins_below)
        doubts += (straddles & (not is_sure)) | (y1 == y)
    return DOUBTFUL if doubts else crossed & 1


@jit
def _in_ring(n: Any, ring: int, x: float, y: float) -> int:
    """Locate a point relative to a ring, as `in_cells` does."""
    bounds = ring + SKETCH + 4
    if not (n[bounds] <= x <= n[bounds + 2] and n[bounds + 1] <= y <= n[bounds + 3]):
        return OUTSIDE
    sketched = in_sketch(n, ring, x, y)
    if sketched != DOUBTFUL:
        return (INSIDE + 4) * sketched
    edges = int(n[ring + SKETCH])
    xs, ys = ring + RING, ring + RING + edges + 1
    parity = on_border = 0
    for i in range(edges):
        crossed = cross_edge(n[xs + i], n[ys + i], n[xs + i + 1], n[ys + i + 1], x, y)
        parity ^= crossed >> 1
        on_border |= crossed & 1
    where = BORDER if on_border else INSIDE if parity else OUTSIDE
    return where + 4 * parity + 8 * edges


@jit
def _in_polygons(p: Any, literal: int, x: float, y: float, kind: int) -> int:
    best, visited = OUTSIDE, 0
    for polygon in range(p.literals[literal + 3], p.literals[literal + 4]):
        if kind == GEODESIC_POLYGON:
            side = in_geodesic(p, POLYGON * polygon, GRID * polygon, x, y)
            best |= side & 7
            visited += side >> 3
            continue
        hull = GRID * polygon
        for turn in range(1 if kind == PLANE_POLYGON else 3):
            at = x + (0.0 if turn == 0 else 360.0 if turn == 1 else -360.0)
            if not p.hulls[hull] <= at <= p.hulls[hull + 2]:
                continue
            if p.hulls[hull + 1] <= y <= p.hulls[hull + 3]:
                side = in_cells(p, POLYGON * polygon, hull, at, y)
                best |= side & 7
                visited += side >> 3
    return best + 8 * visited


@jit
def beside_lines(p: Any, literal: int, x: float, y: float, kind: int) -> float:
    """Return the squared distance to the lines on a plane, or the metres on the earth."""
    best = math.inf
    px = py = pz = 0.0
    if kind == EARTH_CORRIDOR:
        px, py, pz = unit_vector(x, y)
    first, last = p.literals[literal + 3], p.literals[literal + 4]
    width = 4 if kind == PLANE_CORRIDOR else 6
    n = p.numbers
    for i in range(first + 1, last, width):
        if kind == EARTH_CORRIDOR:
            distance = segment_distance(
                n[i], n[i + 1], n[i + 2], n[i + 3], n[i + 4], n[i + 5], px, py, pz
            )
        else:
            ax, ay, dx, dy = n[i], n[i + 1], n[i + 2] - n[i], n[i + 3] - n[i + 1]
            length = dx * dx + dy * dy
            along = 0.0
            if length > 0.0:
                along = min(max(((x - ax) * dx + (y - ay) * dy) / length, 0.0), 1.0)
            ex, ey = x - (ax + along * dx), y - (ay + along * dy)
            distance = ex * ex + ey * ey
        best = min(best, distance)
    return best


@jit
def _side(p: Any, literal: int, x: float, y: float) -> int:
    """Locate a point relative to a literal's shape, as `in_cells` does."""
    kind, first = p.literals[literal], p.literals[literal + 3]
    n = p.numbers
    if kind >= PLANE_RING:
        side = _in_ring(n, first, x, y)
        if kind == _STRAIGHT_RING:
            east, west = _in_ring(n, first, x + 360.0, y), _in_ring(n, first, x - 360.0, y)
            visited = (side >> 3) + (east >> 3) + (west >> 3)
            side = ((side | east | west) & 7) + 8 * visited
        return side
    if kind <= GEODESIC_POLYGON:
        return _in_polygons(p, literal, x, y, kind)
    if kind == PLANE_CIRCLE:
        return BORDER - side_of_circle(x, y, n[first], n[first + 1], n[first + 2])
    if kind in (SPHERE_CIRCLE, ELLIPSOID_CIRCLE):
        ux, uy, uz = unit_vector(x, y)
        dx, dy, dz = ux - n[first + 3], uy - n[first + 4], uz - n[first + 5]
        chord, radius = dx * dx + dy * dy + dz * dz, n[first + 2]
        if kind == SPHERE_CIRCLE:
            limit = n[first + 6]
            return INSIDE if chord < limit else BORDER if chord == limit else OUTSIDE
        if chord < n[first + 7]:
            return INSIDE
        if chord > n[first + 8]:
            return OUTSIDE
        distance = ellipsoid_distance(n[first], n[first + 1], x, y)
        return INSIDE if distance < radius else BORDER if distance == radius else OUTSIDE
    distance, width = beside_lines(p, literal, x, y, kind), n[first]
    limit = width * width if kind == PLANE_CORRIDOR else width
    return INSIDE if distance < limit else BORDER if distance == limit else OUTSIDE


@jit
def verify_literal(p: Any, number: int, points: Any, event: int) -> int:
    """Return whether a literal matches the point at points[event].

    The result is 1 or 0, + 2 times the number of polygon edges visited.
    """
    literal = LITERAL * number
    if p.literals[literal] >= ARITHMETIC:
        first, last = p.literals[literal + 3], p.literals[literal + 4]
        kind = p.literals[literal] - TEXT
        if kind < 0:
            return int(comparison_holds(p.numbers, first, last, points, event))
        value = points[event + (p.literals[literal + 5] >> 16)]
        answer = text_holds(p.numbers, first, kind, p.literals[literal + 2], value)
        return int(answer >= 0 and answer != p.literals[literal + 1])
    axes = p.literals[literal + 5]
    x, y = points[event + (axes >> 16)], points[event + (axes & 0xFFFF)]
    if not (math.isfinite(x) and math.isfinite(y)):
        return 0
    side, border, kind = _side(p, literal, x, y), p.literals[literal + 2], p.literals[literal]
    if border == ONCE and (kind <= GEODESIC_POLYGON or kind >= PLANE_RING):
        within = side & 4 != 0
    else:
        value = side & 3
        within = value >= INSIDE or (value == BORDER and border != OPEN)
    return int(within != (p.literals[literal + 1] == 1)) + 2 * (side >> 3)


@jit
def prefetch_literal(p: Any, number: int, points: Any, event: int) -> None:
    """Prefetch the first data that verifying a literal reads."""
    literal = LITERAL * number
    first = p.literals[literal + 3]
    if p.literals[literal] > STRAIGHT_POLYGON:
        prefetch(p.numbers, first)
        return
    axes, at, hull = p.literals[literal + 5], POLYGON * first, GRID * first
    x, y = points[event + (axes >> 16)], points[event + (axes & 0xFFFF)]
    prefetch(p.cells, cell_at(p, at, hull, x, y)[0])


@jit
def literal_holds(p: Any, number: int, points: Any, event: int) -> bool:
    """Return whether a literal matches the point at points[event]."""
    return verify_literal(p, number, points, event) & 1 == 1


@jit
def holds(p: Any, word: int, points: Any, event: int) -> bool:
    """Return whether all literals of a conjunction match the point at points[event].

    `p` has the pointers of `Programs`.
    """
    for number in range(p.words[word], p.words[word + 1]):
        if not literal_holds(p, number, points, event):
            return False
    return True


class Literal(NamedTuple):
    """Literal of a conjunction: a shape (excluded if negated), a comparison or a text condition."""

    kind: int
    shape: Shape | F64
    """A program, if it is a comparison or a condition on a text."""
    negated: bool
    border: int
    """The form, if it is a condition on a text."""
    x_axis: int
    y_axis: int


class ProgramStore:
    """Growable arrays of `Programs`."""

    def __init__(self) -> None:
        self._size = dict.fromkeys(Programs._fields, 0)
        self._arrays: dict[str, Any] = {
            "words": np.zeros(1, np.int64),
            "literals": np.zeros((0, LITERAL), np.int64),
            "polygons": np.zeros((0, POLYGON), np.int64),
            "hulls": np.zeros((0, GRID)),
            "cells": np.zeros(0, np.int32),
            "listed": np.zeros(0, np.int32),
            "corners": np.zeros((0, 2)),
            "vectors": np.zeros((0, 3)),
            "numbers": np.zeros(0),
        }
        self._size |= {"words": 1}
        self._bundle: Bundle[Programs] | None = None

    def __len__(self) -> int:
        return self._size["words"] - 1

    @property
    def bundle(self) -> Bundle[Programs]:
        """Return all conjunctions added so far, for kernels."""
        if self._bundle is None:
            parts = {name: self._arrays[name][: self._size[name]] for name in Programs._fields}
            self._bundle = Bundle(Programs(**{name: part.view() for name, part in parts.items()}))
        return self._bundle

    def add(self, literals: tuple[Literal, ...]) -> None:
        """Append a conjunction."""
        for literal in literals:
            kind, first, last = self._add_shape(literal)
            axes = literal.x_axis << 16 | literal.y_axis
            row = kind, literal.negated, literal.border, first, last, axes
            self._append("literals", [row])
        self._append("words", [self._size["literals"]])
        self._bundle = None

    def add_rings(self, rings: Rings, which: I64, border: int, x_axis: int, y_axis: int) -> None:
        """Append a conjunction for each of some short rings on a plane."""
        if not len(which):
            return
        self._align()
        literal, start = self._size["literals"], self._size["numbers"]
        sizes = RING + 2 * (rings.first[which + 1] - rings.first[which])
        ends = start + np.cumsum(-(-sizes // _LINE) * _LINE)
        starts = np.append(start, ends[:-1])
        rows = np.zeros((len(which), LITERAL), np.int64)
        rows[:, 0], rows[:, 2], rows[:, 5] = PLANE_RING, border, x_axis << 16 | y_axis
        rows[:, 3], rows[:, 4] = starts, ends
        numbers = self._room("numbers", int(ends[-1] - start))
        _store_rings(*rings, which, literal, starts - start, numbers)
        self._append("literals", rows)
        self._append("words", literal + 1 + np.arange(len(which)))
        self._bundle = None

    def _align(self) -> None:
        """Align the next numbers to a cache line."""
        self._room("numbers", -self._size["numbers"] % _LINE)

    def _append(self, name: str, rows: Any) -> None:
        array = self._arrays[name]
        values = np.asarray(rows, array.dtype).reshape(-1, *array.shape[1:])
        self._room(name, len(values))[:] = values

    def _room(self, name: str, count: int) -> Any:
        """Reserve the next `count` items of an array; return them for writing."""
        array, used = self._arrays[name], self._size[name]
        if used + count > len(array):
            larger = _zeros((max(used + count, 2 * used, 64), *array.shape[1:]), array.dtype)
            larger[:used] = array[:used]
            self._arrays[name] = array = larger
        self._size[name] = used + count
        return array[used : used + count]

    def _add_shape(self, literal: Literal) -> tuple[int, int, int]:
        """Append the arrays of a shape; return its kind, start and end."""
        shape, kind = literal.shape, literal.kind
        first = self._size["numbers"]
        if isinstance(shape, np.ndarray):
            self._append("numbers", shape)
        elif isinstance(shape, Circle):
            self._append("numbers", _circle_numbers(shape))
        elif isinstance(shape, Corridor):
            self._append("numbers", _corridor_numbers(shape, kind))
        elif _is_short(shape) and kind != GEODESIC_POLYGON:
            ring = shape.polygons[0][0]
            self._align()
            first = self._size["numbers"]
            numbers, xs, ys = self._room("numbers", RING + 2 * len(ring)), *ring.T.copy()
            _store_ring(xs, ys, 0, len(ring), self._size["literals"], 0, numbers)
            is_plane = kind == PLANE_POLYGON or _is_one_turn(shape)
            kind = PLANE_RING if is_plane else _STRAIGHT_RING
        else:
            start = self._size["polygons"]
            if kind == STRAIGHT_POLYGON and _is_one_turn(shape):
                kind = PLANE_POLYGON
            for rings in shape.polygons:
                self._add_polygon(rings, kind)
            return kind, start, self._size["polygons"]
        return kind, first, self._size["numbers"]

    def _add_polygon(self, rings: tuple[F64, ...], kind: int) -> None:
        corners = rings[0] if len(rings) == 1 else np.concatenate(rings)
        ends = np.cumsum([len(ring) for ring in rings])
        edges = np.setdiff1d(np.arange(len(corners)), ends - 1)
        starts = [self._size[name] for name in ("cells", "listed", "corners", "vectors")]
        pole = side = 0
        last = self._size["literals"]
        if kind == GEODESIC_POLYGON:
            pole = int(holds_north_pole(rings))
            self._append("vectors", vectors_of(corners))
            grid, cells, listed = stripes_of(corners, edges)
            last = len(cells) - 1
        else:
            grid, side, cells, listed = cells_of(corners, edges)
        self._append("cells", cells)
        first_cell, entries, first_corner, vectors = starts
        row = first_cell, side, entries, first_corner, len(edges), pole, vectors, last
        self._append("polygons", [row])
        self._append("hulls", grid)
        self._append("listed", listed)
        self._append("corners", corners)


def _zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a zeroed array that starts at a cache line."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.zeros(size + 64, np.uint8)
    skip = -room.ctypes.data % 64
    return room[skip : skip + size].view(dtype).reshape(shape)


@jit
def _store_ring(
    xs: F64, ys: F64, begin: int, end: int, literal: int, at: int, numbers: F64
) -> None:
    """Write a short ring in the form that `in_ring` reads."""
    x0 = x1 = xs[begin]
    y0 = y1 = ys[begin]
    for c in range(begin, end):
        x0, x1, y0, y1 = min(x0, xs[c]), max(x1, xs[c]), min(y0, ys[c]), max(y1, ys[c])
        numbers[at + RING + c - begin] = xs[c]
        numbers[at + RING + end - begin + c - begin] = ys[c]
    put_sketch(numbers, at, xs, ys, begin, end, (x0, y0, x1, y1))
    head = at + SKETCH
    numbers[head], numbers[head + 1] = end - begin - 1, literal
    numbers[head + 4], numbers[head + 5] = x0, y0
    numbers[head + 6], numbers[head + 7] = x1, y1


@jit
def _store_rings(
    xs: F64, ys: F64, first: I64, which: I64, literal: int, starts: I64, numbers: F64
) -> None:
    """Write several short rings, as `_store_ring` does."""
    for i in range(len(which)):
        begin, end = first[which[i]], first[which[i] + 1]
        _store_ring(xs, ys, begin, end, literal + i, starts[i], numbers)


def are_short(rings: Rings) -> Bool:
    """Return a mask of the rings that are stored whole, without cells."""
    short: Bool = np.diff(rings.first) <= _SHORT
    return short


def _is_one_turn(shape: Polygons) -> bool:
    """Return whether polygons lie within one turn of longitudes, so that they are on a plane."""
    outer = [rings[0][:, 0] for rings in shape.polygons]
    return all(xs.min() > -180.0 and xs.max() < 180.0 for xs in outer)


def _is_short(shape: Polygons) -> bool:
    rings = shape.polygons[0]
    return len(shape.polygons) == len(rings) == 1 and len(rings[0]) <= _SHORT


def _circle_numbers(circle: Circle) -> list[float]:
    vector = unit_vector(circle.x, min(max(circle.y, -90.0), 90.0))
    inner, outer = circle.radius * (1 - BAND), circle.radius * (1 + BAND)
    chords = squared_chord(circle.radius), squared_chord(inner), squared_chord(outer)
    return [circle.x, circle.y, circle.radius, *vector, *chords]


def _corridor_numbers(corridor: Corridor, kind: int) -> F64:
    parts = [np.array([corridor.width])]
    for line in corridor.along.lines:
        ends = line if kind == PLANE_CORRIDOR else unit_vectors(line)
        parts.append(np.column_stack([ends[:-1], ends[1:]]).reshape(-1))
    return np.concatenate(parts)
