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
    edge      the box ends within the node's cell, on some attribute: it surely contains events that
              lie on the cell's lower edge there, as all do on a grid of all integers
    doubtful  it is compared with the event: it starts within a cell, mentions an attribute that
              isn't indexed, or meets another box of its subscription
Boxes are numbered in blocks of 65,536, and an entry is the low 16 bits: half the memory to hold
and to read, and adding the block's number is free beside the writing. The segments of a list are

    offsets[(node * 3 + kind) * blocks + block]   up to the next one, in ids

Dead boxes. `without` gives the same lists a bit for each box that doesn't count. To look it up for
every entry takes as long as copying it; so, once that has been done often enough, the entries of
dead boxes get a bit of their own, and the stretches between them are copied.

Cost of an event: its lists (`visited`), copying at the speed of memory, boxes compared
(`tested`). Memory: 2 bytes per entry, and 12 per list and block. `cells_plan` says which attributes
are indexed, with which cells and levels: of what fits into the memory allowed, the fastest.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, ClassVar

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, U16, Bool, ranges_of
from rangecast.kernels.bits import ZERO, lowest_bit
from rangecast.kernels.bundle import Bundle, opened, pointer, table_size
from rangecast.kernels.grid import cell_of
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.cells.filing import CellLists, file, mark
from rangecast.match.cells.plan import (
    BLOCK_BITS,
    DOUBTFUL,
    EDGE,
    SURE,
    Grid,
    Plan,
    blocks_of,
    plans,
)
from rangecast.match.result import BUFFER, MatchRows, Step, collect, stream
from rangecast.match.shared.candidates import (
    Sample,
    earlier_boxes,
    held_before,
    holds,
    mark_disjoint,
)
from rangecast.match.single_event import (
    ALONE,
    NO_ROWS,
    OWN,
    SingleEvent,
    append_other_rows,
    max_beside,
    reject_nan,
    single_event,
)
from rangecast.model.boxes import Boxes, as_points, frozen
from rangecast.model.index_options import Options, size

_STRETCH = 32
"""Entries that are tested together for dead boxes."""
_MARK_COST, _COPIED = 40, 50
"""Entries that are looked up in the time that it takes to mark one; marks copied in that of one."""
_NONE = MatchRows(np.empty(0, np.int64), np.empty(0, np.int32))
_GRID = table_size(Grid)


@jit
def _locate(grid: Grid, filed: CellLists, points: F64, lists: I32, on_edges: Bool) -> int:
    """Write the lists of each event, (events, lists), and whether it lies on edges everywhere.

    Returns how many entries those lists hold.
    """
    axes = len(grid.axes)
    offsets, segments = filed.offsets, 3 * filed.blocks
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
def _widen(ids: U16, start: int, count: int, base: int, out: I32, width: int) -> None:
    """Write base + id for `count` ids. Unsigned indexes make this loop SIMD code."""
    a, b, high = np.uint64(start), np.uint64(width), np.int32(base)
    for i in range(np.uint64(count)):
        out[b + i] = high + ids[a + i]


@jit
def _is_dead(dead: Any, number: int) -> bool:
    return bool((dead[number >> 5] >> np.uint32(number & 31)) & np.uint32(1))


@jit
def _next_dead(dead: Any, ids: U16, start: int, end: int) -> int:
    """Return the first of some entries of a block whose box is dead; `end` if there is none.

    Entries are tested in groups, since most groups have no dead box.
    """
    while start < end:
        until = min(start + _STRETCH, end)
        bits = np.uint32(0)
        for i in range(start, until):
            number = int(ids[i])
            bits |= dead[number >> 5] >> np.uint32(number & 31)
        if bits & np.uint32(1):
            while not _is_dead(dead, int(ids[start])):
                start += 1
            return start
        start = until
    return end


@jit
def _next_hole(holes: Any, start: int, end: int) -> int:
    """Return the first marked entry from `start` on; `end` if there is none before it."""
    word = start >> 6
    bits = holes[word] & (~np.uint64(0) << np.uint64(start & 63))
    while bits == 0:
        word += 1
        if word << 6 >= end:
            return end
        bits = holes[word]
    return min(int((word << 6) + lowest_bit(bits)), end)


