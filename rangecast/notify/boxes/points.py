"""Owner of the k-d trees of a board over a space; see `kdtree.py`."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import Bundle
from rangecast.notify.boxes.kdtree import (
    BLOCKS,
    LEAF,
    LEVELS,
    NO_ARRIVAL,
    NODES,
    KdTree,
    build,
    delete,
    describe,
    insert,
    rekey,
    rekey_many,
)
from rangecast.notify.boxes.search import best_in, count_in, entries_in, mark_within

_NO_KEYS = np.zeros(0), np.zeros(0, np.int64)


def _empty(d: int, blocks: int, nodes: int, rows: int, *, keyed: bool) -> KdTree:
    entries = LEAF * blocks
    return KdTree(
        np.zeros((entries, d)),
        np.full(entries, -1, np.int32),
        np.zeros(entries * keyed),
        np.zeros(entries * keyed, np.int64),
        np.zeros((nodes, 2 * d)),
        np.full(nodes * keyed, np.inf),
        np.full(nodes * keyed, NO_ARRIVAL, np.int64),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(nodes),
        np.zeros(blocks, np.int32),
        np.full(max(rows, 1), -1, np.int32),
        np.zeros(3, np.int64),
    )


class Points:
    """Points by row, a small number that is reused; with or without keys."""

    def __init__(self, points: F64, ys: F64 | None = None, arrivals: I64 | None = None):
        self.d = points.shape[1]
        self._keyed = ys is not None
        self._free: list[int] = []
        self.count = len(points)
        self._lay_out(
            np.array(points, np.float64, order="C"),
            np.arange(len(points), dtype=np.int32),
            _NO_KEYS[0] if ys is None else np.array(ys, np.float64),
            _NO_KEYS[1] if arrivals is None else np.array(arrivals, np.int64),
            len(points),
        )

    def _lay_out(self, points: F64, row: I32, ys: F64, arrivals: I64, rows: int) -> None:
        blocks = len(row) // 12 + 4
        while True:
            tree = _empty(self.d, blocks, 2 * blocks, rows, keyed=self._keyed)
            self._bundle = Bundle(tree)
            if build(self.table, points, row, ys, arrivals):
                break
            blocks *= 2
        self._built = self.count

    @property
    def tree(self) -> KdTree:
        """The arrays, in the layout of `kdtree.py`."""
        return self._bundle.arrays

    @property
    def table(self) -> I64:
        """The tree in the form that kernels take."""
        return self._bundle.table

    @property
    def rows(self) -> int:
        """Number of allocated rows, including free ones."""
        return self.count + len(self._free)

    def add(self, point: npt.ArrayLike, y: float = 0.0, arrival: int = 0) -> int:
        """Add a point and return its row."""
        row = self._free.pop() if self._free else self.count
        tree = self.tree
        used = tree.used
        blocks, nodes = len(tree.after), len(tree.child)
        if used[BLOCKS] + 1 > blocks or used[NODES] + 2 > nodes or row >= len(tree.home):
            blocks = max(blocks, int(used[BLOCKS]) + blocks // 4 + 2)
            nodes = max(nodes, int(used[NODES]) + nodes // 4 + 4)
            larger = _empty(
                self.d, blocks, nodes, max(len(tree.home), row + row // 4 + 1), keyed=self._keyed
            )
            for name, old in tree._asdict().items():
                getattr(larger, name)[: len(old)] = old
            self._bundle = Bundle(larger)
        insert(self.table, row, np.ascontiguousarray(point, np.float64), y, arrival)
        self.count += 1
        if self.tree.used[LEVELS] > 3 * math.log2(self.count + 2) + 12:
            self._rebuild()
        return row

    def add_many(self, points: F64) -> I32:
        """Add points without keys and return their rows; a large addition rebuilds the tree."""
        if len(points) <= self.count // 4:
            return np.array([self.add(point) for point in points], np.int32)
        rows, old, _, _ = self.columns()
        reused = [self._free.pop() for _ in range(min(len(self._free), len(points)))]
        first = self.count + len(self._free) + len(reused)
        fresh = np.arange(first, first + len(points) - len(reused))
        new = np.concatenate([np.array(reused, np.int32), fresh]).astype(np.int32)
        self.count += len(points)
        both = np.concatenate([old, points])
        self._lay_out(both, np.concatenate([rows, new]).astype(np.int32), *_NO_KEYS, self.rows)
        return new

    def remove(self, row: int) -> None:
        """Remove a point."""
        delete(self.table, row)
        self._free.append(row)
        self.count -= 1
        if self.count < self._built // 2:
            self._rebuild()

    def change(self, row: int, y: float) -> None:
        """Set the y of a point."""
        rekey(self.table, row, y)

    def change_many(self, rows: npt.ArrayLike, ys: npt.ArrayLike) -> None:
        """Set the ys of points."""
        rekey_many(self.table, np.asarray(rows, np.int32), np.asarray(ys, np.float64))

    def _rebuild(self) -> None:
        row, points, ys, arrivals = self.columns()
        self._lay_out(points, row, ys, arrivals, len(self.tree.home))

    def columns(self) -> tuple[I32, F64, F64, I64]:
        """Return row, coordinates, y and arrival of all points, in the order of the tree."""
        entries = np.flatnonzero(self.tree.row >= 0)
        tree = self.tree
        if not self._keyed:
            return tree.row[entries], tree.at[entries], *_NO_KEYS
        return tree.row[entries], tree.at[entries], tree.y[entries], tree.arrival[entries]

    def entry(self, row: int) -> int:
        """Return the entry of a row."""
        tree = self.tree
        block = ~int(tree.child[tree.home[row]])
        while True:
            slots = np.flatnonzero(tree.row[LEAF * block : LEAF * block + LEAF] == row)
            if len(slots):
                return LEAF * block + int(slots[0])
            block = int(tree.after[block])

    def of(self, rows: npt.ArrayLike) -> tuple[F64, F64, I64]:
        """Return coordinates, y and arrival of points with keys."""
        which = np.asarray(rows, np.int32)
        at, ys = np.empty((len(which), self.d)), np.empty(len(which))
        arrivals = np.empty(len(which), np.int64)
        describe(self.table, which, at, ys, arrivals)
        return at, ys, arrivals

    def copy(self) -> Points:
        """Return the same points in the same rows."""
        twin = object.__new__(Points)
        twin.d, twin._keyed, twin.count, twin._built = self.d, self._keyed, self.count, self._built
        twin._free = [*self._free]
        twin._bundle = Bundle(KdTree._make(array.copy() for array in self.tree))
        return twin

    def best(self, lo: F64, hi: F64, k: int) -> I32:
        """Return the rows of the top k points in a box, the best first."""
        rows = np.empty(k, np.int32)
        n = best_in(self.table, lo, hi, rows, np.empty(k), np.empty(k, np.int64))
        return rows[:n]

    def within(self, bounds: F64) -> I32:
        """Return the entries of all points within bounds: lower, then upper limits of
        coordinates.
        """
        entries = np.empty(count_in(self.table, bounds, self.count), np.int32)
        entries_in(self.table, bounds, entries)
        return entries

    def within_any(self, tiles: F64) -> I32:
        """Return the rows of all points within one of these bounds."""
        marks = np.zeros(self.rows, np.bool_)
        mark_within(self.table, tiles, np.empty(self.count, np.int32), marks)
        return np.flatnonzero(marks).astype(np.int32)

    @property
    def memory(self) -> int:
        """Bytes of all arrays."""
        return self._bundle.memory
