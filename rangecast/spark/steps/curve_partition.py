"""Space cut into partitions, for covering: runs of the Hilbert curve over selective attributes.

The `AXES` most selective attributes are cut into cells at quantiles of sampled events; the cells
are put on a Hilbert curve, and the curve is cut into runs of about equal load. An event lies in
exactly one partition. A box goes to every partition that it meets, so the partition of an event has
all boxes that may contain it. A partition with far more than its share of events, as where most
events are equal, is split: its events are dealt out among several groups, each of which gets its
boxes.

Half of the load is the cost of sampled events (1 for each, and `_MATCH` for each of its matches),
half is the number of boxes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64, I64, U64
from rangecast.kernels.curves.hilbert import (
    ROOM,
    axes_by_selectivity,
    indexes_of,
    new_stack,
    ranges_of_box,
    turns_of,
)
from rangecast.kernels.grid import cells_of
from rangecast.kernels.jit import jit
from rangecast.match.slabs.index import Slabs
from rangecast.model.boxes import Boxes

AXES, BITS = 2, 6
"""Attributes that space is cut by, and bits of each: more of either put a box in more places."""
MAX_PARTITIONS = 2048
"""Maximum number of partitions."""
_RANGES = 64
_MATCH = 0.1
_HELPS = 0.8
"""Twice as many partitions must bring the heaviest down to this share."""
_COPIES = 8.0
"""Times a box may be sent on average, if more partitions than tasks are made for it."""


class CurvePartition(NamedTuple):
    """Cut of the space. Partition p is the curve from starts[p] to before starts[p + 1]."""

    axes: I64
    edges: tuple[F64, ...]
    """Edges of each axis."""
    starts: U64
    first_group: I64
    """The groups of partition p are first_group[p] .. first_group[p + 1] - 1: one, or several if
    it is split."""

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.starts)

    @property
    def groups(self) -> int:
        """Number of groups, including those of split partitions."""
        return int(self.first_group[-1])

    def groups_of_events(self, points: F64, deal: I64) -> I64:
        """Return the group of each event, (events, d).

        `deal` decides among the groups of a split partition. It must depend on the event alone: a
        task that is run again must put it into the same group.
        """
        part = self._parts_of_events(points)
        first, last = self.first_group[part], self.first_group[part + 1]
        return first + deal % (last - first)

    def groups_of_parts(self, parts: I64) -> tuple[I64, I64]:
        """Return every group of each partition, and the index of the partition in `parts`."""
        counts = self.first_group[parts + 1] - self.first_group[parts]
        position = np.repeat(np.arange(len(parts)), counts)
        within = np.arange(len(position)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.first_group[parts][position] + within, position

    def _parts_of_events(self, points: F64) -> I64:
        cells = self.cells(points)
        index = np.empty(len(points), np.uint64)
        indexes_of(cells, BITS, turns_of(len(self.axes)), index)
        return np.searchsorted(self.starts, index, "right").astype(np.int64) - 1

    def cells(self, points: F64) -> U64:
        """Return the cell of each point on each axis that space is cut by."""
        cells = np.empty((len(points), len(self.axes)), np.uint64)
        for index, axis in enumerate(self.axes.tolist()):
            cells[:, index] = cells_of(self.edges[index], points[:, axis])
        return cells

    def parts_of_boxes(self, lo: F64, hi: F64) -> tuple[I64, I64]:
        """Return (box, partition) for every partition that each box intersects, boxes ascending."""
        first, last = self.cells(lo), self.cells(hi)
        room = max(4 * len(lo), 2 * self.partitions)
        stack, ranges = new_stack(), np.empty((2, ROOM * _RANGES), np.uint64)
        boxes, parts = [], []
        box = 0
        while box < len(lo):
            of_box, of_part = np.empty(room, np.int64), np.empty(room, np.int64)
            box, filled = _place(
                first, last, self.starts, box, of_box, of_part, ranges[0], ranges[1], stack
            )
            boxes.append(of_box[:filled])
            parts.append(of_part[:filled])
        empty = np.empty(0, np.int64)
        return np.concatenate([empty, *boxes]), np.concatenate([empty, *parts])


def runs(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the slices of a sorted batch with the same `group` and `kind` (0 or 1)."""
    key = 2 * batch.column("group").to_numpy().astype(np.int64) + batch.column("kind").to_numpy()
    ends = [*np.flatnonzero(np.diff(key)) + 1, len(key)] if len(key) else []
    begin = 0
    for end in ends:
        yield batch.slice(begin, end - begin)
        begin = end


