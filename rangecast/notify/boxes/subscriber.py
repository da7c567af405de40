"""The subscriber's side over a space: a list per box of its filter, kept up to date by messages.

The top k of a filter with several boxes are the best among the top k of each box.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import opened
from rangecast.kernels.jit import jit
from rangecast.model.filters.filter import Filter
from rangecast.notify.boxes.kdtree import LEVELS, KdTree
from rangecast.notify.boxes.points import Points
from rangecast.notify.boxes.search import best_of, entries_within
from rangecast.notify.subscriber import Entry, InterestLists, ReceivingInterest, apply_message


class BoxInterest(ReceivingInterest):
    """One filter over a space and its list of the top k objects there."""

    def __init__(
        self,
        filter: Filter,  # noqa: A002
        k: int,
        *,
        keeps: int | None = None,
        entries: Sequence[Iterable[Entry]] = (),
        seq: int = -1,
        descending: bool = False,
    ):
        self.filter = filter
        lo, hi = filter.arrays()
        boxes = list(zip(lo.tolist(), hi.tolist(), strict=True))
        lists = entries or [()] * len(boxes)
        super().__init__(boxes, k, keeps=keeps, lists=lists, seq=seq, descending=descending)

    def _where(self) -> str:
        return repr(self.filter)


@jit
def _deliver(
    tree_table: I64,
    arrival: I64,
    y: F64,
    tile: F64,
    arrivals: I64,
    ys: F64,
    reached: I32,
    received: I64,
) -> None:
    """Apply messages to the lists that they reach, and count them for each list."""
    tree = opened(tree_table, KdTree)
    stack = np.empty(tree.used[LEVELS] + 2, np.int32)
    for i in range(len(arrival)):
        for j in range(entries_within(tree, tile[i], reached, stack)):
            row = tree.row[reached[j]]
            received[row] += 1
            apply_message(arrivals, ys, row, arrival[i], y[i])


@jit
def _look_up(objects_table: I64, tree_table: I64, k: int, arrivals: I64, ys: F64) -> None:
    """Compute the list of every box from the objects."""
    objects, tree = opened(objects_table, KdTree), opened(tree_table, KdTree)
    rows, d = np.empty(k, np.int32), objects.at.shape[1]
    stack = np.empty(objects.used[LEVELS] + 2, np.int32)
    for e in range(len(tree.row)):
        mine = tree.row[e]
        if mine < 0:
            continue
        at = tree.at[e]
        n = best_of(objects, at[:d], at[d:], k, rows, ys[mine], arrivals[mine], stack)
        arrivals[mine, n:] = -1
        ys[mine, n:] = np.inf


class BoxLists(InterestLists):
    """The lists of all boxes of interests."""

    def apply(self, arrival: I64, y: F64, tile: F64) -> None:
        """Apply messages given by these columns; the lowest y ranks first."""
        reached = np.empty(self.interests.count, np.int32)
        lists = self.arrivals, self.ys
        _deliver(self.interests.table, arrival, y, tile, *lists, reached, self.received)

    def reached(self, tile: F64) -> I32:
        """Return the rows of the lists that messages with these tiles reach."""
        entries = [self.interests.within(bounds) for bounds in tile]
        rows: I32 = self.interests.tree.row[np.concatenate([np.zeros(0, np.int32), *entries])]
        return rows

    def _look_up(self, objects: Points) -> None:
        k, table = self.ys.shape[1], self.interests.table
        _look_up(objects.table, table, k, self.arrivals, self.ys)
