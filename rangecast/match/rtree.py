"""Packed Hilbert R-tree in flat arrays: the baseline of paper 002, and the low-memory index.

Boxes are put in an order that keeps neighbours together, and each 16 of them make a node, each 16
nodes a node of the next level: child i of node k is number 16 k + i of the level below, so there
are no pointers. The order: boxes that mention the same attributes together (`groups_by_
axes`: an attribute that a box doesn't mention says nothing of where it lies), and in such a group
by the Hilbert index of their centres or of their corners.

Nodes hold no coordinates but 15-bit codes, rounded outward. With c the cell of a value in
`kernels/grid.py`, an event has the code 2c + 1. A box begins at 2c if it holds all of its first
cell, else at 2c + 1; it ends at 2c + 2 if it holds all of its last cell, else at 2c + 1. So a code
at or between these ends may lie in the box, and a code strictly between them surely does: few boxes
are ever compared in float64. The lower and upper codes of 16 children on one attribute fill one
cache line. They are compared four at a time, as lanes of a 64-bit word: with the top bit of a's
lane set, a - b leaves it set exactly if a >= b. A node has lines only for the attributes that some
child is bounded on, the one first on which the children are narrowest.

    lines     (lines, 8)    uint64   lower codes of 16 children; upper codes, with top bits set
    line_axis (lines,)      uint16   the attribute of a line
    line_at   (nodes + 1,)  int64    where the lines of a node begin
    base      (levels,)     int64    first node of each level, leaves first, the root last
    edges     flat float64, with `edge_at` (d + 1,): cells of each attribute
    lo, hi    (boxes, d)    float64  the boxes, in packed order; the given ones are not kept
    row       (boxes,)      int32    subscription of each box
    earlier   (boxes,)      int32    an earlier box of the same subscription, -1 if there is none;
                                     empty if each subscription has one box

Cost: 16 bytes for the bounds of a box on an attribute, 4 for its codes, 0.3 for nodes above, at
most 1 for the edges; and 4 per box. An event opens the nodes whose box it lies in. `Work` counts
nodes opened, and boxes compared in float64.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from rangecast.kernels.arrays import F64, I32, I64, U16, U64, AnyArray, Bool, offsets_of, readonly
from rangecast.kernels.bundle import Bundle, opened
from rangecast.kernels.curves.hilbert import (
    axes_by_selectivity,
    groups_by_axes,
    indexes_of,
    turns_of,
)
from rangecast.kernels.grid import cell_of, edges_of_bounds, ends_cell, starts_cell
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.shared.candidates import earlier_boxes, held_before, holds
from rangecast.match.shared.frozen import FrozenIndex
from rangecast.model.boxes import Boxes, frozen

FANOUT = 16
MAX_CELLS = (1 << 14) - 1
MAX_AXES = 8
_NOTHING = np.uint16((1 << 15) - 1)
"""The lower code of a child that isn't there: above every event's code."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_LANES = np.uint64(0x0001_0001_0001_0001)
_TOPS = np.uint64(0x8000_8000_8000_8000)


class RTreeArrays(NamedTuple):
    """Arrays described in the module docstring."""

    lines: Annotated[U64, 2]
    line_axis: U16
    line_at: I64
    base: I64
    edges: F64
    edge_at: I64
    lo: Annotated[F64, 2]
    hi: Annotated[F64, 2]
    row: I32
    earlier: I32


@jit
def _children(
    lines: U64,
    line_axis: U16,
    begin: int,
    end: int,
    at_least: U64,
    at_most: U64,
    inward: np.uint64,
) -> np.uint64:
    """Return the children that may contain the event; with `inward` = _LANES, that surely do.

    Child i is bit 16 * (i // 4) + i % 4. (Takes single arrays: passing the whole tuple is slow.)
    """
    first = second = third = fourth = _TOPS
    for at in range(begin, end):
        axis = line_axis[at]
        low, high = at_least[axis] - inward, at_most[axis] + inward
        first &= (low - lines[at, 0]) & (lines[at, 4] - high)
        second &= (low - lines[at, 1]) & (lines[at, 5] - high)
        third &= (low - lines[at, 2]) & (lines[at, 6] - high)
        fourth &= (low - lines[at, 3]) & (lines[at, 7] - high)
        if not (first | second | third | fourth):
            return _ZERO
    return (first >> 15) | (second >> 14) | (third >> 13) | (fourth >> 12)


@jit
def _child(bit: np.uint64) -> int:
    return int(np.int64(((bit >> 4) << 2) | (bit & np.uint64(3))))


