"""Matching by ranges on the Hilbert curve (paper 004, sections 3.4 and 5: subscription indexing).

A box is the ranges of its cells on the curve of a few selective attributes; an event is the index
of its cell. All boxes with a range that holds the index are candidates, and each is compared with
the event in all attributes, so the answer is exact.

Boxes are grouped by the attributes that tell them apart (`groups_by_axes`), each group with a
curve, cells (quantiles of its own bounds, one more for a missing value) and a table of its own: a
box that doesn't mention an attribute is never laid out along it. The bits of a curve are chosen so
that its boxes have about `ranges` ranges each by the surface formula, and no box has more.

The table of a group. All ends of ranges cut the curve into segments; a range is a run of segments,
an event lies in one, found by binary search in `cuts`. Over the segments lies an implicit binary
tree. A range is filed once, at the lowest node that holds all of it: it then crosses the middle of
that node, so an event in the left half lies in it exactly if the range starts at or before the
event's segment. The lists of a node are ordered by start and by end, and what an event hits is the
head of one of them. Where ranges are few beside the segments, those within a run of 8 segments stay
together, unordered, which saves the lowest levels of the tree.

    axis      flat int64, with `axis_at` (groups + 1): the attributes of each group
    bits      (groups,) int64            bits of its curve
    bottom, top  (groups,) int64         lowest level of its tree that has lists, and the root's
    edges     flat float64, with `edge_at`: cells of each group's attributes
    turns     flat uint32, with `turns_at` (axes + 2): `turns_of` for each number of axes
    cuts      flat uint64, with `cut_at` (groups + 1): where segments begin
    lists     flat int64, with `list_at` (groups + 1): where each node's ranges begin
    start, start_box    (ranges,) uint32, int32   in order of start: segment, box
    end, end_box        (ranges,) uint32, int32   in order of falling end
    lo, hi    (boxes, d) float64, in curve order
    row, earlier        as in rtree.py

Cost: per range 16 bytes, and 8 for each cut (at most two). An event takes, for each group, one
index, one binary search, one list for each level of the tree, and its candidates. `Work` counts
list entries looked at, and boxes compared.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, U32, U64, AnyArray
from rangecast.kernels.bundle import Bundle, opened
from rangecast.kernels.curves.hilbert import (
    ROOM,
    axes_by_selectivity,
    check_curve,
    expected_ranges,
    groups_by_axes,
    index_of,
    indexes_of,
    new_stack,
    ranges_of_boxes,
    turns_of,
)
from rangecast.kernels.grid import cell_of, cells_of, edges_of_bounds
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.shared.candidates import earlier_boxes, held_before, holds
from rangecast.match.shared.frozen import FrozenIndex
from rangecast.model.boxes import Boxes, frozen
from rangecast.model.index_options import Options, whole

_AXES = 4
"""Attributes of a curve, at most."""

_BOTTOM = 3
_MAX_BITS = 12
_SAMPLE = 2000
_LEVEL_SHIFT, _GROUP_SHIFT = 40, 46
"""A cursor is the group, the level and the place in its list, in one number."""


class HilbertArrays(NamedTuple):
    """The arrays of the module's docstring."""

    axis: I64
    axis_at: I64
    bits: I64
    bottom: I64
    top: I64
    edges: F64
    edge_at: I64
    turns: U32
    turns_at: I64
    cuts: U64
    cut_at: I64
    lists: I64
    list_at: I64
    start: U32
    start_box: I32
    end: U32
    end_box: I32
    lo: Annotated[F64, 2]
    hi: Annotated[F64, 2]
    row: I32
    earlier: I32


@jit
def _find_segments(table: HilbertArrays, point: F64, cell: U64, segment: I64) -> None:
    """Write the segment of each group's curve that an event lies in."""
    cuts, edges, turns = table.cuts, table.edges, table.turns
    for group in range(len(table.bits)):
        base = table.axis_at[group]
        axes = table.axis_at[group + 1] - base
        index = np.uint64(0)
        if axes:
            for i in range(axes):
                axis_edges = edges[table.edge_at[base + i] : table.edge_at[base + i + 1]]
                cell[i] = cell_of(axis_edges, point[table.axis[base + i]])
            tabled = turns[table.turns_at[axes] : table.turns_at[axes + 1]]
            index = index_of(cell[:axes], table.bits[group], tabled)
        low, high = table.cut_at[group], table.cut_at[group + 1]
        while high - low > 1:
            middle = (low + high) >> 1
            if cuts[middle] <= index:
                low = middle
            else:
                high = middle
        segment[group] = low - table.cut_at[group]


