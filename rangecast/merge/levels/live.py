"""The levels of a summary under edits, and their union.

Owns the arrays of `tree.py`, makes room when a kernel asks for it, and keeps a bitmap of short
curves up to date (`bitmap.py`). Handles indexes and ranges, not subscriptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import U64, AnyArray, Bool
from rangecast.merge.bitmap import MIN_EVENTS, WIDEST, empty_bits, mark, marked
from rangecast.merge.edits import DONE, NO_NODES, covered, edit, held, missing, read_ranges
from rangecast.merge.levels.build import breakpoints_of, empty_tree, grown, tree_of
from rangecast.merge.levels.needless import needless
from rangecast.merge.levels.tree import STEPS
from rangecast.merge.ranges import Ranges, RangeSets, tree_of_ranges


class Work(NamedTuple):
    """Work of all edits and checks so far; independent of the machine."""

    touched: int = 0
    """Breakpoints added, moved or removed: at most two per range."""
    looked: int = 0
    """Gap searches: at most one per range, and one per gap found."""


class Levels:
    """Levels of a curve of 2^width cells; gaps of up to `gap` cells are closed."""

    def __init__(self, width: int, gap: int = 0):
        self._width = width
        self._top = np.uint64((1 << width) - 1)
        self._gap = np.uint64(gap)
        self._tree = empty_tree()
        self._bits: U64 | None = None
        self.work = Work()

    def build(self, sets: RangeSets) -> None:
        """Rebuild from these ranges by one sort and one scan."""
        self._tree = tree_of_ranges(sets.starts, sets.ends, self._top)
        self._bits = None

    def edit(self, sets: RangeSets, by: int) -> RangeSets:
        """Add ranges (`by` = 1) or remove them (-1); return the change of the union by each set.

        The sets are applied one after the other.
        """
        starts, ends = sets.starts.copy(), sets.ends.copy()  # one signature of the kernel
        out = np.empty((2, len(starts) + 64), np.uint64)
        offsets = np.zeros(len(sets.offsets), np.int64)
        cursor = np.zeros(5, np.int64)
        while True:
            stopped = edit(
                self._tree,
                starts,
                ends,
                sets.offsets,
                cursor,
                by,
                self._top,
                self._gap,
                out[0],
                out[1],
                offsets,
            )
            if stopped == DONE:
                break
            if stopped == NO_NODES:
                self._tree = grown(self._tree)
            else:
                out = np.concatenate([out, np.empty_like(out)], axis=1)
        changed = out[:, : offsets[-1]]
        if self._bits is not None:
            mark(self._bits, changed[0], changed[1], by > 0)
        touched, looked = cursor[3:].tolist()
        self.work = Work(self.work.touched + touched, self.work.looked + looked)
        return RangeSets(changed[0], changed[1], offsets, 0)

    def contains_cells(self, places: U64) -> Bool:
        """Return whether each cell is in the union."""
        out = np.empty(len(places), np.bool_)
        if self._bits is None and len(places) >= MIN_EVENTS and self._width <= WIDEST:
            bits = empty_bits(self._width)
            mark(bits, *self.ranges(), True)
            self._bits = bits  # only now: another reader may look at it at once
        if self._bits is None:
            held(self._tree, places, self._gap, out)
        else:
            marked(self._bits, places, out)
        return out

    def difference(self, ranges: Ranges, *, exactly: bool = False) -> Ranges:
        """Return the parts of ranges outside the union; `exactly`: closed gaps count as outside."""
        gap = np.uint64(0) if exactly else self._gap
        cursor = np.zeros(2, np.int64)
        starts, ends = ranges.starts.copy(), ranges.ends.copy()
        parts = [np.zeros((2, 0), np.uint64)]
        while cursor[0] < len(starts):
            out = np.empty((2, len(starts) + 64), np.uint64)
            filled = missing(self._tree, starts, ends, cursor, self._top, gap, out[0], out[1])
            parts.append(out[:, :filled])
        return Ranges(*np.concatenate(parts, axis=1))

    def covered(self, sets: RangeSets) -> Bool:
        """Return which sets lie entirely in the union.

        At most one search per range, and one per closed gap; the searches are counted.
        """
        out = np.empty(len(sets), np.bool_)
        starts, ends = sets.starts.copy(), sets.ends.copy()
        looked = covered(self._tree, starts, ends, sets.offsets, self._gap, out)
        self.work = Work(self.work.touched, self.work.looked + looked)
        return out

    def removable(self, sets: RangeSets) -> Bool:
        """Return which sets could be removed, one at a time, without changing the union."""
        places, levels = breakpoints_of(self._tree)
        return needless(places, levels, self._top, self._gap, *sets[:3])

    def ranges(self) -> Ranges:
        """Return the union as maximal ranges."""
        nothing = np.empty(0, np.uint64)
        count = read_ranges(self._tree, self._top, self._gap, nothing, nothing)
        starts, ends = np.empty(count, np.uint64), np.empty(count, np.uint64)
        read_ranges(self._tree, self._top, self._gap, starts, ends)
        return Ranges(starts, ends)

    @property
    def breakpoints(self) -> int:
        """Number of stored breakpoints, where the level changes."""
        return int(self._tree.state[0, STEPS])

    @property
    def memory(self) -> int:
        """Bytes of all arrays."""
        bits = 0 if self._bits is None else self._bits.nbytes
        return sum(array.nbytes for array in self._tree) + bits

    def arrays(self) -> dict[str, AnyArray]:
        """Return the breakpoints, for a snapshot."""
        places, levels = breakpoints_of(self._tree)
        return {"step_places": places, "step_levels": levels}

    def restore(self, arrays: Mapping[str, AnyArray]) -> None:
        """Restore the breakpoints of a snapshot."""
        self._tree = tree_of(arrays["step_places"].copy(), arrays["step_levels"].copy())
        self._bits = None
