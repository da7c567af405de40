"""Conversion of boxes to ranges on the curve, and of ranges to their union, in bulk.

Used by the shell, by the bulk build of a summary and by Spark.

A subscription has at most `max_ranges_per_subscription` ranges: a box with more is approximated
with larger cells and joined over its smallest gaps, so it is widened and never narrowed. Ranges are
closed, ascending, and at least one place apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, U64, AnyArray, Bool
from rangecast.kernels.curves.hilbert import ROOM, join_smallest, new_stack, ranges_of_boxes
from rangecast.kernels.jit import jit
from rangecast.merge.cells import Cells
from rangecast.merge.levels.build import tree_of
from rangecast.merge.levels.tree import Tree
from rangecast.model.display import ROWS, few

MAX_RANGES = 64
"""Default maximum of ranges per subscription."""
_BLOCK = 1 << 15
_ZERO, _ONE = np.uint64(0), np.uint64(1)


class Ranges(NamedTuple):
    """Closed ranges of indexes, ascending and disjoint."""

    starts: U64
    ends: U64

    def __len__(self) -> int:
        return len(self.starts)

    def __repr__(self) -> str:
        pairs = zip(self.starts[:ROWS].tolist(), self.ends[:ROWS].tolist(), strict=True)
        return f"Ranges({few(pairs, len(self), ROWS)})"

    @property
    def cells(self) -> int:
        """Number of cells in the ranges."""
        return int((self.ends - self.starts).sum(dtype=object)) + len(self.starts)

    def contains_cells(self, indexes: U64) -> Bool:
        """Return whether each index lies in one of the ranges."""
        if not len(self):
            return np.zeros(len(indexes), np.bool_)
        at = np.searchsorted(self.starts, indexes, side="right") - 1
        return np.asarray((at >= 0) & (indexes <= self.ends[np.maximum(at, 0)]))

    def covers(self, other: Ranges) -> bool:
        """Return whether every range of `other` lies in a range of this set (paper 004, 3.5).

        If not, `difference` returns the parts that are not covered.
        """
        return not len(difference(other, self))


class RangeSets(NamedTuple):
    """The ranges of many subscriptions: those of s are from offsets[s] to offsets[s + 1]."""

    starts: U64
    ends: U64
    offsets: I64
    visited: int = 0
    """Nodes of the curve's tree visited."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, number: int) -> Ranges:
        """Return the ranges of one subscription."""
        own = slice(int(self.offsets[number]), int(self.offsets[number + 1]))
        return Ranges(self.starts[own], self.ends[own])

    @classmethod
    def single(cls, ranges: Ranges) -> RangeSets:
        """Return ranges as the range set of one subscription."""
        return cls(*ranges, np.array([0, len(ranges)]))

    @classmethod
    def joined(cls, parts: list[RangeSets]) -> RangeSets:
        """Return the concatenation of several range sets."""
        if len(parts) == 1:
            return parts[0]
        nothing = np.zeros(0, np.uint64)
        sizes = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)])
        return cls(
            np.concatenate([nothing, *(part.starts for part in parts)]),
            np.concatenate([nothing, *(part.ends for part in parts)]),
            np.cumsum(sizes),
            sum(part.visited for part in parts),
        )


def range_sets(
    cells: Cells, lo: F64, hi: F64, owner: AnyArray, max_ranges_per_subscription: int
) -> RangeSets:
    """Return the ranges of boxes (n, d) by subscription; `owner` as in `Boxes`."""
    if max_ranges_per_subscription < 1:
        raise UsageError(
            f"max_ranges_per_subscription must be at least 1; given: {max_ranges_per_subscription}"
        )
    first, last = cells.spans(lo, hi)
    room = ROOM * max_ranges_per_subscription
    starts, ends = np.empty((2, max(2 * room, 8 * len(first))), np.uint64)
    offsets = np.zeros(len(first) + 1, np.int64)
    stack = new_stack()
    box = visited = 0
    while True:
        box, looked_at = ranges_of_boxes(
            first, last, cells.bits, max_ranges_per_subscription, box, starts, ends, offsets, stack
        )
        visited += looked_at
        filled = int(offsets[box])
        if box == len(first):
            break
        more = np.empty(max(len(starts), room), np.uint64)
        starts = np.concatenate([starts[:filled], more])
        ends = np.concatenate([ends[:filled], more])
    starts, ends = starts[:filled], ends[:filled]
    rows = int(owner[-1]) + 1 if len(owner) else 0
    if rows == len(owner):
        return RangeSets(starts, ends, offsets, visited)
    by_owner = np.repeat(owner, np.diff(offsets))
    order = np.lexsort((starts, by_owner))
    starts, ends = starts[order], ends[order]
    begins = np.searchsorted(by_owner, np.arange(rows + 1))
    filled = _unite(starts, ends, begins, max_ranges_per_subscription)
    return RangeSets(starts[:filled], ends[:filled], begins, visited)


@jit
def _unite(starts: U64, ends: U64, offsets: I64, max_ranges_per_subscription: int) -> int:
    """Join each subscription's ranges that overlap or touch; beyond the maximum, also over gaps."""
    filled = 0
    for row in range(len(offsets) - 1):
        begin, end = offsets[row], offsets[row + 1]
        offsets[row] = first = filled
        for i in range(begin, end):
            if filled > first and starts[i] <= ends[filled - 1]:
                ends[filled - 1] = max(ends[filled - 1], ends[i])
            elif filled > first and starts[i] == ends[filled - 1] + _ONE:
                ends[filled - 1] = ends[i]
            else:
                starts[filled], ends[filled] = starts[i], ends[i]
                filled += 1
        kept = join_smallest(
            starts[first:filled], ends[first:filled], filled - first, max_ranges_per_subscription
        )
        filled = first + kept
    offsets[len(offsets) - 1] = filled
    return filled


