"""The IR-tree (paper 003, section 3.1): an interval tree whose lists are scored R-trees.

All boxes of a list contain the node's split value, so every page opened has a match, and the top k
cost O((k + log n) b log_b n). Memory: 20 bytes per box and attribute, and a little for the upper
pages.

It is the only structure of the paper that is updated in place: adding or removing a box costs
O(b log_b n) (`ir_pages`). Nodes are never rebalanced; after as many edits as there were boxes, or
when a path gets long, the trees are rebuilt: amortized O(log n) per edit. Live sets don't use this,
because their states are immutable (see `live`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, Bool, grown
from rangecast.kernels.bundle import Bundle
from rangecast.model.boxes import Boxes
from rangecast.rank.papers.cursor import Shape
from rangecast.rank.papers.interval import parted
from rangecast.rank.papers.ir_pages import (
    LEAST,
    Edits,
    Pool,
    add_boxes,
    drop_boxes,
    memory_of,
    pool_of,
    readonly_arrays,
    with_room,
)
from rangecast.rank.papers.rtree import BRANCHING
from rangecast.rank.papers.source import Axis, AxisTree, Source, axes_of, joined, packed
from rangecast.rank.papers.threshold import Lookup, levels_of
from rangecast.rank.papers.trees import Trees
from rangecast.rank.result import LEVELS

_EDITS_BEFORE_REBUILD = 1000
"""Edits that are never worth a rebuild,"""
_DEEP = 64
"""unless a path has more lists than this, which boxes in order of their values can bring about."""


def _tree(axis: Axis, branching: int) -> AxisTree | None:
    if not len(axis.box):
        return None
    order, first, nodes = parted(axis.lo, axis.hi)
    slots = axis.box[order], axis.lo[order], axis.hi[order]
    return AxisTree(nodes, *packed(*slots, np.diff(first), branching))


def ir(boxes: Boxes, *, relaxed: bool = False, branching: int = BRANCHING) -> Source:
    """Build the IR-trees of all attributes."""
    if branching < 2:
        raise UsageError(f"a page must have at least 2 slots; given: {branching}")
    trees = [_tree(axis, branching) for axis in axes_of(boxes, relaxed=relaxed)]
    return joined(trees, boxes, relaxed=relaxed)


class _Columns:
    """All boxes that an edited set ever had, in arrays with room.

    lo, hi, owner               by box; what a row is worth is in `worth`, `width` numbers per row
    box_offsets                 the boxes of a row
    first_term, axis, term_*    relaxed: the attributes that a box mentions, as `Lookup` has them
    """

    def __init__(self, boxes: Boxes, *, relaxed: bool):
        self.boxes, self.rows = len(boxes.lo), boxes.rows
        self.lo, self.hi = boxes.lo.copy(), boxes.hi.copy()
        self.owner = boxes.owner.copy()
        self.is_live: Bool = np.ones(boxes.rows, np.bool_)
        self.box_offsets: I64 = boxes.box_offsets.copy()
        self.width = boxes.dimensions if relaxed else 1
        self.relaxed = relaxed
        self.worth = self._worth(boxes)
        self.levels = levels_of(self.worth if relaxed else None)
        self.most, self.terms = 1, 0
        self.deepest: I64 = np.zeros(2, np.int64)
        self.path: I64 = np.empty(2 * LEVELS, np.int64)
        self.first_term: I64 = np.zeros(1, np.int64)
        self.axis: I32 = np.zeros(0, np.int32)
        self.term_lo, self.term_hi = np.zeros(0), np.zeros(0)
        if relaxed:
            self._append_terms(np.arange(self.boxes))

    def _append_terms(self, boxes: I64) -> None:
        """Append the terms (axis and bounds) of new boxes, box by box."""
        edits = self.edits_of(boxes)
        counts = np.bincount(edits.box - boxes[0], minlength=len(boxes)) if len(boxes) else boxes
        first, self.terms = self.terms, self.terms + len(edits.box)
        self.first_term = grown(self.first_term, self.boxes + 1)
        self.first_term[boxes + 1] = first + np.cumsum(counts)
        self.axis = grown(self.axis, self.terms)
        self.term_lo, self.term_hi = (
            grown(self.term_lo, self.terms),
            grown(self.term_hi, self.terms),
        )
        self.axis[first : self.terms] = edits.axis
        self.term_lo[first : self.terms] = edits.lo
        self.term_hi[first : self.terms] = edits.hi
        self.most = max(self.most, int(counts.max(initial=1)))

    def _worth(self, boxes: Boxes) -> F64:
        """Return what boxes are worth: a score per row, or relaxed a weight per attribute."""
        if not self.relaxed:
            return boxes.scores.copy()
        weights = np.ones((boxes.rows, self.width)) if boxes.weights is None else boxes.weights
        return weights.reshape(-1).copy()

    def append(self, more: Boxes) -> I64:
        """Add boxes; return their numbers."""
        first, rows = self.boxes, self.rows
        self.boxes, self.rows = first + len(more.lo), rows + more.rows
        self.lo, self.hi = grown(self.lo, self.boxes), grown(self.hi, self.boxes)
        self.owner = grown(self.owner, self.boxes)
        self.lo[first : self.boxes], self.hi[first : self.boxes] = more.lo, more.hi
        self.owner[first : self.boxes] = more.owner + rows
        self.is_live = grown(self.is_live, self.rows)
        self.is_live[rows : self.rows] = True
        self.box_offsets = grown(self.box_offsets, self.rows + 1)
        self.box_offsets[rows : self.rows + 1] = first + more.box_offsets
        self.worth = grown(self.worth, self.rows * self.width)
        worth = self._worth(more)
        self.worth[rows * self.width : self.rows * self.width] = worth
        new = np.arange(first, self.boxes)
        if self.relaxed:
            self._append_terms(new)
            if len(self.levels):
                self.levels = levels_of(np.concatenate([self.levels, worth]))
        return new

    def edits_of(self, boxes: I64) -> Edits:
        """Return boxes attribute by attribute; relaxed only those that mention it."""
        lo, hi = self.lo[boxes], self.hi[boxes]
        mentions = (lo > -np.inf) | (hi < np.inf)
        if not self.relaxed:
            mentions[:] = True
        place, axis = map(np.ascontiguousarray, np.nonzero(mentions))
        return Edits(axis, boxes[place], lo[place, axis], hi[place, axis])

    def axes(self) -> list[Axis]:
        """Return the live boxes of each attribute, best first."""
        boxes = np.flatnonzero(self.is_live[self.owner[: self.boxes]])
        edits = self.edits_of(boxes)
        axes = []
        for axis in range(self.lo.shape[1]):
            here = np.flatnonzero(edits.axis == axis)
            place = self.owner[edits.box[here]] * self.width + (axis if self.relaxed else 0)
            order = here[np.argsort(-self.worth[place], kind="stable")]
            axes.append(Axis(edits.box[order], edits.lo[order], edits.hi[order]))
        return axes


class IrTrees(Trees):
    """The IR-trees of a set of subscriptions, which take edits in place."""

    def __init__(
        self,
        boxes: Boxes,
        *,
        relaxed: bool = False,
        combine: str = "sum",
        branching: int = BRANCHING,
    ):
        super().__init__("ir", ir, boxes, relaxed=relaxed, combine=combine, branching=branching)
        self._branching = branching
        self._edited_branching = max(branching, LEAST)
        self._columns: _Columns | None = None
        self._pool: Bundle[Pool] | None = None
        self._edits, self._built = 0, len(boxes.lo)

    @property
    def rows(self) -> int:
        """Number of rows that were ever there."""
        return self.boxes.rows if self._columns is None else self._columns.rows

    @property
    def memory(self) -> int:
        """Bytes of the trees, with the room that edits left in them, and of the terms."""
        if self._pool is None:
            return super().memory
        return memory_of(self._pool.arrays) + (self._lookup.memory if self._lookup else 0)

    def insert(self, boxes: Boxes) -> I64:
        """Add subscriptions; return their rows, which follow those there were.

        No ranking may run at the same time.
        """
        if boxes.dimensions != self.boxes.dimensions:
            raise UsageError(
                f"this set has {self.boxes.dimensions} attributes; given: {boxes.dimensions}"
            )
        columns = self._editable()
        first = columns.rows
        new = columns.append(boxes)
        assert self._pool is not None
        self._pool = self._pool.replaced(owner=columns.owner, worth=columns.worth)
        self._look_up()
        self._add(columns.edits_of(new))
        self._settle(boxes.rows)
        return np.arange(first, columns.rows)

    def delete(self, rows: npt.ArrayLike) -> None:
        """Remove subscriptions by row; their rows aren't used again.

        No ranking may run at the same time.
        """
        columns = self._editable()
        assert self._pool is not None
        which = np.atleast_1d(np.asarray(rows, np.int64))
        inside = (which >= 0) & (which < columns.rows)
        missing = which[~inside] if not inside.all() else which[~columns.is_live[which]]
        if len(missing) or len(np.unique(which)) < len(which):
            named = missing if len(missing) else which
            raise UsageError(f"rows to delete must exist and be distinct; given: {named[:5]}")
        spans = [np.arange(*columns.box_offsets[row : row + 2]) for row in which.tolist()]
        boxes = np.concatenate([np.zeros(0, np.int64), *spans])
        edits = Bundle(columns.edits_of(boxes))
        drop_boxes(self._pool.table, edits.table, self._edited_branching, columns.path)
        columns.is_live[which] = False
        self._settle(len(which))

    def _editable(self) -> _Columns:
        """Return the columns; the first edit copies what was built."""
        if self._columns is None:
            self._columns = _Columns(self.boxes, relaxed=self._lookup is not None)
            self._columns.deepest[:] = self._shape.depth, self._shape.levels
            self._load(self.source.arrays)
        return self._columns

    def _load(self, source: Source) -> None:
        """Take trees that were just built."""
        columns = self._columns
        assert columns is not None
        held = source._replace(
            owner=columns.owner,
            worth=columns.worth,
            by_row=columns.width,
            by_axis=int(columns.relaxed),
        )
        pool = pool_of(held, self._edited_branching)
        self._pool = pool.replaced(owner=columns.owner, worth=columns.worth)

    def _add(self, edits: Edits) -> None:
        bundle, done, columns = Bundle(edits), 0, self._editable()
        while done < len(edits.box):
            assert self._pool is not None
            self._pool = with_room(self._pool, self._edited_branching)
            how = self._edited_branching, columns.path, columns.deepest
            done = add_boxes(self._pool.table, bundle.table, done, *how)

    def _settle(self, edits: int) -> None:
        """Rebuild if that is due; then show cursors the columns."""
        columns = self._columns
        assert columns is not None
        self._edits += edits
        is_deep = columns.deepest[0] > _DEEP and self._edits > self._built // _DEEP
        if is_deep or self._edits > max(_EDITS_BEFORE_REBUILD, self._built):
            axes = columns.axes()
            trees = [_tree(axis, self._branching) for axis in axes]
            source = joined(trees, self.boxes, relaxed=columns.relaxed)
            self._load(source)
            shape = Shape.of(Bundle(source))
            columns.deepest[:] = shape.depth, shape.levels
            self._edits, self._built = 0, sum(len(axis.box) for axis in axes)
        assert self._pool is not None
        self.source = readonly_arrays(self._pool.arrays)
        depth, levels = columns.deepest.tolist()
        self._shape = Shape(depth, levels, depth, depth)

    def _look_up(self) -> None:
        """Let relaxed ranking look new boxes up."""
        if self._lookup is None:
            return
        columns = self._columns
        assert columns is not None
        lookup = Lookup(
            columns.box_offsets.view(),
            columns.first_term.view(),
            columns.axis.view(),
            columns.term_lo.view(),
            columns.term_hi.view(),
            columns.levels.view(),
            columns.most,
        )
        self._lookup = Bundle(lookup)