@jit
def _search(
    tree: RTreeArrays, point: F64, cursor: int, rows: I32, filled: int, scratch: U64
) -> tuple[int, int, int, int]:
    """Append the rows of one event, starting at box `cursor`; `scratch` is (3, max(d, 16)).

    Returns the box to resume at if `rows` is full, else -1; the rows filled; and the work.
    """
    visited = tested = 0
    top = len(tree.base) - 1
    if top < 0:
        return -1, filled, visited, tested
    at_least, at_most, pending = scratch[0], scratch[1], scratch[2]
    for axis in range(len(point)):
        edges = tree.edges[tree.edge_at[axis] : tree.edge_at[axis + 1]]
        code = np.uint64(2 * cell_of(edges, point[axis]) + 1)
        at_most[axis] = code * _LANES
        at_least[axis] = at_most[axis] | _TOPS
    lines, line_axis, line_at, base = tree.lines, tree.line_axis, tree.line_at, tree.base
    lo, hi, row, earlier = tree.lo, tree.hi, tree.row, tree.earlier
    level, node = top, 0
    while True:
        begin, end = line_at[base[level] + node], line_at[base[level] + node + 1]
        children = _children(lines, line_axis, begin, end, at_least, at_most, _ZERO)
        visited += 1
        skipped = (cursor >> (4 * level)) - FANOUT * node
        if skipped > 0:
            bit = 16 * (skipped >> 2) + (skipped & 3)
            children = (children >> bit) << bit
        if level == 0 and children:
            sure = _children(lines, line_axis, begin, end, at_least, at_most, _LANES)
            while children:
                bit = trailing_zeros(children)
                children &= children - _ONE
                box = FANOUT * node + _child(bit)
                if not (sure >> bit) & _ONE:
                    tested += 1
                    if not holds(lo, hi, box, point):
                        continue
                twice, compared = held_before(lo, hi, earlier, box, point)
                tested += compared
                if twice:
                    continue
                if filled == len(rows):
                    return box, filled, visited, tested
                rows[filled] = row[box]
                filled += 1
        pending[level] = children
        while not pending[level]:
            if level == top:
                return -1, filled, visited, tested
            level += 1
            node >>= 4
        bit = trailing_zeros(pending[level])
        pending[level] &= pending[level] - _ONE
        node = FANOUT * node + _child(bit)
        level -= 1


@jit
def _match(
    table: I64, points: F64, event: int, cursor: int, rows: I32, counts: I64
) -> tuple[int, int, int, int, int]:
    """`Step` of `match.result`; the cursor is the box to resume at."""
    tree = opened(table, RTreeArrays)
    scratch = np.empty((3, max(16, points.shape[1])), np.uint64)
    filled = visited = tested = 0
    while event < len(points):
        before = filled
        cursor, filled, nodes, compared = _search(
            tree, points[event], cursor, rows, filled, scratch
        )
        counts[event] += filled - before
        visited += nodes
        tested += compared
        if cursor >= 0:
            return event, cursor, filled, visited, tested
        cursor = 0
        event += 1
    return event, 0, filled, visited, tested


@jit_single
def _match_one(table: I64, point: F64, cursor: int, rows: I32) -> tuple[int, int]:
    tree = opened(table, RTreeArrays)
    scratch = np.empty((3, max(16, len(point))), np.uint64)
    cursor, filled, _, _ = _search(tree, point, cursor, rows, 0, scratch)
    return cursor, filled


@jit
def _encode(edges: F64, edge_at: I64, lo: F64, hi: F64, low: U16, high: U16) -> None:
    """Write the code of each lower and upper bound, rounded outward (see the module)."""
    for axis in range(lo.shape[1]):
        mine = edges[edge_at[axis] : edge_at[axis + 1]]
        for i in range(len(lo)):
            low[i, axis] = 2 * cell_of(mine, lo[i, axis]) + (not starts_cell(mine, lo[i, axis]))
            high[i, axis] = 2 * cell_of(mine, hi[i, axis]) + 1 + ends_cell(mine, hi[i, axis])