def difference(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the parts of ranges outside the others, as maximal ranges."""
    above, below = others.ends + _ONE, others.starts - _ONE  # the neighbours of the removed ranges
    above, below = above[others.ends < ~_ZERO], below[others.starts > _ZERO]
    starts = np.concatenate(
        [ranges.starts[~others.contains_cells(ranges.starts)], above[ranges.contains_cells(above)]]
    )
    ends = np.concatenate(
        [ranges.ends[~others.contains_cells(ranges.ends)], below[ranges.contains_cells(below)]]
    )
    return Ranges(np.unique(starts), np.unique(ends))


def union(starts: U64, ends: U64, gap: int = 0) -> Ranges:
    """Return the union of ranges as maximal ranges; gaps of up to `gap` cells are closed.

    Sorts starts and ends separately: there is a gap after the j-th end exactly if the next start is
    greater, as then j ranges have begun and j have ended.
    """
    if not len(starts):
        return Ranges(starts, ends)
    starts, ends = np.sort(starts), np.sort(ends)
    apart = (starts[1:] > ends[:-1]) & (starts[1:] - ends[:-1] - _ONE > np.uint64(gap))
    cuts = np.flatnonzero(apart)
    return Ranges(starts[np.append(0, cuts + 1)], ends[np.append(cuts, len(ends) - 1)])


def union_of_boxes(
    cells: Cells,
    lo: F64,
    hi: F64,
    owner: AnyArray,
    *,
    max_ranges_per_subscription: int = MAX_RANGES,
    gap: int = 0,
) -> Ranges:
    """Return the summary of boxes (n, d): their union as maximal ranges; `owner` as in `Boxes`.

    Built block by block, each merged before the next, so that the result bounds the memory.
    """
    parts: list[Ranges] = []
    begin = 0
    while begin < len(lo):
        last = owner[min(begin + _BLOCK, len(lo)) - 1]
        block = slice(begin, int(np.searchsorted(owner, last, "right")))
        begin = block.stop
        sets = range_sets(
            cells, lo[block], hi[block], owner[block] - owner[block][0], max_ranges_per_subscription
        )
        united = union(sets.starts, sets.ends)
        while parts and len(parts[-1]) <= len(united):
            united = joined([parts.pop(), united])
        parts.append(united)
    return joined(parts, gap)


def joined(parts: list[Ranges], gap: int = 0) -> Ranges:
    """Return the union of several summaries."""
    nothing = np.zeros(0, np.uint64)
    starts = np.concatenate([nothing, *(part.starts for part in parts)])
    return union(starts, np.concatenate([nothing, *(part.ends for part in parts)]), gap)


def within_budget(ranges: Ranges, budget: int, sample: U64 | None = None) -> tuple[Ranges, int]:
    """Join ranges over their cheapest gaps until `budget` are left; also return the widest gap.

    The cost of a gap is the number of false positives once it is closed. `sample` are the indexes
    of typical events: a gap with fewer of them is cheaper, then the shorter one. Without a sample,
    the shortest gaps are closed.
    """
    if budget < 1:
        raise UsageError(f"the budget must be at least one range; given: {budget}")
    surplus = len(ranges) - budget
    if surplus <= 0:
        return ranges, 0
    before, after = ranges.ends[:-1], ranges.starts[1:]
    gaps = after - before - _ONE
    keys: list[AnyArray] = [gaps]
    if sample is not None:
        ordered = np.sort(sample)
        first = np.searchsorted(ordered, before, side="right")
        keys.append(np.searchsorted(ordered, after) - first)  # the last key counts most
    closed = np.lexsort(keys)[:surplus]
    apart = np.ones(len(gaps), np.bool_)
    apart[closed] = False
    starts = np.append(ranges.starts[:1], after[apart])
    return Ranges(starts, np.append(before[apart], ranges.ends[-1:])), int(gaps[closed].max())


def tree_of_ranges(starts: U64, ends: U64, top: np.uint64) -> Tree:
    """Return the levels of ranges as a tree, built at once."""
    starts, ends = np.sort(starts), np.sort(ends)
    keys = np.empty(len(starts) + len(ends) + 1, np.uint64)
    levels = np.empty(len(keys), np.int32)
    count = _breakpoints(starts, ends, top, keys, levels)
    return tree_of(keys[:count], levels[:count])


@jit
def _breakpoints(starts: U64, ends: U64, top: np.uint64, keys: U64, levels: I32) -> int:
    """Write the breakpoints of sorted ranges, and the level from each on."""
    keys[0], levels[0] = np.uint64(0), 0
    count, level, i, j = 1, 0, 0, 0
    while i < len(starts) or (j < len(ends) and ends[j] != top):
        past = j == len(ends) or ends[j] == top  # no more ends that are breakpoints
        position = (
            starts[i] if past or (i < len(starts) and starts[i] <= ends[j]) else ends[j] + _ONE
        )
        while i < len(starts) and starts[i] == position:
            level += 1
            i += 1
        while j < len(ends) and ends[j] != top and ends[j] + _ONE == position:
            level -= 1
            j += 1
        if position == np.uint64(0):
            levels[0] = level
        elif level != levels[count - 1]:
            keys[count], levels[count] = position, level
            count += 1
    return count
