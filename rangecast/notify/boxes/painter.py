"""Calls the kernels that write the tiles of changes over boxes, and makes room for them."""

from __future__ import annotations

import math

import numpy as np

from rangecast.kernels.arrays import F64, I32
from rangecast.kernels.bundle import Bundle
from rangecast.notify.boxes.batch import find_needs, merge_needs
from rangecast.notify.boxes.dense import paint_dense
from rangecast.notify.boxes.points import Points
from rangecast.notify.boxes.regions import Tiles
from rangecast.notify.boxes.rivals import Rivals
from rangecast.notify.boxes.sparse import TOO_MANY, paint_sparse

FEW = 24
"""Interests that hold an object, up to which their lists are worked out one by one."""
MOST_DENSE = 1 << 14
"""Boxes of a change, beyond which Paint-Dense gives it to Paint-Sparse."""


_PIECE = 1 << 14
"""Interests whose lists are worked out in one call."""


class BoxPainter:
    """Writes tiles for lists of k objects over d attributes."""

    def __init__(self, k: int, d: int, *, dense: bool):
        self._k, self._d = k, d
        self._dense = dense
        self._rivals = Bundle(Rivals.of(d))
        self._tiles, self._out = (Bundle(Tiles.of(d, 1 << 10)) for _ in range(2))
        self._most = Bundle(Tiles.of(d, MOST_DENSE)) if dense else None
        self.few = FEW
        self.work = np.zeros(6, np.int64)

    def paint(self, objects: Points, interests: Points, row: int, y: float) -> tuple[I32, F64]:
        """Return who must hear of a change that isn't made yet: rows of objects, and tiles.

        The changed object comes first, as -1.
        """
        if self._most is not None:
            n = paint_dense(
                objects.table, row, y, self._k, self._rivals.table, self._most.table, self.work
            )
            if n >= 0:
                found = self._most.arrays
                return found.rival[:n].copy(), found.bounds[:n].copy()
            self.work[TOO_MANY] += 1
        return self.affected(objects, interests, row, y, exposes=True)

    def affected(
        self, objects: Points, interests: Points, row: int, y: float, *, exposes: bool
    ) -> tuple[I32, F64]:
        """Return the same by Paint-Sparse; without `exposes`, for the object itself alone."""
        while True:
            n = paint_sparse(
                objects.table,
                interests.table,
                row,
                y,
                exposes,
                self._k,
                self.few,
                self._rivals.table,
                self._tiles.table,
                self._out.table,
                self.work,
            )
            if n >= 0:
                found = self._out.arrays
                return found.rival[:n].copy(), found.bounds[:n].copy()
            room = 4 * len(self._tiles.arrays.rival)
            self._tiles, self._out = (Bundle(Tiles.of(self._d, room)) for _ in range(2))

    def concerned(self, objects: Points, interests: Points, row: int, y: float) -> I32:
        """Return the entries of all interests whose list an object is in at this y."""
        if y == math.inf:
            return np.zeros(0, np.int32)
        _, tiles = self.affected(objects, interests, row, y, exposes=False)
        return np.concatenate([np.zeros(0, np.int32), *(interests.within(one) for one in tiles)])

    def paint_batch(
        self, after: Points, before: Points, interests: Points, entries: I32, olds: F64
    ) -> tuple[I32, F64]:
        """Return what a batch comes to for these interests: rows of objects, and tiles.

        `olds` are the old values of objects that changed, by row, and NaN where nothing did.
        """
        k, pieces = self._k, []
        for start in range(0, len(entries), _PIECE):
            some = entries[start : start + _PIECE]
            whose, what = (np.empty(2 * k * len(some), np.int32) for _ in range(2))
            tables = after.table, interests.table
            n = find_needs(before.table, *tables, some, olds, k, whose, what, self.work)
            pieces.append((whose[:n], what[:n]))
        if not pieces:
            return np.zeros(0, np.int32), np.zeros((0, 4 * self._d))
        whose, what = map(np.concatenate, zip(*pieces, strict=True))
        sent, back = np.unique(what, return_inverse=True)
        _, ys, arrivals = after.of(sent)
        worse = ys > olds[sent]  # no if nothing changed
        order = np.lexsort((-arrivals, np.where(worse, -ys, 0), ~worse))
        place = np.argsort(order)
        by_object = np.lexsort((whose, place[back]))
        whose, what = whose[by_object], what[by_object]
        room = len(what) + 1
        tiles, out = (Bundle(Tiles.of(self._d, room)) for _ in range(2))
        n = merge_needs(interests.table, whose, what, tiles.table, out.table, self.work)
        return out.arrays.rival[:n].copy(), out.arrays.bounds[:n].copy()