@jit
def _fill_lines(
    low: U16,
    high: U16,
    line_node: I32,
    line_axis: U16,
    lines: U64,
) -> None:
    """Pack the codes of 16 children (boxes, d) on one axis into the lanes of each line."""
    for at in range(len(lines)):
        axis = line_axis[at]
        for slot in range(FANOUT):
            child = FANOUT * line_node[at] + slot
            word, lane = slot % 4, 16 * (slot // 4)
            below, above = np.uint64(_NOTHING), _ZERO
            if child < len(low):
                below, above = np.uint64(low[child, axis]), np.uint64(high[child, axis])
            lines[at, word] |= below << lane
            lines[at, 4 + word] |= (above | np.uint64(0x8000)) << lane


class RTree(FrozenIndex):
    """Matching index: a packed R-tree."""

    name = "rtree"
    _batch, _single = staticmethod(_match), staticmethod(_match_one)

    def __init__(self, boxes: Boxes, *, events: F64 | None = None):
        """Build the tree; `events` is an optional sample of events that only improves the order."""
        super().__init__(Bundle(_build(boxes, events)), boxes.dimensions)

    @property
    def nodes(self) -> int:
        """Number of nodes on all levels."""
        return len(self.bundle.arrays.line_at) - 1


def _build(boxes: Boxes, events: F64 | None) -> RTreeArrays:
    count, dimensions = boxes.lo.shape
    cells = min(MAX_CELLS, max(64, count // 8))
    edges = [
        edges_of_bounds(boxes.lo[:, axis], boxes.hi[:, axis], cells) for axis in range(dimensions)
    ]
    low = np.empty((count, dimensions), np.uint16)
    high = np.empty((count, dimensions), np.uint16)
    flat_edges, edge_at = readonly(np.concatenate(edges)), readonly(offsets_of([*map(len, edges)]))
    _encode(flat_edges, edge_at, boxes.lo, boxes.hi, low, high)
    order = axes_by_selectivity(boxes.lo, boxes.hi, events)
    ends = np.array([2 * len(axis_edges) + 4 for axis_edges in edges], np.uint16)
    packed = _packed_order(boxes.mentions, order, low, high, ends)
    lines, line_axis, lines_of, base = _build_levels(low[packed], high[packed], ends)
    return RTreeArrays(
        lines=frozen(lines, np.uint64),
        line_axis=frozen(line_axis, np.uint16),
        line_at=offsets_of(lines_of),
        base=frozen(base, np.int64),
        edges=flat_edges,
        edge_at=edge_at,
        lo=frozen(boxes.lo[packed], np.float64),
        hi=frozen(boxes.hi[packed], np.float64),
        row=frozen(boxes.owner[packed], np.int32),
        earlier=frozen(earlier_boxes(boxes, packed), np.int32),
    )


def _packed_order(mentioned: Bool, order: I64, low: U16, high: U16, ends: U16) -> I64:
    """Return an order of the boxes that keeps neighbours together.

    Boxes of similar sizes are best sorted by their centers, others by both corners: each group
    uses the order with the smaller leaves.
    """
    group, group_axes = groups_by_axes(mentioned, order, MAX_AXES, FANOUT)
    members = np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])
    packed = [np.zeros(0, np.int64)]
    for axes, rows in zip(group_axes, members, strict=bool(len(low))):
        if axes:
            below, above = low[rows][:, axes], high[rows][:, axes]
            middle = (below.astype(np.uint64) + above) >> np.uint64(1)
            trials = [_curve_order(middle), _curve_order(np.hstack([below, above]))]
            share = (below / ends[axes], above / ends[axes])
            rows = rows[min(trials, key=lambda trial: _leaf_volume(*share, trial))]
        packed.append(rows)
    return np.concatenate(packed)


def _curve_order(cells: AnyArray) -> I64:
    """Return the order of cells (n, axes) along the Hilbert curve."""
    bits = min(15, 64 // cells.shape[1])
    surplus = max(0, int(cells.max()).bit_length() - bits)
    index = np.empty(len(cells), np.uint64)
    cells = np.ascontiguousarray(cells >> surplus, np.uint64)
    indexes_of(cells, bits, turns_of(cells.shape[1]), index)
    return np.argsort(index, kind="stable")


def _leaf_volume(low: F64, high: F64, order: I64) -> float:
    """Estimate the leaves that an event opens, if events are uniform over the cells."""
    starts = np.arange(0, len(order), FANOUT)
    lowest = np.minimum.reduceat(low[order], starts)
    highest = np.maximum.reduceat(high[order], starts)
    return float((highest - lowest).prod(axis=1).sum())


def _build_levels(low: U16, high: U16, ends: U16) -> tuple[U64, U16, I64, list[int]]:
    """Return lines of all levels, leaves first, their axes, lines per node, and level starts.

    `ends` are the upper codes of an unbounded box.
    """
    lines: list[U64] = [np.zeros((0, 8), np.uint64)]
    line_axis: list[U16] = [np.zeros(0, np.uint16)]
    lines_of: list[I64] = [np.zeros(0, np.int64)]
    base: list[int] = []
    while len(low) > 1 or (len(low) and not base):
        starts = np.arange(0, len(low), FANOUT)
        needed = np.maximum.reduceat((low > 0) | (high < ends), starts)
        needed[-1, 0] |= len(low) % FANOUT > 0  # or nothing would rule out the missing children
        width = np.add.reduceat((high - low) / ends, starts)
        narrow_first = np.argsort(np.where(needed, width, np.inf), axis=1).astype(np.uint16)
        count = needed.sum(axis=1)
        kept = np.arange(low.shape[1]) < count[:, None]
        node = np.nonzero(kept)[0].astype(np.int32)
        base.append(sum(map(len, lines_of)))
        lines_of.append(count)
        line_axis.append(narrow_first[kept])
        lines.append(np.zeros((len(node), 8), np.uint64))
        _fill_lines(low, high, node, line_axis[-1], lines[-1])
        low, high = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    return np.concatenate(lines), np.concatenate(line_axis), np.concatenate(lines_of), base