@jit
def _match(
    filed: CellLists,
    points: F64,
    lists: I32,
    on_edges: Bool,
    other_offsets: I64,
    other_rows: I32,
    event: int,
    cursor: int,
    rows: I32,
    counts: I64,
) -> tuple[int, int, int, int, int]:
    """A `Step` over what `_locate` wrote; the cursor is how many entries were gone through.

    The other rows of an event, if there are any, are written behind its own, and count as entries.
    """
    filled = visited = tested = 0
    sifts, joins = len(filed.dead) > 0, len(other_offsets) > 0
    blocks = filed.blocks
    holes = pointer(filed.holes, 0)
    while event < len(points):
        begun, passed, point = filled, 0, points[event]
        if cursor == 0:
            if filled == len(rows):
                break
            visited += lists.shape[1]
        for i in range(lists.shape[1]):
            slot = int(lists[event, i]) * 3 * blocks
            if filed.offsets[slot] == filed.offsets[slot + 3 * blocks]:
                continue
            for kind in range(3):
                copied = filed.is_plain and (kind == SURE or (kind == EDGE and on_edges[event]))
                checked = kind == DOUBTFUL or (kind == EDGE and not on_edges[event])
                for block in range(blocks):
                    start, end = int(filed.offsets[slot]), int(filed.offsets[slot + 1])
                    slot += 1
                    if passed + end - start <= cursor:
                        passed += end - start
                        continue
                    skip = max(cursor - passed, 0)
                    passed += skip
                    start += skip
                    base = block << BLOCK_BITS
                    dead = pointer(filed.dead, (base >> 5) * sifts)
                    while start < end and filled < len(rows):
                        if copied:
                            until = min(end, start + len(rows) - filled)
                            if sifts and len(filed.loose):
                                until = _next_dead(dead, filed.ids, start, until)
                            elif sifts:
                                until = _next_hole(holes, start, until)
                            _widen(filed.ids, start, until - start, base, rows, filled)
                            filled += until - start
                            passed += until - start
                            start = until
                            if start == end or filled == len(rows):
                                break
                        number = int(filed.ids[start])
                        start += 1
                        passed += 1
                        if sifts and _is_dead(dead, number):
                            continue
                        box = base + number
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
        if joins:
            first, end = other_offsets[event], other_offsets[event + 1]
            start = first + max(cursor - passed, 0)
            until = min(end, start + len(rows) - filled)
            for i in range(start, until):
                rows[filled] = other_rows[i]
                filled += 1
            if until < end:
                counts[event] += filled - begun
                return event, passed + until - first, filled, visited, tested
        counts[event] += filled - begun
        event += 1
        cursor = 0
    return event, 0, filled, visited, tested


@jit
def _locate_all(grid_table: I64, filed_table: I64, points: F64, lists: I32, on_edges: Bool) -> int:
    """Do what `_locate` does, for a batch."""
    grid, filed = opened(grid_table, Grid), opened(filed_table, CellLists)
    return _locate(grid, filed, points, lists, on_edges)


@jit
def _match_all(
    filed_table: I64,
    points: F64,
    lists: I32,
    on_edges: Bool,
    other_offsets: I64,
    other_rows: I32,
    event: int,
    cursor: int,
    rows: I32,
    counts: I64,
) -> tuple[int, int, int, int, int]:
    """Do what `_match` does, for a batch."""
    filed = opened(filed_table, CellLists)
    arguments = points, lists, on_edges, other_offsets, other_rows
    return _match(filed, *arguments, event, cursor, rows, counts)


@jit_single
def _match_one(table: I64, points: F64, others: I32) -> I32:
    """The kernel of a `Single`: the tables behind its own are those of the grid and the lists."""
    reject_nan(points)
    grid, filed = opened(table[OWN:], Grid), opened(table[OWN + _GRID :], CellLists)
    lists = np.empty((1, filed.lists), np.int32)
    on_edges = np.empty(1, np.bool_)
    entries = _locate(grid, filed, points, lists, on_edges)
    rows = np.empty(entries + max_beside(table, others), np.int32)
    counts = np.zeros(1, np.int64)
    arguments = lists, on_edges, counts[:0], others, ZERO, ZERO, rows, counts
    _match(filed, points, *arguments)
    return rows[: append_other_rows(table, points, others, rows, counts[0])]


