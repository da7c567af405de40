"""Cell lists: for every cell of a grid, the boxes that hold it, ready to be copied out.

Made for few distinct bounds (small integer domains, categories) and many matches: the answer is
already written down, and an event costs little more than copying it.

Grid. Each indexed attribute has edges at bounds of the boxes, and nodes over its cells: the cells
themselves, if there is not memory for that many entries also blocks of 2^s of them on several
levels, and the whole axis, so that an attribute that isn't mentioned costs one entry. A box is
cut into the largest nodes inside it; a list is kept for each combination of nodes, one an
attribute. An event reads the lists of the nodes above its cells, one for each combination of
levels.

Lists. An entry is one of three kinds:
    sure      the box holds all of the node
    edge      the box ends within the node's cell, on some attribute: it surely holds events that
              lie on the cell's lower edge there, as all do on a grid of all integers
    doubtful  it is compared with the event: it starts within a cell, mentions an attribute that
              isn't indexed, or meets another box of its subscription
Boxes are numbered in blocks of 65,536, and an entry is the low 16 bits: half the memory to hold
and to read, and adding the block's number is free beside the writing. The segments of a list are

    offsets[(node * 3 + kind) * blocks + block]   up to the next one, in ids

Cost of an event: its lists (`visited`), copying at the speed of memory, boxes compared
(`tested`). Memory: 2 bytes an entry, and 12 a list and block. `cells_plan` says which attributes
are indexed, with which cells and levels: of what fits into the memory allowed, the fastest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, U16, Bool
from rangecast.kernels.bundle import Bundle, opened
from rangecast.kernels.grid import cell_of, ends_cell, starts_cell
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.candidates import (
    Sample,
    earlier_boxes,
    held_before,
    holds,
    stand_alone,
)
from rangecast.match.cells.plan import (
    BLOCK_BITS,
    DOUBTFUL,
    EDGE,
    SURE,
    Grid,
    Plan,
    blocks_of,
    cut,
    plans,
)
from rangecast.match.result import BUFFER, MatchRows, Step, collect, stream
from rangecast.model.boxes import Boxes, as_points, frozen
from rangecast.model.index_options import Options, size


class Filed(NamedTuple):
    """The boxes and their lists."""

    offsets: I32
    ids: U16
    lo: Annotated[F64, 2]
    hi: Annotated[F64, 2]
    owner: I32
    earlier: I32
    """See `earlier_boxes`."""


@jit
def _file(
    table: I64,
    lo: F64,
    hi: F64,
    alone: Bool,
    blocks: int,
    nodes: I64,
    kinds: I64,
    places: I64,
    ids: U16,
) -> int:
    """Cut all boxes; count entries in `places`, or write them there if `ids` has room.

    `nodes` and `kinds` (axes, cells) are scratch. Returns the number of entries; with no `places`
    that is all it does.
    """
    grid = opened(table, Grid)
    axes = len(grid.axes)
    lengths = np.ones(axes + 1, np.int64)
    turn = np.zeros(axes + 1, np.int64)
    total = 0
    for box in range(len(lo)):
        product = 1
        for a in range(axes):
            axis = grid.axes[a]
            edges = grid.edges[grid.edge_ends[a] : grid.edge_ends[a + 1]]
            levels = slice(grid.level_ends[a], grid.level_ends[a + 1])
            lengths[a] = cut(
                cell_of(edges, lo[box, axis]),
                cell_of(edges, hi[box, axis]),
                starts_cell(edges, lo[box, axis]),
                ends_cell(edges, hi[box, axis]),
                len(edges) + 2,
                grid.shifts[levels],
                grid.bases[levels],
                nodes[a],
                kinds[a],
            )
            product *= lengths[a]
        total += product
        if len(places) == 0:
            continue
        turn[:] = 0
        for _ in range(product):
            node = 0
            kind = SURE if alone[box] else DOUBTFUL
            for a in range(axes):
                node += nodes[a, turn[a]] * grid.strides[a]
                kind = max(kind, kinds[a, turn[a]])
            place = (node * 3 + kind) * blocks + (box >> BLOCK_BITS)
            if len(ids):
                ids[places[place]] = box & 0xFFFF
            places[place] += 1
            a = 0
            turn[0] += 1
            while a < axes and turn[a] == lengths[a]:
                turn[a] = 0
                a += 1
                turn[a] += 1
    return total


@jit
def _locate(grid: Grid, offsets: I32, blocks: int, points: F64, lists: I32, on_edges: Bool) -> int:
    """Write the lists of each event, (events, lists), and whether it lies on edges everywhere.

    Returns how many entries those lists hold.
    """
    axes = len(grid.axes)
    segments = 3 * blocks
    total = 0
    for event in range(len(points)):
        on_edge = True
        lists[event, 0] = 0
        count = 1
        for a in range(axes):
            edges = grid.edges[grid.edge_ends[a] : grid.edge_ends[a + 1]]
            value = points[event, grid.axes[a]]
            cell = cell_of(edges, value)
            on_edge &= value == np.inf or (cell > 0 and edges[cell - 1] == value)
            first, end = grid.level_ends[a], grid.level_ends[a + 1]
            for level in range(end - 1, first - 1, -1):
                node = (grid.bases[level] + (cell >> grid.shifts[level])) * grid.strides[a]
                for i in range(count):
                    lists[event, (level - first) * count + i] = lists[event, i] + node
            count *= end - first
        on_edges[event] = on_edge
        for i in range(count):
            node = lists[event, i]
            total += int(offsets[(node + 1) * segments]) - int(offsets[node * segments])
    return total


@jit
def _widen(ids: U16, start: int, count: int, base: int, out: I32, place: int) -> None:
    """Write base + id for `count` ids. Unsigned indexes make this loop SIMD code."""
    a, b, high = np.uint64(start), np.uint64(place), np.int32(base)
    for i in range(np.uint64(count)):
        out[b + i] = high + ids[a + i]


@jit
def _match(
    filed: Filed,
    blocks: int,
    plain: bool,
    points: F64,
    lists: I32,
    on_edges: Bool,
    event: int,
    cursor: int,
    rows: I32,
    counts: I64,
) -> tuple[int, int, int, int, int]:
    """A `Step` over what `_locate` wrote; the cursor is how many entries were gone through."""
    filled = visited = tested = 0
    while event < len(points):
        begun, passed, point = filled, 0, points[event]
        if cursor == 0:
            if filled == len(rows):
                break
            visited += lists.shape[1]
        for i in range(lists.shape[1]):
            place = int(lists[event, i]) * 3 * blocks
            if filed.offsets[place] == filed.offsets[place + 3 * blocks]:
                continue
            for kind in range(3):
                copied = plain and (kind == SURE or (kind == EDGE and on_edges[event]))
                checked = kind == DOUBTFUL or (kind == EDGE and not on_edges[event])
                for block in range(blocks):
                    start, end = int(filed.offsets[place]), int(filed.offsets[place + 1])
                    place += 1
                    if passed + end - start <= cursor:
                        passed += end - start
                        continue
                    skip = max(cursor - passed, 0)
                    passed += skip
                    start += skip
                    base = block << BLOCK_BITS
                    if copied:
                        count = min(end - start, len(rows) - filled)
                        _widen(filed.ids, start, count, base, rows, filled)
                        filled += count
                        passed += count
                        start += count
                    while start < end and filled < len(rows):
                        box = base + filed.ids[start]
                        start += 1
                        passed += 1
                        if checked:
                            tested += 1
                            if not holds(filed.lo, filed.hi, box, point):
                                continue
                            if held_before(filed.lo, filed.hi, filed.earlier, box, point)[0]:
                                continue
                        rows[filled] = filed.owner[box]
                        filled += 1
                    if start < end:
                        counts[event] += filled - begun
                        return event, passed, filled, visited, tested
        counts[event] += filled - begun
        event += 1
        cursor = 0
    return event, 0, filled, visited, tested


@jit
def _locate_all(
    grid_table: I64, filed_table: I64, blocks: int, points: F64, lists: I32, on_edges: Bool
) -> int:
    """Do what `_locate` does, for a batch."""
    grid, filed = opened(grid_table, Grid), opened(filed_table, Filed)
    return _locate(grid, filed.offsets, blocks, points, lists, on_edges)


@jit
def _match_all(
    filed_table: I64,
    blocks: int,
    plain: bool,
    points: F64,
    lists: I32,
    on_edges: Bool,
    event: int,
    cursor: int,
    rows: I32,
    counts: I64,
) -> tuple[int, int, int, int, int]:
    """Do what `_match` does, for a batch."""
    filed = opened(filed_table, Filed)
    return _match(filed, blocks, plain, points, lists, on_edges, event, cursor, rows, counts)


@jit_single
def _match_one(
    grid_table: I64, filed_table: I64, blocks: int, plain: bool, width: int, points: F64
) -> I32:
    """Return the rows of one event."""
    grid, filed = opened(grid_table, Grid), opened(filed_table, Filed)
    lists = np.empty((1, width), np.int32)
    on_edges = np.empty(1, np.bool_)
    rows = np.empty(_locate(grid, filed.offsets, blocks, points, lists, on_edges), np.int32)
    counts = np.zeros(1, np.int64)
    zero = counts[0]  # for a literal 0 numba would compile another version
    _match(filed, blocks, plain, points, lists, on_edges, zero, zero, rows, counts)
    return rows[: counts[0]]


class Cells:
    """All matches of each event, copied from the lists of its cells."""

    name = "cells"
    options: ClassVar[Options] = {"memory": size("memory")}

    def __init__(self, boxes: Boxes, *, memory: int | None = None, plan: Plan | None = None):
        """Build from boxes, within `memory` bytes in all (default: 1 GiB, or 4 times the boxes).

        A `plan` is taken as it is, if it fits.
        """
        self.dimensions = boxes.dimensions
        earlier = earlier_boxes(boxes, np.arange(len(boxes.lo)))
        held = boxes.lo.nbytes + boxes.hi.nbytes + boxes.owner.nbytes + earlier.nbytes
        self.allowed = max(1 << 30, 4 * held) if memory is None else memory
        alone = np.empty(len(boxes.lo), np.bool_)
        stand_alone(boxes.lo, boxes.hi, boxes.owner, alone)
        self._blocks = blocks_of(len(boxes.lo))
        room = self.allowed - held
        choice = plans(boxes, Sample(boxes), alone, room) if plan is None else [plan]
        least = 0
        for plan in choice:
            self._grid = Bundle(plan.grid())
            indexed = alone & ~np.delete(boxes.mentions, plan.axes, axis=1).any(axis=1)
            count = self._file(boxes, indexed, np.empty(0, np.int64), np.empty(0, np.uint16))
            least = plan.memory(count, len(boxes.lo))
            if least <= room and count < 1 << 31:
                break
        else:
            raise UsageError(
                f"{len(boxes.lo)} boxes need {held + least} bytes as cell lists at least; "
                f"allowed: {self.allowed}; allow more memory or take another index"
            )
        places = np.zeros(plan.all_lists * 3 * self._blocks + 1, np.int64)
        self._file(boxes, indexed, places[1:], np.empty(0, np.uint16))
        np.cumsum(places, out=places)
        offsets = frozen(places, np.int32)
        ids = np.empty(count, np.uint16)
        if count:
            self._file(boxes, indexed, places[:-1], ids)
        self._filed = Bundle(Filed(offsets, ids, boxes.lo, boxes.hi, boxes.owner, earlier))
        self._plain = len(boxes.lo) == boxes.rows
        self._width = plan.lists

    def _file(self, boxes: Boxes, indexed: Bool, places: I64, ids: U16) -> int:
        longest = max((len(edges) + 2 for edges in self.plan.edges), default=0)
        scratch = np.empty((2, len(self.plan.axes), longest), np.int64)
        return _file(
            self._grid.table,
            boxes.lo,
            boxes.hi,
            indexed,
            self._blocks,
            scratch[0],
            scratch[1],
            places,
            ids,
        )

    @property
    def plan(self) -> Plan:
        """How the cells are laid out."""
        return Plan.of(self._grid.arrays)

    @property
    def entries(self) -> int:
        """Ids in all lists."""
        return len(self._filed.arrays.ids)

    @property
    def memory(self) -> int:
        """Bytes of all arrays, boxes included."""
        return self._grid.memory + self._filed.memory

    def match(self, points: F64) -> MatchRows:
        """Return all matches of all events at once."""
        step, most = self._step(points)
        return collect(step, len(points), most + 1)

    def stream(self, points: F64, buffer: int = BUFFER) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, matches) in pieces of at most `buffer` rows."""
        return stream(self._step(points)[0], len(points), buffer)

    def match_one(self, point: F64) -> I32:
        """Return the rows of one event, (d,)."""
        points = as_points(point, self.dimensions, one=True).reshape(1, -1)
        tables = self._grid.table, self._filed.table
        return _match_one(*tables, self._blocks, self._plain, self._width, points)

    def _step(self, points: F64) -> tuple[Step, int]:
        """Return the step, and how many rows it can write at most."""
        points = as_points(points, self.dimensions)
        lists = np.empty((len(points), self._width), np.int32)
        on_edges = np.empty(len(points), np.bool_)
        tables = self._grid.table, self._filed.table
        most = _locate_all(*tables, self._blocks, points, lists, on_edges)
        given = self._blocks, self._plain, points, lists, on_edges
        # A table is addresses of arrays: the step holds the index, or they would be gone with it.
        return lambda *place: _match_all(self._filed.table, *given, *place), most