@jit
def _search(
    table: HilbertArrays,
    point: F64,
    segment_of: I64,
    cursor: int,
    rows: I32,
    filled: int,
) -> tuple[int, int, int, int]:
    """Append the rows of one event from `cursor` on; `segment_of` is what `_find_segments` wrote.

    Returns where to go on when `rows` is full, else -1; the rows filled, and the work.
    """
    visited = tested = 0
    lists, start, start_box = table.lists, table.start, table.start_box
    end, end_box, row, earlier = table.end, table.end_box, table.row, table.earlier
    lo, hi = table.lo, table.hi
    first_group = cursor >> _GROUP_SHIFT
    for group in range(first_group, len(table.bits)):
        segment = segment_of[group]
        bottom, top = table.bottom[group], table.top[group]
        resumed_level, resumed_at = bottom, 0
        if group == first_group and cursor:
            resumed_level = (cursor >> _LEVEL_SHIFT) & 63
            resumed_at = cursor & ((1 << _LEVEL_SHIFT) - 1)
        for level in range(resumed_level, top + 1):
            node = table.list_at[group] + (((1 << top) + segment) >> level)
            at, stop = lists[node], lists[node + 1]
            if level == resumed_level:
                at = max(at, resumed_at)
            unordered = level == bottom
            left = unordered or not (segment >> (level - 1)) & 1
            while at < stop:
                visited += 1
                box = start_box[at] if left else end_box[at]
                reaches = start[at] <= segment if left else end[at] >= segment
                if unordered:
                    reaches &= end[at] >= segment
                elif not reaches:
                    break
                at += 1
                if not reaches:
                    continue
                tested += 1
                if not holds(lo, hi, box, point):
                    continue
                twice, compared = held_before(lo, hi, earlier, box, point)
                tested += compared
                if twice:
                    continue
                if filled == len(rows):
                    slot = (group << _GROUP_SHIFT) | (level << _LEVEL_SHIFT) | (at - 1)
                    return slot, filled, visited, tested
                rows[filled] = row[box]
                filled += 1
    return -1, filled, visited, tested


@jit
def _match(
    addresses: I64, points: F64, event: int, cursor: int, rows: I32, counts: I64
) -> tuple[int, int, int, int, int]:
    """A `Step` of match/result.py."""
    table = opened(addresses, HilbertArrays)
    cell = np.empty(points.shape[1], np.uint64)
    segment = np.empty(len(table.bits), np.int64)
    filled = visited = tested = 0
    while event < len(points):
        before = filled
        point = points[event]
        _find_segments(table, point, cell, segment)
        cursor, filled, seen, compared = _search(table, point, segment, cursor, rows, filled)
        counts[event] += filled - before
        visited += seen
        tested += compared
        if cursor >= 0:
            return event, cursor, filled, visited, tested
        cursor = 0
        event += 1
    return event, 0, filled, visited, tested


@jit_single
def _match_one(addresses: I64, point: F64, cursor: int, rows: I32) -> tuple[int, int]:
    table = opened(addresses, HilbertArrays)
    segment = np.empty(len(table.bits), np.int64)
    _find_segments(table, point, np.empty(len(point), np.uint64), segment)
    cursor, filled, _, _ = _search(table, point, segment, cursor, rows, 0)
    return cursor, filled


@jit
def _mean_expected(first: U64, last: U64, bits: int) -> float:
    total = 0.0
    for i in range(len(first)):
        total += expected_ranges(first[i], last[i], bits, 0)
    return total / len(first)


