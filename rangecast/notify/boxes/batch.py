"""Batches over boxes: many changes at once; a subscriber gets only their net effect.

`line/batch.py` defines the messages that an interest gets of a batch. Its list changes only if an
object that changed was in it, or is in it now: those interests are found as for single changes.
Then both lists of each of them, before and after, determine its messages.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import opened
from rangecast.kernels.jit import jit
from rangecast.notify.boxes.kdtree import LEAF, LEVELS, ZERO, KdTree, below
from rangecast.notify.boxes.regions import Tiles
from rangecast.notify.boxes.search import best_of
from rangecast.notify.boxes.sparse import LISTS, add_tile


@jit
def add_needs(
    receiver: int,
    was: I32,
    was_y: F64,
    was_arrival: I64,
    old: int,
    is_now: I32,
    now_y: F64,
    now_arrival: I64,
    new: int,
    olds: F64,
    k: int,
    whose: I32,
    what: I32,
    n: int,
) -> int:
    """Append the objects that are sent to one receiver, by its list before and after; return the
    number of pairs.

    `old` and `new` are the lengths of the lists; see `find_needs`.
    """
    for i in range(new):
        needed = not np.isnan(olds[is_now[i]])
        if not needed:
            needed = True
            for j in range(old):
                needed &= was[j] != is_now[i]
        if needed:
            whose[n], what[n] = receiver, is_now[i]
            n += 1
    for j in range(old):
        if np.isnan(olds[was[j]]):
            continue
        stays = False
        for i in range(new):
            stays |= is_now[i] == was[j]
        if not stays and (
            new < k or below(was_y[j], was_arrival[j], now_y[k - 1], now_arrival[k - 1])
        ):
            whose[n], what[n] = receiver, was[j]
            n += 1
    return n


@jit
def find_needs(
    before_table: I64,
    after_table: I64,
    tree_table: I64,
    entries: I32,
    olds: F64,
    k: int,
    whose: I32,
    what: I32,
    work: I64,
) -> int:
    """Write pairs of an entry and the row of an object that is sent to it; return their number.

    `olds` are the old values of objects that changed, by row, and NaN where nothing did. There is
    room for 2k pairs per entry.
    """
    before, after = opened(before_table, KdTree), opened(after_table, KdTree)
    tree = opened(tree_table, KdTree)
    d = before.at.shape[1]
    was, is_now = np.empty(k, np.int32), np.empty(k, np.int32)
    was_y, now_y = np.empty(k), np.empty(k)
    was_arrival, now_arrival = np.empty(k, np.int64), np.empty(k, np.int64)
    stack = np.empty(max(before.used[LEVELS], after.used[LEVELS]) + 2, np.int32)
    n = 0
    for e in entries:
        work[LISTS] += 2
        at = tree.at[e]
        old = best_of(before, at[:d], at[d:], k, was, was_y, was_arrival, stack)
        new = best_of(after, at[:d], at[d:], k, is_now, now_y, now_arrival, stack)
        before_list, after_list = (was, was_y, was_arrival), (is_now, now_y, now_arrival)
        n = add_needs(e, *before_list, old, *after_list, new, olds, k, whose, what, n)
    return n


@jit
def tiles_of_needs(tree_table: I64, whose: I32, what: I32, tiles_table: I64) -> int:
    """Write the tiles of pairs ordered by object, then entry; return their number."""
    tree, tiles = opened(tree_table, KdTree), opened(tiles_table, Tiles)
    first = n = ZERO
    for i in range(len(what)):
        first = n if i and what[i] != what[i - 1] else max(first, n - LEAF)
        n = add_tile(tiles, n, first, what[i], tree.at[whose[i]])
    return n
