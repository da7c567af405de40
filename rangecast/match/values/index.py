"""Value lists: for each value of one attribute, the boxes that ask for it.

Made for equality over many values, such as `symbol = 'ABC' and price < 5`: the value of an event
leads to its boxes directly. A box that is bounded on nothing else is copied out; any other is
compared on what else it mentions. A box that has a few neighbouring codes, as those of a short
list, is an entry for each of them.

    values        (values,)    float64   ascending
    first         (values + 1,)  int64   first entry of each value
    sure          (values,)    int64     end of its entries that are bounded on nothing else
    row           (entries,)   int32     subscription of each entry
    first_bound   (entries + 1,) int64   its bounds on other attributes: axis, lo, hi
    always        int                    first of the entries that are compared with each event:
                                         those of subscriptions with a box that has no value

Within a value, entries that need no comparison are first, then those of one subscription are next
to each other, so that it is reported once. Cost: a binary search, and the entries of the value.
`Work` counts entries (`visited`) and those compared (`tested`).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, Bool, offsets_of
from rangecast.kernels.bits import ZERO, prefetch
from rangecast.kernels.bundle import Bundle, opened, pointer, pointers
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.shared.frozen import FrozenIndex
from rangecast.match.single_event import (
    OWN,
    SingleEvent,
    append_other_rows,
    max_beside,
    reject_nan,
    single_event,
)
from rangecast.model.attributes.base import Boolean, Integer
from rangecast.model.attributes.text import Category, Hierarchy, String
from rangecast.model.boxes import Boxes

MAX_CODES = 64
"""Neighbouring codes of a box that are an entry each."""
_EXACT = 2.0**52
"""Below this all integers are doubles."""
_ENTRIES = 4
"""Entries per box, at most."""
_TOGETHER = 32
"""Events whose entries are fetched together."""


class ValueArrays(NamedTuple):
    """Arrays of the value index; the module docstring describes the layout."""

    values: F64
    first: I64
    sure: I64
    row: I32
    first_bound: I64
    axis: I32
    lo: F64
    hi: F64
    dead: U8
    """(subscriptions,) 1 if it is left out; empty: none is."""
    own_axis: int
    distinct: int
    """Number of values."""
    always: int
    entries: int
    masked: int


@jit
def _find(at: Any, value: float) -> int:
    """Return the number of a value; -1 if no box has it."""
    low, high = ZERO, at.distinct
    while low < high:
        middle = (low + high) >> 1
        if at.values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low if low < at.distinct and at.values[low] == value else -1


@jit
def _holds(at: Any, entry: int, points: Any, event: int) -> bool:
    for bound in range(at.first_bound[entry], at.first_bound[entry + 1]):
        if not at.lo[bound] <= points[event + at.axis[bound]] <= at.hi[bound]:
            return False
    return True


@jit
def _entry_count(at: Any, value: int) -> int:
    """Return the number of entries to search for an event with this value."""
    own = at.first[value + 1] - at.first[value] if value >= 0 else ZERO
    return int(own + at.entries - at.always)


@jit
def _search(
    at: Any, points: Any, event: int, value: int, cursor: int, rows: Any, room: int
) -> tuple[int, int, int]:
    """Append the rows of an event, from an entry on.

    Returns the entry to resume at if there is no more room, else -1; the rows; the entries tested.
    """
    begin = at.first[value] if value >= 0 else ZERO
    sure = at.sure[value] - begin if value >= 0 else ZERO
    own = at.first[value + 1] - begin if value >= 0 else ZERO
    position, filled, tested = cursor, ZERO, ZERO
    if at.masked == 0 and position < sure:
        filled = min(sure - position, room)
        for i in range(filled):
            rows[i] = at.row[begin + position + i]
        position += filled
        if position < sure:
            return position, filled, tested
    last = np.int32(-1)
    total = own + at.entries - at.always
    while position < total:
        entry = begin + position if position < own else at.always + position - own
        row = at.row[entry]
        if row != last and (at.masked == 0 or at.dead[row] == 0):
            if position >= sure:
                tested += 1
            if position < sure or _holds(at, entry, points, event):
                if filled == room:
                    return position, filled, tested
                rows[filled] = last = row
                filled += 1
        position += 1
    return -1, filled, tested


@jit
def _match(
    table: I64, points: F64, event: int, cursor: int, rows: I32, counts: I64
) -> tuple[int, int, int, int, int]:
    """`Step` of `match.result`; the cursor is an entry of the event's."""
    arrays = opened(table, ValueArrays)
    at = pointers(arrays)
    here, d = pointer(points, 0), points.shape[1]
    filled = visited = tested = ZERO
    values = np.empty(_TOGETHER, np.int64)
    for start in range(event, len(points), _TOGETHER):
        last = min(start + _TOGETHER, len(points))
        for e in range(start, last):
            value = _find(at, points[e, at.own_axis])
            values[e - start] = value
            if value >= 0:
                prefetch(at.first, value)
                prefetch(at.sure, value)
        for e in range(start, last):
            value = values[e - start]
            if value >= 0:
                prefetch(at.row, at.first[value])
        for e in range(start, last):
            value = values[e - start]
            out, room = pointer(rows, filled), len(rows) - filled
            visited -= cursor
            cursor, hits, compared = _search(at, here, e * d, value, cursor, out, room)
            visited += _entry_count(at, value) if cursor < 0 else cursor
            filled += hits
            counts[e] += hits
            tested += compared
            if cursor >= 0:
                return e, cursor, filled, visited, tested
            cursor = 0
    return len(points), 0, filled, visited, tested


