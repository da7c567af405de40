"""Painter over boxes: calls the kernels that write tiles, and provides room."""

from __future__ import annotations

import math

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import Bundle
from rangecast.notify.boxes.batch import find_needs, tiles_of_needs
from rangecast.notify.boxes.dense import paint_dense
from rangecast.notify.boxes.points import Points
from rangecast.notify.boxes.regions import Tiles, holding
from rangecast.notify.boxes.rivals import COMPARED, Rivals
from rangecast.notify.boxes.search import count_in
from rangecast.notify.boxes.sparse import REGIONS, TOO_MANY, find_tiles, merge_tiles

_LIST = 120
"""Comparisons with rivals, times d, that take as long as computing a list; measured."""
_FEWEST = 16
"""Number of interests around an object up to which lists are always computed one by one."""
_TRIED, _TURN = 8, 64
"""Changes that try the other method at first, and one in 64 later, to measure its cost."""
MAX_DENSE = 1 << 14
"""Maximum boxes of a change; beyond it Paint-Dense falls back to Paint-Sparse."""


_PIECE = 1 << 14
"""Number of interests whose lists are computed in one call."""


class BoxPainter:
    """Painter of tiles for lists of k objects over d attributes."""

    def __init__(self, k: int, d: int, *, dense: bool):
        self._k, self._d = k, d
        self._dense = dense
        self._rivals = Bundle(Rivals.of(d))
        self._tiles, self._out = (Bundle(Tiles.of(d, 1 << 10)) for _ in range(2))
        self._most = Bundle(Tiles.of(d, MAX_DENSE)) if dense else None
        self.fixed: int | None = None
        """Replaces `few`, to compare both methods."""
        self._turn = 0
        self.work = np.zeros(7, np.int64)

    @property
    def few(self) -> int:
        """Number of interests around an object up to which their lists are computed one by one.

        Beyond that, gathering rivals has been cheaper on average.
        """
        if self.fixed is not None:
            return self.fixed
        painted = int(self.work[REGIONS])
        if painted < _TRIED:
            return _FEWEST
        return max(_FEWEST, int(self.work[COMPARED]) // (painted * _LIST * self._d))

    def paint(self, objects: Points, interests: Points, row: int, y: float) -> tuple[I32, F64]:
        """Return the messages of a pending change: rows of objects, and tiles.

        The changed object comes first, as -1.
        """
        if self._most is not None:
            n = self._paint_dense(objects, row, y, self._most)
            if n >= 0:
                arrays = self._most.arrays
                order = np.argsort(arrays.rival[:n], kind="stable")
                return arrays.rival[order], arrays.bounds[order]
            self.work[TOO_MANY] += 1
        return self.affected(objects, interests, row, y, exposes=True)

    def _paint_dense(self, objects: Points, row: int, y: float, tiles: Bundle[Tiles]) -> int:
        """Write all tiles of a change; return their number, -1 if there is no room."""
        rivals = self._rivals.table
        return paint_dense(objects.table, row, y, self._k, rivals, tiles.table, self.work)

    def affected(
        self, objects: Points, interests: Points, row: int, y: float, *, exposes: bool
    ) -> tuple[I32, F64]:
        """Return the same by Paint-Sparse; without `exposes`, only for the object itself."""
        self._turn = (self._turn + 1) % _TURN
        few = _FEWEST if self.fixed is None and not self._turn else self.few
        while True:
            n = find_tiles(
                objects.table,
                interests.table,
                row,
                y,
                exposes,
                self._k,
                few,
                self._rivals.table,
                self._tiles.table,
                self.work,
            )
            if n >= 0:
                order = np.argsort(self._tiles.arrays.rival[:n], kind="stable")
                return self._merged(interests, order)
            self._room(4 * len(self._tiles.arrays.rival))

    def _room(self, tiles: int) -> None:
        """Make room for this many tiles."""
        if tiles > len(self._tiles.arrays.rival):
            self._tiles, self._out = (Bundle(Tiles.of(self._d, tiles)) for _ in range(2))

    def _merged(self, interests: Points, order: I64) -> tuple[I32, F64]:
        """Return tiles merged in this order, and then by their first bound.

        Tiles that the tree separated may be neighbours in the other order.
        """
        tiles, out = self._tiles, self._out
        n = merge_tiles(interests.table, tiles.table, order, out.table, self.work)
        if n > 2:
            rival = out.arrays.rival[:n]
            objects = np.cumsum(np.concatenate([[False], rival[1:] != rival[:-1]]))
            order = np.lexsort((out.arrays.bounds[:n, 0], objects))
            tiles, out = out, tiles
            n = merge_tiles(interests.table, tiles.table, order, out.table, self.work)
        return out.arrays.rival[:n].copy(), out.arrays.bounds[:n].copy()

    def near(self, interests: Points, position: F64) -> int:
        """Return the number of interests that contain a position."""
        within = np.empty(4 * self._d)
        holding(position, within)
        return count_in(interests.table, within, interests.count)

    def concerned(self, objects: Points, interests: Points, row: int, y: float) -> I32:
        """Return the entries of all interests whose lists contain an object with this y."""
        if y == math.inf:
            return np.zeros(0, np.int32)
        _, tiles = self.affected(objects, interests, row, y, exposes=False)
        return np.concatenate([np.zeros(0, np.int32), *(interests.within(tile) for tile in tiles)])

    def paint_batch(
        self,
        after: Points,
        before: Points,
        interests: Points,
        entries: I32,
        olds: F64,
        verified: tuple[I32, I32],
    ) -> tuple[I32, F64]:
        """Return the messages of a batch for these interests: rows of objects, and tiles.

        olds       the old values of objects that changed, by row, and NaN where nothing did
        verified   pairs of an interest and an object that is sent to it, of boxes that objects are
                   verified in
        """
        k, pieces = self._k, [verified]
        for start in range(0, len(entries), _PIECE):
            piece = entries[start : start + _PIECE]
            whose, what = (np.empty(2 * k * len(piece), np.int32) for _ in range(2))
            tables = after.table, interests.table
            n = find_needs(before.table, *tables, piece, olds, k, whose, what, self.work)
            pieces.append((whose[:n], what[:n]))
        whose, what = map(np.concatenate, zip(*pieces, strict=True))
        sent, back = np.unique(what, return_inverse=True)
        _, ys, arrivals = after.of(sent)
        worse = ys > olds[sent]  # no if nothing changed
        order = np.lexsort((-arrivals, np.where(worse, -ys, 0), ~worse))
        rank = np.argsort(order)
        return self.tiles_of_pairs(interests, whose, what, rank[back])

    def tiles_of_pairs(
        self, interests: Points, whose: I32, what: I32, rank: I64
    ) -> tuple[I32, F64]:
        """Return the messages of pairs of an interest, by its entry, and an object: rows of
        objects, and tiles. Objects are sent in the order of their rank.
        """
        by_object = np.lexsort((whose, rank))
        whose, what = whose[by_object], what[by_object]
        self._room(len(what))
        n = tiles_of_needs(interests.table, whose, what, self._tiles.table)
        return self._merged(interests, np.arange(n))
