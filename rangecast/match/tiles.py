"""Tiles: a uniform grid over two attributes, each cell with the boxes that meet it.

For boxes that are small and bounded on two attributes, as those of shapes are. An event is in one
cell, found by a multiplication. Each entry of a cell has the ends of its box in steps of 1/128 of
the cell, so that most boxes are ruled in or out by four bytes: only those whose end lies in the
step of the event are compared exactly.

Steps are computed from ends and from events alike, by operations that are monotonic, whatever they
round: a lower step is a lower value. Values beyond the grid, and infinite ones, are in its first or
last step, where everything is compared.

    offsets   (cells + 1,)  int32    first entry of each cell
    boxes     (entries,)    int32    the box; -1 - box if it is bounded on other attributes, too
    codes     (entries, 4)  uint8    its lower and upper step on the first attribute, on the second:
                                     0 and 129 are beyond the cell
    lo, hi    (boxes, d)    float64
    row       (boxes,)      int32    subscription of each box
    earlier   (boxes,)      int32    see `match.candidates`
    dead      (rows,)       uint8    subscriptions that are left out; empty: none

Cost: one cell, and 8 bytes for each box that meets it. `Work` counts entries as visited, and boxes
compared exactly as tested.
"""

from __future__ import annotations

import math
from copy import copy
from typing import Annotated, Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, Bool
from rangecast.kernels.bits import ZERO, prefetch
from rangecast.kernels.bundle import Bundle, opened, pointer, pointers
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.shared.candidates import earlier_boxes
from rangecast.match.shared.frozen import FrozenIndex
from rangecast.match.single_event import (
    OWN,
    SingleEvent,
    append_other_rows,
    max_beside,
    reject_nan,
    single_event,
)
from rangecast.model.boxes import Boxes, frozen

_STEPS = 128
_BEYOND = _STEPS + 1
_SHARE = 0.6
"""Side of a cell, as a share of the mean side of boxes."""
_MAX_SIDE = 4096
_CELLS, _ENTRIES = 4, 16
"""Cells and entries per box, at most."""
_TOGETHER = 16
"""Events whose cells are fetched together."""


class Grid(NamedTuple):
    """Grid over two attributes: origin, scale and size."""

    axes: tuple[int, int]
    origin: tuple[float, float]
    scale: tuple[float, float]
    """Steps per unit."""
    sides: tuple[int, int]
    """Cells on each attribute."""

    def cells(self, values: F64, side: int) -> I64:
        """Return the cells of values on the first (0) or second (1) attribute."""
        return self.steps(values, side) // _STEPS

    def steps(self, values: F64, side: int) -> I64:
        """Return the steps of values on the first (0) or second (1) attribute."""
        steps = np.empty(len(values), np.int64)
        column = np.ascontiguousarray(values).view()
        column.flags.writeable = False  # as those of sets are: one kind of array for the kernel
        _steps(column, self.origin[side], self.scale[side], self.sides[side], steps)
        return steps


class TileArrays(NamedTuple):
    """Arrays described in the module docstring."""

    axes: I64
    origin: F64
    scale: F64
    sides: I64
    offsets: I32
    boxes: I32
    codes: Annotated[U8, 2]
    lo: Annotated[F64, 2]
    hi: Annotated[F64, 2]
    row: I32
    earlier: I32
    dead: U8
    masked: int
    """Whether some subscriptions are left out."""
    several: int
    """Whether some subscription has several boxes; else the box is the row."""
    dimensions: int


@jit
def _step(value: float, origin: float, scale: float, side: int) -> int:
    """Return the step of a value, in [0, side * _STEPS)."""
    step = (value - origin) * scale
    if not step > 0.0:
        return 0
    last = side * _STEPS - 1
    return last if step >= last else int(step)


@jit
def _steps(values: F64, origin: float, scale: float, side: int, steps: I64) -> None:
    for i in range(len(values)):
        steps[i] = _step(values[i], origin, scale, side)


