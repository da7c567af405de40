"""Covers of shapes: a few boxes for the index; boxes wholly inside need no verification.

A cell of a polygon is *full* if no edge meets it and its centre lies inside. The largest cell is
split first, as long as it is large enough for a split to pay off. Afterwards unprofitable splits
are undone: those whose boxes cost more than the area that they exclude.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.kernels.jit import jit
from rangecast.model.shapes.exact.predicates import locate, orientation
from rangecast.model.shapes.exact.sphere import BAND, bounds_of_cap
from rangecast.model.shapes.geometry import Circle, Corridor, Polygons, Shape

MAX_BOXES = 16
"""Boxes of a polygon."""
MAX_CORRIDOR_BOXES = 256
_SMALL = 64
"""Corners below which a polygon that fills this share of its bounds has one box."""
_FILLED = 0.2
_BOX = 0.04
"""Cost of a box in an index: as much as that of candidates in this share of the bounds."""


class Cell(NamedTuple):
    """Box of a cover."""

    x0: float
    y0: float
    x1: float
    y1: float
    is_full: bool = False


@jit
def _edges_meeting(xs: F64, ys: F64, edges: I64, x0: float, y0: float, x1: float, y1: float) -> I64:
    """Return the edges that may meet a closed box; never omits one that does."""
    meeting = np.empty(len(edges), np.int64)
    count = 0
    for i in range(len(edges)):
        e = edges[i]
        ax, ay, bx, by = xs[e], ys[e], xs[e + 1], ys[e + 1]
        if max(ax, bx) < x0 or min(ax, bx) > x1 or max(ay, by) < y0 or min(ay, by) > y1:
            continue
        side = orientation(ax, ay, bx, by, x0, y0)
        apart = side != 0
        apart = apart and orientation(ax, ay, bx, by, x1, y0) == side
        apart = apart and orientation(ax, ay, bx, by, x0, y1) == side
        apart = apart and orientation(ax, ay, bx, by, x1, y1) == side
        if not apart:
            meeting[count] = e
            count += 1
    return meeting[:count]


@jit
def _ring_area(xs: F64, ys: F64, first: int, last: int) -> float:
    """Return the area of a ring."""
    area = 0.0
    for i in range(first, last - 1):
        x1, y1 = xs[i] - xs[first], ys[i] - ys[first]
        x2, y2 = xs[i + 1] - xs[first], ys[i + 1] - ys[first]
        area += x1 * y2 - x2 * y1
    return abs(area) / 2


@jit
def has_one_box(
    xs: F64, ys: F64, first: int, last: int, x0: float, y0: float, x1: float, y1: float
) -> bool:
    """Return whether the bounding box of a ring is its cover: it is small and mostly filled."""
    total = (x1 - x0) * (y1 - y0)
    if not (total > 0.0 and math.isfinite(total)):
        return True
    return last - first < _SMALL and _ring_area(xs, ys, first, last) > _FILLED * total


def cover_polygons(shape: Polygons) -> list[Cell]:
    """Return the boxes that cover polygons, in the polygons' coordinates."""
    boxes_each = max(1, MAX_BOXES // len(shape.polygons))
    return [cell for rings in shape.polygons for cell in _cover_polygon(rings, boxes_each)]


def _cover_polygon(rings: tuple[F64, ...], most: int) -> list[Cell]:
    outer = rings[0]
    (x0, y0), (x1, y1) = outer.min(axis=0).tolist(), outer.max(axis=0).tolist()
    whole = Cell(x0, y0, x1, y1)
    points = np.concatenate(rings)
    xs, ys = points[:, 0].copy(), points[:, 1].copy()
    total = (x1 - x0) * (y1 - y0)
    is_small = len(rings) == 1 and has_one_box(xs, ys, 0, len(outer), *whole[:4])
    if is_small or most == 1 or not (total > 0 and math.isfinite(total)):
        return [whole]
    ends = np.cumsum([len(ring) for ring in rings])
    edges = np.setdiff1d(np.arange(len(xs)), ends - 1).astype(np.int64)
    tree = _Split(whole, edges)
    queue = [(-1.0, 0, tree)]
    count = leaves = 1
    while queue and leaves < most:
        share, _, split = heapq.heappop(queue)
        if -share < _BOX:
            break
        split.parts = []
        leaves -= 1
        for half in _halves(split.cell):
            meeting = _edges_meeting(xs, ys, split.edges, half.x0, half.y0, half.x1, half.y1)
            count += 1
            if len(meeting):
                part = _Split(half, meeting)
                heapq.heappush(queue, (share / 2, count, part))
            elif _holds_centre(xs, ys, edges, half):
                part = _Split(half._replace(is_full=True), meeting)
            else:
                continue
            split.parts.append(part)
            leaves += 1
    return tree.cheapest(1.0)[1]


class _Split:
    """Cell with its non-empty parts, if it was split."""

    def __init__(self, cell: Cell, edges: I64):
        self.cell = cell
        self.edges = edges
        self.parts: list[_Split] = []

    def cheapest(self, share: float) -> tuple[float, list[Cell]]:
        """Return the cost and boxes of the best cover of a cell with this share of the area."""
        cost, cells = _BOX + share, [self.cell]
        if self.parts:
            parts = [part.cheapest(share / 2) for part in self.parts]
            if sum(part[0] for part in parts) < cost:
                return sum(part[0] for part in parts), [cell for part in parts for cell in part[1]]
        return cost, cells


def _halves(cell: Cell) -> tuple[Cell, Cell]:
    x0, y0, x1, y1, _ = cell
    if x1 - x0 >= y1 - y0:
        middle = (x0 + x1) / 2
        return Cell(x0, y0, middle, y1), Cell(middle, y0, x1, y1)
    middle = (y0 + y1) / 2
    return Cell(x0, y0, x1, middle), Cell(x0, middle, x1, y1)


def _holds_centre(xs: F64, ys: F64, edges: I64, cell: Cell) -> bool:
    x, y = (cell.x0 + cell.x1) / 2, (cell.y0 + cell.y1) / 2
    return bool(locate(xs, ys, edges, 0, len(edges), x, y) == 1)


def cover_plane(shape: Shape) -> list[Cell]:
    """Return the boxes that cover a shape on a plane."""
    if isinstance(shape, Polygons):
        return cover_polygons(shape)
    if isinstance(shape, Circle):
        return [_around(shape.x, shape.y, shape.x, shape.y, shape.radius)]
    return [_around(*_hull(part), shape.width) for part in _corridor_pieces(shape)]


def cover_earth(shape: Shape) -> list[Cell]:
    """Return the boxes that cover a shape on the earth, in longitudes and latitudes."""
    if isinstance(shape, Polygons):
        return [part for cell in cover_polygons(shape) for part in wrapped(cell)]
    if isinstance(shape, Circle):
        return _cap(shape.x, shape.y, shape.radius)
    return [part for piece in _corridor_pieces(shape) for part in _strip(piece, shape.width)]


def _cap(longitude: float, latitude: float, distance: float) -> list[Cell]:
    west, east, south, north = bounds_of_cap(longitude, latitude, distance * (1 + BAND) + 0.01)
    return wrapped(Cell(west, south, east, north))


def _strip(corners: F64, width: float) -> list[Cell]:
    """Return the boxes around great-circle segments, which bulge towards the poles."""
    _, y0, _, y1 = _hull(corners)
    caps = [bounds_of_cap(x, y, width * (1 + BAND) + 0.01) for x, y in corners.tolist()]
    west, east = min(cap[0] for cap in caps), max(cap[1] for cap in caps)
    south, north = min(cap[2] for cap in caps), max(cap[3] for cap in caps)
    steps = np.diff(corners, axis=0)
    longest = float(np.hypot(steps[:, 0], steps[:, 1]).max())
    bulge = math.degrees(math.radians(longest) ** 2 / 8) * 1.2 + 1e-9
    if longest > 20 or abs(y0) + bulge > 85 or abs(y1) + bulge > 85:
        return [Cell(-180.0, -90.0, 180.0, 90.0)]
    return wrapped(Cell(west, max(south - bulge, -90.0), east, min(north + bulge, 90.0)))


def wrapped(cell: Cell) -> list[Cell]:
    """Split a box at the antimeridian; -180 and 180 are the same meridian."""
    x0, y0, x1, y1, is_full = cell
    if x1 - x0 >= 360:
        return [Cell(-180.0, y0, 180.0, y1, is_full)]
    parts = []
    for shift in (-360.0, 0.0, 360.0):
        west, east = max(x0 + shift, -180.0), min(x1 + shift, 180.0)
        if west <= east:
            parts.append(Cell(west, y0, east, y1, is_full))
    return parts


def _corridor_pieces(shape: Corridor) -> list[F64]:
    """Split the lines of a corridor into a bounded number of short pieces."""
    segments = sum(len(line) - 1 for line in shape.along.lines)
    step = max(1, math.ceil(segments / MAX_CORRIDOR_BOXES))
    return [
        line[first : first + step + 1]
        for line in shape.along.lines
        for first in range(0, len(line) - 1, step)
    ]


def _hull(corners: F64) -> tuple[float, float, float, float]:
    (x0, y0), (x1, y1) = corners.min(axis=0).tolist(), corners.max(axis=0).tolist()
    return x0, y0, x1, y1


def _around(x0: float, y0: float, x1: float, y1: float, distance: float) -> Cell:
    """Return a box enlarged by a distance on each side, rounded outwards."""
    slack = distance * (1 + 4e-16)
    low, high = -math.inf, math.inf
    return Cell(
        math.nextafter(x0 - slack, low),
        math.nextafter(y0 - slack, low),
        math.nextafter(x1 + slack, high),
        math.nextafter(y1 + slack, high),
    )
