"""Grid over the bounds of a polygon, and the cells that its edges may meet.

The column and row of a point are computed by monotonic operations, whatever the rounding, and cells
are widened by more than the rounding error of their borders. So an edge is listed for every cell
with a point whose path may meet it, and for some more.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.kernels.jit import jit

X0, Y0, X1, Y1, COLUMNS_PER_UNIT, ROWS_PER_UNIT, COLUMN, ROW = range(8)
"""Numbers of a grid: the bounds, its scales, and the sides of a cell."""
GRID = 8
DOUBTFUL = 2
"""Instead of 1 or 0: neither a cell nor doubles decide whether a polygon contains a point."""
SLACK = 4e-15
"""More than all that rounding moves, as a share of the magnitude of coordinates."""


@jit
def put_grid(
    grid: F64, x0: float, y0: float, x1: float, y1: float, columns: int, rows: int
) -> bool:
    """Write a grid; return whether its cells are larger than the rounding errors."""
    grid[X0], grid[Y0], grid[X1], grid[Y1] = x0, y0, x1, y1
    wide, high = x1 - x0, y1 - y0
    grid[COLUMN], grid[ROW] = wide / columns, high / rows
    grid[COLUMNS_PER_UNIT] = columns / wide if wide > 0.0 else np.inf
    grid[ROWS_PER_UNIT] = rows / high if high > 0.0 else np.inf
    if not (
        grid[COLUMN] > 8.0 * SLACK * (abs(x0) + abs(x1))
        and grid[ROW] > 8.0 * SLACK * (abs(y0) + abs(y1))
        and math.isfinite(wide)
        and math.isfinite(high)
        and math.isfinite(grid[COLUMNS_PER_UNIT])
        and math.isfinite(grid[ROWS_PER_UNIT])
    ):
        grid[COLUMN], grid[ROW] = wide, high
        grid[COLUMNS_PER_UNIT] = grid[ROWS_PER_UNIT] = 0.0
        return False
    return True


@jit
def step(value: float, origin: float, per_unit: float, count: int) -> int:
    """Return the column or row of a value."""
    return int(min(max((value - origin) * per_unit, 0.0), count - 1.0))


@jit
def right_side(grid: Any, at: int, column: int) -> float:
    """Return an x coordinate to the right of all points of a column."""
    slack = SLACK * (abs(grid[at + X0]) + abs(grid[at + X1]))
    return float(grid[at + X0] + (column + 1) * grid[at + COLUMN] + slack)


@jit
def lower_side(grid: Any, at: int, row: int) -> float:
    """Return a y coordinate below all points of a row."""
    slack = SLACK * (abs(grid[at + Y0]) + abs(grid[at + Y1]))
    return float(grid[at + Y0] + row * grid[at + ROW] - slack)


@jit
def slope_of(x1: float, y1: float, x2: float, y2: float) -> float:
    """Return dx/dy along an edge; not finite if it is horizontal, or nearly so."""
    return (x2 - x1) / (y2 - y1)


@jit
def place_at(x1: float, y1: float, x2: float, slope: float, y: float) -> float:
    """Return approximately where an edge crosses a level, between its ends."""
    x = x1 + (y - y1) * slope if math.isfinite(slope) else x1
    return min(max(x, min(x1, x2)), max(x1, x2))


@jit
def columns_met(
    grid: F64, columns: int, row: int, x1: float, y1: float, x2: float, y2: float, slope: float
) -> tuple[int, int]:
    """Return the first and last column in which an edge may meet a row; (0, -1) if none.

    At least one end is not beyond the right side of any of these columns.
    """
    slack = SLACK * (abs(grid[Y0]) + abs(grid[Y1]))
    low = grid[Y0] + row * grid[ROW] - slack
    high = grid[Y0] + (row + 1) * grid[ROW] + slack
    if max(y1, y2) < low or min(y1, y2) > high:
        return 0, -1
    a, b = x1, x2
    if math.isfinite(slope):
        low, high = max(low, min(y1, y2)), min(high, max(y1, y2))
        a, b = place_at(x1, y1, x2, slope, low), place_at(x1, y1, x2, slope, high)
    slack = 4.0 * SLACK * (abs(grid[X0]) + abs(grid[X1]))
    first = step(min(a, b) - slack, grid[X0], grid[COLUMNS_PER_UNIT], columns)
    last = step(max(a, b) + slack, grid[X0], grid[COLUMNS_PER_UNIT], columns)
    while first <= last and right_side(grid, 0, first) < min(x1, x2):
        first += 1
    return first, last


@jit
def rows_met(grid: F64, rows: int, y1: float, y2: float) -> tuple[int, int]:
    """Return the first and last row that an edge may meet."""
    slack = 4.0 * SLACK * (abs(grid[Y0]) + abs(grid[Y1]))
    first = step(min(y1, y2) - slack, grid[Y0], grid[ROWS_PER_UNIT], rows)
    last = step(max(y1, y2) + slack, grid[Y0], grid[ROWS_PER_UNIT], rows)
    return first, last