@jit_single
def _match_one(table: I64, point: F64, cursor: int, rows: I32) -> tuple[int, int]:
    at = pointers(opened(table, ValueArrays))
    here = pointer(point, 0)
    value = _find(at, here[at.own_axis])
    output = cursor, pointer(rows, 0), len(rows)
    cursor, filled, _ = _search(at, here, ZERO, value, *output)
    return cursor, filled


@jit_single
def _match_single(table: I64, points: F64, others: I32) -> I32:
    """Kernel of a `SingleEvent`; the table of the lists starts at `OWN`."""
    reject_nan(points)
    at = pointers(opened(table[OWN:], ValueArrays))
    here = pointer(points, 0)
    value = _find(at, here[at.own_axis])
    room = _entry_count(at, value)
    rows = np.empty(room + max_beside(table, others), np.int32)
    _, filled, _ = _search(at, here, ZERO, value, ZERO, pointer(rows, 0), room)
    return rows[: append_other_rows(table, points, others, rows, filled)]


class Values(FrozenIndex):
    """Matching index: value lists of one attribute."""

    name = "values"
    _batch, _single = staticmethod(_match), staticmethod(_match_one)

    def __init__(self, boxes: Boxes, *, axis: int | None = None):
        """Build from boxes; `axis` is by default the attribute with the most values."""
        own = best_axis(boxes, range(boxes.dimensions)) if axis is None else axis
        super().__init__(Bundle(_build(boxes, own)), boxes.dimensions)
        self._rows = boxes.rows

    def without(self, rows: I64) -> Values:
        """Return an index without some subscriptions, which shares everything else."""
        arrays: ValueArrays = self.bundle.arrays
        dead = arrays.dead.copy() if arrays.masked else np.zeros(self._rows, np.uint8)
        dead[rows] = 1
        other = copy(self)
        other.bundle = Bundle(arrays._replace(dead=dead, masked=1))
        return other

    def single_event(self, *beside: Bundle[Any]) -> SingleEvent:
        """Return the single-event kernel, bound to the tables of the rows beside the index."""
        return single_event(_match_single, *beside, self.bundle)


def codes_on(boxes: Boxes, axis: int) -> I64:
    """Return how many values each box has on an attribute; 0 if they can't be listed."""
    lo, hi = boxes.lo[:, axis], boxes.hi[:, axis]
    counts: I64 = ((lo == hi) & np.isfinite(lo)).astype(np.int64)
    attribute = None if boxes.space is None else boxes.space.attributes[axis]
    if isinstance(attribute, String | Category | Hierarchy | Integer | Boolean):
        with np.errstate(invalid="ignore"):
            width = hi - lo
        has_codes = (width > 0) & (width < MAX_CODES) & (np.abs(lo) < _EXACT)
        counts[has_codes] = width[has_codes].astype(np.int64) + 1
    return counts


def best_axis(boxes: Boxes, axes: Sequence[int]) -> int:
    """Return which of some attributes most boxes have a value of; of several, the one with most."""
    counts = {axis: np.count_nonzero(codes_on(boxes, axis)) for axis in axes}
    most = max(counts.values())
    best = [axis for axis in axes if counts[axis] == most]
    if not most:
        return best[0]
    return max(best, key=lambda axis: len(np.unique(boxes.lo[:, axis])))


def has_values(boxes: Boxes, axis: int) -> tuple[Bool, I64]:
    """Return which boxes are of subscriptions all of whose boxes have values, and the counts."""
    counts = codes_on(boxes, axis)
    if counts.sum() > _ENTRIES * len(counts):
        counts[counts > 1] = 0
    without = np.zeros(boxes.rows, np.bool_)
    without[boxes.owner[counts == 0]] = True
    return ~without[boxes.owner], counts


def _build(boxes: Boxes, axis: int) -> ValueArrays:
    listed, counts = has_values(boxes, axis)
    box = np.repeat(np.flatnonzero(listed), counts[listed])
    starts = offsets_of(counts[listed])
    value = boxes.lo[box, axis] + (np.arange(len(box)) - np.repeat(starts[:-1], counts[listed]))
    mentions = boxes.mentions.copy()
    mentions[listed, axis] = False
    bounds = np.count_nonzero(mentions, axis=1)
    values, number = np.unique(value, return_inverse=True)
    order = np.argsort(2 * number + (bounds[box] > 0), kind="stable")
    box, number = box[order], number[order]
    if len(boxes.lo) != boxes.rows and len(box):
        kept = _once(number, boxes.owner[box], bounds[box] > 0)
        box, number = box[kept], number[kept]
    first = offsets_of(np.bincount(number, minlength=len(values)))
    sure = first[:-1] + np.bincount(number[bounds[box] == 0], minlength=len(values))
    always = len(box)
    box = np.concatenate([box, np.flatnonzero(~listed)])
    entry, other = np.nonzero(mentions[box])
    return ValueArrays(
        values=values,
        first=first,
        sure=sure,
        row=boxes.owner[box].astype(np.int32),
        first_bound=offsets_of(bounds[box]),
        axis=other.astype(np.int32),
        lo=boxes.lo[box[entry], other],
        hi=boxes.hi[box[entry], other],
        dead=np.zeros(0, np.uint8),
        own_axis=axis,
        distinct=len(values),
        always=always,
        entries=len(box),
        masked=0,
    )


def _once(number: I64, row: I32, is_bounded: Bool) -> I64:
    """Return the entries of each value without those that a sure one of the same row repeats."""
    order = np.lexsort((is_bounded, row, number))
    same = (np.diff(number[order]) == 0) & (np.diff(row[order]) == 0)
    starts = np.flatnonzero(np.concatenate([[True], ~same]))
    is_sure = np.repeat(~is_bounded[order][starts], np.diff(np.append(starts, len(order))))
    is_first = np.zeros(len(order), np.bool_)
    is_first[starts] = True
    return np.sort(order[is_first | ~is_sure])
