"""Owner of the interests of a board by row; see `tree.py`."""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import Bundle
from rangecast.notify.line.tree import (
    LEAF,
    STACK,
    Frontier,
    Rectangle,
    Tree,
    number_reached,
    rows_in,
    snap,
)
from rangecast.notify.line.tree_edits import (
    FILL,
    LEAVES,
    LEAVES_SPARE,
    LOPSIDED,
    NODES,
    EditArrays,
    build,
    delete,
    dissolve,
    insert,
)


def _lines(shape: tuple[int, ...]) -> F64:
    """Return zeros aligned to cache lines, so that a leaf fills two lines and the bounds of a pair
    one.
    """
    count = math.prod(shape)
    room = np.zeros(count + 8)
    first = -room.ctypes.data % 64 // 8
    return room[first : first + count].reshape(shape)


class Interests:
    """Interests by row, a small number that is reused."""

    def __init__(self, lo: npt.ArrayLike = (), hi: npt.ArrayLike = ()):
        left, right = np.asarray(lo, np.float64), np.asarray(hi, np.float64)
        self._start(left, left, right, right)

    def _start(self, low_l: F64, high_l: F64, low_r: F64, high_r: F64) -> None:
        self._points = low_l is high_l
        self.count = len(low_l)
        self._free: list[int] = []
        self._path = np.zeros(STACK, np.int32)
        rows = np.arange(self.count, dtype=np.int32)
        self._lay_out(low_l, high_l, low_r, high_r, rows, self.count)

    def _lay_out(
        self, low_l: F64, high_l: F64, low_r: F64, high_r: F64, row: I32, rows: int
    ) -> None:
        leaves = len(row) // FILL + 3
        low = _lines((LEAF * leaves,)), _lines((LEAF * leaves,))
        high = low if self._points else (_lines((LEAF * leaves,)), _lines((LEAF * leaves,)))
        self._bundle = Bundle(
            Tree(
                low[0],
                high[0],
                low[1],
                high[1],
                _lines((2 * leaves, 4)),
                np.zeros(2 * leaves, np.int32),
                np.zeros(2 * leaves, np.int32),
            )
        )
        self._upkeep = Bundle(
            EditArrays(
                np.zeros(LEAF * leaves, np.int32),
                np.zeros(2 * leaves),
                np.zeros(2 * leaves, np.int32),
                np.full(rows, -1, np.int32),
                np.array([2, 0, 0, 0]),  # the root has no brother, but pairs begin at even numbers
                np.zeros(leaves, np.int32),
                np.zeros(leaves, np.int32),
            )
        )
        build(self.table, self._upkeep.table, 0, 0, low_l, high_l, low_r, high_r, row)
        self._built = self.count

    @property
    def tree(self) -> Tree:
        """The arrays that a search reads, in the layout of `tree.py`."""
        return self._bundle.arrays

    @property
    def table(self) -> I64:
        """The tree in the form that kernels take."""
        return self._bundle.table

    @property
    def _keep(self) -> EditArrays:
        return self._upkeep.arrays

    def _room(self, leaves: int) -> None:
        """Make room for this many more leaves."""
        have = len(self._keep.leaves)
        used = self._keep.used
        needed = int(used[LEAVES] - used[LEAVES_SPARE]) + leaves
        if needed <= have:
            return
        to = max(needed, have + have // 4) + 1

        def wider(array: Any, times: int) -> Any:
            shape = (times * to, *array.shape[1:])
            floats = array.dtype == np.float64
            more = _lines(shape) if floats else np.zeros(shape, array.dtype)
            more[: len(array)] = array
            return more

        tree, keep = self.tree, self._keep
        low_l, low_r = wider(tree.low_l, LEAF), wider(tree.low_r, LEAF)
        self._bundle = Bundle(
            Tree(
                low_l,
                low_l if self._points else wider(tree.high_l, LEAF),
                low_r,
                low_r if self._points else wider(tree.high_r, LEAF),
                wider(tree.bounds, 2),
                wider(tree.child, 2),
                wider(tree.size, 2),
            )
        )
        self._upkeep = self._upkeep.replaced(
            row=wider(keep.row, LEAF),
            cut=wider(keep.cut, 2),
            cut_row=wider(keep.cut_row, 2),
            pairs=wider(keep.pairs, 1),
            leaves=wider(keep.leaves, 1),
        )

    def add(self, lo: float, hi: float) -> int:
        """Add an interest and return its row."""
        row = self._free.pop() if self._free else self.count
        if row >= len(self._keep.home):
            home = np.full(row + row // 4 + 16, -1, np.int32)
            home[: len(self._keep.home)] = self._keep.home
            self._upkeep = self._upkeep.replaced(home=home)
        self._room(1)
        self.count += 1
        deepest = math.ceil(math.log(max(self.count / LEAF, 1.0), 1 / LOPSIDED)) + 1
        above = insert(self.table, self._upkeep.table, row, lo, lo, hi, hi, deepest, self._path)
        if above >= 0:
            self._rebuild(int(self._path[above]), above)
        return row

    def add_many(self, lo: F64, hi: F64) -> I32:
        """Add interests and return their rows; a large addition rebuilds the tree."""
        if len(lo) <= self.count:
            pairs = zip(lo.tolist(), hi.tolist(), strict=True)
            return np.array([self.add(*pair) for pair in pairs], np.int32)
        rows, left, right = self.columns()
        reused = self._free[max(0, len(self._free) - len(lo)) :]
        first = self.rows
        fresh = np.arange(first, first + len(lo) - len(reused))
        new = np.concatenate([np.array(reused, np.int32), fresh]).astype(np.int32)
        self._free = self._free[: len(self._free) - len(reused)]
        self.count += len(lo)
        left, right = np.append(left, lo), np.append(right, hi)
        self._lay_out(left, left, right, right, np.append(rows, new), self.rows)
        return new

    def columns(self) -> tuple[I32, F64, F64]:
        """Return row, lo and hi of all interests, in any order."""
        tree, row, nodes = self.entries()
        leaves = np.flatnonzero(tree.child[:nodes] < 0)
        sizes = tree.size[leaves]
        first = np.repeat(LEAF * ~tree.child[leaves].astype(np.int64), sizes)
        entry = first + np.arange(len(first)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return row[entry], tree.low_l[entry], tree.low_r[entry]

    def _rebuild(self, node: int, depth: int) -> None:
        n = int(self.tree.size[node])
        low_l, high_l, low_r, high_r = (np.empty(n) for _ in range(4))
        rows = np.empty(n, np.int32)
        dissolve(self.table, self._upkeep.table, node, low_l, high_l, low_r, high_r, rows)
        self._room(n // FILL + 2)
        build(self.table, self._upkeep.table, node, depth, low_l, high_l, low_r, high_r, rows)

    def remove(self, row: int) -> None:
        """Remove an interest."""
        delete(self.table, self._upkeep.table, row, self._path)
        self._free.append(row)
        self.count -= 1
        if self.count < self._built // 2:
            self._rebuild(0, 0)
            self._built = self.count

    def snap(self, l0: float, l1: float, r0: float, r1: float) -> Rectangle | None:
        """Return the smallest rectangle around all interests of [l0, l1] x [r0, r1]."""
        frontier = Bundle(Frontier.empty())
        rectangle = Rectangle(*snap(self.table, frontier.table, Rectangle(l0, l1, r0, r1)))
        return rectangle if rectangle.l0 <= rectangle.l1 else None

    def within(self, l0: float, l1: float, r0: float, r1: float) -> I32:
        """Return the rows of all interests of [l0, l1] x [r0, r1]."""
        rows = np.empty(self.number_within(l0, l1, r0, r1), np.int32)
        rows_in(self.table, self._keep.row, l0, l1, r0, r1, rows, np.empty(STACK, np.int32))
        return rows

    def reached(self, tiles: F64) -> I64:
        """Return how many interests each of these tiles reaches."""
        counts = np.zeros(len(tiles), np.int64)
        number_reached(self.table, tiles, counts)
        return counts

    def number_within(self, l0: float, l1: float, r0: float, r1: float) -> int:
        """Return the number of interests in [l0, l1] x [r0, r1]."""
        none, stack = np.empty(0, np.int32), np.empty(STACK, np.int32)
        return rows_in(self.table, self._keep.row, l0, l1, r0, r1, none, stack)

    @property
    def rows(self) -> int:
        """One more than the largest row in use."""
        return self.count + len(self._free)

    def entries(self) -> tuple[Tree, I32, int]:
        """Return the tree, the row of each entry, and the number of nodes."""
        return self.tree, self._keep.row, int(self._keep.used[NODES])

    def of(self, row: int) -> tuple[float, float]:
        """Return the range of an interest."""
        first = LEAF * ~int(self.tree.child[self._keep.home[row]])
        e = first + int(np.flatnonzero(self._keep.row[first : first + LEAF] == row)[0])
        return float(self.tree.low_l[e]), float(self.tree.low_r[e])

    def sketch(self, rectangles: int) -> Interests:
        """Return a cover of all interests by at most this many rectangles, to use instead.

        The rectangles are those of nodes: the largest is replaced by its children while there is
        room.
        """
        tree = self.tree
        cover = [(-int(tree.size[0]), 0)] if self.count else []
        while cover and len(cover) < rectangles and tree.child[cover[0][1]] >= 0:
            child = int(tree.child[heapq.heappop(cover)[1]])
            for node in (child, child + 1):
                if tree.size[node]:
                    heapq.heappush(cover, (-int(tree.size[node]), node))
        bounds = tree.bounds[[node for _, node in cover]].reshape(-1, 4)
        sketch = Interests()
        sketch._start(*(np.ascontiguousarray(bounds[:, side]) for side in range(4)))
        return sketch

    @property
    def memory(self) -> int:
        """Bytes of all arrays."""
        return self._bundle.memory + self._upkeep.memory