@jit
def _cell(at: Any, points: Any, event: int) -> tuple[int, int, int]:
    """Return the cell of the event at points[event], and its codes in that cell."""
    x = _step(points[event + at.axes[0]], at.origin[0], at.scale[0], at.sides[0])
    y = _step(points[event + at.axes[1]], at.origin[1], at.scale[1], at.sides[1])
    return (x // _STEPS) * at.sides[1] + y // _STEPS, 1 + x % _STEPS, 1 + y % _STEPS


@jit
def _holds(at: Any, box: int, points: Any, event: int) -> bool:
    """Return whether a box contains an event, compared exactly."""
    first = box * at.dimensions
    for axis in range(at.dimensions):
        value = points[event + axis]
        if not (at.lo[first + axis] <= value <= at.hi[first + axis]):
            return False
    return True


@jit
def _search(
    at: Any, points: Any, event: int, tile: tuple[int, int, int], cursor: int, rows: Any, room: int
) -> tuple[int, int, int]:
    """Write the rows that match an event, starting at entry `cursor`, until `rows` is full.

    at, points, rows   pointers, as arrays would be reference-counted on every call

    Returns the entry to resume at, or -1 at the end; the number of rows; and boxes compared.
    """
    cell, x, y = tile
    first, end = at.offsets[cell], at.offsets[cell + 1]
    filled = tested = 0
    for entry in range(first + cursor, end):
        code = 4 * entry
        x0, x1, y0, y1 = (
            at.codes[code],
            at.codes[code + 1],
            at.codes[code + 2],
            at.codes[code + 3],
        )
        if not ((x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1)):
            continue
        if filled == room:
            return entry - first, filled, tested
        box = at.boxes[entry]
        bounded = box < 0
        box = -1 - box if bounded else box
        row = at.row[box] if at.several else box
        if at.masked and at.dead[row] != 0:
            continue
        if (x0 == x) | (x == x1) | (y0 == y) | (y == y1) | bounded:
            tested += 1
            if not _holds(at, box, points, event):
                continue
        if at.several:
            # If an earlier box contains the event, it has reported the subscription.
            other = at.earlier[box]
            while other >= 0:
                tested += 1
                if _holds(at, other, points, event):
                    break
                other = at.earlier[other]
            if other >= 0:
                continue
        rows[filled] = row
        filled += 1
    return -1, filled, tested


@jit
def _match(
    table: I64, points: F64, event: int, cursor: int, rows: I32, counts: I64
) -> tuple[int, int, int, int, int]:
    """`Step` of `match.result`; the cursor is an entry of the event's cell."""
    at = pointers(opened(table, TileArrays))
    filled = visited = tested = ZERO
    values, d = pointer(points, 0), points.shape[1]
    cells, xs, ys = np.empty((3, _TOGETHER), np.int64)
    for start in range(event, len(points), _TOGETHER):
        last = min(start + _TOGETHER, len(points))
        for e in range(start, last):
            cells[e - start], xs[e - start], ys[e - start] = _cell(at, values, e * d)
            prefetch(at.offsets, cells[e - start])
        for e in range(start, last):
            first = at.offsets[cells[e - start]]
            prefetch(at.boxes, first)
            prefetch(at.codes, 4 * first)
        for e in range(start, last):
            cell = cells[e - start], xs[e - start], ys[e - start]
            out, room = pointer(rows, filled), len(rows) - filled
            visited -= cursor
            cursor, hits, compared = _search(at, values, e * d, cell, cursor, out, room)
            size = at.offsets[cell[0] + 1] - at.offsets[cell[0]]
            visited += size if cursor < 0 else cursor
            filled += hits
            counts[e] += hits
            tested += compared
            if cursor >= 0:
                return e, cursor, filled, visited, tested
            cursor = 0
    return len(points), 0, filled, visited, tested


@jit_single
def _match_one(table: I64, point: F64, cursor: int, rows: I32) -> tuple[int, int]:
    at = pointers(opened(table, TileArrays))
    values = pointer(point, 0)
    cell = _cell(at, values, ZERO)
    output = cursor, pointer(rows, 0), len(rows)
    cursor, filled, _ = _search(at, values, ZERO, cell, *output)
    return cursor, filled


@jit
def _search_single(at: Any, points: F64, cell: tuple[int, int, int], rows: I32) -> int:
    """Search for one event; `rows` must have room for its whole cell."""
    output = ZERO, pointer(rows, 0), len(rows)
    return _search(at, pointer(points, 0), ZERO, cell, *output)[1]


@jit_single
def _match_single(table: I64, points: F64, others: I32) -> I32:
    """Kernel of a `SingleEvent`; the table of the tiles starts at `OWN`."""
    reject_nan(points)
    at = pointers(opened(table[OWN:], TileArrays))
    cell = _cell(at, pointer(points, 0), ZERO)
    most = at.offsets[cell[0] + 1] - at.offsets[cell[0]]
    rows = np.empty(most + max_beside(table, others), np.int32)
    filled = _search_single(at, points, cell, rows)
    return rows[: append_other_rows(table, points, others, rows, filled)]


@jit
def _count(x0: I64, x1: I64, y0: I64, y1: I64, columns: int, counts: I64) -> int:
    """Count the boxes that intersect each cell; return the total number of entries."""
    entries = 0
    for box in range(len(x0)):
        for x in range(x0[box] // _STEPS, x1[box] // _STEPS + 1):
            for y in range(y0[box] // _STEPS, y1[box] // _STEPS + 1):
                counts[x * columns + y] += 1
                entries += 1
    return entries


@jit
def _fill(
    x0: I64,
    x1: I64,
    y0: I64,
    y1: I64,
    columns: int,
    more: Bool,
    next_entry: I64,
    boxes: I32,
    codes: U8,
) -> None:
    """Write the entries of all cells, in box order within each cell."""
    for box in range(len(x0)):
        for x in range(x0[box] // _STEPS, x1[box] // _STEPS + 1):
            for y in range(y0[box] // _STEPS, y1[box] // _STEPS + 1):
                entry = next_entry[x * columns + y]
                next_entry[x * columns + y] += 1
                boxes[entry] = -1 - box if more[box] else box
                codes[entry, 0] = max(x0[box] - x * _STEPS + 1, 0)
                codes[entry, 1] = min(x1[box] - x * _STEPS + 1, _BEYOND)
                codes[entry, 2] = max(y0[box] - y * _STEPS + 1, 0)
                codes[entry, 3] = min(y1[box] - y * _STEPS + 1, _BEYOND)


def plan(boxes: Boxes, axes: tuple[int, int]) -> Grid:
    """Plan a grid whose cells are somewhat smaller than most boxes."""
    origin, extent, sides = [], [], []
    for axis in axes:
        lo, hi = boxes.lo[:, axis], boxes.hi[:, axis]
        known = np.isfinite(lo) & np.isfinite(hi)
        if not known.any():
            lo = hi = np.zeros(1)
            known = np.ones(1, bool)
        start, end = float(lo[known].min()), float(hi[known].max())
        with np.errstate(over="ignore"):
            width = float(np.median(hi[known] - lo[known]))
        reach = end - start
        cells = 1.0
        if 0 < reach < math.inf:
            cells = reach / (_SHARE * width) if width > 0 else _MAX_SIDE
        origin.append(start)
        extent.append(reach)
        sides.append(min(max(cells, 1.0), _MAX_SIDE))
    most = max(1, _CELLS * len(boxes.lo))
    shrink = min(1.0, math.sqrt(most / (sides[0] * sides[1])))
    return _grid(axes, origin, extent, [max(1, int(side * shrink)) for side in sides])


def _grid(
    axes: tuple[int, int], origin: list[float], extent: list[float], sides: list[int]
) -> Grid:
    scale = [
        side * _STEPS / reach if 0 < reach < math.inf else 0.0
        for side, reach in zip(sides, extent, strict=True)
    ]
    return Grid(axes, (origin[0], origin[1]), (scale[0], scale[1]), (sides[0], sides[1]))


class Tiles(FrozenIndex):
    """Matching index: a uniform grid over two attributes."""

    name = "tiles"
    _batch, _single = staticmethod(_match), staticmethod(_match_one)

    def __init__(self, boxes: Boxes, *, axes: tuple[int, int] | None = None):
        """Build from boxes; `axes` are the grid's attributes, by default those mentioned most."""
        super().__init__(Bundle(_build(boxes, axes or grid_axes(boxes))), boxes.dimensions)
        self._rows = boxes.rows

    def without(self, rows: I64) -> Tiles:
        """Return an index without some subscriptions, which shares everything else."""
        arrays: TileArrays = self.bundle.arrays
        dead = arrays.dead.copy() if arrays.masked else np.zeros(self._rows, np.uint8)
        dead[rows] = 1
        other = copy(self)
        other.bundle = Bundle(arrays._replace(dead=dead, masked=1))
        return other

    def single_event(self, *beside: Bundle[Any]) -> SingleEvent:
        """Return the single-event kernel, bound to the tables of the rows beside the index."""
        return single_event(_match_single, *beside, self.bundle)


def grid_axes(boxes: Boxes) -> tuple[int, int]:
    """Return the two attributes that most boxes mention; the same twice if there is only one."""
    counts = np.count_nonzero(boxes.mentions, axis=0)
    order = np.argsort(-counts, kind="stable")
    first, second = int(order[0]), int(order[min(1, len(order) - 1)])
    return (first, second) if first <= second else (second, first)


def _build(boxes: Boxes, axes: tuple[int, int]) -> TileArrays:
    grid = plan(boxes, axes)
    while True:
        x0, x1, y0, y1 = (
            grid.steps(ends[:, axis], side)
            for side, axis in enumerate(axes)
            for ends in (boxes.lo, boxes.hi)
        )
        wide, high = x1 // _STEPS - x0 // _STEPS + 1, y1 // _STEPS - y0 // _STEPS + 1
        entries = int((wide * high).sum())
        if entries <= _ENTRIES * len(boxes.lo) + 1024 or max(grid.sides) == 1:
            break
        sides = tuple(max(1, side // 2) for side in grid.sides)
        factors = (new / old for new, old in zip(sides, grid.sides, strict=True))
        scale = tuple(step * factor for step, factor in zip(grid.scale, factors, strict=True))
        grid = grid._replace(sides=(sides[0], sides[1]), scale=(scale[0], scale[1]))
    columns = grid.sides[1]
    counts = np.zeros(grid.sides[0] * columns, np.int64)
    _count(x0, x1, y0, y1, columns, counts)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    others: Bool = np.delete(boxes.mentions, list(set(axes)), axis=1).sum(axis=1) > 0
    rows, codes = np.empty(entries, np.int32), np.empty((entries, 4), np.uint8)
    _fill(x0, x1, y0, y1, columns, others, offsets[:-1].copy(), rows, codes)
    return TileArrays(
        axes=np.array(axes, np.int64),
        origin=np.array(grid.origin),
        scale=np.array(grid.scale),
        sides=np.array(grid.sides, np.int64),
        offsets=frozen(offsets, np.int32),
        boxes=rows,
        codes=codes,
        lo=frozen(boxes.lo, np.float64),
        hi=frozen(boxes.hi, np.float64),
        row=frozen(boxes.owner, np.int32),
        earlier=frozen(earlier_boxes(boxes, np.arange(len(boxes.lo))), np.int32),
        dead=np.zeros(0, np.uint8),
        masked=0,
        several=int(len(boxes.lo) != boxes.rows),
        dimensions=boxes.dimensions,
    )
