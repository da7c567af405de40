"""Sketch of a short ring: one cache line that decides most points.

A grid of 16 columns and 16 rows lies over the bounds. Each row stores the range of columns that the
ring may occupy, and the range that is wholly inside. A point in any other cell is doubtful, and the
edges decide.

    x0, y0, columns per unit, rows per unit, then four words with four rows each: per row, the
    first and the last column that may be inside, the first and the last that is, four bits each
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.kernels.bits import bits_set, lowest_bit
from rangecast.kernels.jit import jit
from rangecast.model.shapes.verification.grids import (
    COLUMNS_PER_UNIT,
    DOUBTFUL,
    GRID,
    ROW,
    ROWS_PER_UNIT,
    X0,
    Y0,
    columns_met,
    place_at,
    put_grid,
    rows_met,
    slope_of,
    step,
)

SKETCH = 8
"""Numbers of a sketch."""
_SIDE = 16


@jit
def in_sketch(n: Any, at: int, x: float, y: float) -> int:
    """Return whether a ring contains a point: 1, 0, or DOUBTFUL."""
    column = np.uint64(step(x, n[at], n[at + 2], _SIDE))
    row = step(y, n[at + 1], n[at + 3], _SIDE)
    word = np.float64(n[at + 4 + (row >> 2)]).view(np.uint64) >> np.uint64(16 * (row & 3))
    mask = np.uint64(15)
    first, last = word & mask, (word >> np.uint64(4)) & mask
    first_full, last_full = (word >> np.uint64(8)) & mask, (word >> np.uint64(12)) & mask
    may_hold = int((first <= column) & (column <= last))
    holds = int((first_full <= column) & (column <= last_full))
    return DOUBTFUL * may_hold - (DOUBTFUL - 1) * holds  # a full cell is also a possible one


@jit
def _row_of(border: int, inside: int) -> int:
    """Encode a row as four numbers, given its border and inside columns as bits.

    An empty range starts at 15 and ends at 0.
    """
    full = inside & ~border
    covered = np.uint64(full | border)
    first, last = 15, 0
    if covered:
        first = lowest_bit(covered)
        for shift in (1, 2, 4, 8):
            covered |= covered >> np.uint64(shift)
        last = bits_set(covered) - 1
    first_full, last_full = 15, 0
    while full:  # the longest run
        begin = lowest_bit(np.uint64(full))
        end = lowest_bit(np.uint64(full + (1 << begin)))
        if end - begin > last_full - first_full + 1:
            first_full, last_full = begin, end - 1
        full &= -(1 << end)
    return first | last << 4 | first_full << 8 | last_full << 12


@jit
def put_sketch(
    n: F64, at: int, xs: Any, ys: Any, begin: int, end: int, bounds: tuple[float, ...]
) -> None:
    """Write the sketch of the ring with the corners `begin` to `end` (exclusive)."""
    grid = np.empty(GRID)
    border, inside = np.zeros(_SIDE, np.int64), np.zeros(_SIDE, np.int64)
    x0, y0, x1, y1 = bounds
    if put_grid(grid, x0, y0, x1, y1, _SIDE, _SIDE):
        for i in range(begin, end - 1):
            ax, ay, bx, by = xs[i], ys[i], xs[i + 1], ys[i + 1]
            slope = slope_of(ax, ay, bx, by)
            first_row, last_row = rows_met(grid, _SIDE, ay, by)
            for row in range(first_row, last_row + 1):
                first, last = columns_met(grid, _SIDE, row, ax, ay, bx, by, slope)
                border[row] |= (1 << (last + 1)) - (1 << first)
                level = grid[Y0] + (row + 0.5) * grid[ROW]
                if (ay <= level) != (by <= level):
                    x = place_at(ax, ay, bx, slope, level)
                    # Where the edge is, the border is: its own column doesn't matter.
                    inside[row] ^= (1 << step(x, x0, grid[COLUMNS_PER_UNIT], _SIDE)) - 1
    else:
        border[:] = (1 << _SIDE) - 1
    n[at], n[at + 1] = grid[X0], grid[Y0]
    n[at + 2], n[at + 3] = grid[COLUMNS_PER_UNIT], grid[ROWS_PER_UNIT]
    words = n[at + 4 : at + SKETCH].view(np.int64)
    for word in range(4):
        words[word] = 0
        for row in range(4):
            words[word] |= _row_of(border[4 * word + row], inside[4 * word + row]) << (16 * row)
