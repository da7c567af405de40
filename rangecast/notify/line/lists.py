"""The lists of all interests on a line, updated by messages: for verification and measurement."""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import opened
from rangecast.kernels.jit import jit
from rangecast.notify.line.objects import Objects
from rangecast.notify.line.objects_line import Line, best_of
from rangecast.notify.line.tree import LEAF, STACK, Tree, rows_within
from rangecast.notify.subscriber import InterestLists, apply_message


@jit
def _deliver(
    tree_table: I64,
    row: I32,
    arrival: I64,
    y: F64,
    tile: F64,
    arrivals: I64,
    ys: F64,
    reached: I32,
    received: I64,
    stack: I32,
) -> None:
    """Apply messages to the lists that they reach, and count them for each list."""
    tree = opened(tree_table, Tree)
    for i in range(len(arrival)):
        l0, r1 = np.nextafter(tile[i, 0], np.inf), np.nextafter(tile[i, 3], -np.inf)
        n = rows_within(tree, row, l0, tile[i, 1], tile[i, 2], r1, reached, stack)
        for j in range(n):
            received[reached[j]] += 1
            apply_message(arrivals, ys, reached[j], arrival[i], y[i])


@jit
def _look_up(
    line_table: I64, tree_table: I64, row: I32, nodes: int, k: int, arrivals: I64, ys: F64
) -> None:
    """Compute the list of every interest from the objects."""
    line, tree = opened(line_table, Line), opened(tree_table, Tree)
    slots = np.empty(k, np.int32)
    for node in range(nodes):
        if tree.child[node] >= 0:
            continue
        first = LEAF * ~tree.child[node]
        for e in range(first, first + tree.size[node]):
            mine = row[e]
            n = best_of(line, tree.low_l[e], tree.low_r[e], k, slots, ys[mine], arrivals[mine])
            arrivals[mine, n:] = -1
            ys[mine, n:] = np.inf


class Lists(InterestLists):
    """The lists of all interests on a line."""

    def apply(self, arrival: I64, y: F64, tile: F64) -> None:
        """Apply messages given by these columns; the lowest y ranks first."""
        _, row, _ = self.interests.entries()
        reached, stack = np.empty(self.interests.count, np.int32), np.empty(STACK, np.int32)
        _deliver(
            self.interests.table,
            row,
            arrival,
            y,
            tile,
            self.arrivals,
            self.ys,
            reached,
            self.received,
            stack,
        )

    def reached(self, tile: F64) -> I32:
        """Return the rows of the lists that messages with these tiles reach."""
        inside = np.stack(
            [np.nextafter(tile[:, 0], np.inf), *tile.T[1:3], np.nextafter(tile[:, 3], -np.inf)], 1
        )
        rows = [self.interests.within(*ends) for ends in inside.tolist()]
        return np.concatenate([np.zeros(0, np.int32), *rows])

    def _look_up(self, objects: Objects) -> None:
        _, row, nodes = self.interests.entries()
        k, table = self.ys.shape[1], self.interests.table
        _look_up(objects.table, table, row, nodes, k, self.arrivals, self.ys)
