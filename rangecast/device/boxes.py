"""Boxes of a set in a device's memory, in row order: an edit is a write.

A box is filed under some of the attributes that it mentions, its lanes (`cuda/prelude.cu`), and
also stores all of its terms, for cases that the codes leave undecided. New boxes are appended; a
removed box gets one word overwritten, so that no event matches it. When the arrays are full, or the
edges were chosen for far fewer boxes, the set is laid out again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.device.edges import (
    Edges,
    KeyPlan,
    cells_between,
    distinct_edges,
    edges_of,
    key_plan,
)
from rangecast.device.flight import Slot
from rangecast.device.runtime import DeviceArray, Runtime, upload
from rangecast.device.source import EVENTS, MAX_FILED, Shape, shape_for
from rangecast.kernels.arrays import F64, I32, I64, U8, U16, AnyArray, grown, offsets_of, ranges_of
from rangecast.model.sets.rowstore import RowArrays, bounds_of

_SAMPLE = 200_000
"""Boxes whose bounds make the edges."""
_MOST_LANES = 8
_FITTING = 0.9
"""The share of boxes whose mentions all have a lane."""
_SPARE, _MOST_TERMS = 255, 254
_THREADS = 256
_GROWTH = 2
"""Factor by which a set outgrows its edges."""
_LEAST_ROOM = 4096
_STAGED_BYTES = 1 << 22
"""Bytes of an array that is copied to the device by way of pinned memory, at most."""


class Terms(NamedTuple):
    """Boxes by the attributes that they mention; boxes of a row are contiguous, rows ascend."""

    rows: I64
    """The rows, each once."""
    boxes: I64
    """Boxes of each of them."""
    counts: I64
    """Terms of each box."""
    axis: U16
    lo: F64
    hi: F64

    @property
    def owner(self) -> I32:
        """Row of each box."""
        if len(self.counts) == len(self.rows) and self.boxes.max(initial=1) == 1:
            return self.rows.astype(np.int32)
        return np.repeat(self.rows, self.boxes).astype(np.int32)


def terms_of_rows(arrays: RowArrays, rows: I64, free: frozenset[int] = frozenset()) -> Terms:
    """Return the boxes of some rows, ascending, without the attributes in `free`."""
    bounds = arrays.bounds.arrays
    if len(rows) and rows[0] < arrays.sourced:
        assert arrays.source is not None
        lo, hi, owner = bounds_of(arrays, rows, arrays.source.dimensions)
        mentioned = (lo != -np.inf) | (hi != np.inf)
        mentioned[:, list(free)] = False
        box, axis = np.nonzero(mentioned)
        per_box, counts = np.bincount(box, minlength=len(lo)), np.bincount(owner)
        return Terms(rows, counts, per_box, axis.astype(np.uint16), lo[box, axis], hi[box, axis])
    whole = len(rows) and rows[-1] - rows[0] == len(rows) - 1
    if whole:  # slices, not copies
        counts = np.diff(bounds.first_box[rows[0] : rows[-1] + 2]).astype(np.int64)
        boxes = slice(bounds.first_box[rows[0]], bounds.first_box[rows[-1] + 1])
        per_box = np.diff(bounds.first_term[boxes.start : boxes.stop + 1])
        terms = slice(bounds.first_term[boxes.start], bounds.first_term[boxes.stop])
        columns = bounds.axis[terms], bounds.lo[terms], bounds.hi[terms]
    else:
        first = bounds.first_box[rows].astype(np.int64)
        counts = bounds.first_box[rows + 1] - first
        own_boxes = ranges_of(first, counts)
        per_box = bounds.first_term[own_boxes + 1] - bounds.first_term[own_boxes]
        each = ranges_of(bounds.first_term[own_boxes], per_box)
        columns = bounds.axis[each], bounds.lo[each], bounds.hi[each]
    if free:
        kept = ~np.isin(columns[0], list(free))
        before = offsets_of(kept)
        ends = offsets_of(per_box)
        per_box = before[ends[1:]] - before[ends[:-1]]
        columns = columns[0][kept], columns[1][kept], columns[2][kept]
    return Terms(rows, counts, per_box, *columns)


class DeviceBoxes:
    """Boxes on a device, and the kernels compiled to search them."""

    def __init__(self, runtime: Runtime, dimensions: int, terms: Terms):
        self.runtime = runtime
        self.dimensions = dimensions
        self.count = 0
        self.terms = 0
        self.has_several_boxes = False
        """Whether some row has several boxes."""
        self.is_plain = True
        """Whether each box has the number of its row: then the arrays below are empty."""
        self._staging = Slot(runtime)
        self._owner = np.empty(0, np.int32)
        self._first_of_row = np.empty(0, np.int64)
        self._count_of_row = np.empty(0, np.int64)
        self._laid_out = len(terms.counts)
        self._plan(terms)
        self._allocate(_GROWTH * len(terms.counts), _GROWTH * len(terms.axis))
        self.append(terms)

    def _plan(self, terms: Terms) -> None:
        """Choose lanes, filed attributes and edges."""
        counts = terms.counts
        lanes = next(
            (n for n in (2, 4) if not len(counts) or np.mean(counts <= n) >= _FITTING), _MOST_LANES
        )
        step = max(1, len(counts) // _SAMPLE)
        sampled = np.arange(0, len(counts), step)
        ends = offsets_of(counts)
        sampled_terms = ranges_of(ends[sampled], counts[sampled])
        axis, lo, hi = terms.axis[sampled_terms], terms.lo[sampled_terms], terms.hi[sampled_terms]
        mentions = np.bincount(axis, minlength=self.dimensions)
        mentioned = np.argsort(-mentions, kind="stable")[: max(1, np.count_nonzero(mentions))]
        bounds = [(lo[axis == j], hi[axis == j]) for j in mentioned[:MAX_FILED]]
        needed = max(distinct_edges(*each) for each in bounds)
        self.shape: Shape = shape_for(lanes, len(mentioned), needed, self.runtime.shared_memory)
        filed = mentioned[: self.shape.filed]
        self.edges: Edges = edges_of(bounds[: len(filed)], self.shape.table_rows - 3)
        self._filed_as = np.full(self.dimensions, -1, np.int32)
        self._filed_as[filed] = np.arange(len(filed))
        self.kernels = self.runtime.compile(self.shape)
        self.filed_as = upload(self.runtime, self._filed_as, np.int32)
        self.tables = tuple(upload(self.runtime, each, each.dtype) for each in self.edges)
        self._plans: dict[int, tuple[KeyPlan, DeviceArray, DeviceArray]] = {}

    def _allocate(self, boxes: int, terms: int) -> None:
        empty, lanes = self.runtime.empty, self.shape.lanes
        self.room = max(boxes, _LEAST_ROOM), max(terms, _LEAST_ROOM)
        self.rows = empty((self.room[0], lanes), np.uint32)
        self.finer = empty((self.room[0], lanes), np.uint32)
        self.axes = empty((self.room[0], (lanes + 3) // 4), np.uint32)
        self.owner = empty(self.room[0], np.int32)
        self.first_term = self.runtime.zeros(self.room[0] + 1, np.uint32)
        self.axis = empty(self.room[1], np.uint16)
        self.lo, self.hi = empty(self.room[1], np.float64), empty(self.room[1], np.float64)
        self.scores: DeviceArray = None
        self.arrivals: DeviceArray = None

    @property
    def memory(self) -> int:
        """Device memory used, in bytes."""
        arrays = (self.rows, self.finer, self.axes, self.owner, self.first_term)
        ranks = [each for each in (self.scores, self.arrivals) if each is not None]
        held = (*arrays, self.axis, self.lo, self.hi, *self.tables, *ranks)
        return sum(int(array.nbytes) for array in held)

    def has_room(self, terms: Terms) -> bool:
        """Return whether these boxes can be appended; if not, lay out the set again."""
        boxes = self.count + len(terms.counts)
        return (
            boxes <= self.room[0]
            and self.terms + len(terms.axis) <= self.room[1]
            and boxes <= max(_GROWTH * self._laid_out, _LEAST_ROOM)
            and not (len(terms.axis) and int(terms.axis.max()) >= self.dimensions)
        )

    def append(self, terms: Terms) -> None:
        """Append boxes, on the current stream."""
        boxes, first = len(terms.counts), self.count
        if not boxes:
            return
        copy_in, owner = self._copy_in, terms.owner
        new = slice(first, first + boxes)
        new_terms = slice(self.terms, self.terms + len(terms.axis))
        ends = (self.terms + np.cumsum(terms.counts)).astype(np.uint32)
        copy_in("ends", self.first_term[first + 1 : first + 1 + boxes], ends)
        copy_in("owner", self.owner[new], owner)
        if len(terms.axis):
            copy_in("axis", self.axis[new_terms], terms.axis)
            copy_in("lo", self.lo[new_terms], terms.lo)
            copy_in("hi", self.hi[new_terms], terms.hi)
        lanes = self._lanes_of(terms)
        self.kernels.launch(
            "code_boxes",
            -(-boxes // _THREADS),
            _THREADS,
            np.int32(first),
            np.int32(boxes),
            None if lanes is None else upload(self.runtime, lanes, np.uint8),
            *(self.first_term, self.axis, self.lo, self.hi, self.filed_as, *self.tables),
            np.int32(self.shape.table_rows),
            *(self.rows, self.finer, self.axes),
        )
        self._record_rows(terms, owner)
        self.count += boxes
        self.terms += len(terms.axis)

    def _record_rows(self, terms: Terms, owner: I32) -> None:
        """Record where the boxes of rows are stored."""
        follows = int(terms.rows[0]) == self.count
        is_whole = int(terms.rows[-1]) - int(terms.rows[0]) == len(terms.counts) - 1
        if self.is_plain and follows and is_whole and len(terms.rows) == len(terms.counts):
            return
        if self.is_plain:  # up to here, rows and boxes had the same numbers
            self._owner = np.arange(self.count, dtype=np.int32)
            self._first_of_row = np.arange(self.count)
            self._count_of_row = np.ones(self.count, np.int64)
            self.is_plain = False
        last = int(terms.rows[-1]) + 1
        if len(self._owner) < self.count + len(owner):
            self._owner = grown(self._owner, _GROWTH * (self.count + len(owner)))
        self._owner[self.count : self.count + len(owner)] = owner
        if len(self._first_of_row) < last:
            self._first_of_row = grown(self._first_of_row, _GROWTH * last, fill=-1)
            self._count_of_row = grown(self._count_of_row, _GROWTH * last)
        self._first_of_row[terms.rows] = self.count + np.cumsum(terms.boxes) - terms.boxes
        self._count_of_row[terms.rows] = terms.boxes
        self.has_several_boxes = self.has_several_boxes or bool((terms.boxes > 1).any())

    def _copy_in(self, name: str, target: DeviceArray, array: AnyArray) -> None:
        """Copy to the device; small arrays go through pinned memory, which is faster."""
        source = array
        if array.nbytes <= _STAGED_BYTES:
            source = self._staging.pinned(name, len(array), array.dtype)
            np.copyto(source, array)
        self.runtime.copy_in(target, np.ascontiguousarray(source))

    def _lanes_of(self, terms: Terms) -> U8 | None:
        """Return the terms that file each box, narrowest first; `None`: all terms, in order."""
        lanes = self.shape.lanes
        is_fitting = int(terms.counts.max()) <= lanes
        if is_fitting and self.shape.filed == self.dimensions:
            return None
        filed = self._filed_as[terms.axis]
        if is_fitting and (filed >= 0).all():
            return None
        box = np.repeat(np.arange(len(terms.counts)), terms.counts)
        rank_in_box = np.arange(len(box)) - np.repeat(
            np.cumsum(terms.counts) - terms.counts, terms.counts
        )
        usable = np.flatnonzero((filed >= 0) & (rank_in_box < _MOST_TERMS))
        width = cells_between(
            self.edges, filed[usable].astype(np.int64), terms.lo[usable], terms.hi[usable]
        )
        order = usable[np.lexsort((width, box[usable]))]  # the narrowest of each box first
        rank = np.arange(len(order)) - np.searchsorted(box[order], box[order])
        out = np.full((len(terms.counts), lanes), _SPARE, np.uint8)
        first = rank < lanes
        out[box[order[first]], rank[first]] = rank_in_box[order[first]]
        return out

    def kill(self, rows: I64) -> None:
        """Make the boxes of removed rows unmatchable, on the current stream."""
        dead = rows[rows < self.count]
        if not self.is_plain:
            known = rows[rows < len(self._first_of_row)]
            known = known[self._first_of_row[known] >= 0]
            dead = ranges_of(self._first_of_row[known], self._count_of_row[known])
        if len(dead):
            numbers = self._staging.array("dead", len(dead), np.uint32)
            self._copy_in("dead", numbers, dead.astype(np.uint32))
            blocks = -(-len(dead) // _THREADS)
            self.kernels.launch(
                "kill_boxes", blocks, _THREADS, numbers, np.int32(len(dead)), self.rows
            )

    def set_scores(self, scores: F64, arrivals: I64) -> None:
        """Copy the scores and arrivals of boxes appended since the last call.

        The copy is on the current stream.
        """
        if self.scores is None:
            self.scores = self.runtime.empty(self.room[0], np.float64)
            self.arrivals = self.runtime.empty(self.room[0], np.int64)
            self._ranked = 0
        new = slice(self._ranked, self.count)
        if self._ranked < self.count:
            rows = new if self.is_plain else self._owner[new]
            self._copy_in("scores", self.scores[new], scores[rows])
            self._copy_in("arrivals", self.arrivals[new], arrivals[rows])
            self._ranked = self.count

    def key_plan(self, tiles: int) -> tuple[KeyPlan, DeviceArray, DeviceArray]:
        """Return the key plan of a batch, and its arrays on the device."""
        if tiles not in self._plans:
            plan = key_plan(self.edges.coarse, tiles)
            stream = self.runtime.new_stream()
            with stream:
                bits = upload(self.runtime, plan.of_attribute, np.int32)
                places = upload(self.runtime, plan.places, np.int32)
            stream.synchronize()  # all streams use it from now on
            self._plans[tiles] = plan, bits, places
        return self._plans[tiles]

    @property
    def searched(self) -> tuple[DeviceArray, ...]:
        """Leading arguments of every search kernel."""
        return (
            *(self.rows, self.finer, self.axes, self.first_term),
            *(self.axis, self.lo, self.hi, self.owner),
        )


def tiles_of(events: int) -> int:
    """Return the number of tiles for a number of events."""
    return -(-events // EVENTS)