class Cells:
    """All matches of each event, copied from the lists of its cells."""

    name = "cells"
    options: ClassVar[Options] = {"memory": size("memory")}

    def __init__(self, boxes: Boxes, *, memory: int | None = None, plan: Plan | None = None):
        """Build from boxes, within `memory` bytes in all (default: 1 GiB, or 4 times the boxes).

        A `plan` is used unchanged, if it fits.
        """
        self.dimensions = boxes.dimensions
        earlier = earlier_boxes(boxes, np.arange(len(boxes.lo)))
        kept = boxes.lo, boxes.hi, boxes.owner, earlier
        held = sum(array.nbytes for array in kept)
        self.allowed = max(1 << 30, 4 * held) if memory is None else memory
        alone = np.empty(len(boxes.lo), np.bool_)
        mark_disjoint(boxes.lo, boxes.hi, boxes.owner, alone)
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
        none = np.empty(0, np.uint32), np.empty(0, np.uint64), np.empty(0, np.int64)
        sizes = self._blocks, plan.lists, int(len(boxes.lo) == boxes.rows)
        self._filed = Bundle(CellLists(offsets, ids, *kept, *none, *sizes))
        self._sifted = [0]
        """Entries that were looked up one by one since any were marked; shared by all versions."""
        self._alone: list[SingleEvent] = []
        """For single events, once there was one."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickles and copies hold: nothing that has addresses of its arrays."""
        return {**self.__dict__, "_alone": []}

    def _file(self, boxes: Boxes, indexed: Bool, places: I64, ids: U16) -> int:
        arguments = self._grid.table, boxes.lo, boxes.hi, indexed, self._blocks
        return file(*arguments, *self._scratch(), places, ids)

    def _scratch(self) -> tuple[I64, I64]:
        """Return room to cut a box in: `nodes` and `kinds`."""
        longest = max((len(edges) + 2 for edges in self.plan.edges), default=0)
        nodes, kinds = np.empty((2, len(self.plan.axes), longest), np.int64)
        return nodes, kinds

    @property
    def plan(self) -> Plan:
        """Layout of the cells."""
        return Plan.of(self._grid.arrays)

    @property
    def entries(self) -> int:
        """Ids in all lists."""
        return len(self._filed.arrays.ids)

    @property
    def memory(self) -> int:
        """Bytes of all arrays, boxes included."""
        return self._grid.memory + self._filed.memory

    def without(self, rows: I64) -> Cells:
        """Return a copy of the index without these rows; unchanged arrays are shared."""
        filed, other = self._filed.arrays, copy(self)
        words = self._blocks << BLOCK_BITS >> 5
        dead = filed.dead.copy() if len(filed.dead) else np.zeros(words, np.uint32)
        first = np.searchsorted(filed.owner, rows)
        boxes = ranges_of(first, np.searchsorted(filed.owner, rows, side="right") - first)
        np.bitwise_or.at(dead, boxes >> 5, np.uint32(1) << (boxes & 31).astype(np.uint32))
        loose = np.concatenate([filed.loose, boxes])
        other._filed = Bundle(filed._replace(dead=dead, loose=loose))
        return other

    @property
    def is_loose(self) -> bool:
        """Whether there are dead boxes whose entries aren't marked, but looked up."""
        return len(self._filed.arrays.loose) > 0

    def mark_dead_entries(self, entries: int) -> None:
        """Mark the entries of dead boxes, once that is less work than the look-ups."""
        bundle = self._filed  # another thread may put a new one in its place
        filed = bundle.arrays
        self._sifted[0] += entries
        marks = len(filed.loose) * self.entries // len(filed.lo)
        if self._sifted[0] < _MARK_COST * marks + self.entries // _COPIED:
            return
        holes = np.zeros(self.entries // 64 + 2, np.uint64)
        holes[: len(filed.holes)] = filed.holes
        mark(self._grid.table, bundle.table, filed.loose, *self._scratch(), holes)
        self._filed = Bundle(filed._replace(holes=holes, loose=filed.loose[:0]))
        self._alone[:] = [self.single_event(*ALONE)]
        self._sifted[0] = 0

    def match(self, points: F64, others: MatchRows | None = None) -> MatchRows:
        """Return all matches of all events at once, each with its rows of the others behind."""
        step, most = self._step(points, others)
        return collect(step, len(points), most + 1)

    def stream(self, points: F64, buffer: int = BUFFER) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, matches) in pieces of at most `buffer` rows."""
        return stream(self._step(points)[0], len(points), buffer)

    def match_one(self, point: F64) -> I32:
        """Return the rows of one event, (d,)."""
        points = as_points(point, self.dimensions, one=True).reshape(1, -1)
        if not self._alone:
            self._alone.append(self.single_event(*ALONE))
        rows = self._alone[0](points, NO_ROWS)
        if self.is_loose:
            self.mark_dead_entries(len(rows))
        return rows

    def single_event(self, *beside: Bundle[Any]) -> SingleEvent:
        """Return the matcher of single events, with the tables of indexes searched beside it."""
        return single_event(_match_one, *beside, self._grid, self._filed)

    def _step(self, points: F64, others: MatchRows | None = None) -> tuple[Step, int]:
        """Return the step, and how many rows it can write at most."""
        points = as_points(points, self.dimensions)
        lists = np.empty((len(points), self._filed.arrays.lists), np.int32)
        on_edges = np.empty(len(points), np.bool_)
        tables = self._grid.table, self._filed.table
        most = _locate_all(*tables, points, lists, on_edges)
        if self.is_loose:
            self.mark_dead_entries(most)
        filed = self._filed
        beside = _NONE if others is None else others
        most += len(beside.rows)
        arguments = points, lists, on_edges, beside.offsets, beside.rows
        # A table is addresses of arrays: the step holds the bundle, or they would be gone with it.
        return lambda *place: _match_all(filed.table, *arguments, *place), most