@jit
def _place(
    first: U64,
    last: U64,
    starts: U64,
    box: int,
    of_box: I64,
    of_part: I64,
    begins: U64,
    ends: U64,
    stack: U64,
) -> tuple[int, int]:
    """Write the partitions of boxes from `box` on; return the next box and how many were written.

    `first` and `last` are the cells (n, axes) at a box's two corners. Ranges of a box ascend, so a
    partition that two of them share is met twice in a row.
    """
    filled = 0
    while box < len(first) and filled + len(starts) <= len(of_box):
        count, _ = ranges_of_box(first[box], last[box], BITS, _RANGES, begins, ends, stack)
        seen = -1
        for number in range(count):
            part = np.searchsorted(starts, begins[number], "right") - 1
            part = max(part, seen + 1)
            while part < len(starts) and starts[part] <= ends[number]:
                of_box[filled], of_part[filled] = box, part
                filled += 1
                seen = part
                part += 1
        box += 1
    return box, filled


def cut_space(
    sample: Boxes, events: F64, *, scale: float, tasks: int, max_boxes: float
) -> CurvePartition:
    """Cut space into at least `tasks` partitions, if enough cells have load.

    `sample` and `events` are samples of the boxes, one in `scale`, and of the events. Partitions
    are made smaller until none gets more than `max_boxes`, or until that no longer helps: where
    boxes are so large that they go to most partitions, more partitions only make more copies.
    """
    axes = axes_by_selectivity(sample.lo, sample.hi, events if len(events) else None)[:AXES]
    values = np.concatenate([events, sample.lo, sample.hi])
    edges = tuple(_quantiles(values[:, axis], (1 << BITS) - 2) for axis in axes.tolist())
    whole = CurvePartition(axes, edges, np.zeros(1, np.uint64), np.arange(2))
    index, load = _loads(whole, sample, events, scale)
    wanted, best, lightest = tasks, whole, np.inf
    while True:
        cut = _cut_by_load(whole, index, load, wanted, tasks)
        _, parts = cut.parts_of_boxes(sample.lo, sample.hi)
        boxes = np.bincount(parts, minlength=cut.partitions)
        heaviest = scale * boxes.max()
        copies = (boxes * np.diff(cut.first_group)).sum() / max(1, len(sample.lo))
        if wanted > tasks and (heaviest > _HELPS * lightest or copies > _COPIES):
            return best
        if heaviest <= max_boxes or wanted >= MAX_PARTITIONS:
            return cut
        wanted, best, lightest = 2 * wanted, cut, heaviest


def _loads(whole: CurvePartition, sample: Boxes, events: F64, scale: float) -> tuple[U64, F64]:
    """Return places on the curve, ascending, and the load of each.

    Half of the load is that of the events, half that of the boxes, by their two corners: so a
    partition has neither far too many events nor far too many boxes.
    """
    matches = np.zeros(len(events))
    for first, matches_of in Slabs(sample).stream(events):  # piece by piece: they may be very many
        matches[first : first + len(matches_of.offsets) - 1] += np.diff(matches_of.offsets)
    busy = 1 + _MATCH * scale * matches
    corners = np.concatenate([sample.lo, sample.hi])
    index = np.empty(len(events) + len(corners), np.uint64)
    cells = whole.cells(np.concatenate([events, corners]))
    indexes_of(cells, BITS, turns_of(len(whole.axes)), index)
    load = np.concatenate(
        [busy / max(1.0, busy.sum()), np.full(len(corners), 1 / max(1, len(corners)))]
    )
    order = np.argsort(index, kind="stable")
    return index[order], load[order]


def _cut_by_load(
    whole: CurvePartition, index: U64, load: F64, wanted: int, tasks: int
) -> CurvePartition:
    """Cut the curve at equal shares of the load; split partitions above a task's share."""
    upto = np.cumsum(load)
    if not len(upto):
        return whole
    places = np.searchsorted(upto, np.arange(1, wanted) * upto[-1] / wanted)
    starts = np.unique(np.concatenate([np.zeros(1, np.uint64), index[places]]))
    part = np.searchsorted(starts, index, "right") - 1
    share = np.bincount(part, load, minlength=len(starts)) * tasks / upto[-1]
    splits = np.maximum(1, np.floor(share + 0.5)).astype(np.int64)
    return whole._replace(starts=starts, first_group=np.concatenate([[0], np.cumsum(splits)]))


def _quantiles(values: F64, most: int) -> F64:
    """Return at most `most` distinct finite edges that cut values into about equal shares."""
    finite = np.sort(values[np.isfinite(values)])
    if not len(finite):
        return np.empty(0)
    places = (np.arange(1, most + 1) * len(finite)) // (most + 1)
    return np.unique(finite[places])