class Hilbert(FrozenIndex):
    """All matches of each event by ranges on Hilbert curves."""

    name = "hilbert"
    options: ClassVar[Options] = {
        "bits": whole("bits", 1, 64 // _AXES),
        "ranges": whole("ranges", 1),
    }
    _batch, _single = staticmethod(_match), staticmethod(_match_one)

    def __init__(
        self,
        boxes: Boxes,
        *,
        events: F64 | None = None,
        axes: int = _AXES,
        bits: int | None = None,
        ranges: int = 16,
        company: int = 16,
    ):
        """Build the tables.

        `events` is a sample of what will be matched, to choose attributes by; `axes` is how many
        of them a curve has at most, `bits` how fine it is (chosen by the boxes if not given),
        `ranges` how many of them a box may have: more take memory and leave fewer candidates. A
        curve of s axes needs `company` * 3^s boxes.
        """
        if ranges < 1:
            raise UsageError(f"a box needs at least one range on the curve; given: {ranges}")
        check_curve(axes, 1 if bits is None else bits)
        built = _build(boxes, events, axes, bits, ranges, company)
        super().__init__(Bundle(built), boxes.dimensions)

    @property
    def ranges(self) -> int:
        """Ranges of all boxes."""
        return len(self.bundle.arrays.start)

    @property
    def groups(self) -> list[tuple[list[int], int]]:
        """The attributes and the bits of each curve."""
        axes = np.split(self.bundle.arrays.axis, self.bundle.arrays.axis_at[1:-1])
        return [
            (group.tolist(), int(bits))
            for group, bits in zip(axes, self.bundle.arrays.bits, strict=False)
        ]


class _Part(NamedTuple):
    """Entries of one group in the table; boxes and lists are numbered within the group."""

    bits: int
    bottom: int
    top: int
    edges: list[F64]
    order: I64
    cuts: U64
    lists: I64
    start: U32
    start_box: I64
    end: U32
    end_box: I64


def _build(
    boxes: Boxes, events: F64 | None, axes: int, bits: int | None, ranges: int, company: int
) -> HilbertArrays:
    order = axes_by_selectivity(boxes.lo, boxes.hi, events)
    group, group_axes = groups_by_axes(boxes.mentions, order, axes, company)
    members = [np.flatnonzero(group == i) for i in range(len(group_axes))]
    parts = [
        _build_part(boxes.lo[some][:, on], boxes.hi[some][:, on], bits, ranges)
        for some, on in zip(members, group_axes, strict=True)
    ]
    packed = _flat([some[part.order] for some, part in zip(members, parts, strict=True)], np.int64)
    first_box = _offsets([len(some) for some in members])
    first_entry = _offsets([len(part.start) for part in parts])
    turns = [turns_of(size) if size else np.zeros(0, np.uint32) for size in range(axes + 1)]
    edges = [some for part in parts for some in part.edges]
    return HilbertArrays(
        axis=frozen([axis for on in group_axes for axis in on], np.int64),
        axis_at=_offsets([len(on) for on in group_axes]),
        bits=frozen([part.bits for part in parts], np.int64),
        bottom=frozen([part.bottom for part in parts], np.int64),
        top=frozen([part.top for part in parts], np.int64),
        edges=_flat(edges, np.float64),
        edge_at=_offsets([len(some) for some in edges]),
        turns=_flat(turns, np.uint32),
        turns_at=_offsets([len(some) for some in turns]),
        cuts=_flat([part.cuts for part in parts], np.uint64),
        cut_at=_offsets([len(part.cuts) for part in parts]),
        lists=_flat(
            [p.lists + first for p, first in zip(parts, first_entry, strict=False)], np.int64
        ),
        list_at=_offsets([len(part.lists) for part in parts]),
        start=_flat([part.start for part in parts], np.uint32),
        start_box=_flat(
            [p.start_box + first for p, first in zip(parts, first_box, strict=False)], np.int32
        ),
        end=_flat([part.end for part in parts], np.uint32),
        end_box=_flat(
            [p.end_box + first for p, first in zip(parts, first_box, strict=False)], np.int32
        ),
        lo=frozen(boxes.lo[packed], np.float64),
        hi=frozen(boxes.hi[packed], np.float64),
        row=frozen(boxes.owner[packed], np.int32),
        earlier=frozen(earlier_boxes(boxes, packed), np.int32),
    )


def _flat(parts: list[Any], dtype: npt.DTypeLike) -> AnyArray:
    return frozen(np.concatenate([np.zeros(0, dtype), *parts]), dtype)


def _offsets(lengths: list[int]) -> I64:
    return frozen(np.concatenate([[0], np.cumsum(lengths)]), np.int64)


def _build_part(lo: F64, hi: F64, bits: int | None, limit: int) -> _Part:
    """Return the table of one group, from the bounds (n, axes) on its attributes."""
    count, axes = lo.shape
    if not axes:
        everywhere = np.zeros(count, np.uint32)
        box = np.arange(count)
        lists = np.array([0, 0, count])
        cuts = np.zeros(1, np.uint64)
        return _Part(0, 0, 0, [], box, cuts, lists, everywhere, box, everywhere, box)
    bits, edges = _choose_cells(lo, hi, bits, limit)
    first, last = _cells(edges, lo), _cells(edges, hi)
    middle = np.empty(count, np.uint64)
    indexes_of((first + last) >> np.uint64(1), bits, turns_of(axes), middle)
    order = np.argsort(middle, kind="stable")
    starts, ends, offsets = _ranges(first[order], last[order], bits, limit)
    box = np.repeat(np.arange(count), np.diff(offsets))
    past = ends[ends != np.iinfo(np.uint64).max] + np.uint64(1)
    cuts = np.unique(np.concatenate([np.zeros(1, np.uint64), starts, past]))
    start = np.searchsorted(cuts, starts).astype(np.uint32)
    end = (np.searchsorted(cuts, ends, "right") - 1).astype(np.uint32)
    top = int(len(cuts) - 1).bit_length()
    bottom = min(top, _BOTTOM) if len(start) < 2 * len(cuts) else 0
    level = np.maximum(np.frexp((start ^ end).astype(np.float64))[1], bottom)
    node = ((1 << top) + start.astype(np.int64)) >> level
    by_start = np.lexsort((start, node))
    by_end = np.lexsort((np.where(level == bottom, start, -end.astype(np.int64)), node))
    lists = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=2 << (top - bottom)))])
    return _Part(
        bits=bits,
        bottom=bottom,
        top=top,
        edges=edges,
        order=order,
        cuts=cuts,
        lists=lists,
        start=start[by_start],
        start_box=box[by_start],
        end=end[by_end],
        end_box=box[by_end],
    )


