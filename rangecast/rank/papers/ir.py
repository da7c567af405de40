"""The IR-tree (paper 003, section 3.1): an interval tree whose lists are scored R-trees.

All boxes of a list hold the node's split, so in its pages there are no holes, and the k best take
(k + log n) b log_b n. It is the one structure of the paper that takes edits: a box is added to and
taken from the list of its node in b log_b n (`ir_pages`); a new score is both. Nodes are never
rebalanced; when as many edits were made as there were boxes, or a path has become long, the whole
is built anew, which costs log n an edit. 20 bytes a box and an attribute, and a few for the pages
above.

Rows are numbers that the caller gives: the lower one wins a tie.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64, AnyArray
from rangecast.model.boxes import Boxes
from rangecast.rank.life import ALL, Life
from rangecast.rank.papers.cursor import Shape, Walk
from rangecast.rank.papers.interval import parted
from rangecast.rank.papers.ir_pages import (
    FREE_PAGE,
    NODES,
    PAGES,
    ROOM,
    SIZES,
    SLOTS,
    Pool,
    add,
    drop,
)
from rangecast.rank.papers.rtree import BRANCHING
from rangecast.rank.papers.source import Axis, Source, Tree, axes_of, joined, packed
from rangecast.rank.papers.threshold import Lookup, levels_of
from rangecast.rank.papers.trees import ranked
from rangecast.rank.result import LEVELS, Best, checked
from rangecast.rank.terms import Terms

_BUILT_ANEW = 1000
"""Edits that are never worth building anew for,"""
_DEEP = 64
"""unless a path has more lists than this, which rows in order of their values can bring about."""


def _tree(axis: Axis, branching: int) -> Tree | None:
    if not len(axis.box):
        return None
    order, first, nodes = parted(axis.lo, axis.hi)
    slots = axis.box[order], axis.lo[order], axis.hi[order]
    return Tree(nodes, *packed(*slots, np.diff(first), branching))


def ir(boxes: Boxes, *, relaxed: bool = False, branching: int = BRANCHING) -> Source:
    """Build the IR-trees of all attributes, their pages full."""
    trees = [_tree(axis, branching) for axis in axes_of(boxes, relaxed=relaxed)]
    return joined(trees, boxes, relaxed=relaxed)


class IrTrees:
    """IR-trees that take edits."""

    name = "ir"

    def __init__(self, boxes: Boxes, *, relaxed: bool = False, branching: int = BRANCHING):
        if branching < 2:
            raise UsageError(f"a page has at least 2 slots; given: {branching}")
        self.dimensions = boxes.dimensions
        self.relaxed = relaxed
        self.branching = branching
        self._path = np.empty(2 * LEVELS, np.int64)
        self._load(boxes, np.arange(boxes.rows))

    def _load(self, boxes: Boxes, rows: I64) -> None:
        """Build all anew; `rows` are the caller's numbers of the rows, ascending."""
        source = ir(boxes, relaxed=self.relaxed, branching=self.branching)
        shape = Shape.of(source)
        self._depth, self._levels = shape.depth, shape.levels
        size = int(rows[-1]) + 1 if len(rows) else 0
        width = self.dimensions if self.relaxed else 1
        worth = np.ones((size, width))
        if not self.relaxed:
            worth[rows, 0] = boxes.scores
        elif boxes.weights is not None:
            worth[rows] = boxes.weights
        self._weights = levels_of(boxes.weights)
        used = np.full(FREE_PAGE + 1 + SIZES, -1, np.int64)
        used[NODES], used[PAGES] = len(source.split), len(source.first)
        used[SLOTS] = len(source.item)
        self._pool = Pool(
            top=source.top.copy(),
            split=source.split,
            left=source.left,
            right=source.right,
            root=source.root,
            first=source.first,
            filled=source.filled,
            level=source.level,
            capacity=source.filled,
            item=source.item,
            lo=source.lo,
            hi=source.hi,
            used=used,
            owner=rows[boxes.owner].astype(np.int32),
            worth=worth.reshape(-1),
            by_row=width,
            by_axis=int(self.relaxed),
        )
        mentioned = boxes.mentions
        box, axis = np.nonzero(mentioned)
        ends = np.cumsum(mentioned.sum(axis=1))
        self._terms = Terms(
            ends - mentioned.sum(axis=1),
            ends,
            axis.astype(np.int32),
            boxes.lo[box, axis],
            boxes.hi[box, axis],
        )
        self._boxes_of = np.zeros((size, 2), np.int64)
        self._boxes_of[rows, 0], self._boxes_of[rows, 1] = (
            boxes.box_offsets[:-1],
            boxes.box_offsets[1:],
        )
        self._boxes = self._built = len(boxes.lo)
        self._used_terms = len(box)
        self._edits = 0
        self._reserve_pages()

    def __contains__(self, row: int) -> bool:
        return row < len(self._boxes_of) and bool(self._boxes_of[row, 0] < self._boxes_of[row, 1])

    # ---- edits

    def insert(
        self, row: int, lo: F64, hi: F64, score: float = 0.0, weights: F64 | None = None
    ) -> None:
        """Add a subscription with boxes (boxes, d); `row` must not be there."""
        if row in self:
            raise UsageError(f"row {row} is there already; delete it first")
        one = Boxes.of(lo, hi, owner=np.zeros(len(lo)), scores=[score], weights=weights)
        mentioned = one.mentions
        box, axis = np.nonzero(mentioned)
        first, terms = self._boxes, self._used_terms
        self._reserve(row, len(one.lo), len(box))
        pool, kept = self._pool, self._terms
        kept.axis[terms : terms + len(box)] = axis
        kept.lo[terms : terms + len(box)] = one.lo[box, axis]
        kept.hi[terms : terms + len(box)] = one.hi[box, axis]
        ends = terms + np.cumsum(mentioned.sum(axis=1))
        kept.last[first : first + len(ends)] = ends
        kept.first[first : first + len(ends)] = ends - mentioned.sum(axis=1)
        pool.owner[first : first + len(ends)] = row
        self._boxes_of[row] = first, first + len(ends)
        self._boxes += len(ends)
        self._used_terms += len(box)
        self._value(row, score, weights)
        self._hang(row)

    def delete(self, row: int) -> None:
        """Remove a subscription."""
        self._take_down(row)
        self._boxes_of[row] = 0

    def rescore(self, row: int, score: float = 0.0, weights: F64 | None = None) -> None:
        """Give a subscription another score or, in relaxed ranking, other weights."""
        self._take_down(row)
        self._value(row, score, weights)
        self._hang(row)

    def _value(self, row: int, score: float, weights: F64 | None) -> None:
        width = self._pool.by_row
        mine = self._pool.worth[row * width : row * width + width]
        mine[:] = np.ravel(1.0 if weights is None else weights) if self.relaxed else score
        if self.relaxed and len(self._weights):  # weights that have gone do no harm there
            self._weights = levels_of(np.append(self._weights, mine))

    def _ranges(self, row: int) -> list[tuple[int, int, float, float]]:
        """Return (axis, box, lo, hi) of all that the trees have of a row."""
        ranges = []
        for box in range(*self._boxes_of[row].tolist()):
            terms = range(self._terms.first[box], self._terms.last[box])
            said = {int(self._terms.axis[t]): t for t in terms}
            for axis in said if self.relaxed else range(self.dimensions):
                lo, hi = -np.inf, np.inf
                if axis in said:
                    lo, hi = self._terms.lo[said[axis]], self._terms.hi[said[axis]]
                ranges.append((axis, box, float(lo), float(hi)))
        return ranges

    def _hang(self, row: int) -> None:
        for axis, box, lo, hi in self._ranges(row):
            self._reserve_pages()
            depth, levels = add(self._pool, axis, box, lo, hi, self.branching, self._path)
            self._depth, self._levels = max(self._depth, depth), max(self._levels, levels)
        self._edits += 1
        deep = self._depth > _DEEP and self._edits > self._built // _DEEP
        if deep or self._edits > max(_BUILT_ANEW, self._built):
            self._rebuild()

    def _take_down(self, row: int) -> None:
        if row not in self:
            raise UsageError(f"no row {row} is there")
        for axis, box, lo, hi in self._ranges(row):
            drop(self._pool, axis, box, lo, hi, self.branching, self._path)
        self._edits += 1

    def _rebuild(self) -> None:
        rows = np.flatnonzero(self._boxes_of[:, 0] < self._boxes_of[:, 1])
        counts = np.diff(self._boxes_of[rows], axis=1).ravel()
        chosen = np.concatenate([np.arange(*self._boxes_of[row]) for row in rows])
        lo = np.full((len(chosen), self.dimensions), -np.inf)
        hi = -lo
        for place, box in enumerate(chosen.tolist()):
            terms = slice(self._terms.first[box], self._terms.last[box])
            lo[place, self._terms.axis[terms]] = self._terms.lo[terms]
            hi[place, self._terms.axis[terms]] = self._terms.hi[terms]
        worth = self._pool.worth.reshape(-1, self._pool.by_row)[rows]
        boxes = Boxes.of(
            lo,
            hi,
            owner=np.repeat(np.arange(len(rows)), counts),
            scores=None if self.relaxed else worth[:, 0],
            weights=worth if self.relaxed else None,
        )
        self._load(boxes, rows)

    def _reserve(self, row: int, boxes: int, terms: int) -> None:
        """Make room for a row, its boxes and their terms."""
        pool, kept = self._pool, self._terms
        width = pool.by_row
        self._boxes_of = _room(self._boxes_of, len(self._boxes_of), row + 1 - len(self._boxes_of))
        more = row + 1 - len(pool.worth) // width
        self._pool = pool._replace(
            worth=_room(pool.worth, len(pool.worth), more * width, width),
            owner=_room(pool.owner, self._boxes, boxes),
        )
        self._terms = Terms(
            _room(kept.first, self._boxes, boxes),
            _room(kept.last, self._boxes, boxes),
            _room(kept.axis, self._used_terms, terms),
            _room(kept.lo, self._used_terms, terms),
            _room(kept.hi, self._used_terms, terms),
        )

    def _reserve_pages(self) -> None:
        """Make room for what one box can need."""
        pool = self._pool
        nodes, pages, slots = pool.used[NODES], pool.used[PAGES], pool.used[SLOTS]
        more = ROOM * self.branching
        if (
            nodes + ROOM <= len(pool.split)
            and pages + ROOM <= len(pool.first)
            and slots + more <= len(pool.item)
            and pool.item.flags.writeable
        ):
            return
        larger: dict[str, Any] = {}
        for names, used, room in (
            (_NODES, nodes, ROOM),
            (_PAGES, pages, ROOM),
            (_SLOTS, slots, more),
        ):
            larger |= {name: _room(getattr(pool, name), int(used), room) for name in names}
        self._pool = pool._replace(**larger)

    # ---- ranking

    @property
    def memory(self) -> int:
        """Bytes of the trees, the spare room too, and of the terms; as `Trees` counts them."""
        held = [*self._pool[: Pool._fields.index("owner")], *(self._terms if self.relaxed else ())]
        return int(sum(array.nbytes for array in held))

    def _source(self) -> Source:
        """Return what a cursor walks: the same arrays, read-only."""
        given = (getattr(self._pool, name, _NONE[name]) for name in Source._fields)
        return Source._make(map(_read_only, given))

    def walk(self, axis: int, value: float) -> Walk:
        """Return the iterator over the boxes of an attribute that hold a value, best first."""
        return Walk(self._source(), self._shape, axis, value)

    @property
    def _shape(self) -> Shape:
        return Shape(self._depth, self._levels, self._depth)

    def best(self, points: F64, k: int, *, life: Life = ALL) -> Best:
        """Return the k best of each event."""
        events = checked(points, self.dimensions, k)
        lookup = None
        if self.relaxed:
            terms = Terms._make(map(_read_only, self._terms))
            first, last = (_read_only(column.copy()) for column in self._boxes_of.T)
            most = int((terms.last - terms.first)[: self._boxes].max(initial=1))
            lookup = Lookup(terms, first, last, most, self._weights)
        k = min(k, len(self._boxes_of))
        return ranked(self._source(), self._shape, lookup, len(self._boxes_of), events, k, life)


_NODES = ("split", "left", "right", "root")
_PAGES = ("first", "filled", "level", "capacity")
_SLOTS = ("item", "lo", "hi")
_NONE = {name: np.zeros(0, np.int32 if name == "ends" else np.float64) for name in Source._fields}


def _read_only(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _room(array: AnyArray, used: int, more: int, least: int = 1) -> AnyArray:
    """Return an array with room for more behind what is used, and that can be written."""
    if used + more <= len(array) and array.flags.writeable:
        return array
    size = max(used + more, least)
    if array.flags.writeable:  # what was just built isn't: it may never be edited
        size = max(size, 2 * used)
    larger = np.zeros((size - size % least, *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger
