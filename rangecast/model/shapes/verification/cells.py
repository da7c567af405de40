"""Cell grid of a large polygon: a point is compared only with the edges that meet its cell.

A cell that no edge meets lies wholly inside or outside. Any other cell has a list of the edges that
may meet it, and the parity of a path from its lower right corner: up the right side to the level of
the point, then left to the point. The result is exact, as parity itself is. Let P(x, y) be the
parity of the edges strictly to the right of a point on its level (`cross_edge`), which is that of a
point infinitesimally to the right and, by much less, above. The path to the left meets only listed
edges. The path up meets an edge that has one end beyond the right side and starts below; for such
an edge, the total change on both paths is whether its end beyond lies above the level.
So, with one bit per cell for the constant part,

    P(x, y) = bit + sum over listed edges of (crosses the ray to the right)
                                           + (one end is beyond the right side, above the level)

    cells    (columns * rows + 1,)   4 * first edge in the list, + OUTSIDE, INSIDE, or LISTED + bit
    listed   (edges,)                corner at which an edge starts
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8
from rangecast.kernels.jit import jit
from rangecast.model.shapes.exact.predicates import (
    BORDER,
    INSIDE,
    ORIENTATION_ERROR,
    OUTSIDE,
    cross_edge,
)
from rangecast.model.shapes.verification.grids import (
    COLUMNS_PER_UNIT,
    DOUBTFUL,
    GRID,
    ROWS_PER_UNIT,
    X0,
    X1,
    Y0,
    Y1,
    columns_met,
    lower_side,
    place_at,
    put_grid,
    right_side,
    rows_met,
    slope_of,
    step,
)

_LISTED = 2
_SIDE, _MIN_SIDE, _MAX_SIDE = 0.64, 16, 256
"""Columns and rows for each square root of edges; their least and their greatest number."""
_MAX_ENTRIES = 12
"""Entries of lists per edge, on average, at most."""


class CellGrid(NamedTuple):
    """Cell grid of one polygon."""

    grid: F64
    side: int
    """Columns, and rows."""
    cells: I32
    listed: I32


@jit
def _is_beyond(x1: float, y1: float, x2: float, y2: float, right: float, y: float) -> bool:
    """Return whether one end of an edge is beyond the right side of a cell, and above a level."""
    if (x1 <= right) == (x2 <= right):
        return False
    return (y2 if x1 <= right else y1) > y


@jit
def cell_at(p: Any, polygon: int, hull: int, x: float, y: float) -> tuple[int, int]:
    """Return the cell of a point, and its column."""
    side = p.polygons[polygon + 1]
    column = step(x, p.hulls[hull + X0], p.hulls[hull + COLUMNS_PER_UNIT], side)
    row = step(y, p.hulls[hull + Y0], p.hulls[hull + ROWS_PER_UNIT], side)
    return p.polygons[polygon] + row * side + column, column


@jit
def in_cells(p: Any, polygon: int, hull: int, x: float, y: float) -> int:
    """Locate a point within the bounds of a polygon; also return 8 times the edges visited.

    polygon, hull   start of the polygon's and of its grid's numbers

    The result is OUTSIDE, BORDER or INSIDE, + 4 if parity says inside.
    """
    at, column = cell_at(p, polygon, hull, x, y)
    cell = p.cells[at]
    state = cell & 3
    if state < _LISTED:
        return int((INSIDE + 4) * state)
    right = right_side(p.hulls, hull, column)
    parity, on_border = state & 1, 0
    entries, corners = p.polygons[polygon + 2], p.polygons[polygon + 3]
    begin, end = entries + (cell >> 2), entries + (p.cells[at + 1] >> 2)
    for i in range(begin, end):
        a = 2 * (corners + p.listed[i])
        x1, y1, x2, y2 = p.corners[a], p.corners[a + 1], p.corners[a + 2], p.corners[a + 3]
        crossed = cross_edge(x1, y1, x2, y2, x, y)
        parity ^= (crossed >> 1) ^ int(_is_beyond(x1, y1, x2, y2, right, y))
        on_border |= crossed & 1
    where = BORDER if on_border else INSIDE if parity else OUTSIDE
    return int(where + 4 * parity + 8 * (end - begin))


@jit
def state_at(p: Any, polygon: int, hull: int, x: float, y: float) -> int:
    """Return whether the cell of a point lies inside of a polygon: 1, 0, or DOUBTFUL."""
    if not (p.hulls[hull + X0] <= x <= p.hulls[hull + X1]):
        return 0
    if not (p.hulls[hull + Y0] <= y <= p.hulls[hull + Y1]):
        return 0
    return int(min(p.cells[cell_at(p, polygon, hull, x, y)[0]] & 3, DOUBTFUL))


@jit
def by_listed_edges(p: Any, polygon: int, hull: int, x: float, y: float) -> int:
    """Return what `in_cells` does for a cell with edges, as far as doubles can tell.

    The result is 1, 0 or DOUBTFUL, + 4 times the edges visited.

    The loop has no branches; it decides as `in_ring` of `programs` does.
    """
    at, column = cell_at(p, polygon, hull, x, y)
    right = right_side(p.hulls, hull, column)
    entries, corners = p.polygons[polygon + 2], p.polygons[polygon + 3]
    begin, end = entries + (p.cells[at] >> 2), entries + (p.cells[at + 1] >> 2)
    crossed, doubts = int(p.cells[at] & 1), 0
    for i in range(begin, end):
        a = 2 * (corners + p.listed[i])
        x1, y1, x2, y2 = p.corners[a], p.corners[a + 1], p.corners[a + 2], p.corners[a + 3]
        above, below = (x1 - x) * (y2 - y), (y1 - y) * (x2 - x)
        determinant = above - below
        is_sure = abs(determinant) > ORIENTATION_ERROR * (abs(above) + abs(below))
        begins_below = y1 <= y
        straddles = begins_below != (y2 <= y)
        crossed += straddles & ((determinant > 0.0) == begins_below)
        is_left = x1 <= right
        crossed += (is_left != (x2 <= right)) & ((y2 if is_left else y1) > y)
        doubts += (straddles & (not is_sure)) | (y1 == y) | (y2 == y)
    return (DOUBTFUL if doubts else crossed & 1) + 4 * int(end - begin)


@jit
def _count(xs: F64, ys: F64, edges: I64, grid: F64, side: int, counts: I64) -> int:
    """Count the edges of each cell; return the total number of entries."""
    entries = 0
    for e in edges:
        x1, y1, x2, y2 = xs[e], ys[e], xs[e + 1], ys[e + 1]
        slope = slope_of(x1, y1, x2, y2)
        first_row, last_row = rows_met(grid, side, y1, y2)
        for row in range(first_row, last_row + 1):
            first, last = columns_met(grid, side, row, x1, y1, x2, y2, slope)
            for column in range(first, last + 1):
                counts[row * side + column] += 1
                entries += 1
    return entries


@jit
def _corner_parities(xs: F64, ys: F64, edges: I64, grid: F64, side: int, parity: U8) -> None:
    """Write the parity at the lower right corner of each cell, exactly."""
    for e in edges:
        x1, y1, x2, y2 = xs[e], ys[e], xs[e + 1], ys[e + 1]
        slope = slope_of(x1, y1, x2, y2)
        first_row, last_row = rows_met(grid, side, y1, y2)
        for row in range(first_row, last_row + 1):
            y = lower_side(grid, 0, row)
            if (y1 <= y) == (y2 <= y):
                continue
            x = place_at(x1, y1, x2, slope, y)
            column = step(x, grid[X0], grid[COLUMNS_PER_UNIT], side)
            while column < side and (
                cross_edge(x1, y1, x2, y2, right_side(grid, 0, column), y) == 2
            ):
                column += 1
            while column > 0 and (
                cross_edge(x1, y1, x2, y2, right_side(grid, 0, column - 1), y) != 2
            ):
                column -= 1
            if column > 0:  # the edge lies to the right of all columns before this one
                parity[row * side + column - 1] ^= 1
    for row in range(side):
        for column in range(side - 2, -1, -1):
            parity[row * side + column] ^= parity[row * side + column + 1]


@jit
def _fill(
    xs: F64, ys: F64, edges: I64, grid: F64, side: int, next_entry: I64, listed: I32, parity: U8
) -> None:
    """Write the edge list of each cell; convert its corner's parity to the bit of the path."""
    for e in edges:
        x1, y1, x2, y2 = xs[e], ys[e], xs[e + 1], ys[e + 1]
        slope = slope_of(x1, y1, x2, y2)
        first_row, last_row = rows_met(grid, side, y1, y2)
        for row in range(first_row, last_row + 1):
            y = lower_side(grid, 0, row)
            first, last = columns_met(grid, side, row, x1, y1, x2, y2, slope)
            for column in range(first, last + 1):
                cell = row * side + column
                listed[next_entry[cell]] = e
                next_entry[cell] += 1
                right = right_side(grid, 0, column)
                crossed = cross_edge(x1, y1, x2, y2, right, y) == 2
                parity[cell] ^= int(crossed) ^ int(_is_beyond(x1, y1, x2, y2, right, y))