def _choose_cells(lo: F64, hi: F64, bits: int | None, limit: int) -> tuple[int, list[F64]]:
    """Return bits and edges: as fine as the ranges allow, and no finer than there are bounds."""
    axes = lo.shape[1]
    if bits is not None:
        return bits, [edges_of_bounds(lo[:, i], hi[:, i], 1 << bits) for i in range(axes)]
    sample = slice(None, None, -(-len(lo) // _SAMPLE))
    chosen = 1, [edges_of_bounds(lo[:, i], hi[:, i], 2) for i in range(axes)]
    for trial in range(2, min(_MAX_BITS, 64 // axes) + 1):
        edges = [edges_of_bounds(lo[:, i], hi[:, i], 1 << trial) for i in range(axes)]
        first, last = _cells(edges, lo[sample]), _cells(edges, hi[sample])
        if _mean_expected(first, last, trial) > limit:
            break
        chosen = trial, edges
        if all(len(axis_edges) + 2 < 1 << trial for axis_edges in edges):
            break
    return chosen


def _cells(edges: list[F64], values: F64) -> U64:
    """Return the cells (n, axes) of values (n, axes)."""
    cells = np.empty(values.shape, np.uint64)
    for i, axis_edges in enumerate(edges):
        cells[:, i] = cells_of(axis_edges, values[:, i])
    return cells


def _ranges(first: U64, last: U64, bits: int, limit: int) -> tuple[U64, U64, I64]:
    """Return the ranges of all boxes: starts, ends, and where those of each box begin."""
    room = ROOM * limit
    starts, ends = np.empty(2 * room, np.uint64), np.empty(2 * room, np.uint64)
    offsets = np.zeros(len(first) + 1, np.int64)
    stack = new_stack()
    box = 0
    while True:
        box, _ = ranges_of_boxes(first, last, bits, limit, box, starts, ends, offsets, stack)
        filled = int(offsets[box])
        if box == len(first):
            return starts[:filled], ends[:filled], offsets
        more = np.empty(max(len(starts), room), np.uint64)
        starts = np.concatenate([starts[:filled], more])
        ends = np.concatenate([ends[:filled], more])
