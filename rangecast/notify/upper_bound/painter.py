"""Painter under an upper bound: calls the kernels that write tiles, and provides room."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rangecast.kernels.arrays import F64, I32
from rangecast.kernels.bundle import Bundle
from rangecast.notify.boxes.kdtree import LEAF
from rangecast.notify.boxes.painter import BoxPainter
from rangecast.notify.boxes.points import Points
from rangecast.notify.boxes.regions import Tiles
from rangecast.notify.boxes.sparse import merge_tiles
from rangecast.notify.upper_bound.affected_interests import AffectedLists
from rangecast.notify.upper_bound.dense import NO_INTERVALS, NO_TILES, paint_dense
from rangecast.notify.upper_bound.sparse import NO_INTERESTS, find_interests, paint_sparse
from rangecast.notify.upper_bound.sweep import SNAP, Sweep

MAX_BOXES = 1 << 18
"""Maximum boxes of a change; beyond it Paint-Dense falls back to Paint-Sparse."""


class UpperBoundPainter(BoxPainter):
    """Painter of tiles for interests with a range on `axis` and an upper bound on the other
    attribute.

    Their lower bounds there are at most `least`.
    """

    def __init__(self, k: int, axis: int, least: float, groups: int, *, dense: bool):
        super().__init__(k, 2, dense=dense)
        self._axis, self._groups = axis, groups
        self._lows = np.array([-math.inf, least])
        self._sweep = Bundle(Sweep.of(k, 64))
        self._held = Bundle(AffectedLists.of(1 << 6))
        self.work = np.zeros(SNAP + 1, np.int64)
        self.as_paper = False
        """Whether to query objects as often as the paper's Paint-Sparse, to count its calls."""

    def _with_room(self, kernel: Callable[[], int]) -> int:
        """Call a kernel until it has enough room; failed attempts aren't counted."""
        counted = self.work.copy()
        while True:
            n = kernel()
            if n == NO_INTERVALS:
                self._sweep = Bundle(Sweep.of(self._k, 2 * len(self._sweep.arrays.order)))
            elif n == NO_INTERESTS:
                self._held = Bundle(AffectedLists.of(4 * len(self._held.arrays.block)))
            else:
                return n
            self.work[:] = counted

    def _paint_dense(self, objects: Points, row: int, y: float, tiles: Bundle[Tiles]) -> int:
        counted = self.work.copy()
        n = self._with_room(
            lambda: paint_dense(
                objects.table,
                self._axis,
                self._lows,
                row,
                y,
                self._k,
                self._groups,
                self._sweep.table,
                tiles.table,
                self.work,
            )
        )
        if n != NO_TILES:
            return n
        self.work[:] = counted
        room = 4 * len(tiles.arrays.rival)
        if room > MAX_BOXES:
            return n
        self._most = Bundle(Tiles.of(2, room))
        return self._paint_dense(objects, row, y, self._most)

    def affected(
        self, objects: Points, interests: Points, row: int, y: float, *, exposes: bool
    ) -> tuple[I32, F64]:
        """Return the messages of a change by Paint-Sparse: rows of objects, and tiles."""
        assert exposes
        counted = self.work.copy()
        while True:
            n = self._with_room(
                lambda: paint_sparse(
                    objects.table,
                    interests.table,
                    self._axis,
                    row,
                    y,
                    self._k,
                    self._groups,
                    self.as_paper,
                    self._sweep.table,
                    self._held.table,
                    self._tiles.table,
                    self.work,
                )
            )
            if n == 0:
                return np.zeros(0, np.int32), np.zeros((0, 8))
            if n != NO_TILES:
                tiles = self._tiles.arrays  # those of one height are the likeliest to be merged
                order = np.lexsort((tiles.bounds[:n, 7 - self._axis], tiles.rival[:n]))
                table, out = self._tiles.table, self._out
                n = merge_tiles(interests.table, table, order, out.table, self.work)
                return out.arrays.rival[:n].copy(), out.arrays.bounds[:n].copy()
            self.work[:] = counted
            self._room(4 * len(self._tiles.arrays.rival))

    def concerned(self, objects: Points, interests: Points, row: int, y: float) -> I32:
        """Return the entries of all interests whose lists contain an object with this y."""
        if y == math.inf:
            return np.zeros(0, np.int32)
        n = self._with_room(
            lambda: find_interests(
                objects.table,
                interests.table,
                self._axis,
                row,
                y,
                self._k,
                self._sweep.table,
                self._held.table,
                self.work,
            )
        )
        held = self._held.arrays
        which, bit = np.nonzero(held.mask[:n, None] >> np.arange(LEAF) & 1)
        return (LEAF * held.block[which] + bit).astype(np.int32)