def cells_of(corners: F64, edges: I64) -> CellGrid:
    """Return the cells of a polygon, given its corners, (n, 2), and the start of each edge."""
    xs, ys = corners[:, 0].copy(), corners[:, 1].copy()
    x0, y0, x1, y1 = xs.min(), ys.min(), xs.max(), ys.max()
    side = int(min(max(_SIDE * math.sqrt(len(edges)), _MIN_SIDE), _MAX_SIDE))
    grid = np.empty(GRID)
    while True:
        side = side if put_grid(grid, x0, y0, x1, y1, side, side) else 1
        counts = np.zeros(side * side, np.int64)
        entries = _count(xs, ys, edges, grid, side, counts)
        if side == 1 or entries <= _MAX_ENTRIES * len(edges):
            break
        side = max(1, side // 2)
    parity = np.zeros(side * side, np.uint8)
    _corner_parities(xs, ys, edges, grid, side, parity)
    ends = np.cumsum(counts)
    listed = np.empty(entries, np.int32)
    _fill(xs, ys, edges, grid, side, ends - counts, listed, parity)
    cells = np.append(4 * (ends - counts), 4 * entries)
    cells[:-1] += parity + _LISTED * (counts > 0)
    return CellGrid(grid, side, cells.astype(np.int32), listed)
